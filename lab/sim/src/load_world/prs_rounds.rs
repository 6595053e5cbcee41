//! The world of PRS §7.3: keys of Zipf-distributed popularity, and how far the load policy evens them out in an hour.

use centrifuge_core::id::OwnerName;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{
    HEAVY_PER_MILLE, LoadMemory, LoadPolicyKind, LoadRound, OwnerLoad, RangeLoad, VirtualNodeChange,
};
use centrifuge_core::partition::{Assignment, ConsistentHash, PartitionOwner, Partitioner, overlay};
use serde::Serialize;

use crate::world::rng::Rng;

/// How many Owners share the keys.
const OWNERS: usize = 50;
/// How many keys callers ask for.
const KEYS: usize = 10_000;
/// How many rounds of one simulated minute are played.
const ROUNDS: usize = 60;
/// How many rounds lie between two lines of the report.
const REPORT_EVERY: usize = 5;
/// The virtual nodes of each Owner at the start.
const VIRTUAL_NODES: u32 = 64;
/// How many transfers of virtual nodes a round may make.
const MAX_CHANGES: usize = 4;
/// The exponent of Zipf's law.
const ALPHA: f64 = 0.8;
/// The mean load of an Owner, in percent of what it can carry.
const MEAN_LOAD_PERCENT: u64 = 20;

/// Plays the world of the seed and prints what became of it.
pub fn run(seed: u64, json: bool) {
    let mut world = LoadWorld::new(seed);
    let hottest = world.hottest_key_per_mean_percent();
    let mut series = vec![world.sample(0)];
    for round in 1..=ROUNDS {
        world.round();
        if round % REPORT_EVERY == 0 {
            series.push(world.sample(round));
        }
    }
    if json {
        print_json(seed, hottest, &series);
    } else {
        print_text(seed, hottest, &series);
    }
}

/// What one Owner can carry, in the unit of the loads.
const CAPACITY: u64 = 1_000_000;

struct LoadWorld {
    /// In key order, each with its load, which stays what it is.
    keys: Vec<(Key, u64)>,
    owners: Vec<PartitionOwner>,
    assignment: Assignment,
    memory: LoadMemory,
    transfers: u64,
    moved_key_space: u128,
    moved_keys: u64,
}

/// The state of the pool after some rounds; what moved is counted from the start.
#[derive(Serialize)]
struct Sample {
    minute: usize,
    peak_per_mean_percent: u64,
    owners_above_110_percent: usize,
    owners_above_200_percent: usize,
    peak_load_percent: u64,
    virtual_node_transfers: u64,
    key_space_moved_ppm: u64,
    keys_moved: u64,
}

impl LoadWorld {
    fn new(seed: u64) -> LoadWorld {
        let mut rng = Rng::new(seed);
        let owner = |_| PartitionOwner {
            name: OwnerName::new(&format!("owner-{:016x}", rng.next())).expect("a plain name"),
            virtual_nodes: VIRTUAL_NODES,
            weight: 100,
        };
        let owners: Vec<PartitionOwner> = (0..OWNERS).map(owner).collect();
        let total = OWNERS as u64 * CAPACITY * MEAN_LOAD_PERCENT / 100;
        let loads = zipf_loads(KEYS, ALPHA, total);
        let mut keys: Vec<(Key, u64)> = loads.into_iter().map(|load| (Key(rng.next()), load)).collect();
        keys.sort_unstable();
        LoadWorld {
            keys,
            assignment: ConsistentHash.assign(&owners),
            owners,
            memory: LoadMemory::default(),
            transfers: 0,
            moved_key_space: 0,
            moved_keys: 0,
        }
    }

    /// A minute passes: the Owners report, the policy decides, and the ranges move.
    fn round(&mut self) {
        let (owners, ranges) = self.reports();
        let partitioner = &ConsistentHash;
        let round = LoadRound { owners: &owners, ranges: &ranges, partitioner, max_changes: MAX_CHANGES };
        let decision = LoadPolicyKind::TenPercent.policy().round(&mut self.memory, &round);
        if !decision.changes.is_empty() {
            self.apply(&decision.changes);
        }
    }

