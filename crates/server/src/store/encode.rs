//! From what the machine knows to what is stored. Nothing here can fail: everything the machine knows can be stored.

use std::time::{Duration, SystemTime};

use centrifuge_core::id::{Generation, Namespace, Nonce, OwnerName, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::manager_state::{ManagerState, NamespaceState};
use centrifuge_core::namespace_kind::{Keys, Mode, NamespaceKind};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::record::{Batch, Change, DeathEvidence, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use centrifuge_core::table::Entry;
use centrifuge_net::proto::store::v1 as stored;
use stored::change::Kind as ChangeKind;
use stored::record::Kind as RecordKind;

/// A batch as it is stored.
#[must_use]
pub fn encode_batch(batch: &Batch) -> stored::Batch {
    stored::Batch { term: batch.term.0, records: batch.records.iter().map(record).collect() }
}

/// A whole group as it is stored.
#[must_use]
pub fn encode_group(group: &ManagerState) -> stored::Group {
    stored::Group {
        term: group.term.0,
        latest_leader_hold: some(group.latest_leader_hold),
        earlier_leaders_hold: some(group.earlier_leaders_hold),
        namespaces: group.namespaces.iter().map(|(name, stored)| namespace(name, stored)).collect(),
        removed: group.removed.iter().map(|(name, last)| removed(name, *last)).collect(),
    }
}

/// A reading of the wall clock as it is stored; what lies before 1970 becomes 1970.
#[must_use]
pub(super) fn encode_time(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn record(record: &Record) -> stored::Record {
    let kind = match record {
        Record::LeaderStarted { leader_hold } => {
            RecordKind::LeaderStarted(stored::LeaderStarted { leader_hold: some(*leader_hold) })
        }
        Record::LeaderSettled => RecordKind::LeaderSettled(stored::Nothing {}),
        Record::LeaderResigned => RecordKind::LeaderResigned(stored::Nothing {}),
        Record::Namespace { namespace, change: what, reason: why } => {
            RecordKind::Namespace(stored::NamespaceRecord {
                namespace: namespace.as_str().to_owned(),
                change: Some(stored::Change { kind: Some(change(what)) }),
                reason: Some(reason(why)),
            })
        }
    };
    stored::Record { kind: Some(kind) }
}

fn change(change: &Change) -> ChangeKind {
    match change {
        Change::Created { kind, settings: with, log, floor } => ChangeKind::Created(stored::Created {
            settings: Some(settings(with)),
            log: Some(nonce(*log)),
            floor: floor.0,
            kind: namespace_kind(kind),
        }),
        Change::Removed => ChangeKind::Removed(stored::Nothing {}),
        Change::Configured { settings: with } => ChangeKind::Configured(settings(with)),
        Change::HoldSettled => ChangeKind::HoldSettled(stored::Nothing {}),
        Change::SessionStarted { session, info } => {
            ChangeKind::SessionStarted(session_record(*session, info))
        }
        Change::SessionChanged { session, info } => {
            ChangeKind::SessionChanged(session_record(*session, info))
        }
        Change::SessionEnded { session } => ChangeKind::SessionEnded(nonce(session.0)),
        Change::Granted { range: keys, generation, session, source, state_since } => {
            ChangeKind::Granted(stored::Granted {
                range: Some(range(*keys)),
                generation: generation.0,
                session: Some(nonce(session.0)),
                source: source.map(|source| source.0),
                state_since: state_since.map(|since| since.0),
            })
        }
        Change::Claimed { range: keys, generation, state_since, session } => {
            ChangeKind::Claimed(stored::Claimed {
                range: Some(range(*keys)),
                generation: generation.0,
                state_since: state_since.0,
                session: Some(nonce(session.0)),
            })
        }
        Change::Released { range, generation } => ChangeKind::Released(lease(*range, *generation)),
        Change::Recalled { range: keys, generation, to } => ChangeKind::Recalled(stored::Recalled {
            range: Some(range(*keys)),
            generation: generation.0,
            to: to.map(|to| nonce(to.0)),
        }),
        Change::RecallCancelled { range, generation } => {
            ChangeKind::RecallCancelled(lease(*range, *generation))
        }
        Change::MergeBegun { range, generation } => ChangeKind::MergeBegun(lease(*range, *generation)),
        Change::Merged { range, generation } => ChangeKind::Merged(lease(*range, *generation)),
        Change::Frozen => ChangeKind::Frozen(stored::Nothing {}),
        Change::Unfrozen => ChangeKind::Unfrozen(stored::Nothing {}),
        Change::Pinned { range, to } => ChangeKind::Pinned(pin(*range, to.as_ref())),
        Change::Quarantined { range, evidence } => ChangeKind::Quarantined(quarantine(*range, evidence)),
        Change::Unquarantined { range: keys } => ChangeKind::Unquarantined(range(*keys)),
    }
}

fn reason(reason: &Reason) -> stored::Reason {
    use stored::ReasonKind as Kind;
    let kind = match reason {
        Reason::Operator(words) => {
            return stored::Reason { kind: Kind::Operator.into(), words: words.to_string() };
        }
        Reason::Balanced(words) => {
            return stored::Reason { kind: Kind::Balanced.into(), words: words.to_string() };
        }
        Reason::Joined => Kind::Joined,
        Reason::Left => Kind::Left,
        Reason::HoldExpired => Kind::HoldExpired,
        Reason::TakenOver => Kind::TakenOver,
        Reason::Dropped => Kind::Dropped,
        Reason::RefusedByOwner => Kind::RefusedByOwner,
        Reason::GivenBack => Kind::GivenBack,
        Reason::Migrated => Kind::Migrated,
        Reason::DestinationGone => Kind::DestinationGone,
        Reason::Unowned => Kind::Unowned,
        Reason::Repartitioned => Kind::Repartitioned,
        Reason::Draining => Kind::Draining,
        Reason::MigrationTimedOut => Kind::MigrationTimedOut,
        Reason::NoLongerWanted => Kind::NoLongerWanted,
        Reason::Reported => Kind::Reported,
        Reason::LoadBalanced => Kind::LoadBalanced,
        Reason::TimePassed => Kind::TimePassed,
        Reason::Claimed => Kind::Claimed,
        Reason::Neighbours => Kind::Neighbours,
        Reason::KilledOwners => Kind::KilledOwners,
        Reason::Suspected => Kind::Suspected,
    };
    stored::Reason { kind: kind.into(), words: String::new() }
}

fn namespace(name: &Namespace, from: &NamespaceState) -> stored::Namespace {
    stored::Namespace {
        name: name.as_str().to_owned(),
        log: Some(nonce(from.log)),
        lsn: from.lsn.0,
        settings: Some(settings(&from.settings)),
        longest_hold: some(from.longest_hold),
        last_generation: from.last_generation.0,
        sessions: from.sessions.iter().map(|(session, info)| session_record(*session, info)).collect(),
        table: from.table.iter().map(|(range, entry)| table_entry(range, entry)).collect(),
        frozen: from.frozen,
        pins: from.pins.iter().map(|(range, to)| pin(range, Some(to))).collect(),
        evicted: from.evicted.iter().map(|session| nonce(session.0)).collect(),
        kind: namespace_kind(&from.kind),
        quarantines: from.quarantines.iter().map(|known| quarantine(known.range, &known.evidence)).collect(),
    }
}

/// What every namespace was before there was a choice is not stored.
fn namespace_kind(kind: &NamespaceKind) -> Option<stored::NamespaceKind> {
    let keys = match kind.keys {
        Keys::Hashed => stored::KeyKind::Hashed,
        Keys::Ordered(_) => stored::KeyKind::Ordered,
    };
    let mode = match kind.mode {
        Mode::Exclusive => stored::Mode::Exclusive,
        Mode::Affinity => stored::Mode::Affinity,
    };
    let key_prefix = kind.keys.prefix().map_or_else(Vec::new, |prefix| prefix.as_bytes().to_vec());
    (*kind != NamespaceKind::default()).then(|| stored::NamespaceKind {
        keys: keys.into(),
        key_prefix,
        mode: mode.into(),
    })
}

fn quarantine(keys: KeyRange, evidence: &[DeathEvidence]) -> stored::Quarantine {
    let death = |death: &DeathEvidence| stored::Death {
        name: death.name.as_str().to_owned(),
        session: Some(nonce(death.session.0)),
        generation: death.generation.0,
        held: some(death.held),
        ago: some(death.ago),
    };
    stored::Quarantine { range: Some(range(keys)), deaths: evidence.iter().map(death).collect() }
}

fn removed(name: &Namespace, last: Generation) -> stored::RemovedNamespace {
    stored::RemovedNamespace { name: name.as_str().to_owned(), last_generation: last.0 }
}

fn table_entry(range: KeyRange, entry: &Entry) -> stored::TableEntry {
    stored::TableEntry {
        last: range.last().0,
        owner: entry.owner.map(|owner| nonce(owner.0)),
        generation: entry.generation.0,
        state_since: entry.state_since.0,
        source: entry.source.map(|source| source.0),
        recall: entry.recall.map(|recall| stored::Recall { to: recall.to.map(|to| nonce(to.0)) }),
        merge: entry.merge.map(|merge| merge.0),
    }
}

fn settings(from: &Settings) -> stored::Settings {
    let partitioner = match from.partitioner {
        PartitionerKind::ConsistentHash => stored::Partitioner::ConsistentHash,
        PartitionerKind::Fixed => stored::Partitioner::Fixed,
        PartitionerKind::Trim => stored::Partitioner::Trim,
    };
    let load_policy = match from.load_policy {
        LoadPolicyKind::TenPercent => stored::LoadPolicy::TenPercent,
        LoadPolicyKind::Off => stored::LoadPolicy::Off,
    };
    // As an earlier version would write it, where that says the same.
    let usual = Settings::default();
    let unless = |value: u32, usual: u32| (value != usual).then_some(value);
    let time = |value: Duration, usual: Duration| some(value).filter(|_| value != usual);
    stored::Settings {
        lease: some(from.lease),
        hold: some(from.hold),
        renewal: some(from.renewal),
        answer_allowance: some(from.answer_allowance),
        migration_timeout: some(from.migration_timeout),
        recall_timeout: some(from.recall_timeout),
        min_owners: from.min_owners as u64,
        settle: some(from.settle),
        max_moves: from.max_moves as u64,
        max_owners: from.max_owners as u64,
        virtual_nodes: from.virtual_nodes,
        partitioner: partitioner.into(),
        load_policy: load_policy.into(),
        load_interval: some(from.load_interval),
        max_load_changes: from.max_load_changes as u64,
        log_span: some(from.log_span),
        heartbeat: some(from.heartbeat),
        churn_budget: unless(from.churn_budget, usual.churn_budget),
        max_ranges_per_owner: unless(from.max_ranges_per_owner, usual.max_ranges_per_owner),
        imbalance: unless(from.imbalance, usual.imbalance),
        death_window: time(from.death_window, usual.death_window),
        quarantine: time(from.quarantine, usual.quarantine),
    }
}

fn session_record(session: SessionId, info: &SessionInfo) -> stored::SessionRecord {
    let info = stored::SessionInfo {
        name: info.name.as_str().to_owned(),
        url: info.url.as_str().to_owned(),
        weight: info.weight,
        virtual_nodes: info.virtual_nodes,
        drain_requested: info.drain_requested,
        drain_ordered: info.drain_ordered,
        evicted: info.evicted,
    };
    stored::SessionRecord { session: Some(nonce(session.0)), info: Some(info) }
}

fn pin(keys: KeyRange, to: Option<&OwnerName>) -> stored::Pin {
    stored::Pin { range: Some(range(keys)), to: to.map(|to| to.as_str().to_owned()) }
}

fn lease(keys: KeyRange, generation: Generation) -> stored::Lease {
    stored::Lease { range: Some(range(keys)), generation: generation.0 }
}

fn range(range: KeyRange) -> stored::Range {
    stored::Range { first: range.first().0, last: range.last().0 }
}

fn nonce(nonce: Nonce) -> stored::Nonce {
    stored::Nonce { high: (nonce.0 >> 64) as u64, low: nonce.0 as u64 }
}

fn some(duration: Duration) -> Option<stored::Duration> {
    Some(stored::Duration { seconds: duration.as_secs(), nanos: duration.subsec_nanos() })
}
