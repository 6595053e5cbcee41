//! Values of everything that is stored.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Namespace, Nonce, OwnerName, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::namespace_kind::{KeyPrefix, Keys, Mode, NamespaceKind};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::record::{Batch, Change, DeathEvidence, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

pub fn batch() -> impl Strategy<Value = Batch> {
    (number(), records()).prop_map(|(term, records)| Batch { term: Term(term), records })
}

pub fn records() -> impl Strategy<Value = Vec<Record>> {
    vec(record(), 0..6)
}

/// A group that batches add up to, with one namespace or more and whatever else the batches did.
pub fn group() -> impl Strategy<Value = ManagerState> {
    (created(), vec(batch(), 0..30)).prop_map(|(first, batches)| {
        let mut group = ManagerState::default();
        group.apply(&Batch { term: Term(1), records: first });
        for batch in batches {
            group.apply(&batch);
        }
        group
    })
}

fn created() -> impl Strategy<Value = Vec<Record>> {
    vec((namespace(), kind(), settings(), nonce()), 1..4).prop_map(|all| {
        let record = |(namespace, kind, settings, log)| Record::Namespace {
            namespace,
            change: Change::Created { kind, settings, log, floor: Generation::ZERO },
            reason: Reason::Operator("begin".into()),
        };
        all.into_iter().map(record).collect()
    })
}

fn kind() -> impl Strategy<Value = NamespaceKind> {
    let prefix = vec(any::<u8>(), 0..=KeyPrefix::MAX_LEN);
    let prefix = prefix.prop_map(|bytes| KeyPrefix::new(&bytes).expect("short"));
    let keys = prop_oneof![Just(Keys::Hashed), prefix.prop_map(Keys::Ordered)];
    let mode = prop_oneof![Just(Mode::Exclusive), Just(Mode::Affinity)];
    (keys, mode).prop_map(|(keys, mode)| NamespaceKind { keys, mode })
}

pub fn record() -> impl Strategy<Value = Record> {
    prop_oneof![
        1 => duration().prop_map(|leader_hold| Record::LeaderStarted { leader_hold }),
        1 => Just(Record::LeaderSettled),
        1 => Just(Record::LeaderResigned),
        12 => (namespace(), change(), reason())
            .prop_map(|(namespace, change, reason)| Record::Namespace { namespace, change, reason }),
    ]
}

pub fn change() -> impl Strategy<Value = Change> {
    let few = prop_oneof![
        (kind(), settings(), nonce(), generation())
            .prop_map(|(kind, settings, log, floor)| Change::Created { kind, settings, log, floor }),
        Just(Change::Removed),
        settings().prop_map(|settings| Change::Configured { settings }),
        Just(Change::HoldSettled),
        Just(Change::Frozen),
        Just(Change::Unfrozen),
        (range(), option::of(owner())).prop_map(|(range, to)| Change::Pinned { range, to }),
    ];
    let sessions = prop_oneof![
        (session(), info()).prop_map(|(session, info)| Change::SessionStarted { session, info }),
        (session(), info()).prop_map(|(session, info)| Change::SessionChanged { session, info }),
        session().prop_map(|session| Change::SessionEnded { session }),
    ];
    let granted = (range(), generation(), session(), option::of(generation()), option::of(generation()))
        .prop_map(|(range, generation, session, source, state_since)| Change::Granted {
            range,
            generation,
            session,
            source,
            state_since,
        });
    let claimed = (range(), generation(), generation(), session()).prop_map(
        |(range, generation, state_since, session)| Change::Claimed {
            range,
            generation,
            state_since,
            session,
        },
    );
    let recalled = (range(), generation(), option::of(session()))
        .prop_map(|(range, generation, to)| Change::Recalled { range, generation, to });
    let of_lease = (range(), generation(), 0..4).prop_map(|(range, generation, which)| match which {
        0 => Change::Released { range, generation },
        1 => Change::RecallCancelled { range, generation },
        2 => Change::MergeBegun { range, generation },
        _ => Change::Merged { range, generation },
    });
    let quarantined = prop_oneof![
        (range(), vec(death(), 0..6))
            .prop_map(|(range, deaths)| Change::Quarantined { range, evidence: deaths.into() }),
        range().prop_map(|range| Change::Unquarantined { range }),
    ];
    // Boxed, because strategies are values, and one of all of these would not fit on a test's stack.
    let (few, sessions, granted) = (few.boxed(), sessions.boxed(), granted.boxed());
    let (claimed, recalled, of_lease) = (claimed.boxed(), recalled.boxed(), of_lease.boxed());
    let all = prop_oneof![5 => few, 3 => sessions, 6 => granted, 1 => claimed, 1 => recalled, 4 => of_lease];
    prop_oneof![20 => all.boxed(), 2 => quarantined.boxed()].boxed()
}

