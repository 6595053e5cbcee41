//! Centrifuge §2 and §2.1, claim by claim: exclusive leases, the leader and its standbys, partitioning, load.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use centrifuge_core::id::{Generation, ManagerId, Namespace, Nonce, OwnerName, Seq, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{
    LoadDecision, LoadMemory, LoadPolicy, LoadPolicyKind, LoadRound, LoadSkip, OwnerLoad, RangeLoad,
    VirtualNodeChange,
};
use centrifuge_core::lookup::LookupEvent;
use centrifuge_core::manager::{AdminCommand, ManagerAction, ManagerEvent, MessageSkip, Skip};
use centrifuge_core::message::{
    Destination, LookupRequest, ManagerToLookup, ManagerToOwner, OwnerToManager, Position, UpdateBody,
};
use centrifuge_core::owner::{OwnerAction, OwnerEvent, TransferId};
use centrifuge_core::partition::{ConsistentHash, PartitionOwner, Partitioner};
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::{Change, Record};
use centrifuge_core::settings::Settings;
use centrifuge_core::table::{Entry, Recall};
use centrifuge_core::time::Instant;
use support::*;

// ---- §2: leases and ranges

/// Centrifuge §2, PRS §2. After every step the cluster itself asserts that no key has two owners; this test makes keys
/// change hands in every way there is.
#[test]
fn centrifuge_2_every_lease_is_exclusive() {
    let mut cluster = Cluster::with(Options { managers: 2, ..Options::default() });
    let at_most_one = |cluster: &Cluster| some_keys().all(|key| cluster.owners_of(key).len() <= 1);
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let c = cluster.owner("c");
    cluster.isolate(a);
    for _ in 0..80 {
        cluster.run_for(secs(1));
        assert!(at_most_one(&cluster));
    }
    cluster.reconnect(a);
    cluster.run_for(secs(5));
    cluster.crash(b);
    cluster.run_for(secs(70));
    let b_again = cluster.owner("b");
    let c_again = cluster.owner_with("c", Clock::TRUE, |config| config.takes_over_previous = true);
    cluster.run_for(secs(5));
    cluster.crash(M1);
    cluster.tell(a, OwnerEvent::Drain);
    cluster.run_for(secs(120));
    let had_keys = |owner: Node| {
        let upcalls = cluster.upcalls(owner, Instant::ZERO);
        upcalls.iter().any(|action| matches!(action, OwnerAction::Granted(_)))
    };
    assert!([a, b, c, b_again, c_again].into_iter().all(had_keys), "keys went through every hand");
    assert!(some_keys().all(|key| cluster.owners_of(key).len() == 1), "at rest every key has its one owner");
}

/// Centrifuge §2.
#[test]
fn centrifuge_2_each_owner_has_64_virtual_nodes() {
    let names = ["a", "b", "c"];
    for (settings, virtual_nodes) in
        [(Settings::default(), 64), (Settings { virtual_nodes: 8, ..Settings::default() }, 8)]
    {
        let mut cluster = Cluster::with(Options { settings, ..Options::default() });
        let owners = cluster.owners(names);
        let stored = cluster.stored();
        assert!(stored.sessions.values().all(|info| info.virtual_nodes == virtual_nodes));
        let mut nodes: BTreeMap<Key, Node> = BTreeMap::new();
        for (name, owner) in names.into_iter().zip(owners) {
            let name = OwnerName::new(name).expect("a name");
            let positions = (0..virtual_nodes).map(|index| ConsistentHash::position(&name, index));
            nodes.extend(positions.map(|position| (position, owner)));
        }
        assert_eq!(nodes.len(), 3 * virtual_nodes as usize);
        // A virtual node has the keys up to its position; nothing but a node, or the seam, ends a range.
        for (position, owner) in &nodes {
            assert_eq!(cluster.entry(*position).owner, Some(cluster.session(*owner)));
        }
        let ends = || cluster.table().iter().map(|(range, _)| range.last());
        assert!(ends().all(|last| last == Key::MAX || nodes.contains_key(&last)));
        let lengths: BTreeSet<u128> = cluster.table().iter().map(|(range, _)| range.key_count()).collect();
        assert_eq!(lengths.len(), cluster.table().len(), "no two ranges are equally long");
    }
}

// ---- §2.1.1: leader and standbys

