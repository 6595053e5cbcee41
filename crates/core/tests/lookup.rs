//! The Lookup's rules, one test each: whom it asks, what it believes, what it applies, what it raises.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::change_log::ChangeLog;
use centrifuge_core::id::{Generation, Lsn, ManagerId, Namespace, Nonce, Seq, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LookupConfig, LookupEvent, LookupMachine, LossReason, Row};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::message::{LookupRequest, ManagerToLookup, Position, Update, UpdateBody};
use centrifuge_core::random::Random;
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::settings::SettingsError;
use centrifuge_core::table::{PublishedEntry, PublishedOwner};
use centrifuge_core::time::Instant;
use proptest::prelude::*;

// ---- whom it asks, and when

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

// ---- what it believes

/// The message is dropped: counted, and nothing else.
fn assert_dropped(world: &mut World, message: ManagerToLookup, counted: impl Fn(&World) -> u64) {
    let before =
        (world.machine.position(), world.machine.table().cloned(), world.machine.term(), world.wake_at);
    let contact = world.machine.in_contact(world.now);
    let count = counted(world);
    assert_eq!(world.hear(message), []);
    let after =
        (world.machine.position(), world.machine.table().cloned(), world.machine.term(), world.wake_at);
    assert_eq!(after, before);
    assert_eq!(world.machine.in_contact(world.now), contact);
    assert_eq!(counted(world), count + 1);
}

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

// ---- what it applies

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

// ---- contact

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

// ---- what it raises

#[test]
fn the_first_table_raises_nothing() {
    let mut world = World::new();
    world.start();
    let actions = world.snapshot(&[owned(0, 3, 'a', 9, 5), unowned(4, 7, 8, 8)]);
    assert_eq!(losses(&actions), []);
    assert_eq!(losses_in(&world.run_in_contact(at(80))), [], "nor does the delay");
}

#[test]
fn a_clean_migration_raises_nothing() {
    let mut world = World::with_table();
    assert_eq!(losses(&world.change(&[owned(2, 5, 'b', 2, 1)])), []);
    assert_eq!(losses(&world.change(&[owned(0, 7, 'c', 3, 1)])), []);
    assert_eq!(losses(&world.snapshot(&[owned(0, 7, 'd', 4, 1)])), []);
}

#[test]
fn centrifuge_2_2_a_new_beginning_is_raised_as_one_set() {
    let mut world = World::with_table();
    let actions = world.change(&[owned(0, 1, 'b', 2, 2), owned(4, 5, 'b', 3, 1), owned(6, 7, 'b', 4, 4)]);
    let lost = keys(0, 1).union(&keys(6, 7));
    assert_eq!(losses(&actions), [(lost, LossReason::StateBeganAnew)]);
    assert_eq!(actions[0], LookupAction::TableChanged(position(2)), "the new route is there first");
}

#[test]
fn prs_4_2_a_snapshot_is_compared_with_what_was_known() {
    let mut world = World::with_table();
    world.change(&[owned(0, 3, 'b', 2, 2)]);
    // Blocks 0-1 moved cleanly, 2-3 were lost since, 4-7 were lost and then moved cleanly.
    let table = [owned(0, 1, 'c', 5, 2), owned(2, 3, 'c', 4, 4), owned(4, 7, 'd', 6, 3)];
    assert_eq!(losses(&world.snapshot(&table)), [(keys(2, 7), LossReason::StateBeganAnew)]);
    assert_eq!(losses(&world.snapshot(&table)), []);
}

#[test]
fn a_lost_range_without_an_owner_waits_for_its_next() {
    let mut world = World::with_table();
    assert_eq!(losses(&world.change(&[unowned(0, 3, 1, 1)])), []);
    assert_eq!(world.machine.pending_losses(), keys(0, 3));
    world.advance(secs(20));
    let actions = world.change(&[owned(0, 1, 'b', 2, 2)]);
    assert_eq!(losses(&actions), [(keys(0, 1), LossReason::StateBeganAnew)]);
    assert_eq!(world.machine.pending_losses(), keys(2, 3));
}

