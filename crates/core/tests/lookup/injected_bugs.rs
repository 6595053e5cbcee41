//! Each bug lets pass what a rule of the Lookup would not.

use centrifuge_core::id::{Lsn, Term};
use centrifuge_core::injected_bug::{Bug, inject};
use centrifuge_core::lookup::LossReason;
use centrifuge_core::message::{ManagerToLookup, UpdateBody};

use crate::world::*;

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
