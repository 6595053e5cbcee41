//! Small worlds of Flease: a few peers and one cell, with clocks that slew within epsilon.
//!
//! Every packet that was ever sent may arrive at any time, in any order, any number of times or never, also after its
//! sender has given up the round, has died, or its receiver has. A process that dies is followed by another at once: that
//! one has forgotten everything, and one that started later would be less dangerous. At every instant each clock may show
//! real time or be ahead of it by epsilon, as long as it does not go back.

mod models;
mod story;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::flease::{Cell, FleaseConfig, PeerId};
use centrifuge_core::injected_bug::Bug;
use centrifuge_core::time::Instant;

use super::scenario::Expect;

pub(super) use models::all;
pub(super) use world::World;

/// The most by which clocks may differ, in seconds.
const EPSILON: u64 = 1;
/// How long a lease lasts: the shortest that is allowed in whole seconds.
const LEASE: u64 = 4;
/// How long a round may take.
const ROUND: u64 = 1;
/// What clocks show at the start.
const ORIGIN: u64 = 100;

/// One small world.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    /// The name by which it is reported.
    pub(super) name: &'static str,
    /// What is expected of it.
    pub(super) expect: Expect,
    /// What it covers, in a sentence.
    pub(super) covers: &'static str,
    /// How many peers there are.
    peers: u16,
    /// Those that may want the cell.
    wanting: &'static [usize],
    /// Whether those that want it may change their minds.
    releases: bool,
    /// The instants at which things happen, in seconds.
    instants: &'static [u64],
    /// By how much clocks may be ahead of real time, in seconds.
    ahead: u64,
    /// Which clocks are ahead at each instant, one bit each; any of them unless it is given.
    fixed_clocks: Option<&'static [u8]>,
    /// How many rounds may be started.
    rounds: usize,
    /// How many processes may die.
    crashes: u8,
    /// What must happen somewhere.
    milestones: &'static [world::Milestone],
    /// The fault planted in every machine.
    pub(super) bug: Option<Bug>,
}

impl Scenario {
    fn new(name: &'static str, covers: &'static str) -> Scenario {
        Scenario {
            name,
            expect: Expect::Clean,
            covers,
            peers: 3,
            wanting: &[0, 1, 2],
            releases: false,
            instants: &[0],
            ahead: EPSILON,
            fixed_clocks: None,
            rounds: 2,
            crashes: 0,
            milestones: &[],
            bug: None,
        }
    }

    /// Whether the order of epochs is watched too: whoever looks for two holders does not want to hear of epochs, which
    /// break first.
    fn watches_epochs(&self) -> bool {
        self.bug.is_none_or(|bug| bug.invariant() != "F1")
    }

    /// What the process at a place is told. Waits are not random: whoever is due may be late.
    fn config(&self, peer: usize) -> FleaseConfig {
        let [lease, epsilon, round] = [LEASE, EPSILON, ROUND].map(Duration::from_secs);
        let config = FleaseConfig::new(id(peer), (0..usize::from(self.peers)).map(id));
        FleaseConfig { window: Duration::ZERO, ..config.with_times(lease, epsilon, round) }
    }

    /// The ways in which clocks may be ahead at an instant, one bit each.
    fn choices(&self, instant: usize) -> Vec<u8> {
        match self.fixed_clocks {
            Some(fixed) => vec![fixed[instant]],
            None if self.ahead == 0 => vec![0],
            None => (0..1 << self.peers).collect(),
        }
    }

    /// What a clock shows.
    fn clock(&self, instant: usize, is_ahead: bool) -> Instant {
        let seconds = ORIGIN + self.instants[instant] + if is_ahead { self.ahead } else { 0 };
        Instant::ZERO + Duration::from_secs(seconds)
    }
}

/// The peer at a place.
fn id(place: usize) -> PeerId {
    PeerId(place as u16 + 1)
}

/// The one cell.
fn cell() -> Arc<Cell> {
    Arc::new(Cell::new("cell").expect("a name"))
}
