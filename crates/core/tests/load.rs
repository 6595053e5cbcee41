//! What the load policies promise: a constant total, bounded rounds, better peaks, and rest under steady load.

use centrifuge_core::id::OwnerName;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{
    LoadDecision, LoadMemory, LoadPolicy, LoadPolicyKind, LoadRound, LoadSkip, OwnerLoad, RangeLoad,
    TenPercent, VirtualNodeChange,
};
use centrifuge_core::partition::{Assignment, PartitionOwner, Partitioner, PartitionerKind};

/// A pool under a load that is known key by key; the policy sees only what Owners would report.
struct Pool {
    keys: Vec<(Key, u64)>,
    owners: Vec<PartitionOwner>,
    partitioner: PartitionerKind,
    policy: LoadPolicyKind,
    max_changes: usize,
    /// Whether reports name the hottest key; without it predictions are often wrong.
    hottest_known: bool,
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
            hottest_known: true,
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
        for (range, place) in self.partitioner.partitioner().unwrap().assign(&self.owners) {
            let first = self.keys.partition_point(|(key, _)| *key < range.first());
            let end = self.keys.partition_point(|(key, _)| *key <= range.last());
            let keys = &self.keys[first..end];
            let load = keys.iter().map(|(_, load)| load).sum();
            owners[place].load += load;
            let hottest = keys.iter().copied().filter(|_| self.hottest_known).max_by_key(|(_, load)| *load);
            ranges.push(RangeLoad { range, load, heavy: Vec::from_iter(hottest), quantiles: Vec::new() });
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
            partitioner: self.partitioner.partitioner().unwrap(),
            max_changes: self.max_changes,
        };
        let decision = self.policy.policy().round(&mut self.memory, &round);
        for change in &decision.changes {
            let owner = self.owners.iter_mut().find(|owner| owner.name == change.name);
            owner.expect("a change names an Owner of the round").virtual_nodes = change.virtual_nodes;
        }
        assert_eq!(self.total_virtual_nodes(), total, "the total of virtual nodes stays what it was");
        assert!(decision.changes.len() <= 2 * self.max_changes, "a transfer changes two counts");
        assert_eq!(
            decision.changes.len() + decision.skipped.len(),
            owners.len(),
            "every Owner has an answer"
        );
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

/// All keys alike, but one that has as much load as `times` mean Owners of a pool of ten.
fn one_giant(keys: u64, times: u64) -> impl Iterator<Item = u64> {
    let giant = keys * times / (10 - times);
    std::iter::once(giant * 1_000).chain((1..keys).map(|_| 1_000))
}

/// Plays rounds until the policy rests, then 100 more in which nothing may change.
fn come_to_rest(pool: &mut Pool, within: usize) {
    let mut quiet = 0;
    for _ in 0..within {
        quiet = if pool.round().changes.is_empty() { quiet + 1 } else { 0 };
    }
    assert!(quiet > 0, "transfers in each of the last rounds of {within}");
    for round in 0..100 {
        let decision = pool.round();
        assert_eq!(decision.changes, [], "a transfer in round {round} of the rest");
    }
}

fn reason(decision: &LoadDecision, name: &OwnerName) -> Option<LoadSkip> {
    decision.skipped.iter().find(|(skipped, _)| skipped == name).map(|(_, reason)| *reason)
}

#[test]
fn prs_7_3_a_zipf_load_is_evened_out_and_the_policy_comes_to_rest() {
    let mut pool = Pool::new(10, zipf(2_000));
    let before = pool.peak_percent();
    come_to_rest(&mut pool, 40);
    let after = pool.peak_percent();
    assert!(before > 150 && after <= 110, "the peak went from {before} % to {after} % of the mean");
}

#[test]
fn one_key_above_the_mean_comes_to_rest_and_does_not_keep_others_from_balance() {
    let mut pool = Pool::new(10, one_giant(2_000, 2));
    let (giant_key, _) = pool.keys.iter().copied().max_by_key(|(_, load)| *load).expect("keys");
    let before = pool.peak_percent();
    come_to_rest(&mut pool, 60);
    assert!(pool.peak_percent() < before, "what the giant's owner can shed it has shed");

    let (owners, ranges) = pool.reports();
    let assignment = pool.partitioner.partitioner().unwrap().assign(&pool.owners);
    let giant_owner = assignment.iter().find(|(range, _)| range.contains(giant_key)).expect("an owner").1;
    let others: Vec<u64> = owners.iter().map(|owner| owner.load).collect();
    let total: u64 = ranges.iter().map(|reported| reported.load).sum();
    let highest_other = (0..10).filter(|place| *place != giant_owner).map(|place| others[place]).max();
    assert!(highest_other < Some(total * 11 / 100), "the rest of the pool is in balance");
    let decision = pool.round();
    assert_eq!(reason(&decision, &owners[giant_owner].name), Some(LoadSkip::WouldNotLowerPeak));
}

#[test]
fn equal_keys_come_to_rest_within_ten_percent() {
    let mut pool = Pool::new(10, (0..2_000).map(|_| 1_000));
    come_to_rest(&mut pool, 30);
    assert!(pool.peak_percent() <= 110);
}

#[test]
fn two_owners_come_to_rest() {
    let mut pool = Pool::new(2, zipf(100));
    let before = pool.peak_percent();
    come_to_rest(&mut pool, 60);
    assert!(pool.peak_percent() <= before);
}

#[test]
fn an_owner_of_half_the_weight_comes_to_rest_with_half_the_load() {
    let mut pool = Pool::new(10, zipf(2_000));
    pool.owners[3].weight = 50;
    come_to_rest(&mut pool, 60);
    let (owners, _) = pool.reports();
    let share = owners.iter().map(|owner| owner.load).sum::<u64>() * 50 / 950;
    let load = owners[3].load;
    assert!(load.abs_diff(share) * 8 < share, "{load} of a share of {share}");
}

#[test]
fn every_pool_comes_to_rest_even_if_owners_hide_their_hottest_keys() {
    for seed in 0..30 {
        let drawn = |what: &str| Key::of(format!("{what} {seed}").as_bytes()).0;
        let loads =
            (0..5 + drawn("keys") % 40).map(|key| 1 + Key::of(&(key << 32 | seed).to_le_bytes()).0 % 9_999);
        let mut pool = Pool::new(2 + (drawn("owners") % 5) as usize, loads);
        pool.hottest_known = false;
        for owner in &mut pool.owners {
            owner.virtual_nodes = 8;
            owner.weight =
                50 + (Key::of(owner.name.as_str().as_bytes()).0.wrapping_add(seed) % 4) as u32 * 50;
        }
        come_to_rest(&mut pool, 150);
    }
}

#[test]
fn a_new_owner_starts_the_balancing_again_and_it_comes_to_rest_again() {
    let mut pool = Pool::new(5, zipf(500));
    come_to_rest(&mut pool, 60);
    pool.owners.push(PartitionOwner { virtual_nodes: 16, ..owner(5) });
    assert_ne!(pool.round().changes, []);
    come_to_rest(&mut pool, 60);
}

/// Slices in the order of the names, in proportion to the counts: what a transfer does is plain to see.
struct Proportional;

impl Partitioner for Proportional {
    fn assign(&self, owners: &[PartitionOwner]) -> Assignment {
        let total: u128 = owners.iter().map(|owner| u128::from(owner.virtual_nodes)).sum();
        let mut before = 0;
        let slice = |(place, owner): (usize, &PartitionOwner)| {
            let first = (before << 64) / total;
            before += u128::from(owner.virtual_nodes);
            let last = (before << 64) / total - 1;
            (KeyRange::new(Key(first as u64), Key(last as u64)).expect("a slice"), place)
        };
        owners.iter().enumerate().map(slice).collect()
    }
}

fn loads_of(owners: &[(u32, u64)]) -> Vec<OwnerLoad> {
    let load_of = |(number, &(virtual_nodes, load))| OwnerLoad {
        name: owner(number).name,
        virtual_nodes,
        weight: 100,
        load,
    };
    owners.iter().enumerate().map(load_of).collect()
}

/// A round over Owners with these counts and loads, where each Owner's load is spread over its slice.
fn proportional_round(memory: &mut LoadMemory, owners: &[(u32, u64)], max_changes: usize) -> LoadDecision {
    let owners = loads_of(owners);
    let as_partitioned = |load: &OwnerLoad| PartitionOwner {
        name: load.name.clone(),
        virtual_nodes: load.virtual_nodes,
        weight: load.weight,
    };
    let partitioned: Vec<PartitionOwner> = owners.iter().map(as_partitioned).collect();
    let report = |(range, place): (KeyRange, usize)| RangeLoad {
        range,
        load: owners[place].load,
        heavy: Vec::new(),
        quantiles: Vec::new(),
    };
    let ranges: Vec<RangeLoad> = Proportional.assign(&partitioned).into_iter().map(report).collect();
    let round = LoadRound { owners: &owners, ranges: &ranges, partitioner: &Proportional, max_changes };
    TenPercent.round(memory, &round)
}

fn change(number: usize, virtual_nodes: u32) -> VirtualNodeChange {
    VirtualNodeChange { name: owner(number).name, virtual_nodes }
}

#[test]
fn centrifuge_2_1_2_an_owner_above_ten_percent_gives_one_to_the_least_loaded() {
    let owners = [(12, 1_200), (10, 1_000), (9, 910), (9, 900)];
    let decision = proportional_round(&mut LoadMemory::default(), &owners, 4);
    assert_eq!(decision.changes, [change(0, 11), change(3, 10)], "though the least loaded is not 10 % below");
    let balanced = [1, 2].map(|number| (owner(number).name, LoadSkip::Balanced));
    assert_eq!(decision.skipped, balanced);
}

#[test]
fn prs_4_5_an_owner_below_ten_percent_gets_one_from_the_most_loaded() {
    let owners = [(10, 1_020), (11, 1_100), (10, 1_030), (8, 850)];
    let decision = proportional_round(&mut LoadMemory::default(), &owners, 4);
    assert_eq!(decision.changes, [change(1, 10), change(3, 9)]);
}

#[test]
fn an_owner_at_exactly_ten_percent_is_balanced() {
    let owners = [(11, 1_100), (10, 1_000), (9, 900)];
    let decision = proportional_round(&mut LoadMemory::default(), &owners, 4);
    let balanced = [0, 1, 2].map(|number| (owner(number).name, LoadSkip::Balanced));
    assert_eq!((decision.changes, decision.skipped), (vec![], balanced.to_vec()));
}

#[test]
fn a_full_round_says_so() {
    let owners = [(64, 3_000), (64, 1_000)];
    let decision = proportional_round(&mut LoadMemory::default(), &owners, 0);
    let full = [0, 1].map(|number| (owner(number).name, LoadSkip::RoundFull));
    assert_eq!((decision.changes, decision.skipped), (vec![], full.to_vec()));
}

#[test]
fn a_round_that_is_out_of_predictions_says_so_and_the_next_goes_on_there() {
    let mut memory = LoadMemory::default();
    let mut reasons = || {
        // One of a million virtual nodes is not worth a move.
        let owners = [(1_000_000, 9_000), (1_000_000, 1_500), (1_000_000, 1_000)];
        let decision = proportional_round(&mut memory, &owners, 4);
        decision.skipped.iter().map(|(_, reason)| *reason).collect::<Vec<LoadSkip>>()
    };
    let (refused, full) = (LoadSkip::WouldNotLowerPeak, LoadSkip::RoundFull);
    assert_eq!(reasons(), [refused, full, full]);
    assert_eq!(reasons(), [full, full, refused]);
    assert_eq!(reasons(), [full, refused, full]);
    assert_eq!(reasons(), [refused, full, full]);
}

#[test]
fn the_last_virtual_node_stays() {
    let decision = proportional_round(&mut LoadMemory::default(), &[(1, 3_000), (1, 1_000)], 4);
    let last = [0, 1].map(|number| (owner(number).name, LoadSkip::LastVirtualNode));
    assert_eq!((decision.changes, decision.skipped), (vec![], last.to_vec()));
}

/// Loads that no transfer changes, though each is predicted to.
fn stubborn_rounds(
    memory: &mut LoadMemory,
    loads: [u64; 2],
    rounds: usize,
) -> (usize, Vec<(OwnerName, LoadSkip)>) {
    let mut counts = [64, 64];
    let mut transfers = 0;
    let mut skipped = Vec::new();
    for _ in 0..rounds {
        let decision = proportional_round(memory, &[(counts[0], loads[0]), (counts[1], loads[1])], 4);
        if let [first, second] = &decision.changes[..] {
            transfers += first.virtual_nodes.abs_diff(counts[0]) as usize;
            counts = [first.virtual_nodes, second.virtual_nodes];
        }
        skipped = decision.skipped;
    }
    (transfers, skipped)
}

#[test]
fn transfers_that_do_not_help_in_fact_end_when_the_credits_are_spent() {
    let mut memory = LoadMemory::default();
    // Each of the two has its first transfer and three credits.
    let (transfers, _) = stubborn_rounds(&mut memory, [2_000, 1_000], 4);
    assert_eq!(transfers, 8);
    let (transfers, skipped) = stubborn_rounds(&mut memory, [2_000, 1_000], 100);
    assert_eq!(transfers, 0);
    assert_eq!(skipped, [0, 1].map(|number| (owner(number).name, LoadSkip::Patience)));
}

#[test]
fn credits_are_renewed_by_another_total_load_and_by_loads_that_shift_at_rest() {
    let mut memory = LoadMemory::default();
    let mut transfers = |loads| stubborn_rounds(&mut memory, loads, 20).0;
    assert_eq!(transfers([2_000, 1_000]), 8);
    assert_eq!(transfers([2_100, 1_050]), 0, "within a fifth it is the same load");
    assert_eq!(transfers([2_600, 1_300]), 8, "another total");
    assert_eq!(transfers([1_300, 2_600]), 8, "the same total on other Owners");
}

#[test]
fn nothing_is_done_where_nothing_can_be() {
    let round = |owners: &[(u32, u64)]| {
        let decision = proportional_round(&mut LoadMemory::default(), owners, 4);
        assert_eq!(decision.changes, []);
        decision.skipped.iter().map(|(_, reason)| *reason).collect::<Vec<LoadSkip>>()
    };
    assert_eq!(round(&[]), []);
    assert_eq!(round(&[(64, 1_000)]), [LoadSkip::SingleOwner]);
    assert_eq!(round(&[(64, 0), (64, 0)]), [LoadSkip::NoLoad; 2]);
}

#[test]
fn an_owner_without_capacity_neither_gives_nor_gets() {
    let mut pool = Pool::new(4, zipf(200));
    pool.owners[2].weight = 0;
    let decision = pool.round();
    assert_eq!(reason(&decision, &owner(2).name), Some(LoadSkip::NoCapacity));
    come_to_rest(&mut pool, 60);
    assert_eq!(pool.owners[2].virtual_nodes, 64);
}

#[test]
fn with_a_fixed_assignment_no_transfer_would_help() {
    let mut pool = Pool::new(4, one_giant(100, 3));
    pool.partitioner = PartitionerKind::Fixed;
    let decision = pool.round();
    assert_eq!(decision.changes, []);
    assert!(decision.skipped.iter().any(|(_, reason)| *reason == LoadSkip::WouldNotLowerPeak));
}

#[test]
fn the_policy_off_changes_nothing() {
    let mut pool = Pool::new(4, one_giant(100, 3));
    pool.policy = LoadPolicyKind::Off;
    let decision = pool.round();
    assert_eq!(decision.changes, []);
    assert!(decision.skipped.iter().all(|(_, reason)| *reason == LoadSkip::Off));
}

#[test]
fn the_order_of_owners_and_ranges_does_not_matter() {
    let mut pool = Pool::new(6, zipf(300));
    let mut reversed = Pool::new(6, zipf(300));
    reversed.owners.reverse();
    for _ in 0..20 {
        pool.round();
        reversed.round();
    }
    let mut owners = reversed.owners;
    owners.reverse();
    assert_eq!(pool.owners, owners);
}

#[test]
fn loads_and_weights_at_their_maximum_are_survived() {
    let mut owners = loads_of(&[(4, u64::MAX), (4, u64::MAX), (4, 0)]);
    owners[0].weight = u32::MAX;
    owners[1].virtual_nodes = u32::MAX;
    let heavy = vec![(Key::MIN, u64::MAX), (Key::MAX, u64::MAX)];
    let everything =
        RangeLoad { range: KeyRange::ALL, load: u64::MAX, heavy: heavy.clone(), quantiles: Vec::new() };
    let foreign = RangeLoad { range: KeyRange::one(Key::MIN), load: 1, heavy, quantiles: Vec::new() };
    let ranges = [everything.clone(), everything, foreign];
    let round =
        LoadRound { owners: &owners, ranges: &ranges, partitioner: &Proportional, max_changes: usize::MAX };
    let mut memory = LoadMemory::default();
    for _ in 0..10 {
        TenPercent.round(&mut memory, &round);
    }
}
