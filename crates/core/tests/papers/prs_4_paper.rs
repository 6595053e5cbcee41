//! PRS §4, claim by claim, where Centrifuge's own paper does not say the same.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use centrifuge_core::id::{Generation, Namespace, OwnerName, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::manager::{AdminCommand, ManagerAction, RoleName};
use centrifuge_core::message::{ManagerToOwner, UpdateBody};
use centrifuge_core::owner::{NotOwner, OwnerAction, OwnerEvent};
use centrifuge_core::partition::{Assignment, PartitionOwner, Partitioner, PartitionerKind};
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::Change;
use centrifuge_core::settings::Settings;
use centrifuge_core::table::Table;

// ---- §4.1: the table

/// PRS §4.1.
#[test]
fn prs_4_1_every_grant_has_a_new_generation() {
    let mut cluster = Cluster::with(Options { managers: 2, ..Options::default() });
    let [a, b] = cluster.owners(["a", "b"]);
    cluster.crash(b);
    cluster.run_for(secs(70));
    cluster.owner("b");
    cluster.crash(M1);
    cluster.run_for(secs(100));
    cluster.tell(a, OwnerEvent::Drain);
    cluster.run_for(secs(60));
    let granted = |change: &Change| match change {
        Change::Granted { generation, .. } => Some(*generation),
        _ => None,
    };
    let granted: Vec<Generation> = cluster.store.changes_after(0).filter_map(granted).collect();
    assert!(granted.len() > 100);
    assert!(granted.windows(2).all(|pair| pair[0] < pair[1]));
}

/// PRS §4.1.
#[test]
fn prs_4_1_every_loss_shows_in_the_table() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    let first = cluster.entry(Key::MAX);
    assert_eq!(first.state_since, first.generation, "state begins with the first lease");
    let b = cluster.owner("b");
    let moved = cluster.entry(Key::MAX);
    assert!(moved.generation > first.generation);
    assert_eq!(moved.state_since, first.state_since, "the number rose and nothing was lost");
    cluster.crash(b);
    cluster.run_for(secs(65));
    let lost = cluster.entry(Key::MAX);
    assert_eq!(lost.owner, Some(cluster.session(a)));
    assert_eq!(lost.state_since, lost.generation);
    assert!(lost.state_since > moved.generation, "beyond what anybody knew of it");
}

/// PRS §4.1.
#[test]
fn prs_4_1_the_partitioner_can_be_exchanged() {
    /// Everything belongs to the last by name.
    struct LastTakesAll;
    impl Partitioner for LastTakesAll {
        fn assign(&self, owners: &[PartitionOwner]) -> Assignment {
            let last = (0..owners.len()).max_by_key(|place| &owners[*place].name);
            last.map(|place| (KeyRange::ALL, place)).into_iter().collect()
        }
    }
    let owner =
        |name| PartitionOwner { name: OwnerName::new(name).expect("a name"), virtual_nodes: 64, weight: 100 };
    let owners = ["a", "b", "c"].map(owner);
    let partitioners: [&dyn Partitioner; 3] = [
        &LastTakesAll,
        PartitionerKind::Fixed.partitioner().unwrap(),
        PartitionerKind::ConsistentHash.partitioner().unwrap(),
    ];
    let [one, three, many] = partitioners.map(|partitioner| partitioner.assign(&owners).len());
    assert_eq!((one, three), (1, 3));
    assert!(many > 100);
    // And in a running pool, by its settings: its ranges move to where the other one wants them.
    let mut cluster = Cluster::sliced();
    let owners = cluster.owners(["a", "b", "c"]);
    assert!(owners.into_iter().all(|owner| cluster.keys_of(owner).len() == 1));
    let settings = Arc::new(papers());
    cluster
        .admin(AdminCommand::Configure { namespace: pool(), settings, expected: None, kind: None })
        .expect("good settings");
    cluster.run_for(secs(5));
    assert!(owners.into_iter().all(|owner| cluster.keys_of(owner).len() > 30));
    assert!(owners.into_iter().all(|owner| cluster.held_keys(owner) == cluster.keys_of(owner)));
}

