//! Values with every kind of record, change and reason at least once.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use centrifuge_core::id::{Generation, Namespace, Nonce, OwnerName, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::namespace_kind::{KeyPrefix, Keys, Mode, NamespaceKind};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::record::{Batch, Change, DeathEvidence, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;

/// When the backup was taken.
pub(super) const BACKUP_TAKEN_AT_MICROS: u64 = 1_794_790_426_570_894;

pub(super) fn time(micros: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

/// What the batch, and a little more, adds up to.
pub(super) fn group() -> ManagerState {
    let mut group = ManagerState::default();
    group.apply(&batch());
    let gone = about("gone", Change::Removed, Reason::Operator("no longer used".into()));
    group.apply(&Batch { term: Term(12), records: vec![gone, Record::LeaderResigned] });
    assert_eq!((group.namespaces.len(), group.removed.len()), (1, 1));
    group
}

/// The same with a namespace that is not what every one was at first.
pub(super) fn group_of_kinds() -> ManagerState {
    let mut group = group();
    let created = records().into_iter().filter(|(name, _)| *name == "created-ordered");
    let records = created.map(|(_, record)| record).collect();
    group.apply(&Batch { term: Term(13), records });
    assert_eq!(group.namespaces.len(), 2);
    group
}

fn ordered() -> NamespaceKind {
    let prefix = KeyPrefix::new(b"user/\xff").expect("short");
    NamespaceKind { keys: Keys::Ordered(prefix), mode: Mode::Affinity }
}

/// All records but the leader's last, in one batch.
pub(super) fn batch() -> Batch {
    let records = records().into_iter().filter(|(name, _)| !AFTER.contains(name)).map(|(_, record)| record);
    Batch { term: Term(11), records: records.collect() }
}

/// What the batch does not contain: the end, what is in no store, and what is younger than the batch's file.
const AFTER: [&str; 14] = [
    "created-ordered",
    "leader-resigned",
    "removed",
    "created-above",
    "claimed",
    "merge-begun",
    "merged",
    "granted-of-one-age",
    "session-changed-evicted",
    "session-changed-drain-ordered",
    "quarantined",
    "unquarantined",
    "configured-death",
    "granted-suspected",
];

/// Every record, with a name of its own.
pub(super) fn records() -> Vec<(&'static str, Record)> {
    let created = Change::Created {
        kind: Default::default(),
        settings: Arc::new(settings()),
        log: Nonce(7),
        floor: Generation::ZERO,
    };
    let mut records = vec![
        ("leader-started", Record::LeaderStarted { leader_hold: Duration::from_millis(10_834) }),
        ("leader-settled", Record::LeaderSettled),
        ("created-gone", about("gone", created, Reason::Operator("for a day".into()))),
    ];
    let all = [namespace_changes(), session_changes(), lease_changes(), operator_changes()];
    records.extend(
        all.into_iter().flatten().map(|(name, change, reason)| (name, about("presence", change, reason))),
    );
    records.push(("leader-resigned", Record::LeaderResigned));
    let created = Change::Created {
        kind: Default::default(),
        settings: Arc::new(settings()),
        log: Nonce(7),
        floor: Generation(1 << 60),
    };
    records.push(("created-above", about("presence", created, Reason::Operator("named".into()))));
    let claimed = Change::Claimed {
        range: range(0, 99),
        generation: Generation(9),
        state_since: Generation(8),
        session: session(1),
    };
    records.push(("claimed", about("presence", claimed, Reason::Claimed)));
    let (keys, generation) = (range(0, 99), Generation(12));
    let begun = Change::MergeBegun { range: keys, generation };
    records.push(("merge-begun", about("presence", begun, Reason::Neighbours)));
    let merged = Change::Merged { range: keys, generation };
    records.push(("merged", about("presence", merged, Reason::Reported)));
    let of_one_age = Change::Granted {
        range: keys,
        generation: Generation(11),
        session: session(1),
        source: None,
        state_since: Some(Generation(10)),
    };
    records.push(("granted-of-one-age", about("presence", of_one_age, Reason::Unowned)));
    let evicted = SessionInfo { evicted: true, ..info("server-3", false) };
    let evicted = Change::SessionChanged { session: session(3), info: evicted };
    records.push(("session-changed-evicted", about("presence", evicted, Reason::Operator("hung".into()))));
    let created = Change::Created {
        kind: ordered(),
        settings: Arc::new(settings()),
        log: Nonce(7),
        floor: Generation::ZERO,
    };
    records.push(("created-ordered", about("users", created, Reason::Operator("created".into()))));
    records.extend(
        quarantines().into_iter().map(|(name, change, reason)| (name, about("presence", change, reason))),
    );
    records.push(("removed", about("gone", Change::Removed, Reason::Operator("no longer used".into()))));
    records
}

type Named = (&'static str, Change, Reason);

/// Settings as the files have them, whatever the defaults are today.
fn settings() -> Settings {
    Settings {
        lease: Duration::from_secs(60),
        hold: Duration::from_secs(65),
        renewal: Duration::from_secs(15),
        answer_allowance: Duration::from_secs(10),
        migration_timeout: Duration::from_secs(60),
        recall_timeout: Duration::from_secs(10),
        min_owners: 1,
        settle: Duration::from_secs(10),
        max_moves: 256,
        max_owners: 4096,
        virtual_nodes: 64,
        partitioner: PartitionerKind::ConsistentHash,
        load_policy: LoadPolicyKind::TenPercent,
        load_interval: Duration::from_secs(60),
        max_load_changes: 4,
        log_span: Duration::from_secs(300),
        heartbeat: Duration::from_secs(10),
        churn_budget: 100,
        max_ranges_per_owner: 64,
        imbalance: 1_050,
        death_window: Duration::from_secs(30),
        quarantine: Duration::from_secs(3_600),
    }
}

fn namespace_changes() -> Vec<Named> {
    let other_settings = Settings {
        lease: Duration::new(3, 500_000_001),
        hold: Duration::from_secs(4),
        min_owners: 3,
        partitioner: PartitionerKind::Fixed,
        load_policy: LoadPolicyKind::Off,
        ..settings()
    };
    let words = Reason::Operator("kürzer".into());
    vec![
        (
            "created",
            Change::Created {
                kind: Default::default(),
                settings: Arc::new(settings()),
                log: Nonce(0xabcd << 96 | 1),
                floor: Generation::ZERO,
            },
            Reason::Joined,
        ),
        ("configured", Change::Configured { settings: Arc::new(other_settings) }, words),
        ("hold-settled", Change::HoldSettled, Reason::TimePassed),
    ]
}

fn session_changes() -> Vec<Named> {
    let started = |number: u128, draining| {
        let info = info(&format!("server-{number}"), draining);
        Change::SessionStarted { session: session(number), info }
    };
    let changed = Change::SessionChanged { session: session(2), info: info("server-2", true) };
    let ordered = SessionInfo { drain_ordered: true, ..info("server-3", false) };
    let ordered = Change::SessionChanged { session: session(3), info: ordered };
    vec![
        ("session-started", started(1, false), Reason::Joined),
        ("session-started-taken-over", started(2, false), Reason::TakenOver),
        ("session-started-draining", started(3, true), Reason::LoadBalanced),
        ("session-changed", changed, Reason::Reported),
        ("session-changed-drain-ordered", ordered, Reason::Operator("maintenance".into())),
        ("session-ended", Change::SessionEnded { session: session(3) }, Reason::Left),
    ]
}

fn lease_changes() -> Vec<Named> {
    let half = u64::MAX / 2;
    let granted = |first, last, generation, to, source: Option<u64>| Change::Granted {
        range: range(first, last),
        generation: Generation(generation),
        session: session(to),
        source: source.map(Generation),
        state_since: None,
    };
    let recalled = |range, generation, to| Change::Recalled { range, generation: Generation(generation), to };
    let released = |range, generation| Change::Released { range, generation: Generation(generation) };
    let (low, high) = (range(0, half), range(half + 1, u64::MAX));
    let cancelled = Change::RecallCancelled { range: low, generation: Generation(1) };
    vec![
        ("granted", granted(0, half, 1, 1, None), Reason::Unowned),
        ("granted-high", granted(half + 1, u64::MAX, 2, 1, None), Reason::Unowned),
        ("recalled", recalled(low, 1, None), Reason::Repartitioned),
        ("recall-cancelled", cancelled, Reason::NoLongerWanted),
        ("recalled-to", recalled(high, 2, Some(session(2))), Reason::Draining),
        ("granted-with-state", granted(0, 9, 3, 2, Some(1)), Reason::Migrated),
        ("released", released(range(100, 199), 1), Reason::HoldExpired),
        ("released-dropped", released(range(300, 300), 1), Reason::Dropped),
        ("released-refused", released(range(400, 400), 9), Reason::RefusedByOwner),
        ("released-given-back", released(range(500, 500), 9), Reason::GivenBack),
        ("released-destination-gone", released(range(600, 600), 9), Reason::DestinationGone),
        ("recalled-timed-out", recalled(range(7, 8), 3, None), Reason::MigrationTimedOut),
    ]
}

fn operator_changes() -> Vec<Named> {
    let words = |words: &str| Reason::Operator(words.into());
    let to = Some(info("server-1", true).name);
    vec![
        ("unfrozen", Change::Unfrozen, words("go on")),
        ("frozen", Change::Frozen, words("maintenance")),
        ("pinned", Change::Pinned { range: range(0, 99), to }, words("")),
        ("unpinned", Change::Pinned { range: range(50, 99), to: None }, words("as before")),
    ]
}

/// What came with keys of death.
fn quarantines() -> Vec<Named> {
    let death = |number: u128| DeathEvidence {
        name: info(&format!("server-{number}"), false).name,
        session: session(number),
        generation: Generation(10 + number as u64),
        held: Duration::from_millis(1_500),
        ago: Duration::new(66, 7),
    };
    let evidence = (1..=4).map(death).collect();
    let suspected = Change::Granted {
        range: range(200, 299),
        generation: Generation(15),
        session: session(1),
        source: None,
        state_since: None,
    };
    let settings =
        Settings { death_window: Duration::ZERO, quarantine: Duration::from_secs(60), ..settings() };
    vec![
        ("quarantined", Change::Quarantined { range: range(100, 199), evidence }, Reason::KilledOwners),
        ("unquarantined", Change::Unquarantined { range: range(150, 150) }, Reason::TimePassed),
        ("granted-suspected", suspected, Reason::Suspected),
        (
            "configured-death",
            Change::Configured { settings: Arc::new(settings) },
            Reason::Operator("configured".into()),
        ),
    ]
}

/// The group with a range in quarantine, and settings of its own about that.
pub(super) fn quarantined_group() -> ManagerState {
    let mut group = group();
    let records = quarantines().into_iter().filter(|(name, ..)| *name != "unquarantined");
    let records = records.map(|(_, change, reason)| about("presence", change, reason)).collect();
    group.apply(&Batch { term: Term(12), records });
    let stored = group.namespaces.values().next().expect("a namespace");
    assert!(stored.table.iter().any(|(keys, entry)| entry.quarantined && keys == range(100, 199)));
    group
}

fn about(namespace: &str, change: Change, reason: Reason) -> Record {
    Record::Namespace { namespace: Namespace::new(namespace).expect("a label"), change, reason }
}

fn session(number: u128) -> SessionId {
    SessionId(Nonce(number << 100 | number))
}

fn range(first: u64, last: u64) -> KeyRange {
    KeyRange::new(Key(first), Key(last)).expect("in order")
}

fn info(name: &str, draining: bool) -> SessionInfo {
    SessionInfo {
        name: OwnerName::new(name).expect("a name"),
        url: "http://10.0.0.1:8080".into(),
        weight: 150,
        virtual_nodes: 64,
        drain_requested: draining,
        drain_ordered: false,
        evicted: !draining,
    }
}
