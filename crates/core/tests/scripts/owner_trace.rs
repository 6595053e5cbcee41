//! How the Owner's actions are written in scripts.

use centrifuge_core::id::{Generation, ManagerId};
use centrifuge_core::message::{OwnerToManager, Report};
use centrifuge_core::owner::{OwnerAction, Renumbered, Revocation};

use super::words::{Aliases, show_expected, show_range, spaced};

/// Writes one action.
pub(crate) fn show(action: &OwnerAction, names: &mut Aliases) -> Vec<String> {
    let line = match action {
        OwnerAction::ToManager { to, message: OwnerToManager::Hello(hello) } => {
            let takeover = if hello.takes_over_previous { ", takes over" } else { "" };
            let formerly = hello.formerly.map(|earlier| format!(", formerly {}", names.of_session(earlier)));
            let formerly = formerly.unwrap_or_default();
            let session = names.of_session(hello.session);
            format!(
                "-> {to} hello {} from {session}, name {}, term {}{takeover}{formerly}{}",
                hello.number,
                hello.name,
                hello.term,
                show_expected(hello.expects)
            )
        }
        OwnerAction::ToManager { to, message: OwnerToManager::Report(report) } => {
            return show_report(to, report, names);
        }
        OwnerAction::Granted(grants) => {
            return grants
                .iter()
                .map(|grant| {
                    let state = grant.source.map_or("empty".into(), |source| format!("as of lease {source}"));
                    let since = since(grant.generation, grant.state_since);
                    format!("granted {} gen={}{since}, {state}", show_range(grant.range), grant.generation)
                })
                .collect();
        }
        OwnerAction::Renumbered(renumbered) => {
            let one = |lease: &Renumbered| {
                format!("renumbered {} gen={} from gen={}", show_range(lease.range), lease.to, lease.from)
            };
            return renumbered.iter().map(one).collect();
        }
        OwnerAction::Revoked(revoked) => {
            let one = |gone: &Revocation| {
                format!("revoked {} gen={}: {}", show_range(gone.range), gone.generation, spaced(&gone.why))
            };
            return revoked.iter().map(one).collect();
        }
        OwnerAction::StartTransfer { transfer, range, generation, to, .. } => {
            let to = names.of_session(to.session);
            format!("copy t{} {} gen={generation} to {to}", transfer.0, show_range(*range))
        }
        OwnerAction::Freeze { transfer, range, generation, to } => {
            let then = match to {
                Some(to) => format!("send the rest to {}", names.of_session(to.session)),
                None => "give it back".into(),
            };
            format!("freeze t{} {} gen={generation}, then {then}", transfer.0, show_range(*range))
        }
        OwnerAction::StopTransfer(transfer) => format!("stop t{}", transfer.0),
        OwnerAction::DiscardImport { range } => format!("discard the copy of {}", show_range(*range)),
        OwnerAction::ImportNoted { range, source } => {
            format!("note the copy of {} gen={source}", show_range(*range))
        }
        OwnerAction::ImportRefused { range, .. } => format!("refuse the copy of {}", show_range(*range)),
        OwnerAction::SessionChanged(session) => format!("goes on as {}", names.of_session(*session)),
        OwnerAction::Drained => "drained".into(),
        OwnerAction::Undrained => "not drained any more".into(),
        OwnerAction::Left => "left".into(),
        OwnerAction::JoinRefused(why) => format!("join refused: {}", spaced(why)),
        OwnerAction::Joined => "joined".into(),
    };
    vec![line]
}

fn show_report(to: &ManagerId, report: &Report, names: &mut Aliases) -> Vec<String> {
    let talk = names.name(report.conversation, 'n');
    let (seq, heard, applied) = (report.seq, report.heard, report.applied);
    let mut lines = vec![format!("-> {to} report {talk} seq={seq} heard={heard} applied={applied}")];
    lines.extend(report.held.iter().map(|held| {
        let since = since(held.generation, held.state_since);
        format!("     holds {} gen={}{since}", show_range(held.range), held.generation)
    }));
    for release in &report.released {
        let to = release.clean_to.map(|to| format!(", its state at {}", names.of_session(to)));
        let to = to.unwrap_or_default();
        let warrant = if release.warrant.is_some() { ", warranted" } else { "" };
        let lease = format!("{} gen={}", show_range(release.range), release.generation);
        lines.push(format!("     released {lease}{to}{warrant}"));
    }
    let refusals = report.refused.iter();
    lines.extend(refusals.map(|r| format!("     refused {} gen={}", show_range(r.range), r.generation)));
    let imports = report.imports.iter();
    lines.extend(
        imports.map(|copy| format!("     has a copy of {} gen={}", show_range(copy.range), copy.source)),
    );
    let loads = report.loads.iter();
    lines.extend(loads.map(|load| format!("     load {} {}", show_range(load.range), load.load)));
    let wishes = [(report.draining, "draining"), (report.leaving, "leaving")];
    lines.extend(wishes.iter().filter(|(wish, _)| *wish).map(|(_, word)| format!("     {word}")));
    if report.weight != 100 {
        lines.push(format!("     weight {}", report.weight));
    }
    lines
}

/// The age of the state, where it is not the lease's own.
pub(crate) fn since(generation: Generation, state_since: Generation) -> String {
    if state_since == generation { String::new() } else { format!(" since={state_since}") }
}