// ---- §4.2: Lookups

/// PRS §4.2.
#[test]
fn prs_4_2_a_lookup_discards_messages_of_an_earlier_leader() {
    let mut cluster = Cluster::sliced_with_managers(2);
    let (a, lookup) = (cluster.owner("a"), cluster.lookup());
    cluster.hold(M1, lookup);
    let b = cluster.owner("b");
    let old = cluster.take(M1, lookup);
    assert!(matches!(old.as_update().expect("an update").body, UpdateBody::Changes { .. }));
    cluster.crash(M1);
    cluster.run_for(secs(60));
    assert_eq!((cluster.leader(), cluster.lookup_machine(lookup).term()), (M2, Term(2)));
    assert!(cluster.is_current(lookup));
    cluster.deliver(old);
    assert_eq!(cluster.lookup_machine(lookup).counters().lower_term, 1);
    assert!(cluster.is_current(lookup));
    assert!(!cluster.held_keys(a).is_empty() && !cluster.held_keys(b).is_empty());
    // One leader, but another life of the namespace, and so another log.
    let other = Namespace::new("other").expect("a label");
    let create = |cluster: &mut Cluster| {
        let command = AdminCommand::Create {
            kind: Default::default(),
            namespace: other.clone(),
            settings: Arc::new(sliced()),
        };
        cluster.admin(command).expect("a namespace");
    };
    create(&mut cluster);
    let lookup = cluster.lookup_with(|config| config.namespace = other.clone());
    cluster.run_for(secs(40));
    let old = cluster.latest(M2, lookup, |e| e.as_update().map(|_| e.clone()));
    cluster.admin(AdminCommand::Remove { namespace: other.clone() }).expect("nobody uses it");
    create(&mut cluster);
    cluster.run_for(secs(40));
    let position = cluster.lookup_machine(lookup).position().expect("a table");
    assert_eq!(position.log, cluster.stored_of(&other).log);
    assert_ne!(position.log, old.as_update().expect("an update").log);
    cluster.deliver(old);
    assert_eq!(cluster.lookup_machine(lookup).counters().left_log, 1);
    assert_eq!(cluster.lookup_machine(lookup).position(), Some(position));
}

/// PRS §4.2.
#[test]
fn prs_4_2_changes_are_applied_in_order() {
    let mut cluster = Cluster::sliced();
    let (_, b, lookup) = (cluster.owner("a"), cluster.owner("b"), cluster.lookup());
    cluster.run_for(secs(5));
    let had = cluster.lookup_machine(lookup).position();
    cluster.hold(M1, lookup);
    cluster.pin(KeyRange::one(Key(1)), "b");
    cluster.pin(KeyRange::one(Key(2)), "b");
    let (first, second) = (cluster.take(M1, lookup), cluster.take(M1, lookup));
    cluster.deliver(second.clone());
    assert_eq!(cluster.lookup_machine(lookup).position(), had, "it does not continue what the Lookup has");
    assert_ne!(cluster.route(lookup, Key(2)), Some(b));
    assert_eq!(cluster.lookup_machine(lookup).counters().gaps, 1);
    let mark = cluster.now;
    cluster.run_for(secs(1));
    assert!(cluster.sent_by(lookup, mark).count() > 0, "it asks for what is missing");
    cluster.deliver(first.clone());
    assert_eq!((cluster.route(lookup, Key(1)), cluster.is_current(lookup)), (Some(b), false));
    cluster.deliver(second);
    assert!(cluster.is_current(lookup));
    cluster.deliver(first);
    assert!(cluster.is_current(lookup), "nor is it applied twice");
}

/// PRS §4.2.
#[test]
fn prs_4_2_a_snapshot_replaces_the_table() {
    let mut cluster = Cluster::new();
    let [a, _, _] = cluster.owners(["a", "b", "c"]);
    let lookup = cluster.lookup();
    cluster.isolate(lookup);
    cluster.crash(a);
    cluster.run_for(secs(400));
    assert!(!cluster.is_current(lookup));
    let (snapshots, changes) = counts(&cluster, lookup);
    cluster.reconnect(lookup);
    cluster.run_for(secs(10));
    assert_eq!(counts(&cluster, lookup), (snapshots + 1, changes));
    assert!(cluster.is_current(lookup));
    assert!(some_keys().all(|key| cluster.route(lookup, key) != Some(a)), "nothing is left of the old one");
}

