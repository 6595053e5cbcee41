//! When a Lookup is in contact with a leader.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Lsn, Namespace};
use centrifuge_core::lookup::{LookupAction, LookupConfig, LossReason};
use centrifuge_core::message::{ManagerToLookup, UpdateBody};
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::settings::SettingsError;

use crate::world::*;

#[test]
fn prs_2_1_out_of_contact_everything_is_lost_again_and_again() {
    let mut world = World::with_table();
    let actions = world.run_until(at(300));
    let raised: Vec<_> = actions.iter().filter(|(_, action)| !is_request(action)).collect();
    let loss = LookupAction::Loss { keys: RangeSet::all(), why: LossReason::OutOfContact };
    let expected = [
        (at(90), LookupAction::Contact(false)),
        (at(90), loss.clone()),
        (at(180), loss.clone()),
        (at(270), loss),
    ];
    assert_eq!(raised, expected.iter().collect::<Vec<_>>());
    assert!(!world.machine.in_contact(world.now));
    assert_eq!(world.machine.counters().out_of_contact, 3);
    assert_eq!(world.heartbeat(1), [LookupAction::Contact(true)]);
    assert!(world.machine.in_contact(world.now));
}

#[test]
fn contact_counts_from_the_send_of_the_request() {
    let mut world = World::new();
    world.start();
    world.advance(Duration::from_millis(400));
    world.snapshot(&[owned(0, 7, 'a', 1, 1)]);
    assert!(world.machine.in_contact(at(90) - Duration::from_nanos(1)));
    assert!(!world.machine.in_contact(at(90)));
}

#[test]
fn an_echo_of_an_earlier_request_does_not_shorten_contact() {
    let mut world = World::with_table();
    world.wake();
    world.heartbeat(1);
    let late = world.update(UpdateBody::Heartbeat { lsn: Lsn(1) });
    world.hear(world.echoing(late, 1));
    assert!(world.machine.in_contact(at(119)) && !world.machine.in_contact(at(120)));
}

#[test]
fn who_was_paused_and_drains_old_heartbeats_is_not_in_contact() {
    let mut world = World::with_table();
    world.wake();
    let heartbeat = world.update(UpdateBody::Heartbeat { lsn: Lsn(1) });
    world.now = at(200);
    let actions = world.hear(ManagerToLookup::Update(heartbeat.clone()));
    let loss = LookupAction::Loss { keys: RangeSet::all(), why: LossReason::OutOfContact };
    assert_eq!(actions[..2], [LookupAction::Contact(false), loss]);
    assert!(!world.machine.in_contact(world.now));
    assert_eq!(world.hear(ManagerToLookup::Update(heartbeat)), [], "a later echo is needed");
}

#[test]
fn an_old_answer_is_judged_by_the_clock_before_it_is_applied() {
    let mut world = World::with_table();
    world.wake();
    world.now = at(125);
    let actions = world.change(&[owned(0, 7, 'b', 2, 2)]);
    assert_eq!(
        losses(&actions),
        [(RangeSet::all(), LossReason::OutOfContact), (RangeSet::all(), LossReason::StateBeganAnew)]
    );
    assert!(!world.machine.in_contact(world.now), "the request it answers is 95 seconds old");
}

#[test]
fn nothing_is_lost_before_the_first_table() {
    let mut world = World::new();
    world.start();
    let actions = world.run_until(at(200));
    let said: Vec<_> = actions.iter().filter(|(_, action)| !is_request(action)).collect();
    assert_eq!(said, [&(at(90), LookupAction::Contact(false))]);
    let actions = world.snapshot(&[owned(0, 7, 'a', 1, 1)]);
    assert_eq!(actions, [LookupAction::TableChanged(position(1)), LookupAction::Contact(true)]);
}

#[test]
fn heartbeats_that_show_that_changes_are_missing_keep_no_contact() {
    let mut world = World::with_table();
    let mut raised = Vec::new();
    while world.now < at(95) {
        raised.extend(world.wake());
        raised.extend(world.heartbeat(2));
    }
    assert_eq!(losses(&raised), [(RangeSet::all(), LossReason::OutOfContact)]);
}

#[test]
fn duplicates_keep_contact_through_their_echo() {
    let mut world = World::with_table();
    world.wake();
    let entries = vec![owned(0, 7, 'a', 1, 1)].into();
    let old = world.update(UpdateBody::Snapshot { lsn: Lsn(1), entries });
    world.hear(ManagerToLookup::Update(old));
    assert!(world.machine.in_contact(at(119)));
}

#[test]
fn what_was_missed_out_of_contact_is_raised_by_the_next_table() {
    let mut world = World::with_table();
    world.run_until(at(100));
    let actions = world.snapshot(&[owned(0, 3, 'a', 1, 1), owned(4, 7, 'b', 2, 2)]);
    assert_eq!(losses(&actions), [(keys(4, 7), LossReason::StateBeganAnew)]);
}

#[test]
fn a_contact_timeout_that_a_failover_could_exceed_is_refused() {
    let mut config = LookupConfig::new(Namespace::new("n").expect("a label"), Arc::new([]));
    assert_eq!(config.check(secs(20), secs(9)), Ok(()));
    assert_eq!(config.check(secs(20), secs(10)), Err(SettingsError::ContactTooShort));
    assert_eq!(config.check(Duration::MAX, Duration::MAX), Err(SettingsError::ContactTooShort));
    config.poll = Duration::ZERO;
    assert_eq!(config.check(secs(1), secs(1)), Err(SettingsError::ZeroInterval));
}
