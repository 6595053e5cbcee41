//! Centrifuge §2 and §2.1.1, claim by claim: exclusive leases, the leader and its standbys.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::*;
use centrifuge_core::id::{ManagerId, OwnerName};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::LookupEvent;
use centrifuge_core::manager::{AdminCommand, ManagerAction, ManagerEvent, StoreCommand};
use centrifuge_core::message::{ManagerToLookup, ManagerToOwner, OwnerToManager, UpdateBody};
use centrifuge_core::owner::{OwnerAction, OwnerEvent};
use centrifuge_core::partition::ConsistentHash;
use centrifuge_core::record::{Change, Record};
use centrifuge_core::settings::Settings;
use centrifuge_core::table::Recall;
use centrifuge_core::time::Instant;

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
    for (settings, virtual_nodes) in [(papers(), 64), (Settings { virtual_nodes: 8, ..papers() }, 8)] {
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
    let Message::Request(ManagerAction::Store(StoreCommand::Append { batch, .. })) = &append.message else {
        panic!("an append")
    };
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