#[test]
fn after_the_delay_the_loss_is_raised_once_and_again_with_the_next_owner() {
    let mut world = World::with_table();
    world.advance(secs(5));
    world.change(&[unowned(0, 3, 1, 1)]);
    world.advance(secs(1));
    world.change(&[unowned(4, 7, 1, 1)]);
    let actions = world.run_in_contact(at(200));
    let expected = [(at(35), keys(0, 3), LossReason::Unowned), (at(36), keys(4, 7), LossReason::Unowned)];
    assert_eq!(losses_in(&actions), expected);
    assert_eq!(losses(&world.snapshot(&[unowned(0, 7, 1, 1)])), []);
    assert_eq!(losses_in(&world.run_in_contact(at(300))), [], "still the same vacancy");
    assert_eq!(
        losses(&world.change(&[owned(0, 7, 'b', 2, 2)])),
        [(RangeSet::all(), LossReason::StateBeganAnew)]
    );
}

#[test]
fn the_delay_is_judged_by_the_clock_before_an_event() {
    let mut world = World::with_table();
    world.change(&[unowned(0, 3, 1, 1)]);
    world.advance(secs(31));
    let actions = world.change(&[owned(0, 3, 'b', 2, 2)]);
    assert_eq!(
        losses(&actions),
        [(keys(0, 3), LossReason::Unowned), (keys(0, 3), LossReason::StateBeganAnew)]
    );
}

#[test]
fn an_owner_in_between_that_a_snapshot_hides_does_not_put_the_delay_off() {
    let mut world = World::with_table();
    world.change(&[unowned(0, 7, 1, 1)]);
    world.advance(secs(20));
    assert_eq!(losses(&world.snapshot(&[unowned(0, 7, 2, 2)])), []);
    let raised = losses_in(&world.run_in_contact(at(100)));
    assert_eq!(raised, [(at(30), RangeSet::all(), LossReason::Unowned)]);
}

#[test]
fn an_owner_in_between_that_a_snapshot_hides_starts_the_delay_anew_once_it_was_raised() {
    let mut world = World::with_table();
    world.change(&[unowned(0, 7, 1, 1)]);
    world.run_in_contact(at(40));
    world.snapshot(&[unowned(0, 7, 2, 2)]);
    let raised = losses_in(&world.run_in_contact(at(100)));
    assert_eq!(raised, [(at(70), RangeSet::all(), LossReason::Unowned)]);
}

#[test]
fn a_loss_behind_an_unowned_entry_is_raised_by_the_same_lease() {
    let mut world = World::with_table();
    world.snapshot(&[unowned(0, 7, 2, 2)]);
    // What the application knew was lease 1; that the table has said 2 in between does not matter.
    let actions = world.change(&[owned(0, 7, 'b', 2, 2)]);
    assert_eq!(losses(&actions), [(RangeSet::all(), LossReason::StateBeganAnew)]);
}

#[test]
fn a_vacancy_heard_of_late_is_raised_no_later_than_the_loss_of_contact_would_have_been() {
    let mut world = World::with_table();
    // The vacancy may have begun just after the request of second 0; its news take until second 80.
    world.run_until(at(80));
    world.change(&[unowned(0, 3, 1, 1)]);
    let raised = losses_in(&world.run_in_contact(at(150)));
    assert_eq!(raised, [(at(90), keys(0, 3), LossReason::Unowned)]);
}

#[test]
fn the_first_grant_of_a_key_is_raised_because_a_snapshot_could_hide_an_earlier_one() {
    let mut world = World::new();
    world.start();
    world.snapshot(&[unowned(0, 7, 0, 0)]);
    assert_eq!(losses_in(&world.run_in_contact(at(80))), []);
    let actions = world.change(&[owned(0, 7, 'a', 1, 1)]);
    assert_eq!(losses(&actions), [(RangeSet::all(), LossReason::StateBeganAnew)]);
}

#[test]
fn generations_that_went_backwards_are_another_life_of_the_namespace() {
    let mut world = World::with_table();
    world.change(&[owned(0, 7, 'b', 9, 9)]);
    world.wake();
    world.log = Nonce(8);
    let actions = world.snapshot(&[owned(0, 3, 'a', 5, 5), unowned(4, 7, 0, 0)]);
    assert_eq!(losses(&actions), [(keys(0, 3), LossReason::StateBeganAnew)]);
    let actions = world.change(&[owned(4, 7, 'a', 6, 6)]);
    assert_eq!(losses(&actions), [(keys(4, 7), LossReason::StateBeganAnew)]);
}

// ---- changes and snapshots (S7)

