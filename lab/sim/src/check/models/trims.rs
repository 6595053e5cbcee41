//! Worlds in which load decides: Trim splits a range, moves a part of it and joins what is cold, before the eyes of every Lookup that
//! there could be, however stale.

use std::time::Duration;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::Settings;

use crate::check::properties::{
    HELD_CLEAN, MERGE_BEGUN, MERGED, NEW_PROCESS_HOLDS, SEEN_LOST_AND_MERGED, SEEN_MERGED, SPLIT, TWO_LEADERS,
};
use crate::check::scenario::Counted::{Crashes, Elections, Hellos, Starts};
use crate::check::scenario::{
    Boundary, ManagerPlan, Prelude, Scenario, configure, move_all, move_range, unpin_all,
};

use super::Model;
use super::transfers::movers;

pub(super) const ALL: &[Model] = &[trimmed, trim_lost, trim_led];

/// The same with more room, for whoever has minutes.
pub(super) const LONG: &[Model] = &[trim_long, trim_all];

/// The lower quarter, the middle and the upper quarter of the keys.
const CUTS: (Key, Key) = (Key(1 << 62), Key(3 << 62));

/// Which quarter of the keys has almost all load. The high end of it moves: with the upper quarter what moves is watched, with the lower
/// one what stays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hot {
    Lower,
    Upper,
}

/// Trim splits what is hot and moves a part of it, and joins what is cold, while messages are lost and overtake each other.
fn trimmed() -> Scenario {
    let mut trimmed = trim("trimmed", "Trim splits, moves and joins, before stale Lookups", Hot::Upper);
    trimmed.boundary = Boundary::once(&[0, 31_000, 32_000], 24, &[]);
    trimmed.milestones = &[MERGE_BEGUN, MERGED, SPLIT, HELD_CLEAN, SEEN_MERGED];
    trimmed
}

/// The same with messages that arrive again and again. Whoever holds everything may die at any time, and all state was lost before.
fn trim_lost() -> Scenario {
    let mut lost = trim("trim-lost", "a holder that dies while Trim splits, moves and joins", Hot::Lower);
    lost.prelude.splice(0..1, [Prelude::Start(0), Prelude::Crash(0), Prelude::Start(0)]);
    lost.boundary = Boundary::new(&[0, 31_000], 20, &[(Hellos, 1), (Crashes, 1), (Starts, 1)]);
    lost.milestones = &[MERGE_BEGUN, MERGED, SEEN_MERGED, SEEN_LOST_AND_MERGED, NEW_PROCESS_HOLDS];
    lost
}

/// A second Manager leads while Trim splits, moves and joins.
fn trim_led() -> Scenario {
    let mut led = trim("trim-led", "two leaders while Trim splits, moves and joins", Hot::Lower);
    led.managers = vec![ManagerPlan::steady(100), ManagerPlan::steady(500)];
    led.boundary = Boundary::once(&[0, 31_000, 32_000], 9, &[(Hellos, 2), (Elections, 1)]);
    led.milestones = &[MERGE_BEGUN, MERGED, SPLIT, TWO_LEADERS, SEEN_MERGED];
    led
}

/// The first of these for longer.
fn trim_long() -> Scenario {
    let mut long = trimmed();
    (long.name, long.boundary.instants) = ("trim-long", &[0, 31_000, 32_000, 33_000]);
    long.boundary.messages = 9;
    long
}

/// A holder dies and a second Manager leads.
fn trim_all() -> Scenario {
    let mut all = trim_led();
    (all.name, all.covers) =
        ("trim-all", "a holder that dies and two leaders while Trim splits, moves and joins");
    let most = &[(Hellos, 2), (Elections, 1), (Crashes, 1), (Starts, 1)];
    all.boundary = Boundary::once(&[0, 31_000, 32_000], 7, most);
    all.milestones = &[MERGE_BEGUN, MERGED, TWO_LEADERS, SEEN_MERGED];
    all
}

/// The first of two Owners has all keys as three leases of one age: two were moved away and back. One of them has almost all load.
/// Trim divides the keys from then on. Half a minute later what moved has rested: the two cold leases may become one, and the second
/// Owner gets its part of the hot one.
fn trim(name: &'static str, covers: &'static str, hot: Hot) -> Scenario {
    let mut scenario = movers(name, covers);
    let (middle, upper) = CUTS;
    scenario.settings = Settings {
        lease: Duration::from_secs(60),
        hold: Duration::from_secs(65),
        renewal: Duration::from_secs(1),
        max_ranges_per_owner: 2,
        ..scenario.settings
    };
    let by_load = Settings { partitioner: PartitionerKind::Trim, ..scenario.settings.clone() };
    scenario.prelude = vec![
        Prelude::Start(0),
        Prelude::Operate(move_all("a")),
        Prelude::Start(1),
        Prelude::Operate(move_range(middle, Key::MAX, "b")),
        Prelude::Operate(move_range(middle, Key(upper.0 - 1), "a")),
        Prelude::Operate(move_all("a")),
        Prelude::Operate(configure(by_load)),
        Prelude::Operate(unpin_all()),
    ];
    scenario.loads = vec![(0, loads(hot))];
    scenario.slow_apps = false;
    scenario.commands.clear();
    scenario.lookups = true;
    scenario
}

/// What the first Owner counts.
fn loads(hot: Hot) -> Vec<RangeLoad> {
    let (middle, upper) = CUTS;
    let load = |first: Key, last: Key, is_hot: bool| RangeLoad {
        range: KeyRange::new(first, last).expect("ranges begin before they end"),
        load: if is_hot { 1_000_000_000 } else { 1_000_000 },
        heavy: Vec::new(),
        quantiles: Vec::new(),
    };
    vec![
        load(Key::MIN, Key(middle.0 - 1), hot == Hot::Lower),
        load(middle, Key(upper.0 - 1), false),
        load(upper, Key::MAX, hot == Hot::Upper),
    ]
}
