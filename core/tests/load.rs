//! What the load policies promise: a constant total, bounded rounds, better peaks, and rest under steady load.

use centrifuge_core::id::OwnerName;
use centrifuge_core::key::Key;
use centrifuge_core::load::{
    LoadDecision, LoadMemory, LoadPolicyKind, LoadRound, LoadSkip, OwnerLoad, RangeLoad,
};
use centrifuge_core::partition::{PartitionOwner, PartitionerKind};

/// A pool under a load that is known key by key; the policy sees only what Owners would report.
struct Pool {
    keys: Vec<(Key, u64)>,
    owners: Vec<PartitionOwner>,
    partitioner: PartitionerKind,
    policy: LoadPolicyKind,
    max_changes: usize,
    memory: LoadMemory,
}

impl Pool {
    fn new(owners: usize, loads: impl IntoIterator<Item = u64>) -> Pool {
        let key = |(number, load): (usize, u64)| (Key::of(format!("key-{number}").as_bytes()), load);
        let mut keys: Vec<(Key, u64)> = loads.into_iter().enumerate().map(key).collect();
        keys.sort_unstable();
        Pool {
            keys,
            owners: (0..owners).map(owner).collect(),
            partitioner: PartitionerKind::ConsistentHash,
            policy: LoadPolicyKind::TenPercent,
            max_changes: 4,
            memory: LoadMemory::default(),
        }
    }

    /// What the Owners report: the load of each range and its hottest key, and the load of each Owner.
    fn reports(&self) -> (Vec<OwnerLoad>, Vec<RangeLoad>) {
        let as_reported = |owner: &PartitionOwner| OwnerLoad {
            name: owner.name.clone(),
            virtual_nodes: owner.virtual_nodes,
            weight: owner.weight,
            load: 0,
        };
        let mut owners: Vec<OwnerLoad> = self.owners.iter().map(as_reported).collect();
        let mut ranges = Vec::new();
        for (range, place) in self.partitioner.partitioner().assign(&self.owners) {
            let first = self.keys.partition_point(|(key, _)| *key < range.first());
            let end = self.keys.partition_point(|(key, _)| *key <= range.last());
            let keys = &self.keys[first..end];
            let load = keys.iter().map(|(_, load)| load).sum();
            owners[place].load += load;
            ranges.push(RangeLoad { range, load, hottest: keys.iter().copied().max_by_key(|(_, load)| *load) });
        }
        (owners, ranges)
    }

    /// Plays one round and checks what holds in every round.
    fn round(&mut self) -> LoadDecision {
        let (owners, ranges) = self.reports();
        let total = self.total_virtual_nodes();
        let round = LoadRound {
            owners: &owners,
            ranges: &ranges,
            partitioner: self.partitioner.partitioner(),
            max_changes: self.max_changes,
        };
        let decision = self.policy.policy().round(&mut self.memory, &round);
        for change in &decision.changes {
            let owner = self.owners.iter_mut().find(|owner| owner.name == change.name);
            owner.expect("a change names an Owner of the round").virtual_nodes = change.virtual_nodes;
        }
        assert_eq!(self.total_virtual_nodes(), total, "the total of virtual nodes stays what it was");
        assert!(decision.changes.len() <= 2 * self.max_changes, "a transfer changes two counts");
        assert_eq!(decision.changes.len() + decision.skipped.len(), owners.len(), "every Owner has an answer");
        decision
    }

    fn total_virtual_nodes(&self) -> u32 {
        self.owners.iter().map(|owner| owner.virtual_nodes).sum()
    }

    /// The highest load relative to weight, in percent of the mean.
    fn peak_percent(&self) -> u64 {
        let (owners, _) = self.reports();
        let load: u64 = owners.iter().map(|owner| owner.load).sum();
        let weight: u64 = owners.iter().map(|owner| u64::from(owner.weight)).sum();
        let percent = |owner: &OwnerLoad| owner.load * weight * 100 / (load * u64::from(owner.weight));
        owners.iter().filter(|owner| owner.weight > 0).map(percent).max().expect("an Owner")
    }
}

fn owner(number: usize) -> PartitionOwner {
    let name = OwnerName::new(&format!("owner-{number:03}")).expect("a plain name");
    PartitionOwner { name, virtual_nodes: 64, weight: 100 }
}

/// Zipf's law: the load of the key of rank `r` is in proportion to `1 / r^0.8` (PRS §7.3).
fn zipf(keys: u32) -> impl Iterator<Item = u64> {
    (1..=keys).map(|rank| (1e9 / f64::from(rank).powf(0.8)) as u64)
}

#[test]
fn experiment() {
    let giant = |n: u32| (0..n).map(move |k| if k == 0 { 1_000_000 * u64::from(n) / 5 } else { 1_000_000 });
    let cases: Vec<(&str, Pool)> = vec![
        ("zipf 10x2000", Pool::new(10, zipf(2000))),
        ("zipf 50x10000", Pool::new(50, zipf(10000))),
        ("zipf 3x2000", Pool::new(3, zipf(2000))),
        ("equal 10x2000", Pool::new(10, (0..2000).map(|_| 1000000))),
        ("equal 50x100000", Pool::new(50, (0..100000).map(|_| 1000000))),
        ("two 2x2000", Pool::new(2, (0..2000).map(|_| 1000000))),
        ("giant 10x2000", Pool::new(10, giant(2000))),
        ("giant 20x2000", Pool::new(20, giant(2000))),
        ("few keys 10x20", Pool::new(10, (0..20).map(|_| 1000000))),
        ("half 10x2000", { let mut p = Pool::new(10, zipf(2000)); p.owners[3].weight = 50; p }),
    ];
    for (name, mut pool) in cases {
        let start = pool.peak_percent();
        let mut last = 0; let mut transfers = 0; let mut best = start;
        for r in 1..=400 {
            let d = pool.round();
            if !d.changes.is_empty() { last = r; transfers += d.changes.len(); }
            best = best.min(pool.peak_percent());
            if r % 20 == 0 && r <= 100 { print!(" {}", pool.peak_percent()); }
        }
        let (owners, _) = pool.reports();
        let mean = owners.iter().map(|o| o.load).sum::<u64>() / owners.len() as u64;
        let off = owners.iter().filter(|o| o.load.abs_diff(mean) * 10 > mean).count();
        let d = pool.round();
        let mut c = std::collections::BTreeMap::new();
        for (_, r) in d.skipped { *c.entry(format!("{r:?}")).or_insert(0) += 1; }
        println!("\n{name}: start {start} end {} best {best} last change in round {last} count-changes {transfers} off-balance {off} {c:?}", pool.peak_percent());
    }
}
