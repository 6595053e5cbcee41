//! What the seed draws before anything happens: peers, cells, times, and how unkind the world is.

use std::time::Duration;

use centrifuge_core::flease::{Cell, FleaseConfig, PeerId};

use crate::world::network::Profile;
use crate::world::rng::Rng;

pub(super) const MILLISECOND: u64 = 1_000_000;

/// One seed's world.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) config: FleaseConfig,
    pub(super) cells: Vec<Cell>,
    pub(super) network: Profile,
    /// How long a clock may take to slew by one nanosecond, in nanoseconds.
    pub(super) slowness: u64,
    /// How often a clock turns, a fault happens, an application changes its mind, on average.
    pub(super) turn_every: u64,
    pub(super) fault_every: u64,
    pub(super) whim_every: u64,
    /// In a thousand acquisitions, how often the holder is cut off and a voter struck just then.
    pub(super) ambush: u64,
    /// When faults end, when every cell must be held, and when the run is over.
    pub(super) faults_end: u64,
    pub(super) settled: u64,
    pub(super) end: u64,
}

impl Plan {
    pub(super) fn draw(rng: &mut Rng) -> Plan {
        let peers = rng.weighted(&[(3, 55), (4, 10), (5, 30), (1, 2), (2, 3)]);
        let config = config(rng, peers);
        let [lease, epsilon, round] = [config.lease, config.epsilon, config.round].map(nanos);
        let recovery = nanos(config.recovery);
        let cells = (0..rng.between(1, 3)).map(|number| cell(rng, number, peers)).collect();
        let faults_end = lease * rng.between(20, 60);
        let settled = faults_end + recovery + 2 * lease + 4 * epsilon + 5 * lease;
        Plan {
            config,
            cells,
            network: network(rng, round, recovery),
            slowness: rng.spread(2, 40),
            turn_every: rng.between(lease / 4, lease * 2),
            fault_every: rng.between(lease / 3, lease * 4),
            whim_every: rng.between(lease / 4, lease * 3),
            ambush: rng.pick(&[0, 50, 300]),
            faults_end,
            settled,
            end: settled + 10 * lease,
        }
    }
}

fn config(rng: &mut Rng, peers: u16) -> FleaseConfig {
    let lease = rng.between(1_000, 10_000) * MILLISECOND;
    let epsilon = lease / rng.between(4, 40);
    // What the bounds leave for a round, of which it takes some.
    let room = lease - 2 * epsilon;
    let round = room * rng.between(20, 90) / 100;
    let [lease, epsilon, round] = [lease, epsilon, round].map(Duration::from_nanos);
    let config = FleaseConfig::new(PeerId(1), (1..=peers).map(PeerId));
    FleaseConfig { window: lease / 20, ..config.with_times(lease, epsilon, round) }
}

/// Most cells are for all peers; some name a part of them.
fn cell(rng: &mut Rng, number: u64, peers: u16) -> Cell {
    let cell = Cell::new(&format!("cell-{number}")).expect("a name");
    if peers < 4 || !rng.chance(250) {
        return cell;
    }
    let leave_out = PeerId(rng.between(1, u64::from(peers)) as u16);
    cell.among((1..=peers).map(PeerId).filter(|peer| *peer != leave_out))
}

fn network(rng: &mut Rng, round: u64, recovery: u64) -> Profile {
    let longest = (round / 8).min(rng.spread(2, 400) * MILLISECOND).max(MILLISECOND);
    Profile {
        shortest: MILLISECOND / 2,
        longest,
        slow: rng.pick(&[0, 20, 200]),
        slowest: rng.pick(&[round * 2, round * 2, recovery * 2]),
        lost: rng.pick(&[0, 10, 50, 150]),
        duplicated: rng.pick(&[0, 20, 150]),
        straggling: rng.pick(&[0, 20, 150]),
        straggle: recovery * 2,
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
