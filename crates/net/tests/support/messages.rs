//! Arbitrary messages of the core, within what the schemas allow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{
    Generation, LoadDimension, Lsn, ManagerId, Namespace, Nonce, OwnerName, Secret, Seq, SessionId, Term, Url,
};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{LoadPolicyKind, MAX_QUANTILES, RangeLoad};
use centrifuge_core::message::{
    Assign, Destination, HeldLease, Hello, LeaseOrder, LookupRequest, ManagerToLookup, ManagerToOwner,
    MovedLease, OrderKind, OwnerToManager, Position, RecallOrder, Refusal, Refused, RefusedReason, Release,
    Report, Update, UpdateBody, Warrant, Welcome,
};
use centrifuge_core::namespace_kind::{KeyPrefix, Keys, KindMismatch, Mode, NamespaceKind};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::Settings;
use centrifuge_core::table::{PublishedEntry, PublishedOwner};
use centrifuge_net::credential;
use centrifuge_net::limits;
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;

pub(crate) fn namespace() -> impl Strategy<Value = Namespace> {
    "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?".prop_map(|name| Namespace::new(&name).expect("a label"))
}

pub(crate) fn owner_name() -> impl Strategy<Value = OwnerName> {
    "[^\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Cn}]{1,60}".prop_map(|name| OwnerName::new(&name).expect("a name"))
}

fn url() -> impl Strategy<Value = Url> {
    "[^\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}\\p{Cn}]{0,80}".prop_map(|url| Url::from(url.as_str()))
}

pub(crate) fn manager() -> impl Strategy<Value = ManagerId> {
    "[a-z0-9.-]{1,60}:[0-9]{1,5}".prop_map(|address| ManagerId::from(address.as_str()))
}

fn nonce() -> impl Strategy<Value = Nonce> {
    any::<u128>().prop_map(Nonce)
}

pub(crate) fn session() -> impl Strategy<Value = SessionId> {
    nonce().prop_map(SessionId)
}

pub(crate) fn range() -> impl Strategy<Value = KeyRange> {
    (any::<u64>(), any::<u64>()).prop_map(|(one, other)| {
        KeyRange::new(Key(one.min(other)), Key(one.max(other))).expect("ends in order")
    })
}

fn generation() -> impl Strategy<Value = Generation> {
    (1..=u64::MAX).prop_map(Generation)
}

fn seq() -> impl Strategy<Value = Seq> {
    (1..=u64::MAX).prop_map(Seq)
}

fn any_seq() -> impl Strategy<Value = Seq> {
    any::<u64>().prop_map(Seq)
}

fn term() -> impl Strategy<Value = Term> {
    any::<u64>().prop_map(Term)
}

fn lsn() -> impl Strategy<Value = Lsn> {
    any::<u64>().prop_map(Lsn)
}

fn length() -> impl Strategy<Value = Duration> {
    (1..=u64::MAX).prop_map(Duration::from_nanos)
}

pub(crate) fn owner_to_manager() -> impl Strategy<Value = OwnerToManager> {
    prop_oneof![hello().prop_map(OwnerToManager::Hello), report().prop_map(OwnerToManager::Report)]
}

fn hello() -> impl Strategy<Value = Hello> {
    let names = (namespace(), any::<[u8; 32]>(), any::<u64>(), owner_name(), url());
    (names, any::<bool>(), any::<u64>(), term(), kind()).prop_map(
        |((namespace, secret, number, name, url), takes_over_previous, age, term, kind)| Hello {
            namespace,
            session: credential::session_of(&Secret(secret)),
            secret: Secret(secret),
            number,
            name,
            url,
            takes_over_previous,
            formerly: None,
            age: Duration::from_nanos(age),
            term,
            expects: kind.expected(),
        },
    )
}