/// What happens to the blocks `first..=last`.
#[derive(Clone, Copy, Debug)]
struct Step {
    first: u64,
    last: u64,
    what: What,
    /// The Lookups that do not hear every change hear of the table after this one.
    is_heard_by_all: bool,
    /// How long it is until the next step.
    wait: Duration,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// One new lease whose state begins empty.
    Grant(char),
    /// New leases, each with the state that its blocks had; blocks without an owner stay as they are.
    Migrate(char),
    /// No owner any more.
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    let name = || prop::sample::select(vec!['a', 'b', 'c']);
    let what = prop_oneof![name().prop_map(What::Grant), name().prop_map(What::Migrate), Just(What::Release)];
    (0..8u64, 0..8u64, what, prop::bool::weighted(0.3), 0..25u64).prop_map(
        |(one, other, what, is_heard_by_all, wait)| {
            let (first, last) = (one.min(other), one.max(other));
            Step { first, last, what, is_heard_by_all, wait: secs(wait) }
        },
    )
}

/// The Manager's table: owner, generation and `state_since` of each block.
#[derive(Clone, Debug)]
struct Model {
    blocks: [(Option<char>, u64, u64); 8],
    generation: u64,
    /// When each block last lost its state.
    lost_at: [Option<Instant>; 8],
}

impl Model {
    /// Some blocks have an owner, some lost theirs, some never had one.
    fn new() -> Model {
        let mut blocks = [(None, 0, 0); 8];
        blocks[..4].fill((Some('a'), 2, 1));
        blocks[4..6].fill((None, 2, 2));
        Model { blocks, generation: 2, lost_at: [None; 8] }
    }

    /// Takes a step and says its entries; none if it changes nothing.
    fn take(&mut self, step: Step, now: Instant) -> Vec<PublishedEntry> {
        let lease = self.generation + 1;
        let mut changed = Vec::new();
        for index in step.first..=step.last {
            let (owner, generation, since) = self.blocks[index as usize];
            let next = match step.what {
                What::Grant(name) => (Some(name), lease, lease),
                _ if owner.is_none() => continue,
                What::Migrate(name) => (Some(name), self.generation + 1, since),
                What::Release => (None, generation, since),
            };
            if owner.is_some() && !matches!(step.what, What::Migrate(_)) {
                self.lost_at[index as usize] = Some(now);
            }
            self.blocks[index as usize] = next;
            self.generation = self.generation.max(next.1);
            changed.push(self.entry(index));
        }
        changed
    }

    fn entry(&self, index: u64) -> PublishedEntry {
        let (name, generation, since) = self.blocks[index as usize];
        let entry = unowned(index, index, generation, since);
        PublishedEntry { owner: name.map(owner), ..entry }
    }

    fn all(&self) -> Vec<PublishedEntry> {
        (0..8).map(|index| self.entry(index)).collect()
    }

    fn rows(&self) -> RangeMap<Row> {
        self.all().iter().map(|entry| (entry.range, Row::from(entry))).collect()
    }
}

/// A Lookup of the model, with all that it raised.
struct Follower {
    world: World,
    raised: Vec<(Instant, RangeSet, LossReason)>,
}

impl Follower {
    fn new(model: &Model, unowned_delay: Duration) -> Follower {
        let config = LookupConfig { unowned_delay, contact_timeout: secs(1_000_000), ..World::config() };
        let mut world = World::of(config);
        world.start();
        world.snapshot(&model.all());
        Follower { world, raised: Vec::new() }
    }

    fn hear(&mut self, body: UpdateBody) {
        let message = ManagerToLookup::Update(self.world.update(body));
        let actions = self.world.hear(message);
        self.raised.extend(losses(&actions).into_iter().map(|(keys, why)| (self.world.now, keys, why)));
    }

    fn run_until(&mut self, end: Instant) {
        let trace = self.world.run_until(end);
        self.raised.extend(losses_in(&trace));
    }

    /// The keys that were raised since the last call, or are certain to be.
    fn take_lost(&mut self) -> RangeSet {
        let pending = self.world.machine.pending_losses();
        self.raised.drain(..).fold(pending, |lost, (_, keys, _)| lost.union(&keys))
    }
}

/// One Lookup that hears every change, one that hears snapshots, and one that hears what the change log thinks best.
struct Trio {
    model: Model,
    log: ChangeLog,
    followers: [Follower; 3],
}

