//! Worlds of one Manager and its Owners: messages that cross, processes that come and go.

use std::time::Duration;

use centrifuge_core::id::{Credential, Nonce};
use centrifuge_core::owner::OwnerEvent;

use crate::check::properties::{HELD_AGAIN, MOVED, NEW_PROCESS_HOLDS, RACE_AT_MANAGER, RACE_AT_OWNER};
use crate::check::scenario::Counted::{Crashes, Hellos, Starts};
use crate::check::scenario::{Boundary, OwnerPlan, Prelude, Scenario, evict, move_all, steady};

use super::{Model, pair};

pub(super) const ALL: &[Model] = &[race, join, restart, leaving, evicted, jumped];

/// A range goes from one Owner to the other and back, as it did before: recalls, acknowledgments and grants cross each
/// other, their resends and the renewals in every order (Centrifuge §2.3.2, figures 6 and 7).
fn race() -> Scenario {
    let mut race = pair("race", "recalls, acknowledgments and grants that cross");
    race.prelude.extend([Prelude::Operate(move_all("b")), Prelude::Operate(move_all("a"))]);
    race.slow_store = true;
    race.commands = vec![move_all("b"), move_all("a")];
    race.boundary = Boundary::new(&[0, 1_000, 3_000], 13, &[]);
    race.milestones = &[MOVED, RACE_AT_OWNER, RACE_AT_MANAGER];
    race
}

/// An Owner joins another that has everything and gets half of it: hello, welcome, split, recall and grant, with
/// repeated hellos, over a store that takes its time.
fn join() -> Scenario {
    let mut join = Scenario::new("join", "an Owner that joins another and gets half of its keys");
    join.owners = vec![OwnerPlan::plain("a", steady(200)), OwnerPlan::plain("b", steady(300))];
    join.prelude = vec![Prelude::Start(0)];
    join.slow_store = true;
    join.boundary = Boundary::new(&[0, 1_000, 3_000], 10, &[(Hellos, 2), (Starts, 1)]);
    join.milestones = &[MOVED, NEW_PROCESS_HOLDS];
    join
}

/// Two Owners have half of the keys each. One of them has died and started again before and may do so once more,
/// vouching for it; or a second process of its name appears elsewhere, vouching for nothing. What was said to and by
/// the earlier processes, also when one of them had everything, is still on its way.
fn restart() -> Scenario {
    let mut restart = Scenario::new("restart", "a process that starts again, and a second one of its name");
    restart.owners = vec![
        OwnerPlan { takes_over: true, ..OwnerPlan::plain("a", steady(200)) },
        OwnerPlan::plain("b", steady(300)),
        OwnerPlan::plain("a", steady(400)),
    ];
    restart.prelude = vec![Prelude::Start(0), Prelude::Start(1), Prelude::Crash(0), Prelude::Start(0)];
    restart.boundary = Boundary::new(&[0, 1_000, 3_000], 9, &[(Hellos, 2), (Crashes, 1), (Starts, 1)]);
    restart.milestones = &[NEW_PROCESS_HOLDS];
    restart
}

/// An Owner is to be emptied, leaves, or dies while an operator moves its range.
fn leaving() -> Scenario {
    let mut leaving = pair("leaving", "an Owner that drains, leaves or dies while its range moves");
    leaving.wishes = vec![(0, OwnerEvent::Leave), (0, OwnerEvent::Drain)];
    leaving.commands = vec![move_all("b")];
    leaving.boundary = Boundary::new(&[0, 1_000], 8, &[(Crashes, 1)]);
    leaving.milestones = &[MOVED];
    leaving
}

/// An operator evicts an Owner whose application is slow to let go: the recall is not renewed after its time, and the
/// hold runs out.
fn evicted() -> Scenario {
    let mut evicted = pair("evicted", "an Owner that is evicted and slow to let go");
    evicted.commands = vec![evict("a")];
    evicted.slow_apps = true;
    evicted.settings.recall_timeout = Duration::from_secs(1);
    evicted.boundary = Boundary::new(&[0, 1_000, 13_000], 8, &[]);
    evicted.milestones = &[MOVED];
    evicted
}

/// An Owner's clock jumps, so that it drops its leases and its conversation, while its range moves.
fn jumped() -> Scenario {
    let mut jumped = pair("jumped", "an Owner whose clock jumps while its range moves");
    jumped.wishes = vec![(0, OwnerEvent::ClockJumped { fresh: Credential::unproven(Nonce(0xa2)) })];
    jumped.commands = vec![move_all("b")];
    jumped.boundary = Boundary::new(&[0, 1_000], 9, &[(Hellos, 1)]);
    jumped.milestones = &[MOVED, HELD_AGAIN];
    jumped
}
