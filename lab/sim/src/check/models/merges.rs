//! Worlds in which neighbouring leases of one Owner become one, before the eyes of every Lookup that there could be.

use std::time::Duration;

use centrifuge_core::key::Key;

use crate::check::properties::{
    HELD_CLEAN, MERGE_BEGUN, MERGED, MERGED_BY_NEXT_LEADER, MERGED_MOVED, NEW_PROCESS_HOLDS,
    SEEN_LOST_AND_MERGED, SEEN_MERGED, TWO_LEADERS,
};
use crate::check::scenario::Counted::{Breaks, Crashes, Elections, Hellos, Restores, Starts, Writes};
use crate::check::scenario::{
    Boundary, Command, ManagerPlan, Prelude, Scenario, move_all, move_range, move_upper,
};

use super::Model;
use super::transfers::movers;

pub(super) const ALL: &[Model] =
    &[merged, merge_moved, merge_back, merge_torn, merge_slow, merge_led, merge_two, merge_lost];

/// Neighbours become one lease and the upper half of them is wanted elsewhere, while messages are lost, repeated and
/// overtaken, and a write is served.
fn merged() -> Scenario {
    let mut merged = neighbours("merged", "neighbours that become one lease while half of it moves");
    merged.commands = vec![move_upper("b")];
    merged.boundary = Boundary::new(&[0, 1_000, 2_000], 8, &[(Writes, 1)]);
    merged.milestones = &[MERGE_BEGUN, MERGED, MERGED_MOVED, SEEN_MERGED];
    merged
}

/// As before, but messages arrive once at most, and more of them: the copy of what moves under the new number is reported before
/// the Manager knows that its holder has that number.
fn merge_moved() -> Scenario {
    let mut moved =
        neighbours("merge-moved", "half of a lease that moves before the switch to its new number");
    moved.commands = vec![move_upper("b")];
    moved.boundary = Boundary::once(&[0, 1_000, 2_000], 11, &[]);
    moved.milestones = &[MERGE_BEGUN, MERGED, MERGED_MOVED, SEEN_MERGED];
    moved
}

/// The upper half is wanted elsewhere, kept after all, and wanted elsewhere again; meanwhile neighbours become one lease, so that
/// a transfer was begun under one number and has to begin again under another.
fn merge_back() -> Scenario {
    let mut back =
        neighbours("merge-back", "moves taken back and repeated while neighbours become one lease");
    back.commands = vec![move_upper("b"), move_upper("a"), move_upper("b")];
    back.boundary = Boundary::once(&[0, 1_000], 10, &[(Writes, 1)]);
    back.milestones = &[MERGE_BEGUN, MERGED, HELD_CLEAN];
    back
}

/// The stream of their holder breaks while neighbours become one lease, and it has another conversation, or it is restored from an
/// earlier state. What was said before may still arrive.
fn merge_torn() -> Scenario {
    let mut torn =
        neighbours("merge-torn", "a holder that reconnects or is restored while neighbours become one lease");
    torn.prelude.push(Prelude::Crash(1));
    torn.boundary = Boundary::once(&[0, 1_000, 2_000], 13, &[(Hellos, 2), (Breaks, 2), (Restores, 1)]);
    torn.milestones = &[MERGE_BEGUN, MERGED, SEEN_MERGED];
    torn
}

/// All state was lost before, as some Lookups have yet to hear. The switch to the new number is on its way to a store that takes its time, while messages are answered.
fn merge_slow() -> Scenario {
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
    slow.boundary = Boundary::new(&[0, 1_000, 2_000], 7, &[]);
    slow.milestones = &[MERGE_BEGUN, MERGED, SEEN_MERGED, SEEN_LOST_AND_MERGED];
    slow
}

/// The leader resigns or dies between the word that neighbours become one lease and the switch to it, and its next process
/// goes on with it. Their holder sees at once that its stream broke, or finds out later.
fn merge_led() -> Scenario {
    let mut led = neighbours("merge-led", "a new leader while neighbours become one lease");
    // The other one is of no use any more.
    led.prelude.push(Prelude::Crash(1));
    led.commands = vec![Command::Resign];
    led.boundary = Boundary::once(&[0, 1_000, 2_000], 12, &[(Hellos, 2), (Elections, 1), (Breaks, 1)]);
    led.milestones = &[MERGE_BEGUN, MERGED, MERGED_BY_NEXT_LEADER, SEEN_MERGED];
    led
}

/// A second Manager leads while the first one acts by its own clock and makes neighbours one lease.
fn merge_two() -> Scenario {
    let mut two = neighbours("merge-two", "two leaders while neighbours become one lease");
    two.prelude.push(Prelude::Crash(1));
    two.managers = vec![ManagerPlan::steady(100), ManagerPlan::steady(500)];
    two.boundary = Boundary::once(&[0, 1_000, 2_000], 13, &[(Hellos, 2), (Elections, 1), (Breaks, 1)]);
    two.milestones = &[MERGE_BEGUN, MERGED, MERGED_BY_NEXT_LEADER, TWO_LEADERS, SEEN_MERGED];
    two
}

/// The state of the upper keys was lost before, so that their lease stays apart while those of the rest become one. The process
/// that holds them all may die at any time, and its next one begins empty. Whatever a Lookup knew of each of these states, and
/// whenever it looks again, it tells of what was lost since and of nothing else.
fn merge_lost() -> Scenario {
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
    lost.boundary = Boundary::once(&[0, 1_000, 2_000], 9, &[(Hellos, 1), (Crashes, 1), (Starts, 1)]);
    lost.milestones = &[MERGE_BEGUN, MERGED, SEEN_MERGED, NEW_PROCESS_HOLDS];
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