impl Trio {
    fn new(unowned_delay: Duration) -> Trio {
        let model = Model::new();
        let followers = [(); 3].map(|()| Follower::new(&model, unowned_delay));
        Trio { model, log: ChangeLog::new(LOG, Lsn(1)), followers }
    }

    fn take(&mut self, step: Step) {
        let now = self.followers[0].world.now;
        let entries: Arc<[_]> = self.model.take(step, now).into();
        if !entries.is_empty() {
            let from = self.log.end();
            let to = from.next().expect("a short log");
            self.log.push(now, to, Arc::clone(&entries), secs(1_000_000));
            self.followers[0].hear(UpdateBody::Changes { from, to, entries });
        }
        if step.is_heard_by_all {
            self.tell_all();
        }
    }

    fn tell_all(&mut self) {
        let entries: Arc<[_]> = self.model.all().into();
        self.followers[1].hear(UpdateBody::Snapshot { lsn: self.log.end(), entries: Arc::clone(&entries) });
        let position = self.followers[2].world.machine.position();
        self.followers[2].hear(self.log.answer(position, 8, || entries));
    }

    fn run_for(&mut self, wait: Duration) {
        let end = self.followers[0].world.now + wait;
        self.followers.iter_mut().for_each(|follower| follower.run_until(end));
    }
}

proptest! {
    /// Between two moments at which both have the same table, who hears every change and who hears snapshots are told
    /// of the same losses. A loss that waits for an owner counts: the one who heard more may have had one to raise it
    /// with in between.
    #[test]
    fn snapshots_give_the_losses_that_the_changes_between_them_give(steps in prop::collection::vec(step(), 1..60)) {
        let mut trio = Trio::new(secs(1_000_000));
        for step in steps {
            trio.take(step);
            if step.is_heard_by_all {
                let [every, snapshots, log] = trio.followers.each_mut().map(Follower::take_lost);
                prop_assert_eq!(&every, &snapshots);
                prop_assert_eq!(&every, &log);
                for follower in &trio.followers {
                    prop_assert_eq!(follower.world.machine.table(), Some(&trio.model.rows()));
                }
            }
        }
    }

    /// With delays that end, everyone is told of every loss after it happened, and of nothing else.
    #[test]
    fn every_loss_is_raised_after_it_happened_and_no_other(steps in prop::collection::vec(step(), 1..60)) {
        let mut trio = Trio::new(secs(30));
        let mut touched = RangeSet::new();
        for step in steps {
            trio.take(step);
            if !matches!(step.what, What::Migrate(_)) {
                touched.insert(blocks(step.first, step.last));
            }
            trio.run_for(step.wait);
        }
        trio.tell_all();
        trio.run_for(secs(31));
        for follower in &trio.followers {
            prop_assert!(follower.world.machine.pending_losses().is_empty());
            for (_, keys, _) in &follower.raised {
                prop_assert!(keys.difference(&touched).is_empty());
            }
            for index in 0..8 {
                let key = block(index).first();
                let told = follower.raised.iter().rev().find(|(_, keys, _)| keys.contains(key)).map(|told| told.0);
                prop_assert!(trio.model.lost_at[index as usize] <= told, "block {}: {:?}", index, follower.raised);
            }
        }
    }
}

/// A message that may be of any Manager, term, log and request, and say anything.
fn any_message() -> impl Strategy<Value = (&'static str, ManagerToLookup)> {
    let from = prop::sample::select(vec!["m1", "m2", "m3", "stranger"]);
    let hint = prop::option::of(prop::sample::select(vec!["m1", "m2", "stranger"]));
    let entry =
        (0..8u64, 0..8u64, prop::bool::ANY, 0..5u64, 0..5u64).prop_map(|(one, other, has_owner, g, s)| {
            let entry = unowned(one.min(other), one.max(other), g, s);
            PublishedEntry { owner: has_owner.then(|| owner('x')), ..entry }
        });
    let whole =
        (1..5u64, 1..5u64).prop_map(|(g, s)| vec![owned(0, 3, 'a', g.max(s), s), unowned(4, 7, g.max(s), s)]);
    let entries = prop_oneof![whole, prop::collection::vec(entry, 0..3)];
    let body = (0..3, 0..6u64, 0..6u64, entries).prop_map(|(kind, from, to, entries)| match kind {
        0 => UpdateBody::Heartbeat { lsn: Lsn(to) },
        1 => UpdateBody::Changes { from: Lsn(from), to: Lsn(to), entries: entries.into() },
        _ => UpdateBody::Snapshot { lsn: Lsn(to), entries: entries.into() },
    });
    let update = (body, 0..4u64, 0..30u64, 7..9u128).prop_map(|(body, term, echo, log)| {
        let (term, echo, log) = (Term(term), Seq(echo), Nonce(log));
        ManagerToLookup::Update(Update { term, echo, log, ..World::new().update(body) })
    });
    let not_leader = hint.prop_map(|hint| ManagerToLookup::NotLeader { leader: hint.map(ManagerId::from) });
    (from, prop_oneof![5 => update, 1 => not_leader])
}

