//! Worlds with more than one leader, and with a store that takes its time.

use std::time::Duration;

use crate::check::properties::{IN_DOUBT, MOVED, NEW_LEADER_GRANTS, NEW_PROCESS_HOLDS, TWO_LEADERS};
use crate::check::scenario::Counted::{Crashes, Doubts, Elections, Hellos, Starts};
use crate::check::scenario::{Boundary, Command, ManagerPlan, Prelude, Scenario, move_all};

use super::{Model, pair};

pub(super) const ALL: &[Model] = &[failover, deposed, resigned, reborn, fenced, doubt];

/// A second Manager leads, perhaps long before the first one's leader lease is over, and an Owner joins it. The first
/// renews leases as long as it may by its own clock; the second must not give them away before they can have ended.
fn failover() -> Scenario {
    let mut failover = succession("failover", "a new leader while the old one acts by its own clock");
    failover.boundary.instants = &[0, 3_000, 13_500];
    failover.boundary.messages = 9;
    failover
}

/// As before, but the first Manager is asked again only after its time.
fn deposed() -> Scenario {
    let mut deposed = succession("deposed", "an old leader that is asked again after its time");
    deposed.boundary.instants = &[0, 6_000, 17_500];
    deposed
}

/// The first Manager resigns, over a store that takes its time, and the second need not wait for it.
fn resigned() -> Scenario {
    let mut resigned = succession("resigned", "a leader that resigns, and its successor");
    resigned.commands = vec![Command::Resign];
    resigned.slow_store = true;
    resigned.boundary.instants = &[0, 13_500];
    resigned.boundary.messages = 7;
    resigned
}

/// A Manager whose leader lease is short and whose timers are starved, one that takes over, an Owner that knows both,
/// and one that knows the second alone.
fn succession(name: &'static str, covers: &'static str) -> Scenario {
    let mut scenario = pair(name, covers);
    let first =
        ManagerPlan { leader_lease: Duration::from_secs(4), starved: true, ..ManagerPlan::steady(100) };
    scenario.managers = vec![first, ManagerPlan::steady(500)];
    scenario.owners[1].first_manager = 1;
    scenario.prelude = vec![Prelude::Start(0)];
    scenario.boundary = Boundary::new(&[0], 8, &[(Hellos, 2), (Starts, 1), (Elections, 1)]);
    scenario.milestones = &[TWO_LEADERS, NEW_LEADER_GRANTS];
    scenario
}

/// The only Manager dies and starts again at the same place, and so does an Owner, which vouches for it. What was said
/// to the earlier processes still arrives at the later ones.
fn reborn() -> Scenario {
    let mut reborn = pair("reborn", "a Manager and an Owner that start again where they were");
    reborn.owners[0].takes_over = true;
    reborn.prelude = vec![Prelude::Start(0), Prelude::Start(1)];
    reborn.boundary =
        Boundary::new(&[0, 1_000], 9, &[(Hellos, 2), (Crashes, 1), (Starts, 1), (Elections, 1)]);
    reborn.milestones = &[NEW_PROCESS_HOLDS, NEW_LEADER_GRANTS];
    reborn
}

/// A second Manager leads while batches of the first are on their way to the store, which must refuse them.
fn fenced() -> Scenario {
    let mut fenced = pair("fenced", "a new leader while batches of the old one are under way");
    fenced.managers = vec![ManagerPlan::steady(100), ManagerPlan::steady(500)];
    fenced.slow_store = true;
    fenced.commands = vec![move_all("b"), move_all("a")];
    fenced.boundary = Boundary::new(&[0, 1_000], 6, &[(Hellos, 1), (Elections, 1)]);
    fenced.milestones = &[TWO_LEADERS];
    fenced
}

/// The store leaves a batch in doubt: it may have got to the log, get there late, or never.
fn doubt() -> Scenario {
    let mut doubt = pair("doubt", "a batch in doubt, and what is decided after it");
    doubt.slow_store = true;
    doubt.commands = vec![move_all("b"), move_all("a")];
    doubt.boundary = Boundary::new(&[0, 1_000, 2_000], 9, &[(Doubts, 1)]);
    doubt.milestones = &[IN_DOUBT, MOVED];
    doubt
}
