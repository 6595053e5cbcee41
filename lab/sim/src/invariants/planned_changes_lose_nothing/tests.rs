//! The oracle of planned changes judges made-up histories.

use centrifuge_core::id::Term;
use centrifuge_core::record::SessionInfo;

use crate::invariants::testing::{
    Scene, at, claim, clean_grant, create, create_above, generation, grant, range, release, session,
    space_name, start_session,
};

use super::*;

/// A namespace whose keys 0-9 session 1 holds under lease 1; session 2 holds nothing. Both are in contact.
fn holding() -> (Scene, PlannedChangesLoseNothing) {
    let (mut scene, mut guard) = (Scene::new(), PlannedChangesLoseNothing::default());
    for (node, number) in [(0, 1), (1, 2)] {
        scene.start_owner(node, number);
        guard.start(at(0), node, session(number), 0, true);
    }
    guard.processes.values_mut().for_each(|process| process.in_contact_until = at(65));
    commit(&mut scene, &mut guard, at(0), create(1), Reason::Joined).unwrap();
    commit(&mut scene, &mut guard, at(0), grant(0, 9, 1, 1), Reason::Unowned).unwrap();
    guard.gain(session(1), &[Lot { range: range(0, 9), generation: generation(1) }]);
    (scene, guard)
}

fn commit(
    scene: &mut Scene,
    guard: &mut PlannedChangesLoseNothing,
    now: TrueTime,
    change: Change,
    reason: Reason,
) -> Verdict {
    scene.commit(now, vec![change.clone()]);
    let record = Record::Namespace { namespace: space_name(), change, reason };
    guard.judge_batch(&Batch { term: Term(1), records: vec![record] }, scene.facts.at(now))
}

/// The verdict when keys 0-9 are given up as dropped after this happened.
fn drop_after(happen: impl FnOnce(&mut Scene, &mut PlannedChangesLoseNothing)) -> Verdict {
    let (mut scene, mut guard) = holding();
    happen(&mut scene, &mut guard);
    commit(&mut scene, &mut guard, at(30), release(0, 9, 1), Reason::Dropped)
}

fn recall(to: Option<u64>) -> Change {
    Change::Recalled { range: range(0, 9), generation: generation(1), to: to.map(session) }
}

#[test]
fn state_of_a_healthy_owner_is_not_given_up() {
    let violation = drop_after(|_, _| {}).unwrap_err();
    assert_eq!((violation.invariant, violation.keys.len()), ("S4", 1));
    assert!(violation.what.contains("Dropped"), "{}", violation.what);
    let (mut scene, mut guard) = holding();
    assert!(commit(&mut scene, &mut guard, at(30), grant(5, 9, 2, 2), Reason::Unowned).is_err());
}

#[test]
fn a_clean_grant_and_what_was_never_held_lose_nothing() {
    let (mut scene, mut guard) = holding();
    commit(&mut scene, &mut guard, at(1), clean_grant(0, 9, 2, 2, 1), Reason::Migrated).unwrap();
    commit(&mut scene, &mut guard, at(1), grant(20, 29, 3, 2), Reason::Unowned).unwrap();
    let given_up = commit(&mut scene, &mut guard, at(2), release(20, 29, 3), Reason::Dropped);
    assert_eq!(given_up, Ok(()), "nobody ever held it");
    assert!(commit(&mut scene, &mut guard, at(3), release(0, 9, 2), Reason::Dropped).is_err());
}

#[test]
fn a_death_a_departure_and_a_pause_of_the_clock_are_causes() {
    for cause in [Cause::Ended, Cause::Left, Cause::Evicted] {
        assert_eq!(drop_after(|_, guard| guard.end(session(1), cause)), Ok(()));
    }
    assert_eq!(drop_after(|_, guard| guard.mark(session(1), Cause::Suspended)), Ok(()));
}

#[test]
fn the_end_of_a_drained_owner_is_no_cause() {
    let verdict = drop_after(|_, guard| {
        guard.hear_action(at(1), session(1), &OwnerAction::Drained);
        guard.end(session(1), Cause::Ended);
    });
    assert!(verdict.is_err());
}