/// Centrifuge §2.1.1.
#[test]
fn centrifuge_2_1_1_a_change_is_committed_before_the_answer() {
    let mut cluster = Cluster::sliced();
    let lookup = cluster.lookup();
    let mark = cluster.mark();
    cluster.hold(M1, Node::Store);
    let a = cluster.owner("a");
    cluster.tell(M1, ManagerEvent::Admin { request: 77, command: freeze() });
    cluster.run_for(secs(3));
    // The lease is decided and on its way to the store; nobody acts on it, though everybody is answered.
    let append = cluster.take(M1, Node::Store);
    let Message::Request(ManagerAction::Append { batch, .. }) = &append.message else { panic!("an append") };
    assert!(batch.records.iter().any(|record| is_change(record, |c| matches!(c, Change::Granted { .. }))));
    let orders = |cluster: &Cluster| {
        let assigns = cluster.messages(M1, a, mark).filter_map(Envelope::as_assign);
        assigns.map(|assign| assign.orders.len()).collect::<Vec<_>>()
    };
    assert!(!orders(&cluster).is_empty() && orders(&cluster).iter().all(|count| *count == 0));
    assert!(cluster.held_keys(a).is_empty());
    assert_eq!(news(&cluster, lookup, mark), 0);
    assert!(!is_answered(&cluster, 77));
    // The store confirms: now, and only now, all of them are told.
    cluster.deliver(append);
    assert!(cluster.holds(a, KeyRange::ALL));
    assert_eq!(news(&cluster, lookup, mark), 1);
    // The operator's wish came while a batch was under way, and waits for a batch of its own.
    assert!(!is_answered(&cluster, 77));
    cluster.release(M1, Node::Store);
    assert!(is_answered(&cluster, 77) && cluster.stored().frozen);
}

fn freeze() -> AdminCommand {
    AdminCommand::Freeze { namespace: pool(), why: "a test".into() }
}

fn is_change(record: &Record, wanted: impl Fn(&Change) -> bool) -> bool {
    matches!(record, Record::Namespace { change, .. } if wanted(change))
}

fn news(cluster: &Cluster, lookup: Node, since: Instant) -> usize {
    let updates = cluster.messages(M1, lookup, since).filter_map(Envelope::as_update);
    updates.filter(|update| !matches!(update.body, UpdateBody::Heartbeat { .. })).count()
}

fn is_answered(cluster: &Cluster, wanted: u64) -> bool {
    let is_it = |action: &ManagerAction| matches!(action, ManagerAction::AdminReply { request, .. } if *request == wanted);
    cluster.noted.iter().any(|(_, _, action)| is_it(action))
}

/// Centrifuge §2.1.1.
#[test]
fn centrifuge_2_1_1_a_standby_only_names_the_leader() {
    let mut cluster = Cluster::sliced_with_managers(2);
    let (a, lookup) = (cluster.owner("a"), cluster.lookup());
    let mut report = cluster.latest(a, M1, |envelope| envelope.as_report().map(|_| envelope.clone()));
    report.to = M2;
    cluster.deliver(report);
    // It was told of an Owner's start and report and of a Lookup's request, and knows whom to name.
    let said: Vec<&Message> =
        cluster.sent_by(M2, Instant::ZERO).filter(|e| e.to == a).map(|e| &e.message).collect();
    let leader = Some(manager_id(0));
    let refers = |message: &&Message| {
        **message == Message::ToOwner(ManagerToOwner::NotLeader { leader: leader.clone() })
    };
    assert_eq!(said.len(), 2);
    assert!(said.iter().all(refers), "{said:?}");
    let to_lookup: Vec<_> = cluster.messages(M2, lookup, Instant::ZERO).map(|e| &e.message).collect();
    assert_eq!(to_lookup, [&Message::ToLookup(ManagerToLookup::NotLeader { leader: leader.clone() })]);
    cluster.run_for(secs(120));
    assert_eq!(cluster.messages(M2, Node::Store, Instant::ZERO).count(), 0, "it commits nothing");
    assert!(cluster.sent_by(M2, Instant::ZERO).all(|e| e.as_assign().is_none() && e.as_update().is_none()));
}

/// Centrifuge §2.1.1, PRS §4.4.
#[test]
fn centrifuge_2_1_1_a_standby_keeps_asking_for_the_leader_lease() {
    let mut cluster = Cluster::sliced_with_managers(3);
    let a = cluster.owner("a");
    let mark = cluster.mark();
    cluster.run_for(secs(60));
    for standby in [M2, M3] {
        let asked: Vec<Instant> =
            cluster.messages(standby, Node::Election, mark).map(|e| e.sent_at).collect();
        assert!(asked.len() >= 15, "{asked:?}");
        assert!(intervals(&asked).iter().all(|pause| *pause <= secs(4)), "{asked:?}");
    }
    assert_eq!(cluster.leader(), M1);
    cluster.crash(M1);
    // The old leader lease runs out, the next request wins: nobody helps.
    let took = cluster.run_until(secs(15), |cluster| cluster.leaders().next().is_some());
    assert!(took > secs(7), "not before the old leader lease is over: {took:?}");
    cluster.run_until(secs(40), |cluster| is_assigned_by(cluster, cluster.leader(), a));
}

