//! The negative control: without network delay, an Owner whose clock runs 1 % beyond the drift bound must be found to
//! break S1, and one exactly at the bound must not.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::settings::Settings;

use crate::clock::Clock;

use super::draw::{USUAL_TIMES, with_times};
use super::rng::mix;
use super::{Fault, FaultPlan, Options, Outcome, Part, Plan, Profile, Rng, SECOND, World};

/// What the two halves of the control found.
#[derive(Debug)]
pub struct DriftOutcome {
    /// The run with a rate exactly at the bound.
    pub at_bound: Outcome,
    /// The run with a rate 1 % beyond it.
    pub beyond: Outcome,
}

impl DriftOutcome {
    /// Whether the bound is exactly where the design says it is.
    pub fn is_as_expected(&self) -> bool {
        let found = self.beyond.failure.as_ref().map(|failure| failure.violation.invariant);
        self.at_bound.failure.is_none() && found == Some("S1")
    }
}

/// Runs both halves for a seed.
pub fn drift_control(seed: u64) -> DriftOutcome {
    let run = |numerator, denominator| {
        let mut rng = Rng::new(mix(seed));
        let plan = drift_plan(&mut rng, numerator, denominator);
        World::from_plan(seed, plan, rng, Options::default()).run()
    };
    DriftOutcome { at_bound: run(24, 25), beyond: run(2_400, 2_525) }
}

/// One Manager whose clock is as fast as any may be, Owners whose clocks are as slow as given, and no delay anywhere.
/// The only fault cuts Owners off.
fn drift_plan(rng: &mut Rng, numerator: u64, denominator: u64) -> Plan {
    let mut plan = Plan::draw(rng);
    let clock = |numerator, denominator| Clock { offset: 0, numerator, denominator, lost: 0 };
    plan.races_only = false;
    plan.managers.truncate(1);
    plan.manager_ids = plan.managers.iter().map(|manager| manager.config.id.clone()).collect();
    plan.managers[0].clock = clock(26, 25);
    plan.store.clock = clock(26, 25);
    plan.store.delay = (0, 0);
    plan.store.leader_holds.truncate(1);
    plan.network = Profile::reliable(0, 0);
    for owner in &mut plan.owners {
        owner.clock = clock(numerator, denominator);
    }
    for lookup in &mut plan.lookups {
        lookup.config.managers = plan.manager_ids.clone();
        lookup.clock = clock(1, 1);
    }
    for namespace in &mut plan.namespaces {
        namespace.settings = vec![Arc::new(exact(&namespace.settings[0]))];
    }
    plan.faults = FaultPlan {
        mix: vec![(Fault::OwnerCutOff, 1)],
        interval: 110 * SECOND,
        first: 60 * SECOND,
        lulls: 0,
        longest: SECOND,
        outlasting: 1_000,
        slowest_restart: SECOND,
        takeovers: 0,
    };
    plan.safety = 1_000 * SECOND;
    plan.apps.hangs = 0;
    plan.apps.fails = 0;
    plan.late_wakes = (0, 0);
    plan.kept = 0;
    plan.misaddressed = 0;
    plan.owners.retain(|owner| owner.part == Part::Regular);
    plan
}

/// The paper's times, whose ratio is the bound itself, and nothing that would delay the next grant.
fn exact(settings: &Settings) -> Settings {
    Settings { min_owners: 1, settle: Duration::ZERO, ..with_times(settings, USUAL_TIMES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_exact() {
        for seed in 1..=5 {
            let outcome = drift_control(seed);
            assert!(outcome.is_as_expected(), "seed {seed}: {outcome:?}");
        }
    }
}