fn report() -> impl Strategy<Value = Report> {
    let names = (namespace(), session(), nonce(), seq(), any_seq(), any_seq());
    let lists = (held(), vec(release(), 0..4), vec(refusal(), 0..4), vec(load(), 0..6));
    let wishes = (any::<u64>(), any::<u32>(), any::<bool>(), any::<bool>(), load_dimension(), any::<u64>());
    (names, lists, wishes).prop_map(
        |(
            (namespace, session, conversation, seq, heard, applied),
            (held, released, refused, loads),
            (age, weight, draining, leaving, load_dimension, span),
        )| Report {
            namespace,
            session,
            conversation,
            seq,
            heard,
            applied,
            age: Duration::from_nanos(age),
            held,
            released,
            refused,
            imports: Vec::new(),
            loads,
            load_dimension,
            load_span: Duration::from_nanos(span),
            weight,
            draining,
            leaving,
        },
    )
}

/// A generation, and the one before it at which the state began.
fn numbers() -> impl Strategy<Value = (Generation, Generation)> {
    (generation(), generation()).prop_map(|(one, other)| (one.max(other), one.min(other)))
}

/// Leases on ranges in key order.
fn held() -> impl Strategy<Value = Vec<HeldLease>> {
    vec((any::<u64>(), numbers(), of(warrant())), 0..8).prop_map(|mut leases| {
        leases.sort_unstable_by_key(|(first, ..)| *first);
        leases.dedup_by_key(|(first, ..)| *first);
        let ends: Vec<u64> = leases.iter().skip(1).map(|(next, ..)| next - 1).chain([u64::MAX]).collect();
        let lease = |((first, (generation, state_since), warrant), last)| {
            let range = KeyRange::new(Key(first), Key(last)).expect("ends in order");
            HeldLease { range, generation, state_since, warrant }
        };
        leases.into_iter().zip(ends).map(lease).collect()
    })
}

fn warrant() -> impl Strategy<Value = Warrant> {
    (range(), length(), any::<u32>(), any::<[u8; 32]>())
        .prop_map(|(range, lease, virtual_nodes, code)| Warrant { range, lease, virtual_nodes, code })
}

fn release() -> impl Strategy<Value = Release> {
    (range(), numbers(), of(session()), of(warrant())).prop_map(
        |(range, (generation, state_since), clean_to, warrant)| Release {
            range,
            generation,
            clean_to,
            state_since,
            warrant,
        },
    )
}

fn moved() -> impl Strategy<Value = MovedLease> {
    (range(), generation()).prop_map(|(range, generation)| MovedLease { range, generation })
}

fn refusal() -> impl Strategy<Value = Refusal> {
    (range(), generation()).prop_map(|(range, generation)| Refusal { range, generation })
}

fn load() -> impl Strategy<Value = RangeLoad> {
    let heavy = btree_map(any::<u64>().prop_map(Key), any::<u64>(), 0..4);
    let quantiles = vec(any::<u64>().prop_map(Key), 0..=MAX_QUANTILES);
    let load = |(range, load, heavy, quantiles): (KeyRange, u64, BTreeMap<Key, u64>, Vec<Key>)| {
        let heavy = heavy.into_iter().collect();
        RangeLoad { range, load, heavy, quantiles }
    };
    (range(), any::<u64>(), heavy, quantiles).prop_map(load)
}

fn load_dimension() -> impl Strategy<Value = LoadDimension> {
    prop_oneof![Just("requests"), Just("cpu-ms"), Just("0")]
        .prop_map(|name| LoadDimension::new(name).expect("a name"))
}

pub(crate) fn manager_to_owner() -> impl Strategy<Value = ManagerToOwner> {
    prop_oneof![
        welcome().prop_map(ManagerToOwner::Welcome),
        refused().prop_map(ManagerToOwner::Refused),
        (session(), nonce())
            .prop_map(|(session, conversation)| ManagerToOwner::Unknown { session, conversation }),
        of(manager()).prop_map(|leader| ManagerToOwner::NotLeader { leader }),
        assign().prop_map(ManagerToOwner::Assign),
    ]
}

