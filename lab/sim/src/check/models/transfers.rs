//! Worlds in which state moves: copies that arrive late, twice, at another process, or not at all.

use std::time::Duration;

use crate::check::properties::{HELD_AGAIN, HELD_CLEAN, LOST, NEW_LEADER_GRANTS, TWO_LEADERS};
use crate::check::scenario::Counted::{
    Breaks, Crashes, Elections, Failures, Hellos, Restores, Starts, Writes,
};
use crate::check::scenario::{Boundary, Command, ManagerPlan, Scenario, move_all};

use super::{Model, pair};

pub(super) const ALL: &[Model] =
    &[migration, recopied, overdue, handover, relieved, rejoined, restored, late];

/// A range moves with its state while an end of the move dies and starts again, a transfer fails and a write is
/// served. A lease that claims to come with its state is taken up only by the process that has all of it.
fn migration() -> Scenario {
    let mut migration = movers("migration", "state that moves while an end of the move starts again");
    migration.boundary =
        Boundary::new(&[0, 1_000], 8, &[(Hellos, 1), (Crashes, 1), (Starts, 1), (Writes, 1), (Failures, 1)]);
    migration.milestones = &[HELD_CLEAN];
    migration
}

/// A move is taken back and asked for again: the destination has a copy of the first attempt, which a write has made
/// stale.
fn recopied() -> Scenario {
    let mut recopied = movers("recopied", "state that is copied again after a recall was taken back");
    recopied.commands = vec![move_all("b"), move_all("a"), move_all("b")];
    recopied.boundary = Boundary::new(&[0], 16, &[(Writes, 1), (Failures, 1)]);
    recopied.milestones = &[HELD_CLEAN];
    recopied
}

/// A move that takes longer than it may becomes a plain recall, and that is not renewed after its time.
fn overdue() -> Scenario {
    let mut overdue = movers("overdue", "a move that takes longer than it may");
    overdue.losses_need_causes = false;
    overdue.settings.migration_timeout = Duration::from_secs(1);
    overdue.settings.recall_timeout = Duration::from_secs(1);
    overdue.boundary = Boundary::new(&[0, 1_000, 3_000], 11, &[(Writes, 1)]);
    overdue.milestones = &[HELD_CLEAN, LOST];
    overdue
}

/// A new leader takes over in the middle of a move.
fn handover() -> Scenario {
    let mut handover = movers("handover", "a new leader in the middle of a move");
    handover.managers = vec![ManagerPlan::steady(100), ManagerPlan::steady(500)];
    handover.boundary = Boundary::new(&[0, 3_000], 9, &[(Hellos, 2), (Elections, 1), (Writes, 1)]);
    handover.milestones = &[HELD_CLEAN, TWO_LEADERS];
    handover
}

/// The leader resigns or dies in the middle of a move, and its next process goes on with it. An Owner sees at once that
/// its stream broke, or finds out later.
fn relieved() -> Scenario {
    let mut relieved = movers("relieved", "a leader that resigns or dies in the middle of a move");
    relieved.commands = vec![move_all("b"), Command::Resign];
    relieved.boundary = Boundary::once(&[0, 1_000], 13, &[(Hellos, 2), (Elections, 1), (Breaks, 1)]);
    relieved.milestones = &[HELD_CLEAN, NEW_LEADER_GRANTS];
    relieved
}

/// The stream of either end breaks in the middle of a move, and that end asks for another conversation. What was said in
/// the first may still arrive.
fn rejoined() -> Scenario {
    let mut rejoined = movers("rejoined", "streams that break in the middle of a move");
    rejoined.boundary = Boundary::once(&[0, 1_000], 14, &[(Hellos, 2), (Breaks, 2), (Writes, 1)]);
    rejoined.milestones = &[HELD_CLEAN];
    rejoined
}

/// Either end of a move is restored from an earlier state, with the copies that it had then, perhaps while the leader
/// changes. It goes on as another session; what its earlier one said and was granted may still arrive.
fn restored() -> Scenario {
    let mut restored = movers("restored", "an end of a move that is restored from an earlier state");
    restored.boundary = Boundary::once(&[0], 18, &[(Hellos, 3), (Elections, 1), (Restores, 1), (Writes, 1)]);
    restored.milestones = &[HELD_CLEAN, HELD_AGAIN];
    restored
}

/// Messages take as long as a lease lasts. What they offer is neither taken up nor refused, and ends with the hold.
fn late() -> Scenario {
    let mut late = movers("late", "grants that arrive when their lease time is over");
    late.slow_apps = false;
    late.boundary = Boundary::new(&[0, 12_000, 13_000], 10, &[]);
    late.milestones = &[HELD_CLEAN, LOST];
    late
}

/// Two Owners whose applications move state in their own time, and an operator who wants a move.
pub(super) fn movers(name: &'static str, covers: &'static str) -> Scenario {
    let mut scenario = pair(name, covers);
    for plan in &mut scenario.owners {
        plan.migrates = true;
        plan.takes_over = true;
    }
    scenario.slow_apps = true;
    scenario.losses_need_causes = true;
    scenario.commands = vec![move_all("b")];
    scenario
}