fn counts(cluster: &Cluster, lookup: Node) -> (u64, u64) {
    let counters = cluster.lookup_machine(lookup).counters();
    (counters.snapshots, counters.changes)
}

/// PRS §4.2.
#[test]
fn prs_4_2_a_snapshot_raises_the_losses_of_the_changes_it_replaces() {
    let mut cluster = Cluster::new();
    let [_, b, c] = cluster.owners(["a", "b", "c"]);
    let by_changes = cluster.lookup();
    let by_snapshot = cluster.lookup_with(|config| config.contact_timeout = secs(3_600));
    cluster.run_for(secs(5));
    let (mark, lost) = (cluster.mark(), cluster.keys_of(b));
    cluster.isolate(by_snapshot);
    // A loss, a clean migration, and a loss of a part of what was lost before.
    cluster.crash(b);
    cluster.run_for(secs(70));
    cluster.tell(c, OwnerEvent::Drain);
    let d = cluster.owner("d");
    cluster.run_for(secs(10));
    let lost_later = cluster.keys_of(d);
    cluster.crash(d);
    cluster.run_for(secs(301));
    let before = [by_changes, by_snapshot].map(|lookup| counts(&cluster, lookup));
    cluster.reconnect(by_snapshot);
    cluster.run_for(secs(10));
    let after = [by_changes, by_snapshot].map(|lookup| counts(&cluster, lookup));
    assert_eq!((after[0], after[1]), (before[0], (before[1].0 + 1, before[1].1)));
    let expected = lost.union(&lost_later);
    assert!(expected != RangeSet::all() && !lost.intersection(&lost_later).is_empty());
    assert_eq!(cluster.lost_keys(by_changes, mark), expected);
    assert_eq!(cluster.lost_keys(by_snapshot, mark), expected);
}

// ---- §4.3: Owners

/// PRS §4.3.
#[test]
fn prs_4_3_a_lease_left_out_of_a_request_is_given_back() {
    let mut cluster = Cluster::sliced();
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let spare = KeyRange::one(Key::MAX);
    cluster.pin(spare, "a");
    let (kept, suppressed) = (Key::MIN, Key::MAX);
    let leases = [kept, suppressed].map(|key| cluster.check_now(a, key).expect("a lease"));
    cluster.run_for(secs(20));
    // Another session's request does not list it, and that says nothing.
    assert!(cluster.latest(b, M1, |e| e.as_report().map(|report| !report.held.is_empty())));
    assert_eq!(cluster.entry(suppressed).generation, leases[1]);
    // A request that crossed a message of the Manager leaves it out, and that does not count either.
    cluster.hold_both(a, M1);
    cluster.run_until(secs(16), |cluster| cluster.waiting(a, M1) > 0);
    cluster.pin(KeyRange::one(Key(77)), "b");
    let mut crossed = cluster.take(a, M1);
    crossed.report().held.pop();
    cluster.deliver(crossed);
    assert_eq!(cluster.entry(suppressed).generation, leases[1]);
    cluster.release(M1, a);
    cluster.release(a, M1);
    cluster.run_for(secs(20));
    // One that did not cross does.
    cluster.hold(a, M1);
    cluster.run_until(secs(16), |cluster| cluster.waiting(a, M1) > 0);
    let mut request = cluster.take(a, M1);
    let gone = request.report().held.pop().expect("the last lease");
    assert_eq!((gone.range, gone.generation), (spare, leases[1]));
    let committed = cluster.store.log.len();
    cluster.deliver(request);
    let freed = Change::Released { range: spare, generation: leases[1] };
    assert!(cluster.store.changes_after(committed).any(|change| *change == freed));
    assert!(cluster.entry(suppressed).generation > leases[1], "and it is granted anew");
    assert_eq!(cluster.entry(kept).generation, leases[0]);
}

// ---- §4.4: failover