fn welcome() -> impl Strategy<Value = Welcome> {
    (namespace(), session(), any::<u64>(), nonce(), term(), kind()).prop_map(
        |(namespace, session, number, conversation, term, kind)| Welcome {
            namespace,
            session,
            number,
            conversation,
            term,
            kind,
        },
    )
}

/// What a namespace can be.
pub(crate) fn kind() -> impl Strategy<Value = NamespaceKind> {
    let prefix = prop::collection::vec(any::<u8>(), 0..=KeyPrefix::MAX_LEN);
    let prefix = prefix.prop_map(|bytes| KeyPrefix::new(&bytes).expect("short"));
    let keys = prop_oneof![Just(Keys::Hashed), prefix.prop_map(Keys::Ordered)];
    let mode = prop_oneof![Just(Mode::Exclusive), Just(Mode::Affinity)];
    (keys, mode).prop_map(|(keys, mode)| NamespaceKind { keys, mode })
}

fn refused() -> impl Strategy<Value = Refused> {
    let why = prop::sample::select(vec![
        RefusedReason::NameInUse,
        RefusedReason::UnknownNamespace,
        RefusedReason::Evicted,
        RefusedReason::TooManyOwners,
        RefusedReason::StaleTerm,
        RefusedReason::WrongKeys,
        RefusedReason::WrongMode,
    ]);
    (session(), any::<u64>(), term(), why, of(namespace()))
        .prop_map(|(session, number, term, why, namespace)| Refused { session, number, term, why, namespace })
}

fn assign() -> impl Strategy<Value = Assign> {
    let names = (namespace(), session(), nonce(), term(), seq(), any_seq(), any_seq());
    let rest = (length(), length(), vec(order(), 0..6), any::<bool>(), any::<bool>(), vec(moved(), 0..3));
    (names, rest).prop_map(
        |(
            (namespace, session, conversation, term, seq, heard, applied),
            (lease, renewal, orders, wants_answer, drain_waits, repeat),
        )| {
            Assign {
                namespace,
                session,
                conversation,
                term,
                seq,
                heard,
                applied,
                lease,
                renewal,
                orders: orders.into(),
                wants_answer,
                drain_waits,
                drained: false,
                void: Vec::new(),
                repeat,
                evicted: false,
            }
        },
    )
}

fn order() -> impl Strategy<Value = LeaseOrder> {
    let kind = prop_oneof![
        of(generation()).prop_map(|source| OrderKind::Grant { source }),
        Just(OrderKind::Renewal)
    ];
    let to =
        (session(), owner_name(), url()).prop_map(|(session, name, url)| Destination { session, name, url });
    let recall = of(of(to).prop_map(|to| RecallOrder { to }));
    (range(), numbers(), kind, of(generation()), recall, of(warrant())).prop_map(
        |(range, (generation, state_since), kind, merge, recall, warrant)| LeaseOrder {
            range,
            generation,
            state_since,
            kind,
            merge: merge.filter(|merge| kind == OrderKind::Renewal && *merge > generation),
            recall,
            warrant: warrant.map(Box::new),
        },
    )
}

pub(crate) fn lookup_request() -> impl Strategy<Value = LookupRequest> {
    let position = of((nonce(), lsn()).prop_map(|(log, lsn)| Position { log, lsn }));
    (namespace(), nonce(), seq(), position, term(), kind()).prop_map(
        |(namespace, lookup, seq, position, term, kind)| {
            let expects = kind.expected();
            LookupRequest { namespace, lookup, seq, position, term, expects }
        },
    )
}