/// Centrifuge §2.1.1.
#[test]
fn centrifuge_2_1_1_a_new_leader_goes_on_from_the_stored_state() {
    let mut cluster = Cluster::with(Options { managers: 2, ..Options::default() });
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    cluster.run_for(secs(20));
    let before = cluster.stored().clone();
    cluster.crash(M1);
    cluster.hold(Node::Store, M2);
    cluster.run_until(secs(20), |cluster| cluster.waiting(Node::Store, M2) > 0);
    let mark = cluster.mark();
    let mut hello = cluster.latest(a, M2, |e| Some(e.clone()));
    hello.sent_at = mark;
    cluster.deliver(hello);
    let refers = |e: &Envelope| matches!(e.message, Message::ToOwner(ManagerToOwner::NotLeader { .. }));
    assert!(cluster.messages(M2, a, mark).all(refers), "before it has read what is stored it does not lead");
    assert_eq!(cluster.messages(M2, a, mark).count(), 1);
    cluster.release(Node::Store, M2);
    assert_eq!(cluster.leader(), M2);
    let after = cluster.stored();
    assert_eq!((&after.sessions, &after.table), (&before.sessions, &before.table));
    assert_eq!((after.log, after.lsn), (before.log, before.lsn), "Lookups can go on, too");
    assert_eq!(after.last_generation, before.last_generation);
    let c = cluster.owner("c");
    cluster.run_until(secs(180), |cluster| !cluster.held_keys(c).is_empty());
    let new = cluster.table().of_session(cluster.session(c)).map(|(_, entry)| entry.generation);
    assert!(new.min() > Some(before.last_generation), "no number is used again");
    assert!(!cluster.held_keys(a).is_empty() && !cluster.held_keys(b).is_empty());
}

/// Centrifuge §2.1.1.
#[test]
fn centrifuge_2_1_1_a_new_leader_finishes_what_the_last_one_began() {
    let mut cluster = Cluster::sliced_with_managers(2);
    let a = cluster.owner("a");
    cluster.by_hand(a);
    let b = cluster.owner("b");
    let (_, high) = halves();
    let begun = cluster.entry(Key::MAX);
    assert_eq!(begun.recall, Some(Recall { to: Some(cluster.session(b)) }));
    cluster.crash(M1);
    cluster.run_until(secs(20), |cluster| cluster.leaders().next() == Some(M2));
    assert_eq!(cluster.entry(Key::MAX), begun, "the recall stands, under the same lease");
    cluster.run_until(secs(40), |cluster| is_assigned_by(cluster, M2, a) && is_assigned_by(cluster, M2, b));
    assert!(cluster.held_keys(b).is_empty());
    cluster.let_move(a);
    assert!(cluster.holds(b, high));
    let moved = cluster.entry(Key::MAX);
    assert_eq!((moved.source, moved.state_since), (Some(begun.generation), begun.state_since));
}

fn is_assigned_by(cluster: &Cluster, manager: Node, owner: Node) -> bool {
    cluster.messages(manager, owner, Instant::ZERO).any(|envelope| envelope.as_assign().is_some())
}

/// Centrifuge §2.1.1.
#[test]
fn centrifuge_2_1_1_the_same_events_give_the_same_actions() {
    let run = || {
        let mut cluster = Cluster::with(Options { managers: 2, ..Options::default() });
        let (a, b) = (cluster.owner("a"), cluster.owner("b"));
        cluster.lookup();
        cluster.isolate(a);
        cluster.run_for(secs(75));
        cluster.reconnect(a);
        cluster.crash(M1);
        cluster.run_for(secs(30));
        cluster.crash(b);
        cluster.run_for(secs(150));
        cluster
    };
    let (one, other) = (run(), run());
    assert!(one.sent.len() > 200 && one.store.log.len() > 5, "{} {}", one.sent.len(), one.store.log.len());
    assert_eq!(one.sent, other.sent);
    assert_eq!(one.store.log, other.store.log);
    assert_eq!((one.told, one.raised, one.noted), (other.told, other.raised, other.noted));
}