/// PRS §4.4.
#[test]
fn prs_4_4_only_the_holder_of_the_leader_lease_acts() {
    let mut cluster = Cluster::sliced_with_managers(2);
    let (a, lookup) = (cluster.owner("a"), cluster.lookup());
    cluster.run_for(secs(61));
    let renewed = cluster.latest(M1, Node::Election, |envelope| Some(envelope.sent_at));
    cluster.isolate(Node::Election);
    let mark = cluster.mark();
    // It acts as long as its last renewal lets it, by its own clock: 10 seconds from the send.
    cluster.run_until(secs(11), |cluster| cluster.leaders().next().is_none());
    assert_eq!(cluster.now.since(renewed), secs(10));
    assert!(cluster.noted.contains(&(cluster.now, M1, ManagerAction::RoleChanged(RoleName::Standby))));
    let stopped = cluster.mark();
    cluster.run_for(secs(60));
    assert!(
        cluster.messages(a, M1, stopped).count() > 3 && cluster.messages(lookup, M1, stopped).count() > 3
    );
    for manager in [M1, M2] {
        assert_eq!(cluster.messages(manager, Node::Store, stopped).count(), 0);
        let answers: Vec<&Envelope> = cluster.sent_by(manager, stopped).collect();
        assert!(answers.iter().all(|e| e.as_assign().is_none() && e.as_update().is_none()));
        let refers = |e: &&Envelope| matches!(e.message, Message::ToOwner(ManagerToOwner::NotLeader { .. }));
        assert!(answers.into_iter().filter(refers).count() > 3);
    }
    // One of them has the lease again, and it alone acts.
    cluster.reconnect(Node::Election);
    cluster.run_for(secs(120));
    let (leader, other) = if cluster.leader() == M1 { (M1, M2) } else { (M2, M1) };
    assert!(cluster.messages(leader, a, stopped).any(|envelope| envelope.as_assign().is_some()));
    assert!(cluster.messages(other, a, stopped).all(|envelope| envelope.as_assign().is_none()));
    assert!(cluster.messages(M2, a, mark).filter(|envelope| envelope.sent_at < stopped).count() == 0);
}

/// PRS §4.4.
#[test]
fn prs_4_4_a_new_leader_waits_out_earlier_leases() {
    let mut cluster = Cluster::sliced_with_managers(2);
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let of_b = cluster.check_now(b, Key::MAX).expect("a lease");
    cluster.run_for(secs(30));
    let last_renewal = cluster.latest(a, M1, |envelope| Some(envelope.sent_at));
    assert_eq!(last_renewal, cluster.now);
    cluster.crash(M1);
    cluster.crash(a);
    cluster.run_until(secs(20), |cluster| cluster.leaders().next() == Some(M2));
    let won = cluster.now;
    let heir = Some(cluster.session(b));
    cluster.run_until(secs(100), |cluster| cluster.entry(Key::MIN).owner == heir);
    // The old leader may have acted for its leader lease, by a slow clock, and renewed at its end.
    let leader_hold = Duration::from_nanos((10_000_000_000_u64 * 65).div_ceil(60));
    assert_eq!(cluster.now.since(won), leader_hold + secs(65));
    assert!(cluster.now > last_renewal + secs(60));
    let renewed = cluster.messages(M2, b, won).find(|envelope| envelope.as_assign().is_some());
    assert!(renewed.expect("a renewal").sent_at < won + secs(40), "those who are there do not wait");
    assert!(cluster.check_continuous(b, Key::MAX, of_b));
    // What is planned does not rest on silence: it goes on once both ends have spoken to the new leader.
    let mut cluster = Cluster::sliced_with_managers(2);
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let lookup = cluster.lookup();
    cluster.run_for(secs(20));
    let mark = cluster.mark();
    cluster.crash(M1);
    cluster.run_until(secs(40), |cluster| cluster.leaders().next() == Some(M2));
    cluster.tell(a, OwnerEvent::Drain);
    cluster.run_for(secs(20));
    assert!(cluster.holds(b, KeyRange::ALL), "the drain did not wait for a hold");
    assert_eq!(cluster.losses(lookup, mark), []);
}