fn death() -> impl Strategy<Value = DeathEvidence> {
    (owner(), session(), generation(), duration(), duration()).prop_map(
        |(name, session, generation, held, ago)| DeathEvidence { name, session, generation, held, ago },
    )
}

pub fn reason() -> impl Strategy<Value = Reason> {
    let plain = vec![
        Reason::Joined,
        Reason::Left,
        Reason::HoldExpired,
        Reason::TakenOver,
        Reason::Dropped,
        Reason::RefusedByOwner,
        Reason::GivenBack,
        Reason::Migrated,
        Reason::DestinationGone,
        Reason::Unowned,
        Reason::Repartitioned,
        Reason::Draining,
        Reason::MigrationTimedOut,
        Reason::NoLongerWanted,
        Reason::Reported,
        Reason::LoadBalanced,
        Reason::TimePassed,
        Reason::Claimed,
        Reason::Neighbours,
        Reason::KilledOwners,
        Reason::Suspected,
    ];
    prop_oneof![
        4 => select(plain),
        1 => "[ -~äß漢]{0,20}".prop_map(|words| Reason::Operator(words.as_str().into())),
        1 => "[ -~]{0,40}".prop_map(|words| Reason::Balanced(words.as_str().into())),
    ]
}

pub fn settings() -> impl Strategy<Value = Arc<Settings>> {
    let durations = vec(duration(), 12);
    let sizes = vec(any::<usize>(), 4);
    let counts = any::<[u32; 4]>();
    let partitioner =
        select(vec![PartitionerKind::ConsistentHash, PartitionerKind::Fixed, PartitionerKind::Trim]);
    let load_policy = select(vec![LoadPolicyKind::TenPercent, LoadPolicyKind::Off]);
    (durations, sizes, counts, partitioner, load_policy).prop_map(|(d, n, c, p, l)| {
        Arc::new(Settings {
            lease: d[0],
            hold: d[1],
            renewal: d[2],
            answer_allowance: d[3],
            migration_timeout: d[4],
            recall_timeout: d[5],
            min_owners: n[0],
            settle: d[6],
            max_moves: n[1],
            max_owners: n[2],
            virtual_nodes: c[0],
            partitioner: p,
            load_policy: l,
            load_interval: d[7],
            max_load_changes: n[3],
            log_span: d[8],
            heartbeat: d[9],
            churn_budget: c[1],
            max_ranges_per_owner: c[2],
            imbalance: c[3],
            death_window: d[10],
            quarantine: d[11],
        })
    })
}

fn info() -> impl Strategy<Value = SessionInfo> {
    let flags = any::<(bool, bool, bool)>();
    (owner(), "[a-z:/.0-9]{0,20}", any::<u32>(), any::<u32>(), flags).prop_map(
        |(name, url, weight, virtual_nodes, (drain_requested, drain_ordered, evicted))| SessionInfo {
            name,
            url: url.as_str().into(),
            weight,
            virtual_nodes,
            drain_requested,
            drain_ordered,
            evicted,
        },
    )
}

/// Few, so that changes meet one another.
fn namespace() -> impl Strategy<Value = Namespace> {
    select(vec!["presence", "rooms", "n-3"]).prop_map(|name| Namespace::new(name).expect("a label"))
}

fn owner() -> impl Strategy<Value = OwnerName> {
    select(vec!["server-1", "server-2", "Server 3"]).prop_map(|name| OwnerName::new(name).expect("a name"))
}

fn session() -> impl Strategy<Value = SessionId> {
    prop_oneof![(0..4u128).prop_map(|few| SessionId(Nonce(few << 64 | few))), nonce().prop_map(SessionId)]
}

fn nonce() -> impl Strategy<Value = Nonce> {
    any::<u128>().prop_map(Nonce)
}

fn generation() -> impl Strategy<Value = Generation> {
    number().prop_map(Generation)
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..20u64, 3 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn range() -> impl Strategy<Value = KeyRange> {
    let key = || prop_oneof![any::<u64>(), 0..16u64, Just(u64::MAX)];
    prop_oneof![
        5 => (key(), key()).prop_map(|(a, b)| {
            KeyRange::new(Key(a.min(b)), Key(a.max(b))).expect("in order")
        }),
        1 => Just(KeyRange::ALL),
    ]
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..100_000u64).prop_map(Duration::from_millis),
        (any::<u64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
    ]
}