/// Centrifuge §2.1.1, PRS §4.4.
#[test]
fn centrifuge_2_1_1_requests_go_to_the_leader_alone_while_it_answers() {
    let mut cluster = Cluster::sliced_with_managers(3);
    let (a, lookup) = (cluster.owner("a"), cluster.lookup());
    let mark = cluster.mark();
    cluster.run_for(secs(600));
    for (node, at_least) in [(a, 40), (lookup, 20)] {
        assert!(cluster.messages(node, M1, mark).count() >= at_least);
        assert!(cluster.sent_by(node, mark).all(|envelope| envelope.to == M1));
    }
}

/// Centrifuge §2.1.1.
#[test]
fn centrifuge_2_1_1_a_silent_leader_makes_an_owner_ask_every_manager() {
    let mut cluster = Cluster::sliced_with_managers(3);
    let a = cluster.owner("a");
    cluster.run_for(secs(10));
    cluster.crash(M1);
    cluster.isolate(Node::Election);
    let mark = cluster.mark();
    cluster.run_for(secs(45));
    // Nobody leads, so it asks all of them, again and again.
    for manager in [M1, M2, M3] {
        assert!(hellos(&cluster, a, manager, mark) >= 4, "{manager:?}");
    }
    cluster.reconnect(Node::Election);
    let found =
        |cluster: &Cluster| cluster.leaders().next().is_some_and(|leader| is_assigned_by(cluster, leader, a));
    cluster.run_until(secs(10), found);
    let leader = cluster.leader();
    let mark = cluster.mark();
    cluster.run_for(secs(120));
    assert!(cluster.sent_by(a, mark).all(|envelope| envelope.to == leader && envelope.as_report().is_some()));
    assert!(cluster.sent_by(a, mark).count() >= 8);
}

fn hellos(cluster: &Cluster, owner: Node, manager: Node, since: Instant) -> usize {
    let is_hello = |e: &&Envelope| matches!(e.message, Message::FromOwner(OwnerToManager::Hello(_)));
    cluster.messages(owner, manager, since).filter(is_hello).count()
}

/// Centrifuge §2.1.1.
#[test]
fn centrifuge_2_1_1_a_changed_list_of_managers_is_used_at_once() {
    let mut cluster = Cluster::sliced_with_managers(2);
    let first: Arc<[ManagerId]> = [manager_id(0)].into();
    let both: Arc<[ManagerId]> = [manager_id(0), manager_id(1)].into();
    let a = cluster.owner_with("a", Clock::TRUE, |config| config.managers = first.clone());
    let lookup = cluster.lookup_with(|config| config.managers = first.clone());
    let generation = cluster.check_now(a, Key::MIN).expect("a lease");
    cluster.crash(M1);
    cluster.run_for(secs(40));
    assert_eq!(cluster.leader(), M2);
    assert!([a, lookup].into_iter().all(|node| cluster.messages(node, M2, Instant::ZERO).count() == 0));
    // The new Manager is put on the list: both find it before the lease, or contact, is lost.
    let mark = cluster.mark();
    cluster.tell(a, OwnerEvent::ManagersChanged(both.clone()));
    cluster.tell(lookup, LookupEvent::ManagersChanged(both));
    assert_eq!(cluster.messages(a, M2, mark).next().expect("a hello").sent_at, mark);
    cluster.run_for(secs(1));
    assert!(cluster.messages(M2, a, mark).any(|envelope| envelope.as_assign().is_some()));
    assert!(cluster.messages(M2, lookup, mark).any(|envelope| envelope.as_update().is_some()));
    cluster.run_for(secs(60));
    assert!(cluster.check_continuous(a, Key::MIN, generation));
}

