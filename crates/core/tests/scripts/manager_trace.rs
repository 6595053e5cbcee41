//! How the Manager's actions are written in scripts.

use centrifuge_core::id::{Generation, Namespace};
use centrifuge_core::manager::{
    AdminError, ElectionCommand, ManagerAction, RoleName, Skip, StoreCommand, TrimNews,
};
use centrifuge_core::message::{Assign, ManagerToLookup, ManagerToOwner, OrderKind, UpdateBody};
use centrifuge_core::record::{Change, Reason, Record, SessionInfo};
use centrifuge_core::table::{Entry, PublishedEntry};
use centrifuge_core::trim::TrimSummary;

use super::words::{Aliases, show_kind, show_range, spaced, span};

/// Writes one action, `peer` being whom it is sent to.
pub(crate) fn show(action: &ManagerAction, peer: &str, names: &mut Aliases) -> Vec<String> {
    let line = match action {
        ManagerAction::ToOwner { message, .. } => return show_to_owner(message, peer, names),
        ManagerAction::ToLookup { message, .. } => return show_to_lookup(message, peer, names),
        ManagerAction::Election(ElectionCommand::Campaign { .. }) => "campaign".into(),
        ManagerAction::Election(ElectionCommand::Renew { term, .. }) => {
            format!("renew leadership of term {term}")
        }
        ManagerAction::Election(ElectionCommand::Resign { term }) => {
            format!("give up leadership of term {term}")
        }
        ManagerAction::Store(StoreCommand::Load { .. }) => "load the store".into(),
        ManagerAction::Store(StoreCommand::Append { index, batch, .. }) => {
            let mut lines = vec![format!("append {index} under term {}", batch.term)];
            lines.extend(batch.records.iter().map(|record| format!("     {}", show_record(record, names))));
            return lines;
        }
        ManagerAction::Store(StoreCommand::Compact { index, .. }) => format!("compact up to {index}"),
        // The batch was shown when it was appended.
        ManagerAction::Committed { .. } => return Vec::new(),
        ManagerAction::AdminReply { result: Ok(()), .. } => "operator: done".into(),
        ManagerAction::AdminReply { result: Err(AdminError::Settings(why)), .. } => {
            format!("operator: settings refused, {}", spaced(why))
        }
        ManagerAction::AdminReply { result: Err(AdminError::ExistsAsAnotherKind { kind }), .. } => {
            format!("operator: it exists as another kind, {kind}")
        }
        ManagerAction::AdminReply { result: Err(AdminError::KindIsFixed { kind }), .. } => {
            format!("operator: its kind is fixed, {kind}")
        }
        ManagerAction::AdminReply { result: Err(error), .. } => format!("operator: {}", spaced(error)),
        ManagerAction::RoleChanged(RoleName::Leader { term }) => format!("leads term {term}"),
        ManagerAction::RoleChanged(role) => spaced(role),
        ManagerAction::Skip(skip) => show_skip(skip, names),
        ManagerAction::Trimmed(news) => show_trimmed(news),
    };
    vec![line]
}

fn show_to_owner(message: &ManagerToOwner, peer: &str, names: &mut Aliases) -> Vec<String> {
    let line = match message {
        ManagerToOwner::Welcome(welcome) => {
            let talk = names.name(welcome.conversation, 'n');
            let kind = show_kind(&welcome.kind);
            format!("-> {peer} welcome {talk} to hello {}, term {}{kind}", welcome.number, welcome.term)
        }
        ManagerToOwner::Refused(refused) => format!("-> {peer} refused: {}", spaced(&refused.why)),
        ManagerToOwner::Unknown { conversation, .. } => {
            format!("-> {peer} unknown conversation {}", names.name(*conversation, 'n'))
        }
        ManagerToOwner::NotLeader { leader } => format!("-> {peer} not leader{}", led_by(leader.as_ref())),
        ManagerToOwner::Assign(assign) => return show_assign(assign, peer, names),
    };
    vec![line]
}

fn led_by(leader: Option<&centrifuge_core::id::ManagerId>) -> String {
    leader.map_or(String::new(), |leader| format!(", {leader} is"))
}

