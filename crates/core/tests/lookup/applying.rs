//! What a Lookup applies.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Lsn, Nonce};
use centrifuge_core::key::Key;
use centrifuge_core::lookup::LookupAction;
use centrifuge_core::message::{ManagerToLookup, Position, UpdateBody};

use crate::world::*;

#[test]
fn there_is_no_route_before_the_first_table() {
    let mut world = World::new();
    world.start();
    assert!(world.machine.lookup(Key(0)).is_none() && world.machine.table().is_none());
    assert_eq!(world.machine.position(), None);
}

#[test]
fn centrifuge_2_2_1_changes_are_applied_where_they_begin() {
    let mut world = World::with_table();
    let actions = world.change(&[owned(4, 7, 'b', 2, 1), owned(6, 7, 'c', 3, 1)]);
    assert_eq!(actions, [LookupAction::TableChanged(position(2))]);
    let route = world.machine.lookup(block(5).first()).expect("a table");
    assert_eq!(route.owner, Some(&owner('b')));
    assert_eq!((route.generation.0, route.range), (2, blocks(4, 5)));
    assert_eq!(world.machine.lookup(Key::MAX).and_then(|route| route.owner), Some(&owner('c')));
    assert_eq!(world.machine.lookup(Key::MIN).and_then(|route| route.owner), Some(&owner('a')));
}

#[test]
fn changes_seen_before_are_duplicates() {
    let mut world = World::with_table();
    let change = world.update(UpdateBody::Changes {
        from: Lsn(1),
        to: Lsn(2),
        entries: vec![owned(0, 7, 'b', 2, 2)].into(),
    });
    assert_eq!(losses(&world.hear(ManagerToLookup::Update(change.clone()))).len(), 1);
    world.lsn = 2;
    world.change(&[owned(0, 7, 'c', 3, 2)]);
    assert_eq!(world.hear(ManagerToLookup::Update(change)), []);
    assert_eq!(world.machine.counters().duplicates, 1);
    assert_eq!(world.machine.position(), Some(position(3)));
}

#[test]
fn a_gap_is_not_applied_but_asked_for_at_once_and_only_once() {
    let mut world = World::with_table();
    world.advance(secs(10));
    let entries: Arc<[_]> = vec![owned(0, 7, 'b', 3, 3)].into();
    let gap = world.update(UpdateBody::Changes { from: Lsn(2), to: Lsn(3), entries });
    let actions = world.hear(ManagerToLookup::Update(gap.clone()));
    assert_eq!(recipients(&actions), ["m1"]);
    assert_eq!(requests(&actions)[0].position, Some(position(1)));
    assert_eq!(world.hear(world.echoing(gap.clone(), 1)), [], "one request is on its way");
    assert_eq!(world.wake_at, Some(at(10) + Duration::from_millis(500)), "it may have been lost");
    assert_eq!(recipients(&world.wake()), ["m1"]);
    assert_eq!(world.machine.counters().gaps, 2);
    assert_eq!(world.machine.position(), Some(position(1)));
}

#[test]
fn changes_that_begin_before_the_table_and_lead_beyond_it_are_not_applied() {
    let mut world = World::with_table();
    world.change(&[owned(0, 7, 'b', 2, 2)]);
    world.advance(secs(1));
    let entries: Arc<[_]> = vec![owned(0, 7, 'b', 2, 2), owned(0, 3, 'c', 3, 3)].into();
    let overlap = world.update(UpdateBody::Changes { from: Lsn(1), to: Lsn(3), entries });
    let actions = world.hear(ManagerToLookup::Update(overlap));
    assert_eq!(recipients(&actions), ["m1"]);
    assert_eq!(world.machine.position(), Some(position(2)));
}

#[test]
fn an_answer_that_leaves_a_heard_of_change_open_is_followed_by_another_request() {
    let mut world = World::with_table();
    world.advance(secs(10));
    let late = world.update(UpdateBody::Changes {
        from: Lsn(2),
        to: Lsn(3),
        entries: vec![owned(0, 7, 'c', 3, 1)].into(),
    });
    world.hear(ManagerToLookup::Update(late));
    world.advance(secs(1));
    // The answer left the Manager before the change that arrived first.
    let actions = world.change(&[owned(0, 7, 'b', 2, 1)]);
    assert_eq!(recipients(&actions), ["m1"]);
    assert_eq!(requests(&actions)[0].position, Some(position(2)));
}

#[test]
fn a_heartbeat_from_beyond_the_table_or_of_another_log_is_asked_about() {
    let mut world = World::with_table();
    world.advance(secs(10));
    assert_eq!(recipients(&world.heartbeat(2)), ["m1"]);
    let mut world = World::with_table();
    world.wake();
    world.heartbeat(1);
    world.log = Nonce(8);
    world.advance(secs(10));
    assert_eq!(recipients(&world.heartbeat(1)), ["m1"]);
}

#[test]
fn news_before_the_first_table_are_asked_about() {
    for body in [
        UpdateBody::Heartbeat { lsn: Lsn(0) },
        UpdateBody::Changes { from: Lsn(0), to: Lsn(1), entries: vec![owned(0, 7, 'a', 1, 1)].into() },
    ] {
        let mut world = World::new();
        world.start();
        world.advance(Duration::from_millis(500));
        let update = world.update(body);
        assert_eq!(recipients(&world.hear(ManagerToLookup::Update(update))), ["m1"]);
        assert_eq!(world.machine.position(), None);
        assert!(!world.machine.in_contact(world.now));
    }
}

#[test]
fn an_older_snapshot_of_the_same_log_is_ignored() {
    let mut world = World::with_table();
    world.change(&[owned(0, 7, 'b', 2, 2)]);
    world.lsn = 0;
    assert_eq!(world.snapshot(&[owned(0, 7, 'a', 1, 1)]), []);
    assert_eq!(world.machine.position(), Some(position(2)));
    assert_eq!(world.machine.counters().duplicates, 1);
}

#[test]
fn another_log_is_joined_by_a_snapshot_and_not_left_for_stragglers() {
    let mut world = World::with_table();
    world.wake();
    let straggler =
        world.update(UpdateBody::Snapshot { lsn: Lsn(50), entries: vec![owned(0, 7, 'a', 1, 1)].into() });
    world.log = Nonce(8);
    world.lsn = 0;
    let joined = Position { log: Nonce(8), lsn: Lsn(1) };
    let actions = world.snapshot(&[owned(0, 7, 'a', 1, 1)]);
    assert_eq!(actions[0], LookupAction::TableChanged(joined));
    assert_dropped(&mut world, ManagerToLookup::Update(straggler), |w| w.machine.counters().left_log);
    assert_eq!(world.machine.position(), Some(joined));
    // A request made since shows that the log is indeed another again.
    world.wake();
    world.log = LOG;
    world.snapshot(&[owned(0, 7, 'a', 1, 1)]);
    assert_eq!(world.machine.position(), Some(position(2)));
}

#[test]
fn changes_of_another_log_are_not_applied() {
    let mut world = World::with_table();
    world.wake();
    world.log = Nonce(8);
    world.advance(secs(1));
    assert_eq!(recipients(&world.change(&[owned(0, 7, 'b', 2, 2)])), ["m1"]);
    assert_eq!(world.machine.position(), Some(position(1)));
}
