//! Looks for each planted fault, and says how many seeds it takes: the fewer, the sharper the simulator. A fault that needs
//! more of a coincidence than seeds bring about is found by the small world that was made for it.

use centrifuge_core::plant::Plant;

use super::{Campaign, WorldKind, run_one};
use crate::check;
use crate::trace::Trace;
use crate::world::Failure;

/// How many seeds a planted fault may take at most, unless [`BOUNDS`] says otherwise.
const MOST_SEEDS: u64 = 4_000;

/// Faults that the worlds were made for, and must be found sooner; and two that take a rare coincidence.
const BOUNDS: &[(Plant, u64)] = &[
    (Plant::UnlistedTakenForDropped, 100),
    (Plant::DrainedTooEarly, 100),
    (Plant::StaleRecallStands, 1_000),
    (Plant::WithdrawnForAnyLease, 100),
    (Plant::EvictionForgotten, 200),
    (Plant::StaleCopyNoted, 12_000),
    (Plant::MergeKeepsTransfer, 12_000),
    (Plant::FirstBatchIsAll, 2_000),
    (Plant::MoveForgotten, 100),
    (Plant::MoveSettledUnlisted, 100),
    (Plant::CopyTakenForMove, 100),
    (Plant::DrainedWithItsWord, 1_500),
    (Plant::MoveRepeatedAfterLapse, 1_000),
    (Plant::GrantedBeforeTakenBack, 2_000),
];

/// Faults that seeds do not find, and the small worlds whose exhaustion does.
const BY_MODEL: &[(Plant, &str)] = &[
    (Plant::LateMessageRefuses, "late"),
    (Plant::OfferNeverEnds, "late"),
    (Plant::JumpKeepsSession, "restored"),
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
    /// What found it.
    pub found: Option<Found>,
}

/// What found a planted fault.
#[derive(Debug)]
pub enum Found {
    /// A seed, and how it fails.
    Seed(u64, Failure),
    /// A small world, and the shortest way to break a sentence there.
    Model {
        /// The world.
        model: &'static str,
        /// The sentence.
        sentence: &'static str,
        /// How many steps it takes.
        steps: usize,
    },
}

impl Found {
    /// The invariant as whose breach it was found.
    #[must_use]
    pub fn invariant(&self) -> &'static str {
        match self {
            Found::Seed(_, failure) => failure.violation.invariant,
            Found::Model { sentence, .. } => sentence,
        }
    }
}

impl Search {
    /// Whether it was found soon enough.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.found.is_some() && self.seeds <= self.bound
    }
}

/// Runs seeds with a planted fault until one fails that holds without it; or exhausts the small world that is to find it.
#[must_use]
pub fn search(plant: Plant, most: u64, jobs: usize, progress: bool) -> Search {
    let world = WorldKind::of(plant);
    let mut search = Search { plant, seeds: 0, bound: bound(plant).min(most), found: None };
    if let Some((_, model)) = BY_MODEL.iter().find(|(of, _)| *of == plant) {
        let shortest = check::shortest_breach(plant, model);
        search.found = shortest.map(|(sentence, steps)| Found::Model { model, sentence, steps });
        return search;
    }
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
            search.found = Some(Found::Seed(seed, failure));
            break;
        }
    }
    search
}

/// How many seeds are worth trying.
#[must_use]
pub fn most_seeds(plant: Plant) -> u64 {
    bound(plant).max(MOST_SEEDS)
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
        let Some(Found::Seed(seed, _)) = &search.found else { panic!("it is easily found by seeds") };
        assert_eq!(*seed, search.seeds);
        assert!(search.is_well() && search.bound == 100);
        assert!(run_one(*seed, None, WorldKind::of(search.plant), Trace::Off).failure.is_none());
    }

    #[test]
    fn a_fault_that_seeds_do_not_find_is_found_by_its_model() {
        let search = search(Plant::OfferNeverEnds, 100, 1, false);
        assert!(search.is_well() && search.seeds == 0);
        let found = search.found.expect("the model finds it");
        assert!(matches!(found, Found::Model { model: "late", sentence: "L1", .. }), "{found:?}");
    }

    #[test]
    fn the_models_that_find_faults_exist() {
        assert!(BY_MODEL.iter().all(|(_, model)| check::names().contains(model)));
    }
}