fn show_assign(assign: &Assign, peer: &str, names: &mut Aliases) -> Vec<String> {
    let Assign { seq, heard, applied, .. } = assign;
    let answer = if assign.wants_answer { ", answer wanted" } else { "" };
    let waits = if assign.drain_waits { ", drain waits" } else { "" };
    let drained = if assign.drained { ", drained" } else { "" };
    let evicted = if assign.evicted { ", evicted" } else { "" };
    let lease = span(assign.lease);
    let mut lines = vec![format!(
        "-> {peer} assign seq={seq} heard={heard} applied={applied} lease={lease}{answer}{waits}{drained}{evicted}"
    )];
    for order in assign.orders.iter() {
        let (kind, source) = match order.kind {
            OrderKind::Grant { source } => ("grant", source),
            OrderKind::Renewal => ("renew", None),
        };
        let source = source.map_or(String::new(), |source| format!(" with the state of gen={source}"));
        let recall = match &order.recall {
            None => String::new(),
            Some(recall) => {
                let to = recall.to.as_ref().map(|to| format!(" to {}", names.of_session(to.session)));
                format!(", recalled{}", to.unwrap_or_default())
            }
        };
        let lease = lease_text(order.generation, order.state_since);
        let merge = order.merge.map_or(String::new(), |merge| format!(" as gen={merge}"));
        lines.push(format!("     {kind} {} {lease}{merge}{source}{recall}", show_range(order.range)));
    }
    let repeat = assign.repeat.iter();
    lines.extend(
        repeat.map(|moved| {
            format!("     repeat that {} gen={} moved", show_range(moved.range), moved.generation)
        }),
    );
    lines
}

fn show_to_lookup(message: &ManagerToLookup, peer: &str, names: &mut Aliases) -> Vec<String> {
    let update = match message {
        ManagerToLookup::Update(update) => update,
        ManagerToLookup::NotLeader { leader } => {
            return vec![format!("-> {peer} not leader{}", led_by(leader.as_ref()))];
        }
        ManagerToLookup::UnknownNamespace { .. } => return vec![format!("-> {peer} unknown namespace")],
        ManagerToLookup::WrongKind { why, .. } => {
            return vec![format!("-> {peer} refused: wrong {}", spaced(why))];
        }
    };
    let log = names.name(update.log, 'g');
    let (what, entries): (String, &[PublishedEntry]) = match &update.body {
        UpdateBody::Unchanged { hold } => (format!("unchanged, for {}", span(*hold)), &[]),
        UpdateBody::Heartbeat { lsn } => (format!("heartbeat {log}:{lsn}"), &[]),
        UpdateBody::Changes { from, to, entries } => (format!("changes {log}:{from} to {log}:{to}"), entries),
        UpdateBody::Snapshot { lsn, entries } => (format!("snapshot {log}:{lsn}"), entries),
    };
    let kind = show_kind(&update.kind);
    let mut lines = vec![format!("-> {peer} {what}, echo {}{kind}", update.echo)];
    lines.extend(entries.iter().map(|entry| {
        let owner = entry.owner.as_ref().map(|owner| names.of_session(owner.session));
        let owner = owner.as_deref().unwrap_or("nobody");
        let lease = lease_text(entry.generation, entry.state_since);
        format!("     {} {owner} {lease}{}", show_range(entry.range), quarantined(entry.quarantined))
    }));
    lines
}

/// Writes a table entry.
pub(crate) fn show_entry(entry: &Entry, names: &mut Aliases) -> String {
    let owner = entry.owner.map_or("nobody".into(), |owner| names.of_session(owner));
    let recall = match entry.recall {
        None => String::new(),
        Some(recall) => {
            format!(
                ", recalled{}",
                recall.to.map_or(String::new(), |to| format!(" to {}", names.of_session(to)))
            )
        }
    };
    let lease = lease_text(entry.generation, entry.state_since);
    format!("{owner} {lease}{recall}{}", quarantined(entry.quarantined))
}

fn quarantined(is: bool) -> &'static str {
    if is { ", quarantined" } else { "" }
}

/// The lease, and the age of the state where it is not the lease's own.
fn lease_text(generation: Generation, state_since: Generation) -> String {
    if state_since == generation {
        format!("gen={generation}")
    } else {
        format!("gen={generation} since={state_since}")
    }
}

fn show_record(record: &Record, names: &mut Aliases) -> String {
    let (namespace, change, reason) = match record {
        Record::LeaderStarted { leader_hold } => {
            return format!("a leader starts, to be waited for {}", span(*leader_hold));
        }
        Record::LeaderSettled => return "earlier leaders are over".into(),
        Record::LeaderResigned => return "the leader resigns".into(),
        Record::Namespace { namespace, change, reason } => (namespace, change, reason),
    };
    let reason = match reason {
        Reason::Operator(words) if words.is_empty() => "operator".into(),
        Reason::Operator(words) => format!("operator, {words}"),
        reason => spaced(reason),
    };
    format!("{}{}: {reason}", prefix(namespace), show_change(change, names))
}