/// The leader dies, and for two minutes every Owner holds what it held, without a gap; then the table is the same.
fn lose_leader_and_nothing_else(cluster: &mut Cluster, owners: &[Node], table: &Table) {
    let leader = cluster.leader();
    cluster.crash(leader);
    for _ in 0..120 {
        cluster.run_for(secs(1));
        for owner in owners {
            for (range, lease) in table.of_session(cluster.session(*owner)) {
                assert!(cluster.check_continuous(*owner, range.first(), lease.generation));
            }
        }
    }
    assert_eq!(cluster.table(), table);
}

/// PRS §4.4.
#[test]
fn prs_4_4_a_failover_moves_no_range_and_loses_no_state() {
    let mut cluster = Cluster::with(Options { managers: 3, ..Options::default() });
    let owners = cluster.owners(["a", "b", "c"]);
    let lookup = cluster.lookup();
    cluster.run_for(secs(20));
    let (table, mark) = (cluster.table().clone(), cluster.mark());
    (0..2).for_each(|_| lose_leader_and_nothing_else(&mut cluster, &owners, &table));
    assert_eq!((cluster.stored().sessions.len(), cluster.store.group.term), (3, Term(3)));
    assert_eq!(cluster.losses(lookup, mark), []);
    // A range moves, and its new owner has not heard of it when the leader dies: the next one offers it again.
    let mut cluster = Cluster::sliced_with_managers(2);
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let lookup = cluster.lookup();
    cluster.run_for(secs(20));
    let (before, mark) = (cluster.entry(Key::MIN), cluster.mark());
    cluster.hold_both(b, M1);
    cluster.pin(KeyRange::one(Key::MIN), "b");
    cluster.run_for(secs(1));
    let granted = cluster.entry(Key::MIN);
    assert_eq!((granted.owner, granted.source), (Some(cluster.session(b)), Some(before.generation)));
    assert!(!cluster.holds(b, KeyRange::one(Key::MIN)) && !cluster.holds(a, KeyRange::one(Key::MIN)));
    cluster.crash(M1);
    cluster.run_until(secs(40), |cluster| cluster.holds(b, KeyRange::one(Key::MIN)));
    cluster.run_for(secs(100));
    assert_eq!(cluster.entry(Key::MIN).generation, granted.generation);
    assert_eq!(cluster.entry(Key::MIN).state_since, before.state_since);
    assert_eq!(cluster.losses(lookup, mark), []);
}

/// PRS §4.4.
#[test]
fn prs_4_4_a_leader_without_a_store_learns_the_table_from_the_owners() {
    let mut cluster = Cluster::with(Options { managers: 5, diskless: true, ..Options::default() });
    let owners = cluster.owners(["a", "b", "c"]);
    let lookup = cluster.lookup();
    // Nobody knows what earlier leaders granted: the first grants wait for a full hold.
    cluster.run_for(secs(50));
    assert!(owners.iter().all(|owner| cluster.held_keys(*owner).is_empty()));
    cluster.run_for(secs(60));
    let (table, mark) = (cluster.table().clone(), cluster.mark());
    assert!(table.iter().all(|(_, entry)| entry.owner.is_some()));
    (0..3).for_each(|_| lose_leader_and_nothing_else(&mut cluster, &owners, &table));
    assert_eq!((cluster.stored().sessions.len(), cluster.store.group.term), (3, Term(4)));
    assert_eq!(cluster.losses(lookup, mark), []);
    // With an Owner that dies in the same moment, its keys and no others are lost, once a full hold has passed.
    let (leader, lost) = (cluster.leader(), cluster.keys_of(owners[0]));
    cluster.crash(leader);
    cluster.crash(owners[0]);
    cluster.run_for(secs(60));
    assert_eq!(cluster.losses(lookup, mark), []);
    cluster.run_for(secs(60));
    assert_eq!(cluster.lost_keys(lookup, mark), lost);
    // State that was between two Owners when the leader died is learned from both, and is not lost.
    let mut cluster = Cluster::with(Options { managers: 3, diskless: true, ..Options::default() });
    let owners = cluster.owners(["a", "b"]);
    let lookup = cluster.lookup();
    cluster.run_for(secs(120));
    let (before, mark) = (cluster.entry(Key::MIN), cluster.mark());
    let (name, b) =
        if cluster.owners_of(Key::MIN) == [owners[0]] { ("b", owners[1]) } else { ("a", owners[0]) };
    cluster.move_unheard(name, b);
    let leader = cluster.leader();
    cluster.crash(leader);
    cluster.run_until(secs(120), |cluster| cluster.holds(b, KeyRange::one(Key::MIN)));
    cluster.run_for(secs(100));
    assert_eq!(cluster.entry(Key::MIN).state_since, before.state_since);
    assert_eq!(cluster.losses(lookup, mark), []);
}

