//! Whom a Lookup asks, and when.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Lsn, ManagerId, Seq, Term};
use centrifuge_core::lookup::LookupEvent;
use centrifuge_core::machine::Machine;
use centrifuge_core::message::UpdateBody;

use crate::world::*;

#[test]
fn centrifuge_2_1_1_at_start_every_manager_is_asked_until_one_answers() {
    let mut world = World::new();
    let first = world.start();
    assert_eq!(recipients(&first), ["m1", "m2", "m3"]);
    assert!(requests(&first).iter().all(|request| request.seq == Seq(1) && request.position.is_none()));
    let mut waits = Vec::new();
    for seq in 2..9 {
        let before = world.now;
        let actions = world.wake();
        assert_eq!(recipients(&actions), ["m1", "m2", "m3"]);
        assert_eq!(requests(&actions)[0].seq, Seq(seq));
        waits.push(world.now.since(before));
    }
    assert!(waits[0] <= Duration::from_millis(500), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= secs(4)), "{waits:?}");
    assert!(waits[6] >= secs(2), "{waits:?}");
}

#[test]
fn the_leader_alone_is_polled_once_it_answered() {
    let mut world = World::with_table();
    for poll in 1..4 {
        let actions = world.wake();
        assert_eq!(world.now, at(30 * poll));
        assert_eq!(recipients(&actions), ["m1"]);
        let request = &requests(&actions)[0];
        assert_eq!(request.position, Some(position(1)));
        assert_eq!((request.term, request.lookup), (Term(1), world.machine.nonce()));
        world.heartbeat(1);
    }
}

#[test]
fn prs_4_4_a_silent_leader_makes_it_ask_everyone_and_the_answer_ends_that() {
    let mut world = World::with_table();
    assert_eq!(recipients(&world.wake()), ["m1"]);
    let actions = world.wake();
    assert_eq!(world.now, at(35));
    assert_eq!(recipients(&actions), ["m1", "m2", "m3"]);
    world.leader = "m2".into();
    world.term = Term(2);
    world.heartbeat(1);
    let asked_at = world.now;
    let actions = world.wake();
    assert_eq!((recipients(&actions), world.now.since(asked_at)), (vec!["m2"], secs(30)));
    assert_eq!(requests(&actions)[0].term, Term(2));
}

#[test]
fn a_push_that_echoes_an_earlier_request_does_not_answer_the_latest() {
    let mut world = World::with_table();
    world.wake();
    let push = world.update(UpdateBody::Heartbeat { lsn: Lsn(1) });
    world.hear(world.echoing(push, 1));
    assert_eq!(recipients(&world.wake()), ["m1", "m2", "m3"]);
    assert_eq!(world.now, at(35));
}

#[test]
fn a_manager_that_does_not_lead_names_who_is_asked_next() {
    let mut world = World::with_table();
    world.wake();
    assert_eq!(recipients(&world.hear_not_leader("m1", Some("m3"))), [] as [&str; 0]);
    assert_eq!(recipients(&world.wake()), ["m3"]);
    assert_eq!(world.now.since(at(30)), Duration::from_millis(500), "hints are not followed at full speed");
}

#[test]
fn a_hint_is_followed_at_once_if_the_latest_request_is_not_recent() {
    let mut world = World::with_table();
    world.wake();
    world.advance(secs(2));
    assert_eq!(recipients(&world.hear_not_leader("m1", Some("m3"))), ["m3"]);
}

#[test]
fn a_hint_that_is_unknown_or_absent_makes_it_ask_everyone() {
    for hint in [None, Some("m1"), Some("stranger")] {
        let mut world = World::with_table();
        world.wake();
        world.hear_not_leader("m1", hint);
        assert_eq!(recipients(&world.wake()), ["m1", "m2", "m3"]);
    }
}

#[test]
fn a_hint_is_ignored_when_nothing_is_unanswered_or_it_comes_from_another() {
    let mut world = World::with_table();
    world.hear_not_leader("m1", Some("m3"));
    world.hear_not_leader("m2", Some("m3"));
    assert_eq!(recipients(&world.wake()), ["m1"]);
    world.hear_not_leader("m2", Some("m3"));
    assert_eq!(recipients(&world.wake()), ["m1", "m2", "m3"]);
    assert_eq!(world.machine.counters().not_leader, 3);
}

#[test]
fn managers_that_name_each_other_are_left_for_everyone() {
    let mut world = World::with_table();
    let mut asked = world.wake();
    let mut rounds = 0;
    while let [only] = recipients(&asked)[..] {
        let other = if only == "m1" { "m2" } else { "m1" };
        world.hear_not_leader(only, Some(other));
        asked = world.wake();
        rounds += 1;
    }
    assert!((2..=11).contains(&rounds), "{rounds}");
    assert_eq!(recipients(&asked), ["m1", "m2", "m3"]);
}

#[test]
fn a_standby_is_no_contact() {
    let mut world = World::new();
    world.start();
    world.hear_not_leader("m1", Some("m2"));
    assert!(!world.machine.in_contact(world.now));
}

#[test]
fn a_leader_that_leaves_the_list_is_asked_no_more() {
    let mut world = World::with_table();
    let list: Arc<[ManagerId]> = ["m2", "m4"].map(ManagerId::from).into();
    world.advance(secs(1));
    let actions = world.event(LookupEvent::ManagersChanged(list));
    assert_eq!(recipients(&actions), ["m2", "m4"]);
    world.heartbeat(1);
    assert_eq!(world.machine.counters().unknown_manager, 1);
}

#[test]
fn a_list_that_still_has_the_leader_changes_nothing_at_once() {
    let mut world = World::with_table();
    let list: Arc<[ManagerId]> = ["m1", "m4"].map(ManagerId::from).into();
    assert_eq!(world.event(LookupEvent::ManagersChanged(list)), []);
    world.wake();
    assert_eq!(recipients(&world.wake()), ["m1", "m4"]);
}

#[test]
fn nothing_happens_before_the_start_and_a_second_start_changes_nothing() {
    let mut world = World::new();
    let output = world.machine.on_wake(at(1000));
    assert_eq!((output.actions, output.wake), (vec![], None));
    world.start();
    let before = world.machine.clone();
    assert_eq!(world.event(LookupEvent::Start), []);
    assert_eq!(world.machine, before);
}

#[test]
fn waking_early_changes_nothing() {
    let mut world = World::with_table();
    world.change(&[unowned(0, 3, 1, 1)]);
    let before = world.machine.clone();
    world.advance(secs(7));
    let output = world.machine.on_wake(world.now);
    assert_eq!((output.actions, output.wake), (vec![], Some(at(30))));
    assert_eq!(world.machine, before);
}