#[test]
fn a_lease_without_contact_is_a_cause_until_the_state_is_held_again() {
    let (mut scene, mut guard) = holding();
    assert_eq!(commit(&mut scene, &mut guard, at(65), release(0, 4, 1), Reason::HoldExpired), Ok(()));
    guard.note_lapse(at(66), session(1));
    guard.processes.get_mut(&session(1)).unwrap().in_contact_until = at(200);
    assert_eq!(commit(&mut scene, &mut guard, at(70), release(5, 6, 1), Reason::Dropped), Ok(()));
    guard.gain(session(1), &[Lot { range: range(7, 9), generation: generation(1) }]);
    assert!(commit(&mut scene, &mut guard, at(70), release(7, 9, 1), Reason::Dropped).is_err());
}

#[test]
fn who_imported_the_state_may_lose_it_too() {
    let moved = |_: &mut Scene, guard: &mut PlannedChangesLoseNothing| {
        guard.change(session(1), Lot { range: range(0, 9), generation: generation(1) }, |custody| {
            custody.asked = Some((at(1), session(2), TransferId(1)));
        });
        let (range, generation, why) = (range(0, 9), generation(1), RevokedReason::Moved);
        guard.revoke(session(1), &Revocation { range, generation, why });
    };
    assert!(drop_after(moved).is_err());
    let verdict = drop_after(|scene, guard| {
        moved(scene, guard);
        guard.end(session(2), Cause::Ended);
    });
    assert_eq!(verdict, Ok(()));
}

/// The verdict when a migration to session 2 times out at 30 s and the range is given back.
fn time_out(happen: impl FnOnce(&mut PlannedChangesLoseNothing)) -> Verdict {
    let (mut scene, mut guard) = holding();
    let timeout = Duration::from_secs(20);
    *slot(&mut guard.migration_timeouts, 0) = timeout;
    commit(&mut scene, &mut guard, at(10), recall(Some(2)), Reason::Repartitioned).unwrap();
    happen(&mut guard);
    commit(&mut scene, &mut guard, at(30), recall(None), Reason::MigrationTimedOut).unwrap();
    commit(&mut scene, &mut guard, at(31), release(0, 9, 1), Reason::GivenBack)
}

#[test]
fn a_migration_times_out_only_if_something_held_it_up() {
    let ask = |guard: &mut PlannedChangesLoseNothing, since| {
        guard.change(session(1), Lot { range: range(0, 9), generation: generation(1) }, |custody| {
            custody.asked = Some((since, session(2), TransferId(1)));
        });
    };
    assert!(time_out(|_| {}).is_err());
    assert!(time_out(|guard| ask(guard, at(25))).is_err(), "the application had no time");
    assert_eq!(time_out(|guard| ask(guard, at(12))), Ok(()));
    let disturb = |node, until| {
        move |guard: &mut PlannedChangesLoseNothing| {
            guard.disturbed.insert(node, until);
        }
    };
    assert_eq!(time_out(disturb(Node::Owner(1), at(15))), Ok(()));
    assert_eq!(time_out(disturb(Node::Manager(0), at(15))), Ok(()));
    assert!(time_out(disturb(Node::Owner(1), at(5))).is_err(), "before the recall");
    assert!(time_out(disturb(Node::Owner(7), at(15))).is_err(), "somebody else");
}

#[test]
fn an_owner_that_cannot_move_state_may_lose_it() {
    let cannot = |_: &mut Scene, guard: &mut PlannedChangesLoseNothing| {
        guard.processes.get_mut(&session(1)).unwrap().migrates = false;
    };
    assert_eq!(drop_after(cannot), Ok(()));
}

#[test]
fn an_eviction_is_read_from_the_records() {
    let verdict = drop_after(|scene, guard| {
        let Change::SessionStarted { session, info } = start_session(1) else { return };
        let info = SessionInfo { evicted: true, ..info };
        let evict = Change::SessionChanged { session, info };
        commit(scene, guard, at(2), evict, Reason::Operator("it misbehaves".into())).unwrap();
    });
    assert_eq!(verdict, Ok(()));
}

#[test]
fn a_new_leader_without_a_store_must_learn_what_is_held() {
    let (mut scene, mut guard) = holding();
    scene.facts.limits.diskless = true;
    commit(&mut scene, &mut guard, at(1), create_above(2, 10), Reason::Joined).unwrap();
    commit(&mut scene, &mut guard, at(2), claim(0, 4, 1, 1, 1), Reason::Claimed).unwrap();
    assert_eq!(commit(&mut scene, &mut guard, at(3), grant(20, 29, 12, 2), Reason::Unowned), Ok(()));
    assert!(commit(&mut scene, &mut guard, at(4), grant(5, 9, 13, 2), Reason::Unowned).is_err());
}