proptest! {
    /// Whatever arrives, the machine stands, never wants to be woken at once, and neither term nor position goes back.
    #[test]
    fn no_message_makes_it_spin_or_go_back(script in prop::collection::vec((any_message(), 0..9000u64), 1..80)) {
        let mut world = World::new();
        world.start();
        for ((from, message), wait) in script {
            let (term, position) = (world.machine.term(), world.machine.position());
            world.run_until(world.now + Duration::from_millis(wait));
            world.event(LookupEvent::FromManager { from: from.into(), message });
            prop_assert!(world.wake_at > Some(world.now));
            prop_assert!(term <= world.machine.term());
            let after = world.machine.position();
            let is_same_log = position.map(|before| before.log) == after.map(|after| after.log);
            prop_assert!(!is_same_log || position.map(|before| before.lsn) <= after.map(|after| after.lsn));
            prop_assert!(world.machine.table().is_none_or(|table| table.covers(KeyRange::ALL)));
        }
    }
}

// ---- settings

#[test]
fn a_contact_timeout_that_a_failover_could_exceed_is_refused() {
    let mut config = LookupConfig::new(Namespace::new("n").expect("a label"), Arc::new([]));
    assert_eq!(config.check(secs(20), secs(9)), Ok(()));
    assert_eq!(config.check(secs(20), secs(10)), Err(SettingsError::ContactTooShort));
    assert_eq!(config.check(Duration::MAX, Duration::MAX), Err(SettingsError::ContactTooShort));
    config.poll = Duration::ZERO;
    assert_eq!(config.check(secs(1), secs(1)), Err(SettingsError::ZeroInterval));
}

// ---- injected bugs

#[cfg(feature = "injected-bugs")]
mod injected_bugs {
    use super::*;
    use centrifuge_core::injected_bug::{Bug, inject};

    #[test]
    fn snapshot_hides_loss() {
        let _bug = inject(Some(Bug::SnapshotHidesLoss));
        let mut world = World::with_table();
        assert_eq!(losses(&world.snapshot(&[owned(0, 7, 'b', 2, 2)])), []);
    }

    #[test]
    fn unowned_advances_known() {
        let _bug = inject(Some(Bug::UnownedAdvancesKnown));
        let mut world = World::with_table();
        world.snapshot(&[unowned(0, 7, 2, 2)]);
        assert_eq!(losses_in(&world.run_in_contact(at(80))), []);
        assert_eq!(losses(&world.change(&[owned(0, 7, 'b', 2, 2)])), []);
    }

    #[test]
    fn silent_when_out_of_contact() {
        let _bug = inject(Some(Bug::SilentWhenOutOfContact));
        let mut world = World::with_table();
        assert_eq!(losses_in(&world.run_until(at(300))), []);
    }

    #[test]
    fn contact_from_arrival() {
        let _bug = inject(Some(Bug::ContactFromArrival));
        let mut world = World::with_table();
        world.now = at(85);
        world.hear(world.echoing(world.update(UpdateBody::Heartbeat { lsn: Lsn(1) }), 1));
        assert!(world.machine.in_contact(at(170)));
    }

    #[test]
    fn changes_with_gap() {
        let _bug = inject(Some(Bug::ChangesWithGap));
        let mut world = World::with_table();
        world.lsn += 1;
        world.change(&[owned(0, 3, 'b', 3, 1)]);
        assert_eq!(world.machine.position(), Some(position(3)));
    }