pub(crate) fn manager_to_lookup() -> impl Strategy<Value = ManagerToLookup> {
    prop_oneof![
        4 => update().prop_map(ManagerToLookup::Update),
        1 => of(manager()).prop_map(|leader| ManagerToLookup::NotLeader { leader }),
        1 => (term(), nonce(), seq())
            .prop_map(|(term, lookup, echo)| ManagerToLookup::UnknownNamespace { term, lookup, echo }),
        1 => (term(), nonce(), seq(), prop_oneof![Just(KindMismatch::Keys), Just(KindMismatch::Mode)], of(namespace()))
            .prop_map(|(term, lookup, echo, why, namespace)| ManagerToLookup::WrongKind { term, lookup, echo, why, namespace }),
    ]
}

pub(crate) fn update() -> impl Strategy<Value = Update> {
    (namespace(), nonce(), term(), seq(), nonce(), kind(), body()).prop_map(
        |(namespace, lookup, term, echo, log, kind, body)| Update {
            namespace,
            lookup,
            term,
            echo,
            log,
            kind,
            body,
        },
    )
}

fn body() -> impl Strategy<Value = UpdateBody> {
    prop_oneof![
        any::<u64>().prop_map(|hold| UpdateBody::Unchanged { hold: Duration::from_nanos(hold) }),
        lsn().prop_map(|lsn| UpdateBody::Heartbeat { lsn }),
        (lsn(), lsn(), entries()).prop_map(|(from, to, entries)| UpdateBody::Changes { from, to, entries }),
        (lsn(), entries()).prop_map(|(lsn, entries)| UpdateBody::Snapshot { lsn, entries }),
    ]
}

/// Entries of a few owners, as in a table: most owners come more than once.
fn entries() -> impl Strategy<Value = Arc<[PublishedEntry]>> {
    let owner = (session(), url()).prop_map(|(session, url)| PublishedOwner { session, url });
    vec(owner, 1..4).prop_flat_map(|owners| {
        let numbers = prop_oneof![Just((Generation::ZERO, Generation::ZERO)), numbers()];
        let entry = (range(), of(prop::sample::select(owners)), numbers, any::<bool>());
        let entry = entry.prop_map(|(range, owner, (generation, state_since), quarantined)| PublishedEntry {
            range,
            owner,
            generation,
            state_since,
            quarantined,
        });
        vec(entry, 0..12).prop_map(Arc::from)
    })
}

/// Settings of whole milliseconds within the limits; whether they go together is not asked.
pub(crate) fn settings() -> impl Strategy<Value = Settings> {
    let longest = u64::try_from(limits::LONGEST_SETTING.as_millis()).expect("a year fits");
    let shortest = u64::try_from(limits::SHORTEST_LEASE.as_millis()).expect("a second fits");
    let lengths = vec((shortest..=longest).prop_map(Duration::from_millis), 12);
    let counts = vec(any::<u32>().prop_map(|count| count as usize), 7);
    let partitioner = prop::sample::select(vec![
        PartitionerKind::ConsistentHash,
        PartitionerKind::Fixed,
        PartitionerKind::Trim,
    ]);
    let load_policy = prop::sample::select(vec![LoadPolicyKind::TenPercent, LoadPolicyKind::Off]);
    (lengths, counts, 0..=limits::VIRTUAL_NODES, partitioner, load_policy).prop_map(
        |(lengths, counts, virtual_nodes, partitioner, load_policy)| Settings {
            lease: lengths[0],
            hold: lengths[1],
            renewal: lengths[2],
            answer_allowance: lengths[3],
            migration_timeout: lengths[4],
            recall_timeout: lengths[5],
            min_owners: counts[0],
            settle: lengths[6],
            max_moves: counts[1],
            max_owners: counts[2],
            virtual_nodes,
            partitioner,
            load_policy,
            load_interval: lengths[7],
            max_load_changes: counts[3],
            log_span: lengths[8],
            heartbeat: lengths[9],
            churn_budget: counts[4] as u32,
            max_ranges_per_owner: counts[5] as u32,
            imbalance: counts[6] as u32,
            death_window: lengths[10],
            quarantine: lengths[11],
        },
    )
}