    /// What the Owners see of the load: its sum by range, and their heavy keys.
    fn reports(&self) -> (Vec<OwnerLoad>, Vec<RangeLoad>) {
        let idle = |owner: &PartitionOwner| OwnerLoad {
            name: owner.name.clone(),
            virtual_nodes: owner.virtual_nodes,
            weight: owner.weight,
            load: 0,
        };
        let mut owners: Vec<OwnerLoad> = self.owners.iter().map(idle).collect();
        let load_of = |range: KeyRange| self.keys_of(range).iter().map(|(_, load)| load).sum::<u64>();
        for &(range, owner) in &self.assignment {
            owners[owner].load += load_of(range);
        }
        let report = |&(range, owner): &(KeyRange, usize)| {
            let is_heavy = |(_, load): &&(Key, u64)| load * 1_000 >= owners[owner].load * HEAVY_PER_MILLE;
            let heavy = self.keys_of(range).iter().filter(is_heavy).copied().collect();
            RangeLoad { range, load: load_of(range), heavy, quantiles: Vec::new() }
        };
        let ranges = self.assignment.iter().map(report).collect();
        (owners, ranges)
    }

    fn keys_of(&self, range: KeyRange) -> &[(Key, u64)] {
        let start = self.keys.partition_point(|(key, _)| *key < range.first());
        let end = self.keys.partition_point(|(key, _)| *key <= range.last());
        &self.keys[start..end]
    }

    fn apply(&mut self, changes: &[VirtualNodeChange]) {
        for change in changes {
            let owner = self.owners.iter_mut().find(|owner| owner.name == change.name);
            let owner = owner.expect("the policy names Owners of the round");
            self.transfers += u64::from(change.virtual_nodes.saturating_sub(owner.virtual_nodes));
            owner.virtual_nodes = change.virtual_nodes;
        }
        let after = ConsistentHash.assign(&self.owners);
        for (range, _, _) in overlay(&self.assignment, &after).filter(|(_, from, to)| from != to) {
            self.moved_key_space += range.key_count();
            self.moved_keys += self.keys_of(range).len() as u64;
        }
        self.assignment = after;
    }

    fn sample(&self, minute: usize) -> Sample {
        let loads: Vec<u64> = self.reports().0.iter().map(|owner| owner.load).collect();
        let mean = self.mean_load();
        let peak = loads.iter().copied().max().unwrap_or(0);
        let above = |percent: u64| loads.iter().filter(|load| **load * 100 > mean * percent).count();
        Sample {
            minute,
            peak_per_mean_percent: peak * 100 / mean,
            owners_above_110_percent: above(110),
            owners_above_200_percent: above(200),
            peak_load_percent: peak * 100 / CAPACITY,
            virtual_node_transfers: self.transfers,
            key_space_moved_ppm: ((self.moved_key_space * 1_000_000) >> 64) as u64,
            keys_moved: self.moved_keys,
        }
    }

    fn mean_load(&self) -> u64 {
        let total: u64 = self.keys.iter().map(|(_, load)| load).sum();
        (total / self.owners.len() as u64).max(1)
    }

    /// Whoever has this key carries at least this much: the floor under every policy's peak.
    fn hottest_key_per_mean_percent(&self) -> u64 {
        let hottest = self.keys.iter().map(|(_, load)| *load).max().unwrap_or(0);
        hottest * 100 / self.mean_load()
    }
}

/// Loads that fall with the rank as Zipf's law says and add up to nearly `total`.
fn zipf_loads(keys: usize, alpha: f64, total: u64) -> Vec<u64> {
    let popularity: Vec<f64> = (1..=keys).map(|rank| (rank as f64).powf(-alpha)).collect();
    let sum: f64 = popularity.iter().sum();
    popularity.into_iter().map(|share| (share / sum * total as f64) as u64).collect()
}

fn print_json(seed: u64, hottest: u64, series: &[Sample]) {
    let report = serde_json::json!({
        "world": "load",
        "seed": seed,
        "owners": OWNERS,
        "keys": KEYS,
        "rounds": ROUNDS,
        "hottest_key_per_mean_percent": hottest,
        "series": series,
    });
    println!("{report}");
}

fn print_text(seed: u64, hottest: u64, series: &[Sample]) {
    println!(
        "seed {seed}: {} Owners at {} % load on average, {} keys, Zipf {}; the hottest key alone has {hottest} % of the mean",
        OWNERS, MEAN_LOAD_PERCENT, KEYS, ALPHA,
    );
    println!("minute  peak/mean  >1.1 mean  >2 mean  peak load  transfers  key space moved  keys moved");
    for sample in series {
        println!(
            "{:>6}  {:>7} %  {:>9}  {:>7}  {:>7} %  {:>9}  {:>11} ppm  {:>10}",
            sample.minute,
            sample.peak_per_mean_percent,
            sample.owners_above_110_percent,
            sample.owners_above_200_percent,
            sample.peak_load_percent,
            sample.virtual_node_transfers,
            sample.key_space_moved_ppm,
            sample.keys_moved,
        );
    }
}
