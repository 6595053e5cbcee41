//! What a Lookup raises.

use centrifuge_core::id::Nonce;
use centrifuge_core::lookup::{LookupAction, LossReason};
use centrifuge_core::range_set::RangeSet;

use crate::world::*;

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
