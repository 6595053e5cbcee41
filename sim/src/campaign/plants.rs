//! Looks for each planted fault, and says how many seeds it takes: the fewer, the sharper the simulator.

use centrifuge_core::plant::Plant;

use super::{Campaign, WorldKind, run_one};
use crate::trace::Trace;
use crate::world::Failure;

/// How many seeds a planted fault may take at most, unless [`BOUNDS`] says otherwise.
pub const MOST_SEEDS: u64 = 4_000;

/// Faults that the worlds were made for, and must be found sooner; and one that takes a rare straggler.
const BOUNDS: &[(Plant, u64)] = &[
    (Plant::UnlistedTakenForDropped, 100),
    (Plant::DrainedTooEarly, 100),
    (Plant::StaleRecallStands, 1_000),
    (Plant::WithdrawnForAnyLease, 100),
    (Plant::EvictionForgotten, 200),
    (Plant::StaleCopyNoted, 12_000),
];

/// How a search for a planted fault went.
#[derive(Debug)]
pub struct Search {
    /// The fault.
    pub plant: Plant,
    /// How many seeds ran until it was found, or in all.
    pub seeds: u64,
    /// Within how many seeds it must be found.
    pub bound: u64,
    /// The seed that found it, and how.
    pub found: Option<(u64, Failure)>,
}

impl Search {
    /// Whether it was found soon enough.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.found.is_some() && self.seeds <= self.bound
    }
}

/// Runs seeds with a planted fault until one fails that holds without it.
#[must_use]
pub fn search(plant: Plant, most: u64, jobs: usize, progress: bool) -> Search {
    let world = WorldKind::of(plant);
    let mut search = Search { plant, seeds: 0, bound: bound(plant).min(most), found: None };
    while search.seeds < most {
        let campaign = Campaign {
            first: search.seeds + 1,
            seeds: most - search.seeds,
            jobs,
            plant: Some(plant),
            world,
            twice: false,
            until_failure: true,
            progress,
        };
        let Some((seed, failure)) = campaign.run().first_failure else {
            search.seeds = most;
            break;
        };
        search.seeds = seed;
        if run_one(seed, None, world, Trace::Off).failure.is_none() {
            search.found = Some((seed, failure));
            break;
        }
    }
    search
}

fn bound(plant: Plant) -> u64 {
    BOUNDS.iter().find(|(of, _)| *of == plant).map_or(MOST_SEEDS, |(_, bound)| *bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_counts_its_seeds_and_ends_at_the_first_that_only_the_fault_explains() {
        let search = search(Plant::GrantBeforeRelease, 100, 1, false);
        let (seed, _) = search.found.as_ref().expect("it is easily found");
        assert_eq!(*seed, search.seeds);
        assert!(search.is_well() && search.bound == 100);
        assert!(run_one(*seed, None, WorldKind::of(search.plant), Trace::Off).failure.is_none());
    }
}