// ---- §2.1.2: partitioning and leases

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_namespaces_share_nothing() {
    let mut cluster = Cluster::sliced();
    let other = Namespace::new("other").expect("a label");
    let settings = Arc::new(sliced());
    cluster.admin(AdminCommand::Create { namespace: other.clone(), settings }).expect("a second namespace");
    cluster.watched = false; // Two namespaces' keys are not the same keys.
    let a = cluster.owner("a");
    let lookup = cluster.lookup();
    let stranger = cluster.owner_with("a", Clock::TRUE, |config| config.namespace = other.clone());
    assert!(
        cluster.holds(a, KeyRange::ALL) && cluster.holds(stranger, KeyRange::ALL),
        "as if each were alone"
    );
    let before = cluster.stored_of(&other).clone();
    // Whatever happens in one, the other stays as it is ...
    let b = cluster.owner("b");
    cluster.crash(a);
    cluster.run_for(secs(100));
    assert!(cluster.holds(b, KeyRange::ALL));
    assert_eq!(cluster.stored_of(&other), &before);
    // ... and a message with the wrong name on it does nothing, in either direction.
    cluster.hold_both(stranger, M1);
    cluster.run_for(secs(20));
    let mut report = cluster.take(stranger, M1);
    report.report().namespace = pool();
    report.report().held.clear();
    let pool_before = cluster.stored().clone();
    cluster.deliver(report);
    assert_eq!(cluster.manager_machine(M1).counters().skipped[&MessageSkip::ForeignNonce], 1);
    let mut assign = cluster.latest(M1, b, |e| e.as_assign().map(|_| e.clone()));
    assign.to = stranger;
    assign.assign().session = cluster.session(stranger);
    cluster.deliver(assign);
    assert_eq!(cluster.owner_machine(stranger).counters().foreign, 1);
    let mut update = cluster.latest(M1, lookup, |e| e.as_update().map(|_| e.clone()));
    if let Message::ToLookup(ManagerToLookup::Update(update)) = &mut update.message {
        update.namespace = other.clone();
    }
    cluster.deliver(update);
    assert_eq!(cluster.lookup_machine(lookup).counters().other_namespace, 1);
    assert_eq!((cluster.stored(), cluster.stored_of(&other)), (&pool_before, &before));
    assert!(cluster.holds(stranger, KeyRange::ALL));
}

/// Centrifuge §2.1.2, PRS §4.1.
#[test]
fn centrifuge_2_1_2_every_leased_range_has_a_generation() {
    let mut cluster = Cluster::new();
    let check = |cluster: &Cluster| {
        let ranges: Vec<(KeyRange, Entry)> = cluster.table().iter().map(|(r, e)| (r, *e)).collect();
        assert_eq!((ranges[0].0.first(), ranges[ranges.len() - 1].0.last()), (Key::MIN, Key::MAX));
        assert!(ranges.windows(2).all(|pair| pair[0].0.touches(pair[1].0)), "every key has one entry");
        let leased = ranges.iter().filter(|(_, entry)| entry.owner.is_some());
        assert!(leased.clone().all(|(_, entry)| entry.generation > Generation::ZERO));
        leased.count()
    };
    assert_eq!(check(&cluster), 0);
    let [a, _, _] = cluster.owners(["a", "b", "c"]);
    assert!(check(&cluster) > 100);
    cluster.crash(a);
    cluster.run_for(secs(70));
    assert!(check(&cluster) > 50);
}

/// Centrifuge §2.1.2, PRS §2.
#[test]
fn centrifuge_2_1_2_a_join_recalls_only_what_the_new_owner_gets() {
    let mut cluster = Cluster::new();
    cluster.owners(["a", "b", "c"]);
    let (before, committed) = (cluster.table().clone(), cluster.store.log.len());
    let [d] = cluster.owners(["d"]);
    let gets = desired(&["a", "b", "c", "d"], 3);
    let mut recalled = RangeSet::new();
    for change in cluster.store.changes_after(committed) {
        if let Change::Recalled { range, to, .. } = change {
            assert_eq!(*to, Some(cluster.session(d)));
            recalled.insert(*range);
        }
    }
    assert_eq!(recalled, gets);
    assert_eq!(cluster.keys_of(d), gets);
    assert_eq!(cluster.held_keys(d), gets, "and it is granted all of it");
    // Whatever stays has the lease that it had.
    for range in RangeSet::all().difference(&gets).iter() {
        for (part, entry) in before.overlapping(range) {
            assert!(cluster.table().overlapping(part).all(|(_, now)| now == entry));
        }
    }
}

/// What consistent hashing gives to one of these Owners.
fn desired(names: &[&str], of: usize) -> RangeSet {
    let owner = |name: &&str| PartitionOwner {
        name: OwnerName::new(name).expect("a name"),
        virtual_nodes: 64,
        weight: 100,
    };
    let assignment = ConsistentHash.assign(&names.iter().map(owner).collect::<Vec<_>>());
    assignment.into_iter().filter(|(_, place)| *place == of).map(|(range, _)| range).collect()
}

