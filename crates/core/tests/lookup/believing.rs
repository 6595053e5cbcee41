//! What a Lookup believes.

use centrifuge_core::id::{Lsn, Namespace, Nonce, Seq, Term};
use centrifuge_core::lookup::{LookupAction, LossReason};
use centrifuge_core::message::{ManagerToLookup, UpdateBody};
use centrifuge_core::range_set::RangeSet;

use crate::world::*;

#[test]
fn messages_for_others_are_dropped() {
    let mut world = World::with_table();
    let mut update = world.update(UpdateBody::Heartbeat { lsn: Lsn(5) });
    update.lookup = Nonce(77);
    assert_dropped(&mut world, ManagerToLookup::Update(update), |w| w.machine.counters().other_lookup);
    let mut update = world.update(UpdateBody::Heartbeat { lsn: Lsn(5) });
    update.namespace = Namespace::new("other").expect("a label");
    assert_dropped(&mut world, ManagerToLookup::Update(update), |w| w.machine.counters().other_namespace);
    let unknown = ManagerToLookup::UnknownNamespace { term: Term(9), lookup: Nonce(77), echo: Seq(1) };
    assert_dropped(&mut world, unknown, |w| w.machine.counters().other_lookup);
}

#[test]
fn echoes_of_requests_never_made_are_dropped() {
    for echo in [0, 2, u64::MAX] {
        let mut world = World::with_table();
        let update = world.update(UpdateBody::Heartbeat { lsn: Lsn(5) });
        let message = world.echoing(update, echo);
        assert_dropped(&mut world, message, |w| w.machine.counters().never_sent);
    }
}

#[test]
fn a_lower_term_is_dropped_and_a_higher_one_adopted() {
    let mut world = World::with_table();
    world.term = Term(5);
    world.heartbeat(1);
    assert_eq!(world.machine.term(), Term(5));
    world.term = Term(4);
    let update =
        world.update(UpdateBody::Snapshot { lsn: Lsn(9), entries: vec![owned(0, 7, 'b', 9, 9)].into() });
    assert_dropped(&mut world, ManagerToLookup::Update(update), |w| w.machine.counters().lower_term);
    let unknown =
        ManagerToLookup::UnknownNamespace { term: Term(4), lookup: world.machine.nonce(), echo: Seq(1) };
    assert_dropped(&mut world, unknown, |w| w.machine.counters().lower_term);
}

#[test]
fn strangers_are_not_heard() {
    let mut world = World::with_table();
    world.leader = "stranger".into();
    let update = world.update(UpdateBody::Heartbeat { lsn: Lsn(5) });
    assert_dropped(&mut world, ManagerToLookup::Update(update), |w| w.machine.counters().unknown_manager);
}

#[test]
fn a_snapshot_with_a_hole_an_overlap_or_an_impossible_entry_is_dropped() {
    let bad = [
        vec![],
        vec![owned(0, 3, 'a', 9, 9)],
        vec![owned(1, 7, 'a', 9, 9)],
        vec![owned(0, 3, 'a', 9, 9), owned(5, 7, 'a', 9, 9)],
        vec![owned(0, 3, 'a', 9, 9), owned(3, 7, 'a', 9, 9)],
        vec![owned(4, 7, 'a', 9, 9), owned(0, 3, 'a', 9, 9)],
        vec![owned(0, 7, 'a', 8, 9)],
        vec![owned(0, 7, 'a', 0, 0)],
    ];
    for entries in bad {
        let mut world = World::with_table();
        world.term = Term(3);
        let update = world.update(UpdateBody::Snapshot { lsn: Lsn(9), entries: entries.into() });
        assert_dropped(&mut world, ManagerToLookup::Update(update), |w| w.machine.counters().bad_snapshot);
    }
}

#[test]
fn changes_that_are_empty_impossible_or_lead_nowhere_are_dropped() {
    let bad = [
        (1, 2, vec![]),
        (1, 1, vec![owned(0, 7, 'b', 9, 9)]),
        (1, 0, vec![owned(0, 7, 'b', 9, 9)]),
        (1, 2, vec![owned(0, 7, 'b', 9, 9), unowned(2, 3, 8, 9)]),
        (1, 2, vec![owned(0, 7, 'b', 0, 0)]),
    ];
    for (from, to, entries) in bad {
        let mut world = World::with_table();
        let body = UpdateBody::Changes { from: Lsn(from), to: Lsn(to), entries: entries.into() };
        let update = world.update(body);
        assert_dropped(&mut world, ManagerToLookup::Update(update), |w| w.machine.counters().bad_changes);
    }
}

#[test]
fn an_unknown_namespace_is_said_once_per_answer_and_is_contact_before_the_first_table() {
    let mut world = World::new();
    world.start();
    let unknown =
        ManagerToLookup::UnknownNamespace { term: Term(1), lookup: world.machine.nonce(), echo: Seq(1) };
    assert_eq!(world.hear(unknown.clone()), [LookupAction::UnknownNamespace, LookupAction::Contact(true)]);
    assert_eq!(world.hear(unknown), []);
    assert_eq!(recipients(&world.wake()), ["m1"]);
    assert_eq!(world.now, at(30));
}

#[test]
fn an_unknown_namespace_does_not_vouch_for_a_table() {
    let mut world = World::with_table();
    let mut raised = Vec::new();
    while world.now < at(95) {
        raised.extend(world.wake());
        let echo = world.asked;
        let lookup = world.machine.nonce();
        raised.extend(world.hear(ManagerToLookup::UnknownNamespace { term: Term(1), lookup, echo }));
    }
    assert_eq!(losses(&raised), [(RangeSet::all(), LossReason::OutOfContact)]);
}
