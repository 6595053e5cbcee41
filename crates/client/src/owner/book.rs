//! What an Owner holds, with where the state of each lease came from.

use centrifuge_core::id::Generation;
use centrifuge_core::key::KeyRange;
use centrifuge_core::owner::{OwnerAction, OwnerMachine};
use centrifuge_core::range_map::RangeMap;

use crate::hot::Lease;

type HeldRanges = RangeMap<centrifuge_core::owner::OwnerLease>;

/// Keeps the machine's leases together with what its grants said of them.
#[derive(Debug, Default)]
pub(crate) struct LeaseBook {
    held: HeldRanges,
    /// The lease under which each key was granted, whatever number it has now.
    accepted: RangeMap<Generation>,
    /// The lease and the one that its state came from.
    sources: RangeMap<(Generation, Generation)>,
}

impl LeaseBook {
    /// Notes what grants among these actions say.
    pub(crate) fn note(&mut self, actions: &[OwnerAction]) {
        let grants = actions.iter().filter_map(|action| match action {
            OwnerAction::Granted(grants) => Some(grants),
            _ => None,
        });
        for grant in grants.flatten() {
            match grant.source {
                Some(source) => self.sources.insert(grant.range, (grant.generation, source)),
                None => self.sources.remove(grant.range),
            }
        }
    }

    /// Takes over what is held now; false if that is what was held before.
    pub(crate) fn update(&mut self, machine: &OwnerMachine) -> bool {
        let held = machine.leases();
        if self.held == *held && self.accepted == *machine.accepted() {
            return false;
        }
        self.held = held.clone();
        self.accepted = machine.accepted().clone();
        self.sources.retain(|range, _| held.overlapping(range).next().is_some());
        true
    }

    /// Every lease in key order, by how long it has been held, and whether it is frozen.
    pub(crate) fn leases(&self) -> Vec<(Lease, bool)> {
        let lease =
            |(range, lease, accepted): (KeyRange, &centrifuge_core::owner::OwnerLease, &Generation)| {
                let (generation, state_since) = (lease.generation, lease.state_since);
                let (continuous_from, source) = (*accepted, self.source_of(range, *accepted));
                (Lease { range, generation, continuous_from, state_since, source }, lease.frozen)
            };
        self.held.overlay(&self.accepted).map(lease).collect()
    }

    /// Where the state came from that came with a grant; the lease may have another number by now.
    fn source_of(&self, range: KeyRange, granted: Generation) -> Option<Generation> {
        let (_, (generation, source)) = self.sources.get(range.first())?;
        (*generation == granted).then_some(*source)
    }
}
