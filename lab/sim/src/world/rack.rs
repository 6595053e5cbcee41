//! The large world of PRS §7.2: 250 Owners, of which 50 die at once.

use std::sync::Arc;

use centrifuge_core::settings::Settings;

use super::draw::more_owners;
use super::{Fault, FaultPlan, Plan, Rng, SECOND};

/// How many Owners there are.
const OWNERS: usize = 250;

impl Plan {
    /// A usual plan with many Owners and few faults: racks mostly, and what may happen beside them.
    pub(crate) fn draw_rack(rng: &mut Rng) -> Plan {
        let mut plan = Plan::draw(rng);
        plan.races_only = false;
        plan.namespaces.truncate(1);
        plan.lookups.retain(|lookup| lookup.namespace == 0);
        plan.misaddressed = 0;
        more_owners(rng, &mut plan.owners, OWNERS);
        for settings in &mut plan.namespaces[0].settings {
            let large =
                Settings { max_moves: 256, virtual_nodes: 4, min_owners: 1, ..Settings::clone(settings) };
            *settings = Arc::new(large);
        }
        let mix =
            [(Fault::Rack, 6), (Fault::CrashManager, 2), (Fault::OwnerCutOff, 2), (Fault::CrashOwner, 2)];
        plan.faults = FaultPlan {
            mix: mix.to_vec(),
            interval: 60 * SECOND,
            first: 150 * SECOND,
            lulls: 200,
            ..plan.faults
        };
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::network::Places;

    #[test]
    fn every_plan_has_the_papers_owners_and_fits_the_network() {
        for seed in 0..50 {
            let plan = Plan::draw_rack(&mut Rng::new(seed));
            assert_eq!(plan.owners.len(), OWNERS);
            assert!(plan.layout().places() <= Places::MOST);
            assert!(plan.faults.mix.iter().any(|(fault, _)| *fault == Fault::Rack));
        }
    }
}