/// Centrifuge §2.1.2, PRS §4.1.
#[test]
fn centrifuge_2_1_2_recalled_ranges_are_granted_one_by_one_as_they_come_free() {
    let mut cluster = Cluster::new();
    let [a, b] = cluster.owners(["a", "b"]);
    let (of_a, of_b) = (cluster.keys_of(a), cluster.keys_of(b));
    cluster.by_hand(a);
    cluster.by_hand(b);
    let mark = cluster.mark();
    let c = cluster.owner("c");
    cluster.run_for(secs(1));
    let gets = desired(&["a", "b", "c"], 2);
    assert!(cluster.held_keys(c).is_empty(), "everything is still in use");
    // One range comes free: it is granted alone.
    let (transfer, range, generation) =
        cluster.upcalls(a, mark).into_iter().find_map(start).expect("a recall");
    let to = cluster.session(c);
    cluster.tell(a, OwnerEvent::TransferReady(transfer));
    cluster.tell(c, OwnerEvent::ImportReady { range, source: generation, term: Term(1) });
    cluster.tell(a, OwnerEvent::TransferDone { transfer, to });
    assert_eq!(cluster.held_keys(c), RangeSet::from_ranges([range]));
    // Then all that one Owner had; the other has not moved at all.
    cluster.let_move(a);
    cluster.run_for(secs(2));
    assert_eq!(cluster.held_keys(c), gets.intersection(&of_a));
    assert_eq!(cluster.held_keys(b), of_b);
    cluster.let_move(b);
    cluster.run_for(secs(2));
    assert_eq!(cluster.held_keys(c), gets);
    assert!(gets.intersection(&of_a).len() > 10 && gets.intersection(&of_b).len() > 10);
}

fn start(action: &OwnerAction) -> Option<(TransferId, KeyRange, Generation)> {
    match action {
        OwnerAction::StartTransfer { transfer, range, generation, .. } => {
            Some((*transfer, *range, *generation))
        }
        _ => None,
    }
}

/// Centrifuge §2.1.2, PRS §4.1.
#[test]
fn centrifuge_2_1_2_the_ranges_of_an_owner_that_is_gone_go_to_the_others() {
    let removals: [fn(&mut Cluster, Node); 3] = [
        |cluster, b| cluster.crash(b),
        |cluster, b| cluster.tell(b, OwnerEvent::Leave),
        |cluster, _| {
            let owner = OwnerName::new("b").expect("a name");
            cluster
                .admin(AdminCommand::Evict { namespace: pool(), owner, why: "a test".into() })
                .expect("done");
        },
    ];
    for remove in removals {
        let mut cluster = Cluster::new();
        let [a, b, c] = cluster.owners(["a", "b", "c"]);
        let (before, of_b) = (cluster.table().clone(), cluster.keys_of(b));
        remove(&mut cluster, b);
        cluster.run_for(secs(70));
        assert_eq!(cluster.keys_of(a).union(&cluster.keys_of(c)), RangeSet::all());
        assert!([a, c].into_iter().all(|stays| !cluster.keys_of(stays).intersection(&of_b).is_empty()));
        for (range, entry) in before.iter().filter(|(_, entry)| entry.owner != Some(cluster.session(b))) {
            assert!(
                cluster.table().overlapping(range).all(|(_, now)| now == entry),
                "no range moves between those that stay"
            );
        }
    }
}

/// Centrifuge §2.1.2, PRS §4.1.
#[test]
fn centrifuge_2_1_2_the_change_log_forgets_after_five_minutes() {
    let mut cluster = Cluster::new();
    cluster.owners(["a", "b", "c"]);
    cluster.run_for(secs(600));
    let old = Position { log: cluster.stored().log, lsn: cluster.stored().lsn };
    cluster.pin(KeyRange::one(Key(7)), "a");
    cluster.pin(KeyRange::one(Key(7)), "b");
    assert!(cluster.stored().lsn > old.lsn);
    cluster.run_for(secs(300));
    let changes = ask(&mut cluster, old);
    assert!(matches!(changes, UpdateBody::Changes { from, .. } if from == old.lsn), "{changes:?}");
    cluster.run_for(millis(1));
    assert!(matches!(ask(&mut cluster, old), UpdateBody::Snapshot { .. }));
}

