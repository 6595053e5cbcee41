//! The small worlds that are exhausted.

use std::time::Duration;

use centrifuge_core::settings::Settings;

use super::properties::Milestone;
use super::scenario::{Boundary, Clock, Expect, ManagerPlan, OwnerPlan, Prelude, Scenario, Command, configure, evict, move_all};

/// All of them.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        race(),
        join(),
        restart(),
        expiry(),
        recall(),
        shortened(),
        failover(),
        deposed(),
        doubt(),
        fenced(),
        reborn(),
        migration(),
        recopied(),
        drift(),
    ].into_iter().chain(explore()).collect()
}

/// Two Owners and a range that an operator moves from one to the other: recalls, acknowledgments and grants cross
/// each other and the renewals (Centrifuge §2.3.2, figures 6 and 7). The range was at both before.
fn race() -> Scenario {
    let mut race = pair("race", "recalls, acknowledgments and grants that cross");
    race.prelude.extend([Prelude::Operate(move_all("b")), Prelude::Operate(move_all("a"))]);
    race.commands = vec![move_all("b"), move_all("a")];
    race.boundary = Boundary { instants: vec![0, 1_000, 3_000], messages: 9, ..Boundary::default() };
    race.milestones = &[Milestone::Moved, Milestone::RaceAtOwner, Milestone::RaceAtManager];
    race
}