fn show_change(change: &Change, names: &mut Aliases) -> String {
    match change {
        Change::Created { kind, .. } => format!("namespace created{}", show_kind(kind)),
        Change::Removed => "namespace removed".into(),
        Change::Configured { settings } => {
            format!("configured with lease {}, hold {}", span(settings.lease), span(settings.hold))
        }
        Change::HoldSettled => "longer holds are over".into(),
        Change::SessionStarted { session, info } => {
            format!("{} starts{}", names.of_session(*session), show_info(info))
        }
        Change::SessionChanged { session, info } => {
            format!("{} is now{}", names.of_session(*session), show_info(info))
        }
        Change::SessionEnded { session } => format!("{} ends", names.of_session(*session)),
        Change::Granted { range, generation, session, source, state_since } => {
            let session = names.of_session(*session);
            let since = state_since.map(|since| format!(" since={since}"));
            let state = source.map(|source| format!(" with the state of gen={source}"));
            let state = state.or(since).unwrap_or_default();
            format!("{} granted to {session} gen={generation}{state}", show_range(*range))
        }
        Change::Claimed { range, generation, state_since, session } => {
            let session = names.of_session(*session);
            format!("{} claimed by {session} {}", show_range(*range), lease_text(*generation, *state_since))
        }
        Change::Released { range, generation } => format!("{} gen={generation} is free", show_range(*range)),
        Change::Recalled { range, generation, to } => {
            let to = to.map_or(String::new(), |to| format!(" to {}", names.of_session(to)));
            format!("{} gen={generation} recalled{to}", show_range(*range))
        }
        Change::RecallCancelled { range, generation } => {
            format!("{} gen={generation} not recalled any more", show_range(*range))
        }
        Change::MergeBegun { range, generation } => {
            format!("{} is to be one lease gen={generation}", show_range(*range))
        }
        Change::Merged { range, generation } => {
            format!("{} is one lease gen={generation}", show_range(*range))
        }
        Change::Frozen => "frozen".into(),
        Change::Unfrozen => "not frozen any more".into(),
        Change::Pinned { range, to: Some(to) } => format!("{} belongs at {to}", show_range(*range)),
        Change::Pinned { range, to: None } => format!("{} belongs where it falls", show_range(*range)),
        Change::Quarantined { range, evidence } => {
            let died = evidence.iter().map(|death| {
                let (session, held, ago) =
                    (names.of_session(death.session), span(death.held), span(death.ago));
                format!("{session} gen={} {held} after the grant, {ago} ago", death.generation)
            });
            let died: Vec<String> = died.collect();
            format!("{} quarantined, having killed {}", show_range(*range), died.join("; "))
        }
        Change::Unquarantined { range } => format!("{} not quarantined any more", show_range(*range)),
    }
}

fn show_info(info: &SessionInfo) -> String {
    let mut text = String::new();
    if info.weight != 100 {
        text += &format!(" weight={}", info.weight);
    }
    if info.virtual_nodes != 64 {
        text += &format!(" nodes={}", info.virtual_nodes);
    }
    for (is, word) in [
        (info.drain_requested, " draining"),
        (info.drain_ordered, " drained by operator"),
        (info.evicted, " evicted"),
    ] {
        text += if is { word } else { "" };
    }
    text
}

fn show_trimmed(news: &TrimNews) -> String {
    let moves = news.moves.iter().map(|(reason, tally)| format!("{} {}", tally.ranges, reason.as_str()));
    let moves: Vec<String> = moves.collect();
    let moves = if moves.is_empty() { "nothing".to_owned() } else { moves.join(", ") };
    let TrimSummary { peak_before, peak_after, .. } = news.summary;
    format!("trim {}moves {moves}: peak {peak_before} to {peak_after} permille", prefix(&news.namespace))
}

fn show_skip(skip: &Skip, names: &mut Aliases) -> String {
    match skip {
        Skip::Message { session, why } => {
            format!("skip message of {}: {}", names.of_session(*session), spaced(why))
        }
        Skip::Settling { namespace } => format!("skip {}grants: settling", prefix(namespace)),
        Skip::DrainWaits { namespace, owner } => {
            format!("skip {}drain of {owner}: nobody else can take its ranges", prefix(namespace))
        }
        Skip::Frozen { namespace } => format!("skip {}moves: frozen", prefix(namespace)),
        Skip::MovesFull { namespace } => {
            format!("skip {}moves: as many as may are under way", prefix(namespace))
        }
        Skip::Load { namespace, owner, why } => {
            format!("skip {}load of {owner}: {}", prefix(namespace), spaced(why))
        }
        Skip::Trim { namespace, why } => {
            format!("skip {}load: {}", prefix(namespace), why.as_str().replace('-', " "))
        }
        Skip::Claim { namespace, session, range, generation, why } => {
            let session = names.of_session(*session);
            let keys = show_range(*range);
            format!(
                "skip {}claim of {session} to {keys} gen={generation}: {}",
                prefix(namespace),
                spaced(why)
            )
        }
        Skip::ManyDeaths { namespace } => format!("skip {}quarantine: many deaths", prefix(namespace)),
        Skip::QuarantineFull { namespace } => {
            format!("skip {}quarantine: as many keys as may are in it", prefix(namespace))
        }
        Skip::GenerationsUsedUp { namespace } => {
            format!("skip {}grants: generations used up", prefix(namespace))
        }
    }
}

/// Names every namespace but the usual one.
fn prefix(namespace: &Namespace) -> String {
    if namespace.as_str() == "pool" { String::new() } else { format!("{namespace}: ") }
}