/// What a Lookup that has this position is answered.
fn ask(cluster: &mut Cluster, position: Position) -> UpdateBody {
    let lookup = Nonce(u128::from(cluster.now.0));
    let request =
        LookupRequest { namespace: pool(), lookup, seq: Seq(1), position: Some(position), term: Term(1) };
    let asker = Node::Lookup(1_000);
    let envelope =
        Envelope { sent_at: cluster.now, from: asker, to: M1, message: Message::FromLookup(request) };
    cluster.deliver(envelope);
    cluster.latest(M1, asker, |e| e.as_update().map(|update| update.body.clone()))
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_a_recall_names_the_next_owner_so_that_state_can_move() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    cluster.by_hand(a);
    let mark = cluster.mark();
    let b = cluster.owner("b");
    let (_, high) = halves();
    let named = Destination {
        session: cluster.session(b),
        name: OwnerName::new("b").expect("a name"),
        url: "http://b".into(),
    };
    let lease = cluster.check_now(a, Key::MAX).expect("the range is served while its state is copied");
    let [OwnerAction::StartTransfer { transfer, range, generation, to, .. }] = cluster.upcalls(a, mark)[..]
    else {
        panic!("one recall")
    };
    assert_eq!((*range, *generation, to), (high, lease, &named));
    // The copy arrived at another process: it does not count, and the copy is made again.
    let (transfer, stranger) = (*transfer, SessionId(Nonce(99)));
    cluster.tell(a, OwnerEvent::TransferReady(transfer));
    cluster.tell(a, OwnerEvent::TransferDone { transfer, to: stranger });
    cluster.run_for(secs(2));
    assert_eq!(cluster.check_now(a, Key::MAX), Ok(lease));
    let again = cluster.upcalls(a, mark).into_iter().rev().find_map(start).expect("another try");
    assert_eq!((again.1, again.2), (high, lease));
    assert_ne!(again.0, transfer);
    // The copy arrived where it should: both ends know, and the lease moves with the state.
    cluster.tell(b, OwnerEvent::ImportReady { range: high, source: lease, term: Term(1) });
    cluster.tell(a, OwnerEvent::TransferReady(again.0));
    cluster.tell(a, OwnerEvent::TransferDone { transfer: again.0, to: named.session });
    let granted = cluster.upcalls(b, mark).into_iter().find_map(|action| match action {
        OwnerAction::Granted(grants) => Some(grants[0]),
        _ => None,
    });
    let granted = granted.expect("a grant");
    assert_eq!((granted.range, granted.source, granted.state_since), (high, Some(lease), lease));
}

// ---- §2.1.2: load

/// Three Owners with the default settings, whose loads are these, measured and reported.
fn loaded(loads: [u64; 3]) -> (Cluster, [Node; 3]) {
    let mut cluster = Cluster::new();
    let owners = cluster.owners(["a", "b", "c"]);
    for (owner, load) in owners.into_iter().zip(loads) {
        load_evenly(&mut cluster, owner, load);
    }
    (cluster, owners)
}

/// The load of an Owner, spread evenly over its keys.
fn load_evenly(cluster: &mut Cluster, owner: Node, load: u64) {
    let keys = cluster.keys_of(owner);
    let share = |range: KeyRange| (u128::from(load) * range.key_count() / keys.key_count()) as u64;
    let mut loads: Vec<RangeLoad> =
        keys.iter().map(|range| RangeLoad { range, load: share(range), hottest: None }).collect();
    loads[0].load += load - loads.iter().map(|range| range.load).sum::<u64>();
    cluster.tell(owner, OwnerEvent::Load(loads));
}

fn virtual_nodes(cluster: &Cluster, owners: [Node; 3]) -> [u32; 3] {
    owners.map(|owner| cluster.stored().sessions[&cluster.session(owner)].virtual_nodes)
}