/// PRS §4.4.
#[test]
fn prs_4_4_a_silent_leader_makes_a_lookup_ask_every_manager() {
    let mut cluster = Cluster::sliced_with_managers(3);
    let lookup = cluster.lookup();
    cluster.run_for(secs(10));
    cluster.crash(M1);
    cluster.isolate(Node::Election);
    let mark = cluster.mark();
    cluster.run_for(secs(45));
    for manager in [M1, M2, M3] {
        assert!(cluster.messages(lookup, manager, mark).count() >= 3, "{manager:?}");
    }
    cluster.reconnect(Node::Election);
    cluster.run_for(secs(10));
    let (leader, mark) = (cluster.leader(), cluster.mark());
    assert!(cluster.is_current(lookup));
    cluster.run_for(secs(120));
    assert!(cluster.sent_by(lookup, mark).all(|envelope| envelope.to == leader));
    assert_eq!(cluster.sent_by(lookup, mark).count(), 4);
}

// ---- §4.5: size, load and migration

/// PRS §4.5.
#[test]
fn prs_4_5_one_manager_serves_400_owners() {
    // A quarter of the usual ranges, and one check at the end, for the sake of debug builds.
    let settings = Settings { min_owners: 400, virtual_nodes: 16, ..papers() };
    let mut cluster = Cluster::with(Options { settings, ..Options::default() });
    cluster.watched = false;
    // All of them arrive while the first one's arrival is being committed.
    cluster.hold(M1, Node::Store);
    let owners: Vec<Node> = (0..400).map(|number| cluster.owner(&format!("owner-{number}"))).collect();
    cluster.release(M1, Node::Store);
    assert_eq!(cluster.stored().sessions.len(), 400);
    assert!(cluster.table().len() > 390 * 16, "{}", cluster.table().len());
    cluster.run_for(secs(16));
    let mut all = RangeSet::new();
    for owner in &owners {
        let keys = cluster.held_keys(*owner);
        assert_eq!(keys, cluster.keys_of(*owner));
        keys.iter().for_each(|range| all.insert(range));
    }
    assert_eq!((all, cluster.held_twice()), (RangeSet::all(), None));
}

/// PRS §4.5.
#[test]
fn prs_4_5_a_virtual_node_moves_no_key_of_third_parties() {
    let mut cluster = Cluster::new();
    let owners = cluster.owners(["a", "b", "c", "d", "e"]);
    let before = cluster.table().clone();
    let counts = |cluster: &Cluster| {
        owners.map(|owner| cluster.stored().sessions[&cluster.session(owner)].virtual_nodes)
    };
    for (owner, load) in owners.into_iter().zip([1_200_u64, 1_000, 1_000, 1_000, 920]) {
        let keys: Vec<KeyRange> = cluster.keys_of(owner).iter().collect();
        let share = |range: KeyRange| ((u128::from(load) * range.key_count()) >> 54) as u64;
        let loads: Vec<RangeLoad> = keys
            .into_iter()
            .map(|range| RangeLoad { range, load: share(range), heavy: Vec::new(), quantiles: Vec::new() })
            .collect();
        cluster.tell(owner, OwnerEvent::Load(loads.into()));
    }
    cluster.run_until(secs(200), |cluster| counts(cluster) != [64; 5]);
    cluster.run_for(secs(5));
    let with = |wanted: fn(u32) -> bool| -> Vec<SessionId> {
        let counted = owners.into_iter().zip(counts(&cluster));
        counted.filter(|(_, count)| wanted(*count)).map(|(owner, _)| cluster.session(owner)).collect()
    };
    let (givers, takers) = (with(|count| count < 64), with(|count| count > 64));
    assert!(!givers.is_empty() && !takers.is_empty() && givers.len() + takers.len() < 5);
    let mut moved = 0;
    for (range, old) in before.iter() {
        for (_, new) in cluster.table().overlapping(range).filter(|(_, new)| new.owner != old.owner) {
            let (from, to) = (old.owner.expect("an owner"), new.owner.expect("an owner"));
            assert!(givers.contains(&from) || takers.contains(&to));
            moved += 1;
        }
    }
    assert!(moved > 0);
}