    #[test]
    fn catching_up_hides_loss() {
        let _bug = inject(Some(Bug::CatchingUpHidesLoss));
        let mut world = World::with_table();
        let entries = [owned(0, 3, 'b', 2, 2)].into();
        let both = UpdateBody::Changes { from: Lsn(1), to: Lsn(3), entries };
        let caught_up = world.hear(ManagerToLookup::Update(world.update(both)));
        assert_eq!(losses(&caught_up), []);
        world.lsn = 3;
        let actions = world.change(&[owned(4, 7, 'b', 3, 3)]);
        assert_eq!(losses(&actions), [(keys(4, 7), LossReason::StateBeganAnew)]);
    }

    #[test]
    fn term_not_checked() {
        let _bug = inject(Some(Bug::TermNotChecked));
        let mut world = World::with_table();
        world.term = Term(5);
        world.heartbeat(1);
        world.term = Term(4);
        world.change(&[owned(0, 7, 'b', 2, 2)]);
        assert_eq!(world.machine.position(), Some(position(2)));
    }

    #[test]
    fn gap_never_repaired() {
        let _bug = inject(Some(Bug::GapNeverRepaired));
        let mut world = World::with_table();
        world.lsn += 1;
        world.change(&[owned(0, 3, 'b', 3, 3)]);
        assert!(world.run_until(at(300)).iter().all(|(_, action)| !is_request(action)));
    }
}

// ---- the world of these tests: one Lookup, a clock driven by hand, and short words for what its Manager says

/// The change log that worlds begin with.
const LOG: Nonce = Nonce(7);
/// The key space in eight equal blocks.
const BLOCK: u64 = 1 << 61;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + secs(seconds)
}

fn block(index: u64) -> KeyRange {
    blocks(index, index)
}

fn blocks(first: u64, last: u64) -> KeyRange {
    KeyRange::new(Key(first * BLOCK), Key(last * BLOCK + (BLOCK - 1))).expect("blocks in order")
}

fn keys(first: u64, last: u64) -> RangeSet {
    RangeSet::from_ranges([blocks(first, last)])
}

fn owner(name: char) -> PublishedOwner {
    PublishedOwner { session: SessionId(Nonce(name.into())), url: name.to_string().as_str().into() }
}

fn owned(first: u64, last: u64, name: char, generation: u64, state_since: u64) -> PublishedEntry {
    PublishedEntry { owner: Some(owner(name)), ..unowned(first, last, generation, state_since) }
}

fn unowned(first: u64, last: u64, generation: u64, state_since: u64) -> PublishedEntry {
    let (generation, state_since) = (Generation(generation), Generation(state_since));
    PublishedEntry { range: blocks(first, last), owner: None, generation, state_since }
}

fn position(lsn: u64) -> Position {
    Position { log: LOG, lsn: Lsn(lsn) }
}

fn is_request(action: &LookupAction) -> bool {
    sent(action).is_some()
}

fn requests(actions: &[LookupAction]) -> Vec<&LookupRequest> {
    actions.iter().filter_map(sent).map(|(_, request)| request).collect()
}

fn recipients(actions: &[LookupAction]) -> Vec<&str> {
    actions.iter().filter_map(sent).map(|(to, _)| to).collect()
}

fn sent(action: &LookupAction) -> Option<(&str, &LookupRequest)> {
    match action {
        LookupAction::ToManager { to, request } => Some((to.as_str(), request)),
        _ => None,
    }
}

fn losses(actions: &[LookupAction]) -> Vec<(RangeSet, LossReason)> {
    let loss = |action: &LookupAction| match action {
        LookupAction::Loss { keys, why } => Some((keys.clone(), *why)),
        _ => None,
    };
    actions.iter().filter_map(loss).collect()
}

fn losses_in(trace: &[(Instant, LookupAction)]) -> Vec<(Instant, RangeSet, LossReason)> {
    let loss = |(at, action): &(Instant, LookupAction)| match action {
        LookupAction::Loss { keys, why } => Some((*at, keys.clone(), *why)),
        _ => None,
    };
    trace.iter().filter_map(loss).collect()
}

/// A Lookup and the leader that speaks to it.
#[derive(Clone)]
struct World {
    machine: LookupMachine,
    now: Instant,
    wake_at: Option<Instant>,
    /// The latest request, which the leader echoes.
    asked: Seq,
    leader: ManagerId,
    term: Term,
    log: Nonce,
    lsn: u64,
}

impl World {
    fn new() -> World {
        World::of(World::config())
    }

    fn config() -> LookupConfig {
        let managers = ["m1", "m2", "m3"].map(ManagerId::from).into();
        LookupConfig::new(Namespace::new("pool").expect("a label"), managers)
    }