/// Why the load policy left Owners alone, by name.
fn load_skips(cluster: &Cluster) -> BTreeMap<String, LoadSkip> {
    let skips = cluster.noted.iter().filter_map(|(_, _, action)| match action {
        ManagerAction::Skip(Skip::Load { owner, why, .. }) => Some((owner.as_str().to_owned(), *why)),
        _ => None,
    });
    skips.collect()
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_owners_report_their_load() {
    let (mut cluster, [a, ..]) = loaded([1_000_000, 1_000_000, 1_000_000]);
    cluster.run_for(secs(20));
    let report = cluster.latest(a, M1, |e| e.as_report().cloned());
    let reported: RangeSet = report.loads.iter().map(|load| load.range).collect();
    assert_eq!(reported, cluster.keys_of(a), "range by range");
    assert_eq!(report.loads.iter().map(|load| load.load).sum::<u64>(), 1_000_000);
    cluster.run_for(secs(60));
    assert_eq!(load_skips(&cluster)["a"], LoadSkip::Balanced, "the policy was given it");
}

/// Centrifuge §2.1.2, PRS §4.5.
#[test]
fn centrifuge_2_1_2_an_overloaded_owner_gives_a_virtual_node_to_the_least_loaded() {
    // The least loaded is 9 % below the mean, and gets it all the same.
    let (mut cluster, owners) = loaded([1_150_000, 940_000, 910_000]);
    cluster.run_for(secs(70));
    assert_eq!(virtual_nodes(&cluster, owners), [63, 64, 65]);
    assert_eq!(cluster.table().iter().filter(|(_, entry)| entry.recall.is_some()).count(), 0, "and it moved");
    // Where one key is the whole load, no transfer would lower the peak: it is skipped, with that reason.
    let (mut cluster, [a, b, c]) = loaded([0, 0, 0]);
    let key = cluster.keys_of(a).iter().next().expect("a range").first();
    let hot = RangeLoad { range: KeyRange::one(key), load: 1_000_000, hottest: Some((key, 1_000_000)) };
    cluster.tell(a, OwnerEvent::Load(vec![hot]));
    cluster.run_for(secs(70));
    assert_eq!(virtual_nodes(&cluster, [a, b, c]), [64, 64, 64]);
    assert_eq!(load_skips(&cluster)["a"], LoadSkip::WouldNotLowerPeak);
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_an_underloaded_owner_gets_a_virtual_node() {
    // Nobody is 10 % above the mean; the one 12 % below gets a virtual node of the most loaded.
    let (mut cluster, owners) = loaded([1_070_000, 880_000, 1_050_000]);
    cluster.run_for(secs(70));
    assert_eq!(virtual_nodes(&cluster, owners), [63, 65, 64]);
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_owners_near_the_mean_are_left_alone() {
    let (mut cluster, owners) = loaded([1_100_000, 1_000_000, 900_000]);
    cluster.run_for(secs(300));
    assert_eq!(virtual_nodes(&cluster, owners), [64, 64, 64]);
    let balanced = LoadSkip::Balanced;
    assert_eq!(load_skips(&cluster), ["a", "b", "c"].map(|name| (name.to_owned(), balanced)).into());
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_the_total_of_virtual_nodes_is_constant() {
    let (mut cluster, owners) = loaded([2_000_000, 700_000, 300_000]);
    let mut seen = BTreeSet::new();
    for _ in 0..10 {
        cluster.run_for(secs(60));
        let counts = virtual_nodes(&cluster, owners);
        assert_eq!(counts.iter().sum::<u32>(), 3 * 64);
        seen.insert(counts);
    }
    assert!(seen.len() > 3, "{seen:?}");
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_the_load_policy_can_be_exchanged() {
    /// Takes a virtual node from whoever is first.
    struct FirstGives;
    impl LoadPolicy for FirstGives {
        fn round(&self, _: &mut LoadMemory, round: &LoadRound<'_>) -> LoadDecision {
            let first = &round.owners[0];
            let change =
                VirtualNodeChange { name: first.name.clone(), virtual_nodes: first.virtual_nodes - 1 };
            LoadDecision { changes: vec![change], skipped: Vec::new() }
        }
    }
    let owners = ["a", "b"].map(|name| OwnerLoad {
        name: OwnerName::new(name).expect("a name"),
        virtual_nodes: 64,
        weight: 100,
        load: 1,
    });
    let round = LoadRound { owners: &owners, ranges: &[], partitioner: &ConsistentHash, max_changes: 1 };
    let policies: [&dyn LoadPolicy; 3] =
        [&FirstGives, LoadPolicyKind::Off.policy(), LoadPolicyKind::TenPercent.policy()];
    let changes = policies.map(|policy| policy.round(&mut LoadMemory::default(), &round).changes.len());
    assert_eq!(changes, [1, 0, 0]);
    // And in a running pool, by its settings.
    let (mut cluster, owners) = loaded([2_000_000, 500_000, 500_000]);
    let settings = Arc::new(Settings { load_policy: LoadPolicyKind::Off, ..Settings::default() });
    cluster
        .admin(AdminCommand::Configure { namespace: pool(), settings, expected: None })
        .expect("good settings");
    cluster.run_for(secs(130));
    assert_eq!(virtual_nodes(&cluster, owners), [64, 64, 64]);
    assert_eq!(load_skips(&cluster)["a"], LoadSkip::Off);
    let settings = Arc::new(Settings::default());
    cluster
        .admin(AdminCommand::Configure { namespace: pool(), settings, expected: None })
        .expect("good settings");
    cluster.run_for(secs(70));
    assert_ne!(virtual_nodes(&cluster, owners), [64, 64, 64]);
}
