//! What an Owner holds, with where the state of each lease came from.

use centrifuge_core::id::Generation;
use centrifuge_core::key::KeyRange;
use centrifuge_core::owner::OwnerAction;
use centrifuge_core::range_map::RangeMap;

use crate::hot::Lease;

type Held = RangeMap<centrifuge_core::owner::Lease>;

/// Keeps the machine's leases together with what its grants said of them.
#[derive(Debug, Default)]
pub(crate) struct LeaseBook {
    held: Held,
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
    pub(crate) fn update(&mut self, held: &Held) -> bool {
        if self.held == *held {
            return false;
        }
        self.held = held.clone();
        self.sources.retain(|range, _| held.overlapping(range).next().is_some());
        true
    }

    /// Every lease in key order, and whether it is frozen.
    pub(crate) fn leases(&self) -> Vec<(Lease, bool)> {
        let lease = |(range, lease): (KeyRange, &centrifuge_core::owner::Lease)| {
            let source = self.source_of(range, lease.continuous_from);
            let (generation, state_since) = (lease.generation, lease.state_since);
            let continuous_from = lease.continuous_from;
            (Lease { range, generation, continuous_from, state_since, source }, lease.frozen)
        };
        self.held.iter().map(lease).collect()
    }

    /// Where the state came from that came with a grant; the lease may have another number by now.
    fn source_of(&self, range: KeyRange, granted: Generation) -> Option<Generation> {
        let (_, (generation, source)) = self.sources.get(range.first())?;
        (*generation == granted).then_some(*source)
    }
}
