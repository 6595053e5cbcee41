//! Looks for each injected bug, and says how many seeds it takes: the fewer, the sharper the simulator. A fault that needs
//! more of a coincidence than seeds bring about is found by the small world that was made for it.

use centrifuge_core::injected_bug::Bug;

use crate::check;
use crate::trace::Trace;
use crate::world::Failure;

use super::{Campaign, WorldKind, run_one};

/// How many seeds an injected bug may take at most, unless [`BOUNDS`] says otherwise.
const MOST_SEEDS: u64 = 4_000;

/// Faults that the worlds were made for, and must be found sooner; and two that take a rare coincidence.
const BOUNDS: &[(Bug, u64)] = &[
    (Bug::UnlistedTakenForDropped, 100),
    (Bug::DrainedTooEarly, 100),
    (Bug::StaleRecallStands, 1_000),
    (Bug::WithdrawnForAnyLease, 100),
    (Bug::EvictionForgotten, 200),
    (Bug::StaleCopyNoted, 12_000),
    (Bug::MergeKeepsTransfer, 12_000),
    (Bug::FirstBatchIsAll, 2_000),
    (Bug::MoveForgotten, 100),
    (Bug::MoveSettledUnlisted, 100),
    (Bug::CopyTakenForMove, 100),
    (Bug::DrainedWithItsWord, 1_500),
    (Bug::MoveRepeatedAfterLapse, 1_000),
    (Bug::GrantedBeforeTakenBack, 2_000),
    (Bug::QuarantinesInMassDeath, 100),
    (Bug::QuarantinesTooMuch, 100),
    (Bug::QuarantinedGranted, 100),
    (Bug::PlannedEndCounts, 1_000),
    (Bug::SuspectUncut, 100),
    (Bug::QuarantineUntold, 100),
];

/// Faults that seeds do not find, and the small worlds whose exhaustion does.
const BY_MODEL: &[(Bug, &str)] =
    &[(Bug::LateMessageRefuses, "late"), (Bug::OfferNeverEnds, "late"), (Bug::JumpKeepsSession, "restored")];

/// How a search for an injected bug went.
#[derive(Debug)]
pub struct Search {
    /// The fault.
    pub bug: Bug,
    /// How many seeds ran until it was found, or in all.
    pub seeds: u64,
    /// Within how many seeds it must be found.
    pub bound: u64,
    /// What found it.
    pub found: Option<Found>,
}

/// What found an injected bug.
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
    pub fn invariant(&self) -> &'static str {
        match self {
            Found::Seed(_, failure) => failure.violation.invariant,
            Found::Model { sentence, .. } => sentence,
        }
    }
}

impl Search {
    /// Whether it was found soon enough.
    pub fn is_well(&self) -> bool {
        self.found.is_some() && self.seeds <= self.bound
    }
}

/// Runs seeds with an injected bug until one fails that holds without it; or exhausts the small world that is to find it.
/// Unless it is given, the bound says how many seeds are worth trying.
pub fn search(bug: Bug, most: Option<u64>, jobs: usize, progress: bool) -> Search {
    let world = WorldKind::of(bug);
    let bound = BOUNDS.iter().find(|(of, _)| *of == bug).map_or(MOST_SEEDS, |(_, bound)| *bound);
    let most = most.unwrap_or(bound.max(MOST_SEEDS));
    let mut search = Search { bug, seeds: 0, bound: bound.min(most), found: None };
    if let Some((_, model)) = BY_MODEL.iter().find(|(of, _)| *of == bug) {
        let shortest = check::shortest_breach(bug, model);
        search.found = shortest.map(|(sentence, steps)| Found::Model { model, sentence, steps });
        return search;
    }
    while search.seeds < most {
        let campaign = Campaign {
            first: search.seeds + 1,
            seeds: most - search.seeds,
            jobs,
            bug: Some(bug),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_counts_its_seeds_and_ends_at_the_first_that_only_the_fault_explains() {
        let search = search(Bug::GrantBeforeRelease, Some(100), 1, false);
        let Some(Found::Seed(seed, _)) = &search.found else { panic!("it is easily found by seeds") };
        assert_eq!(*seed, search.seeds);
        assert!(search.is_well() && search.bound == 100);
        assert!(run_one(*seed, None, WorldKind::of(search.bug), Trace::Off).failure.is_none());
    }

    #[test]
    fn a_fault_that_seeds_do_not_find_is_found_by_its_model() {
        let search = search(Bug::OfferNeverEnds, Some(100), 1, false);
        assert!(search.is_well() && search.seeds == 0);
        let found = search.found.expect("the model finds it");
        assert!(matches!(found, Found::Model { model: "late", sentence: "L1", .. }), "{found:?}");
    }

    #[test]
    fn the_models_that_find_faults_exist() {
        assert!(BY_MODEL.iter().all(|(_, model)| check::names().contains(model)));
    }
}