fn join() -> Scenario {
    let mut join = Scenario::new("join", "an Owner that joins another and gets half of its keys");
    join.owners = vec![OwnerPlan::plain("a", Clock::steady(200)), OwnerPlan::plain("b", Clock::steady(300))];
    join.prelude = vec![Prelude::Start(0)];
    join.boundary = Boundary {
        instants: vec![0, 1_000],
        messages: 10,
        hellos: 2,
        starts: 1,
        ..Boundary::default()
    };
    join.milestones = &[Milestone::Moved];
    join
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
    restart.prelude = vec![Prelude::Start(0), Prelude::Start(1), Prelude::Crash(0), Prelude::Start(0)];
    restart.boundary = Boundary {
        instants: vec![0, 1_000, 3_000],
        messages: 9,
        hellos: 2,
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
    expiry.managers[0].clock = Clock { offset: 100, counts: 13, during: 12 };
    expiry.boundary = Boundary {
        instants: vec![0, 3_000, 5_000, 15_000],
        messages: 8,
        hellos: 1,
        ..Boundary::default()
    };
    expiry.milestones = &[Milestone::Moved, Milestone::Expired, Milestone::HeldAgain];
    expiry
}

fn recall() -> Scenario {
    let mut recall = pair("recall", "a recall that takes longer than the lease");
    recall.managers[0].clock = Clock { offset: 100, counts: 13, during: 12 };
    recall.slow_apps = true;
    recall.prelude.push(Prelude::Operate(configure(recall.settings.clone())));
    recall.commands = vec![move_all("b")];
    recall.boundary = Boundary { instants: vec![0, 6_000, 11_500, 12_000], messages: 8, ..Boundary::default() };
    recall
}

/// A second Manager takes over while the first may still act by its own clock.
fn failover() -> Scenario {
    let mut failover = succession("failover", "a new leader while the old one acts by its own clock");
    failover.boundary.instants = vec![0, 3_000, 13_500];
    failover.milestones = &[Milestone::TwoLeaders, Milestone::NewLeaderGrants];
    failover
}

fn deposed() -> Scenario {
    let mut deposed = succession("deposed", "an old leader that is asked after its time");
    deposed.boundary.instants = vec![0, 6_000, 17_500];
    deposed.milestones = &[Milestone::TwoLeaders, Milestone::NewLeaderGrants];
    deposed
}

fn succession(name: &'static str, covers: &'static str) -> Scenario {
    let mut scenario = pair(name, covers);
    let first =
        ManagerPlan { leader_lease: Duration::from_secs(4), starved: true, ..ManagerPlan::steady(100) };
    scenario.managers = vec![first, ManagerPlan::steady(500)];
    scenario.owners[1].first_manager = 1;
    scenario.prelude = vec![Prelude::Start(0)];
    scenario.boundary = Boundary { messages: 8, hellos: 2, starts: 1, elections: 1, ..Boundary::default() };
    scenario
}

/// A store that takes its time and leaves a batch in doubt.
fn doubt() -> Scenario {
    let mut doubt = pair("doubt", "batches in doubt, and what is decided after them");
    doubt.slow_store = true;
    doubt.commands = vec![move_all("b"), move_all("a")];
    doubt.boundary =
        Boundary { instants: vec![0, 1_000], messages: 7, doubts: 1, ..Boundary::default() };
    doubt
}

/// A store that takes its time, and a second leader while batches of the first are under way.
fn fenced() -> Scenario {
    let mut fenced = pair("fenced", "a new leader while batches of the old one are under way");
    fenced.managers = vec![ManagerPlan::steady(100), ManagerPlan::steady(500)];
    fenced.slow_store = true;
    fenced.commands = vec![move_all("b"), move_all("a")];
    fenced.boundary =
        Boundary { instants: vec![0, 1_000], messages: 5, hellos: 1, elections: 1, ..Boundary::default() };
    fenced
}

/// The only Manager dies and starts again at the same place, where everything that was said to it still arrives.
fn reborn() -> Scenario {
    let mut reborn = pair("reborn", "a Manager that starts again where it was");
    reborn.commands = vec![move_all("b")];
    reborn.boundary =
        Boundary { instants: vec![0, 3_000], messages: 8, hellos: 2, elections: 1, ..Boundary::default() };
    reborn
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

fn recopied() -> Scenario {
    let mut recopied = migration();
    recopied.name = "recopied";
    recopied.covers = "state that is copied again after a recall was taken back";
    recopied.commands = vec![move_all("b"), move_all("a"), move_all("b")];
    recopied.boundary =
        Boundary { instants: vec![0], messages: 14, writes: 1, failures: 1, ..Boundary::default() };
    recopied
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
    shortened.commands = vec![configure(settings), move_all("b")];
    shortened.boundary = Boundary { instants: vec![0, 3_000, 7_000, 13_000], messages: 6, ..Boundary::default() };
    shortened
}

/// Clocks that differ by more than the bound: here leases must overlap.
fn drift() -> Scenario {
    let mut drift = pair("drift", "clock rates beyond the bound");
    drift.expect = Expect::Violation;
    drift.managers[0].clock = Clock { offset: 100, counts: 14, during: 12 };
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

fn explore() -> Vec<Scenario> {
    use centrifuge_core::owner::OwnerEvent;
    let mut all = Vec::new();
    let mut m = pair("x-leave", "");
    m.wishes = vec![(0, OwnerEvent::Leave), (0, OwnerEvent::Drain)];
    m.commands = vec![move_all("b")];
    m.boundary = Boundary { instants: vec![0, 1_000, 3_000], messages: 9, hellos: 1, starts: 1, crashes: 1, ..Boundary::default() };
    all.push(m);
    let mut m = pair("x-evict", "");
    m.commands = vec![evict("a")];
    m.slow_apps = true;
    m.settings.recall_timeout = Duration::from_secs(2);
    m.boundary = Boundary { instants: vec![0, 1_000, 3_000, 13_000], messages: 9, hellos: 1, ..Boundary::default() };
    all.push(m);
    let mut m = pair("x-mtime", "");
    m.owners[0].migrates = true;
    m.owners[1].migrates = true;
    m.commands = vec![move_all("b"), move_all("a")];
    m.slow_apps = true;
    m.settings.recall_timeout = Duration::from_secs(1);
    m.settings.migration_timeout = Duration::from_secs(1);
    m.boundary = Boundary { instants: vec![0, 1_000, 3_000], messages: 9, writes: 1, ..Boundary::default() };
    all.push(m);
    let mut m = pair("x-resign", "");
    m.managers = vec![ManagerPlan { leader_lease: Duration::from_secs(4), starved: true, ..ManagerPlan::steady(100) }, ManagerPlan::steady(500)];
    m.commands = vec![Command::Resign];
    m.slow_store = true;
    m.boundary = Boundary { instants: vec![0, 3_000, 13_500], messages: 8, hellos: 2, elections: 1, ..Boundary::default() };
    all.push(m);
    let mut m = pair("x-jump", "");
    m.wishes = vec![(0, OwnerEvent::ClockJumped)];
    m.commands = vec![move_all("b")];
    m.boundary = Boundary { instants: vec![0, 1_000, 3_000], messages: 9, hellos: 1, ..Boundary::default() };
    all.push(m);
    let mut m = pair("x-migfail", "");
    m.managers = vec![ManagerPlan::steady(100), ManagerPlan::steady(500)];
    for plan in &mut m.owners { plan.migrates = true; plan.takes_over = true; }
    m.slow_apps = true;
    m.commands = vec![move_all("b")];
    m.boundary = Boundary { instants: vec![0, 3_000], messages: 10, hellos: 2, elections: 1, writes: 1, ..Boundary::default() };
    all.push(m);
    let mut m = restart();
    m.name = "x-restart2";
    m.boundary = Boundary { instants: vec![0, 1_000], messages: 12, hellos: 3, crashes: 2, starts: 2, ..Boundary::default() };
    all.push(m);
    let mut m = restart();
    m.name = "x-restart13";
    m.boundary = Boundary { instants: vec![0, 3_000, 13_000], messages: 8, hellos: 2, crashes: 1, starts: 1, ..Boundary::default() };
    all.push(m);
    let mut m = join();
    m.name = "x-join2";
    for plan in &mut m.owners { plan.migrates = true; }
    m.slow_apps = true;
    m.slow_store = true;
    m.boundary = Boundary { instants: vec![0, 1_000, 3_000], messages: 14, hellos: 2, starts: 1, writes: 1, failures: 1, crashes: 0, ..Boundary::default() };
    all.push(m);
    all
}
