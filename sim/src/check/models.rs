//! The small worlds that are exhausted.

use std::time::Duration;

use centrifuge_core::manager::AdminCommand;
use centrifuge_core::settings::Settings;

use super::properties::Milestone;
use super::scenario::{Boundary, Clock, Expect, OwnerPlan, Prelude, Scenario, move_all, namespace};

/// All of them.
pub(super) fn all() -> Vec<Scenario> {
    vec![race(), restart(), expiry(), failover(), doubt(), migration(), shortened(), drift()]
}

/// Two Owners and a range that an operator moves from one to the other: recalls, acknowledgments and grants cross
/// each other and the renewals (Centrifuge §2.3.2, figures 6 and 7).
fn race() -> Scenario {
    let mut race = pair("race", "recalls, acknowledgments and grants that cross");
    race.commands = vec![move_all("b"), move_all("a")];
    race.boundary = Boundary { instants: vec![0, 1_000, 3_000], messages: 8, ..Boundary::default() };
    race.milestones = &[Milestone::Moved, Milestone::RaceAtOwner, Milestone::RaceAtManager];
    race
}

/// Two Owners who each have half of the keys; one dies and starts again, vouching for it, or a second process of its
/// name appears elsewhere, vouching for nothing. Everything that was ever said stays on the way.
fn restart() -> Scenario {
    let mut restart = Scenario::new("restart", "a process that starts again, and a second one of its name");
    restart.owners = vec![
        OwnerPlan { takes_over: true, ..OwnerPlan::plain("a", Clock::steady(200)) },
        OwnerPlan::plain("b", Clock::steady(300)),
        OwnerPlan::plain("a", Clock::steady(400)),
    ];
    restart.prelude = vec![Prelude::Start(0), Prelude::Start(1)];
    restart.boundary = Boundary {
        instants: vec![0, 1_000, 3_000],
        messages: 8,
        hellos: 3,
        crashes: 1,
        starts: 1,
        ..Boundary::default()
    };
    restart.milestones = &[Milestone::NewProcessHolds];
    restart
}

/// An Owner that is cut off until its lease is over, at the very bound of the clock rates.
fn expiry() -> Scenario {
    let mut expiry = pair("expiry", "leases that run out at the drift bound, and what arrives afterwards");
    expiry.managers = vec![Clock { offset: 100, counts: 13, during: 12 }];
    expiry.boundary =
        Boundary { instants: vec![0, 3_000, 12_000, 15_000], messages: 7, hellos: 1, ..Boundary::default() };
    expiry.milestones = &[Milestone::Moved, Milestone::Expired, Milestone::HeldAgain];
    expiry
}

/// A second Manager takes over while the first may still act by its own clock.
fn failover() -> Scenario {
    let mut failover = pair("failover", "a new leader while the old one acts by its own clock");
    failover.managers = vec![Clock::steady(100), Clock::steady(500)];
    failover.leader_lease = Duration::from_secs(4);
    failover.boundary = Boundary {
        instants: vec![0, 3_000, 4_000, 13_000, 18_000],
        messages: 8,
        hellos: 2,
        elections: 1,
        ..Boundary::default()
    };
    failover.milestones = &[Milestone::TwoLeaders];
    failover
}

/// A store that takes its time, leaves a batch in doubt, and a second leader.
fn doubt() -> Scenario {
    let mut doubt = pair("doubt", "batches in doubt, and a new leader while they are under way");
    doubt.managers = vec![Clock::steady(100), Clock::steady(500)];
    doubt.slow_store = true;
    doubt.commands = vec![move_all("b")];
    doubt.boundary = Boundary {
        instants: vec![0, 1_000],
        messages: 5,
        hellos: 1,
        elections: 1,
        doubts: 1,
        ..Boundary::default()
    };
    doubt
}

/// A range moves with its state while the destination dies and starts again, transfers fail and writes are served.
fn migration() -> Scenario {
    let mut migration = pair("migration", "state that moves while its destination starts again");
    for plan in &mut migration.owners {
        plan.migrates = true;
        plan.takes_over = true;
    }
    migration.slow_apps = true;
    migration.commands = vec![move_all("b")];
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

/// An operator shortens the lease while one runs.
fn shortened() -> Scenario {
    let mut shortened = pair("shortened", "a lease time that is shortened while leases run");
    let settings = Settings {
        lease: Duration::from_secs(6),
        hold: Duration::from_millis(6_500),
        renewal: Duration::from_secs(1),
        ..shortened.settings.clone()
    };
    shortened.commands = vec![AdminCommand::Configure { namespace: namespace(), settings: settings.into() }];
    shortened.boundary = Boundary { instants: vec![0, 3_000, 7_000, 13_000], messages: 6, ..Boundary::default() };
    shortened
}

/// Clocks that differ by more than the bound: here leases must overlap.
fn drift() -> Scenario {
    let mut drift = pair("drift", "clock rates beyond the bound");
    drift.expect = Expect::Violation;
    drift.managers = vec![Clock { offset: 100, counts: 14, during: 12 }];
    drift.boundary = Boundary { instants: vec![0, 3_000, 11_500, 12_000], messages: 5, ..Boundary::default() };
    drift
}

/// One Manager, and two Owners of whom the first has all keys and an operator wants it so.
fn pair(name: &'static str, covers: &'static str) -> Scenario {
    let mut scenario = Scenario::new(name, covers);
    scenario.owners =
        vec![OwnerPlan::plain("a", Clock::steady(200)), OwnerPlan::plain("b", Clock::steady(300))];
    scenario.prelude = vec![Prelude::Start(0), Prelude::Operate(move_all("a")), Prelude::Start(1)];
    scenario
}