/// PRS §4.5.
#[test]
fn prs_4_5_the_lease_follows_the_state() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    cluster.by_hand(a);
    let lease = cluster.check_now(a, Key::MAX).expect("a lease");
    let mark = cluster.mark();
    let b = cluster.owner("b");
    let [OwnerAction::StartTransfer { transfer, range, .. }] = cluster.upcalls(a, mark)[..] else {
        panic!("one recall")
    };
    let (transfer, range, to) = (*transfer, *range, cluster.session(b));
    // As long as the application copies, the lease stays and the range is served.
    cluster.run_for(secs(30));
    assert_eq!((cluster.check_now(a, Key::MAX), cluster.held_keys(b).is_empty()), (Ok(lease), true));
    // The copy is nearly complete: no new operations, and still the lease stays.
    cluster.tell(a, OwnerEvent::TransferReady(transfer));
    cluster.run_for(secs(5));
    assert_eq!(cluster.check_now(a, Key::MAX), Err(NotOwner::Moving));
    assert!(cluster.check_continuous(a, Key::MAX, lease) && cluster.held_keys(b).is_empty());
    // The application says that the state is there: the lease goes there, too, and says what came with it.
    cluster.tell(b, OwnerEvent::ImportReady { range, source: lease, term: Term(1) });
    cluster.run_for(secs(1));
    assert!(cluster.held_keys(b).is_empty(), "the copy alone gives no right");
    cluster.tell(a, OwnerEvent::TransferDone { transfer, to });
    assert!(cluster.holds(b, range) && !cluster.check_continuous(a, Key::MAX, lease));
    let [.., OwnerAction::Granted(grants)] = cluster.upcalls(b, mark)[..] else { panic!("a grant") };
    assert_eq!((grants[0].range, grants[0].source, grants[0].state_since), (range, Some(lease), lease));
}

/// PRS §4.5. The other half of the rule: where the state is not, the lease does not come as if it were.
#[test]
fn prs_4_5_a_lease_without_its_state_is_refused() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    cluster.by_hand(a);
    let lease = cluster.check_now(a, Key::MAX).expect("a lease");
    let (mark, lookup) = (cluster.mark(), cluster.lookup());
    let b = cluster.owner("b");
    let [OwnerAction::StartTransfer { transfer, range, .. }] = cluster.upcalls(a, mark)[..] else {
        panic!("one recall")
    };
    let (transfer, range, to) = (*transfer, *range, cluster.session(b));
    // The source says that the copy is there, and it is not.
    cluster.tell(a, OwnerEvent::TransferReady(transfer));
    cluster.tell(a, OwnerEvent::TransferDone { transfer, to });
    cluster.run_for(secs(5));
    assert_eq!(cluster.owner_machine(b).counters().refused, 1);
    let grants = cluster.upcalls(b, mark).into_iter().filter_map(|action| match action {
        OwnerAction::Granted(grants) => Some(grants[0]),
        _ => None,
    });
    let [grant] = grants.collect::<Vec<_>>()[..] else { panic!("one grant") };
    assert_eq!((grant.range, grant.source), (range, None), "it is told that it begins empty");
    assert!(grant.state_since > lease);
    assert_eq!(cluster.lost_keys(lookup, mark), RangeSet::from_ranges([range]), "and so is everybody");
}
