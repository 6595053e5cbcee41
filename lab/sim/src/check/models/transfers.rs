//! Worlds in which state moves: copies that arrive late, twice, at another process, or not at all.

use std::time::Duration;

use crate::check::properties::Milestone;
use crate::check::scenario::{Boundary, Command, ManagerPlan, Scenario, move_all};

use super::pair;

/// A range moves with its state while an end of the move dies and starts again, a transfer fails and a write is
/// served. A lease that claims to come with its state is taken up only by the process that has all of it.
pub(super) fn migration() -> Scenario {
    let mut migration = movers("migration", "state that moves while an end of the move starts again");
    migration.boundary = Boundary {
        instants: vec![0, 1_000],
        messages: 8,
        hellos: 1,
        crashes: 1,
        starts: 1,
        writes: 1,
        failures: 1,
        ..Boundary::default()
    };
    migration.milestones = &[Milestone::HeldClean];
    migration
}

/// A move is taken back and asked for again: the destination has a copy of the first attempt, which a write has made
/// stale.
pub(super) fn recopied() -> Scenario {
    let mut recopied = movers("recopied", "state that is copied again after a recall was taken back");
    recopied.commands = vec![move_all("b"), move_all("a"), move_all("b")];
    recopied.boundary =
        Boundary { instants: vec![0], messages: 16, writes: 1, failures: 1, ..Boundary::default() };
    recopied.milestones = &[Milestone::HeldClean];
    recopied
}

/// A move that takes longer than it may becomes a plain recall, and that is not renewed after its time.
pub(super) fn overdue() -> Scenario {
    let mut overdue = movers("overdue", "a move that takes longer than it may");
    overdue.losses_need_causes = false;
    overdue.settings.migration_timeout = Duration::from_secs(1);
    overdue.settings.recall_timeout = Duration::from_secs(1);
    overdue.boundary =
        Boundary { instants: vec![0, 1_000, 3_000], messages: 11, writes: 1, ..Boundary::default() };
    overdue.milestones = &[Milestone::HeldClean, Milestone::Lost];
    overdue
}

/// A new leader takes over in the middle of a move.
pub(super) fn handover() -> Scenario {
    let mut handover = movers("handover", "a new leader in the middle of a move");
    handover.managers = vec![ManagerPlan::steady(100), ManagerPlan::steady(500)];
    handover.boundary = Boundary {
        instants: vec![0, 3_000],
        messages: 9,
        hellos: 2,
        elections: 1,
        writes: 1,
        ..Boundary::default()
    };
    handover.milestones = &[Milestone::HeldClean, Milestone::TwoLeaders];
    handover
}

/// The leader resigns or dies in the middle of a move, and its next process goes on with it. An Owner sees at once that
/// its stream broke, or finds out later.
pub(super) fn relieved() -> Scenario {
    let mut relieved = movers("relieved", "a leader that resigns or dies in the middle of a move");
    relieved.commands = vec![move_all("b"), Command::Resign];
    relieved.boundary = Boundary {
        instants: vec![0, 1_000],
        messages: 13,
        no_duplicates: true,
        hellos: 2,
        elections: 1,
        breaks: 1,
        ..Boundary::default()
    };
    relieved.milestones = &[Milestone::HeldClean, Milestone::NewLeaderGrants];
    relieved
}

/// The stream of either end breaks in the middle of a move, and that end asks for another conversation. What was said in
/// the first may still arrive.
pub(super) fn rejoined() -> Scenario {
    let mut rejoined = movers("rejoined", "streams that break in the middle of a move");
    rejoined.boundary = Boundary {
        instants: vec![0, 1_000],
        messages: 14,
        no_duplicates: true,
        hellos: 2,
        breaks: 2,
        writes: 1,
        ..Boundary::default()
    };
    rejoined.milestones = &[Milestone::HeldClean];
    rejoined
}

/// Either end of a move is restored from an earlier state, with the copies that it had then, perhaps while the leader
/// changes. It goes on as another session; what its earlier one said and was granted may still arrive.
pub(super) fn restored() -> Scenario {
    let mut restored = movers("restored", "an end of a move that is restored from an earlier state");
    restored.boundary = Boundary {
        instants: vec![0],
        messages: 18,
        no_duplicates: true,
        hellos: 3,
        elections: 1,
        restores: 1,
        writes: 1,
        ..Boundary::default()
    };
    restored.milestones = &[Milestone::HeldClean, Milestone::HeldAgain];
    restored
}

/// Messages take as long as a lease lasts. What they offer is neither taken up nor refused, and ends with the hold.
pub(super) fn late() -> Scenario {
    let mut late = movers("late", "grants that arrive when their lease time is over");
    late.slow_apps = false;
    late.boundary = Boundary { instants: vec![0, 12_000, 13_000], messages: 10, ..Boundary::default() };
    late.milestones = &[Milestone::HeldClean, Milestone::Lost];
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