    fn of(config: LookupConfig) -> World {
        World {
            machine: LookupMachine::new(config, Random::from_number(1)),
            now: Instant::ZERO,
            wake_at: None,
            asked: Seq::ZERO,
            leader: "m1".into(),
            term: Term(1),
            log: LOG,
            lsn: 0,
        }
    }

    /// At second 0 the Lookup has asked and has its first table: `a` holds every key under lease 1.
    fn with_table() -> World {
        let mut world = World::new();
        world.start();
        world.snapshot(&[owned(0, 7, 'a', 1, 1)]);
        world
    }

    fn start(&mut self) -> Vec<LookupAction> {
        self.event(LookupEvent::Start)
    }

    fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    fn event(&mut self, event: LookupEvent) -> Vec<LookupAction> {
        let output = self.machine.on_event(self.now, event);
        self.note(output)
    }

    /// Lets time pass to the machine's next wish.
    fn wake(&mut self) -> Vec<LookupAction> {
        self.now = self.now.max(self.wake_at.expect("the machine wants to be woken"));
        let output = self.machine.on_wake(self.now);
        self.note(output)
    }

    /// Lets time pass, with no word from any Manager.
    fn run_until(&mut self, end: Instant) -> Vec<(Instant, LookupAction)> {
        self.run(end, |_| Vec::new())
    }

    /// Lets time pass, and answers every request with a heartbeat.
    fn run_in_contact(&mut self, end: Instant) -> Vec<(Instant, LookupAction)> {
        let mut trace: Vec<_> =
            self.heartbeat(self.lsn).into_iter().map(|action| (self.now, action)).collect();
        trace.extend(self.run(end, |world| world.heartbeat(world.lsn)));
        trace
    }

    fn run(
        &mut self,
        end: Instant,
        answer: impl Fn(&mut World) -> Vec<LookupAction>,
    ) -> Vec<(Instant, LookupAction)> {
        let mut trace = Vec::new();
        while self.wake_at.is_some_and(|wake| wake <= end) {
            let mut actions = self.wake();
            if actions.iter().any(is_request) {
                actions.extend(answer(self));
            }
            trace.extend(actions.into_iter().map(|action| (self.now, action)));
        }
        self.now = end;
        trace
    }

    fn hear(&mut self, message: ManagerToLookup) -> Vec<LookupAction> {
        self.event(LookupEvent::FromManager { from: self.leader.clone(), message })
    }

    fn hear_not_leader(&mut self, from: &str, hint: Option<&str>) -> Vec<LookupAction> {
        let message = ManagerToLookup::NotLeader { leader: hint.map(ManagerId::from) };
        self.event(LookupEvent::FromManager { from: from.into(), message })
    }

    fn heartbeat(&mut self, lsn: u64) -> Vec<LookupAction> {
        self.hear(ManagerToLookup::Update(self.update(UpdateBody::Heartbeat { lsn: Lsn(lsn) })))
    }

    /// The leader's next change.
    fn change(&mut self, entries: &[PublishedEntry]) -> Vec<LookupAction> {
        let from = Lsn(self.lsn);
        self.lsn += 1;
        let body = UpdateBody::Changes { from, to: Lsn(self.lsn), entries: entries.into() };
        self.hear(ManagerToLookup::Update(self.update(body)))
    }

    /// The leader's whole table, one position on.
    fn snapshot(&mut self, entries: &[PublishedEntry]) -> Vec<LookupAction> {
        self.lsn += 1;
        let body = UpdateBody::Snapshot { lsn: Lsn(self.lsn), entries: entries.into() };
        self.hear(ManagerToLookup::Update(self.update(body)))
    }

    /// An update that echoes the latest request.
    fn update(&self, body: UpdateBody) -> Update {
        Update {
            namespace: Namespace::new("pool").expect("a label"),
            lookup: self.machine.nonce(),
            term: self.term,
            echo: self.asked,
            log: self.log,
            body,
        }
    }

    fn echoing(&self, update: Update, echo: u64) -> ManagerToLookup {
        ManagerToLookup::Update(Update { echo: Seq(echo), ..update })
    }

    fn note(&mut self, output: Output<LookupAction>) -> Vec<LookupAction> {
        self.wake_at = output.wake;
        if let Some(request) = requests(&output.actions).last() {
            self.asked = request.seq;
        }
        output.actions
    }
}
