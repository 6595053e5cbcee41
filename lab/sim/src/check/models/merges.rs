//! Worlds in which neighbouring leases of one Owner become one, before the eyes of every Lookup that there could be.

use std::time::Duration;

use centrifuge_core::key::Key;

use crate::check::properties::Milestone;
use crate::check::scenario::{
    Boundary, Command, ManagerPlan, Prelude, Scenario, move_all, move_range, move_upper,
};

use super::transfers::movers;

/// Neighbours become one lease and the upper half of them is wanted elsewhere, while messages are lost, repeated and
/// overtaken, and a write is served.
pub(super) fn merged() -> Scenario {
    let mut merged = neighbours("merged", "neighbours that become one lease while half of it moves");
    merged.commands = vec![move_upper("b")];
    merged.boundary =
        Boundary { instants: vec![0, 1_000, 2_000], messages: 8, writes: 1, ..Boundary::default() };
    merged.milestones =
        &[Milestone::MergeBegun, Milestone::Merged, Milestone::MergedMoved, Milestone::SeenMerged];
    merged
}

/// As before, but messages arrive once at most, and more of them: the copy of what moves under the new number is reported before
/// the Manager knows that its holder has that number.
pub(super) fn merge_moved() -> Scenario {
    let mut moved =
        neighbours("merge-moved", "half of a lease that moves before the switch to its new number");
    moved.commands = vec![move_upper("b")];
    moved.boundary = Boundary {
        instants: vec![0, 1_000, 2_000],
        messages: 11,
        no_duplicates: true,
        ..Boundary::default()
    };
    moved.milestones =
        &[Milestone::MergeBegun, Milestone::Merged, Milestone::MergedMoved, Milestone::SeenMerged];
    moved
}

/// The upper half is wanted elsewhere, kept after all, and wanted elsewhere again; meanwhile neighbours become one lease, so that
/// a transfer was begun under one number and has to begin again under another.
pub(super) fn merge_back() -> Scenario {
    let mut back =
        neighbours("merge-back", "moves taken back and repeated while neighbours become one lease");
    back.commands = vec![move_upper("b"), move_upper("a"), move_upper("b")];
    back.boundary = Boundary {
        instants: vec![0, 1_000],
        messages: 10,
        no_duplicates: true,
        writes: 1,
        ..Boundary::default()
    };
    back.milestones = &[Milestone::MergeBegun, Milestone::Merged, Milestone::HeldClean];
    back
}

/// The stream of their holder breaks while neighbours become one lease, and it has another conversation, or it is restored from an
/// earlier state. What was said before may still arrive.
pub(super) fn merge_torn() -> Scenario {
    let mut torn =
        neighbours("merge-torn", "a holder that reconnects or is restored while neighbours become one lease");
    torn.prelude.push(Prelude::Crash(1));
    torn.boundary = Boundary {
        instants: vec![0, 1_000, 2_000],
        messages: 13,
        no_duplicates: true,
        hellos: 2,
        breaks: 2,
        restores: 1,
        ..Boundary::default()
    };
    torn.milestones = &[Milestone::MergeBegun, Milestone::Merged, Milestone::SeenMerged];
    torn
}

/// All state was lost before, as some Lookups have yet to hear. The switch to the new number is on its way to a store that takes its time, while messages are answered.
pub(super) fn merge_slow() -> Scenario {
    let mut slow = neighbours("merge-slow", "neighbours that become one lease in a slow store");
    slow.prelude = vec![
        Prelude::Start(0),
        Prelude::Crash(0),
        Prelude::Start(1),
        Prelude::Start(0),
        Prelude::Operate(move_all("a")),
    ];
    slow.slow_store = true;
    slow.slow_apps = false;
    slow.commands = vec![move_upper("b")];
    slow.boundary = Boundary { instants: vec![0, 1_000, 2_000], messages: 7, ..Boundary::default() };
    slow.milestones =
        &[Milestone::MergeBegun, Milestone::Merged, Milestone::SeenMerged, Milestone::SeenLostAndMerged];
    slow
}

/// The leader resigns or dies between the word that neighbours become one lease and the switch to it, and its next process
/// goes on with it. Their holder sees at once that its stream broke, or finds out later.
pub(super) fn merge_led() -> Scenario {
    let mut led = neighbours("merge-led", "a new leader while neighbours become one lease");
    // The other one is of no use any more.
    led.prelude.push(Prelude::Crash(1));
    led.commands = vec![Command::Resign];
    led.boundary = Boundary {
        instants: vec![0, 1_000, 2_000],
        messages: 12,
        no_duplicates: true,
        hellos: 2,
        elections: 1,
        breaks: 1,
        ..Boundary::default()
    };
    led.milestones =
        &[Milestone::MergeBegun, Milestone::Merged, Milestone::MergedByNextLeader, Milestone::SeenMerged];
    led
}

/// A second Manager leads while the first one acts by its own clock and makes neighbours one lease.
pub(super) fn merge_two() -> Scenario {
    let mut two = neighbours("merge-two", "two leaders while neighbours become one lease");
    two.prelude.push(Prelude::Crash(1));
    two.managers = vec![ManagerPlan::steady(100), ManagerPlan::steady(500)];
    two.boundary = Boundary {
        instants: vec![0, 1_000, 2_000],
        messages: 13,
        no_duplicates: true,
        hellos: 2,
        elections: 1,
        breaks: 1,
        ..Boundary::default()
    };
    two.milestones = &[
        Milestone::MergeBegun,
        Milestone::Merged,
        Milestone::MergedByNextLeader,
        Milestone::TwoLeaders,
        Milestone::SeenMerged,
    ];
    two
}

/// The state of the upper keys was lost before, so that their lease stays apart while those of the rest become one. The process
/// that holds them all may die at any time, and its next one begins empty. Whatever a Lookup knew of each of these states, and
/// whenever it looks again, it tells of what was lost since and of nothing else.
pub(super) fn merge_lost() -> Scenario {
    let mut lost =
        neighbours("merge-lost", "state that is lost before, while and after neighbours become one lease");
    let upper_two_thirds = move_range(Key(1 << 62), Key::MAX, "b");
    let middle = move_range(Key(1 << 62), Key((1 << 63) - 1), "a");
    lost.prelude = vec![
        Prelude::Start(0),
        Prelude::Operate(move_all("a")),
        Prelude::Start(1),
        Prelude::Operate(upper_two_thirds),
        Prelude::Operate(middle),
        Prelude::Crash(1),
        Prelude::Start(1),
        Prelude::Operate(move_all("a")),
    ];
    lost.boundary = Boundary {
        instants: vec![0, 1_000, 2_000],
        messages: 9,
        no_duplicates: true,
        hellos: 1,
        crashes: 1,
        starts: 1,
        ..Boundary::default()
    };
    lost.milestones =
        &[Milestone::MergeBegun, Milestone::Merged, Milestone::SeenMerged, Milestone::NewProcessHolds];
    lost
}

/// The first of two Owners has all keys as two leases of one age: the upper half was moved away and back.
fn neighbours(name: &'static str, covers: &'static str) -> Scenario {
    let mut scenario = movers(name, covers);
    scenario.prelude = vec![Prelude::Start(0), Prelude::Start(1), Prelude::Operate(move_all("a"))];
    scenario.settings.renewal = Duration::from_secs(1);
    scenario.settings.load_interval = Duration::from_secs(1);
    scenario.commands.clear();
    scenario.lookups = true;
    scenario
}
