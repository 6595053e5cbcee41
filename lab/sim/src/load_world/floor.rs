//! How even load can be at best: the level, the goal of each Owner, and the peak over it.

use centrifuge_core::key::Key;

/// The load per unit of weight that is left for everybody else when each key that is larger than the largest free Owner's
/// share has an Owner of its own.
///
/// `keys` are in falling order; those that are small enough for any Owner may be missing. `weights` may be in any order.
pub(super) fn level(total: f64, keys: &[(Key, f64)], weights: &[f64]) -> f64 {
    let mut weights = weights.to_vec();
    weights.sort_by(|one, two| two.total_cmp(one));
    let (mut load, mut weight) = (total, weights.iter().sum::<f64>());
    for ((_, key), largest) in keys.iter().zip(&weights) {
        let is_last = weight - largest <= f64::EPSILON;
        if is_last || *key <= load / weight * largest {
            break;
        }
        load -= key;
        weight -= largest;
    }
    if weight > 0.0 { load / weight } else { 0.0 }
}

/// What an Owner has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Carried {
    /// The weight of the Owner.
    pub(super) weight: f64,
    /// The load of all of its ranges.
    pub(super) load: f64,
    /// The load of its hottest key.
    pub(super) largest_key: f64,
}

/// The greatest load of an Owner over its goal: the level by its weight, or its largest key if that is more.
pub(super) fn peak_over_floor(level: f64, owners: impl IntoIterator<Item = Carried>) -> f64 {
    let ratio = |owner: Carried| {
        let goal = (level * owner.weight).max(owner.largest_key);
        if goal > 0.0 { owner.load / goal } else { 0.0 }
    };
    owners.into_iter().map(ratio).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::rng::Rng;

    fn keys(loads: &[f64]) -> Vec<(Key, f64)> {
        loads.iter().enumerate().map(|(number, load)| (Key(number as u64), *load)).collect()
    }

    #[test]
    fn without_large_keys_everything_is_even() {
        assert_eq!(level(40.0, &keys(&[1.0, 0.5]), &[0.5, 1.0, 1.0, 1.5]), 10.0);
    }

    #[test]
    fn a_large_key_takes_the_largest_owner_out() {
        assert_eq!(level(100.0, &keys(&[60.0]), &[1.0, 2.0, 1.0]), 20.0);
    }

    #[test]
    fn a_key_may_become_large_when_a_larger_one_is_gone() {
        // 25 is less than 100 / 4 until 60 is gone, and more than 40 / 3 after it.
        assert_eq!(level(100.0, &keys(&[60.0, 25.0]), &[1.0, 1.0, 1.0, 1.0]), 7.5);
    }

    #[test]
    fn one_owner_has_everything() {
        assert_eq!(level(10.0, &keys(&[9.0]), &[1.0]), 10.0);
    }

    /// The fewest keys set apart such that each is too large for its Owner at the level that is left, and the next is not.
    fn brute_force(total: f64, keys: &[(Key, f64)], sorted: &[f64]) -> f64 {
        let apart = |count: usize| {
            let load = total - keys[..count].iter().map(|(_, load)| load).sum::<f64>();
            load / sorted[count..].iter().sum::<f64>()
        };
        let is_consistent = |count: &usize| {
            let level = apart(*count);
            let next = keys.get(*count).map_or(0.0, |(_, load)| *load);
            *count + 1 == sorted.len() || next <= level * sorted[*count]
        };
        apart((0..sorted.len()).find(is_consistent).expect("the last one is"))
    }

    #[test]
    fn the_level_is_what_trying_all_counts_finds() {
        let mut rng = Rng::new(8);
        for _ in 0..2_000 {
            let mut weights: Vec<f64> = (0..rng.between(1, 6)).map(|_| rng.pick(&[0.5, 1.0, 2.0])).collect();
            weights.sort_by(|one, two| two.total_cmp(one));
            let mut loads: Vec<f64> = (0..6).map(|_| rng.spread(1, 500) as f64).collect();
            loads.sort_by(|one, two| two.total_cmp(one));
            let keys = keys(&loads);
            let total = loads.iter().sum::<f64>() + rng.below(500) as f64;
            let (found, expected) = (level(total, &keys, &weights), brute_force(total, &keys, &weights));
            assert!((found - expected).abs() < 1e-9, "{loads:?} {weights:?}: {found} {expected}");
        }
    }

    /// With the level as capacity and each large key's Owner as large as the key, everything fits and nothing is to spare.
    #[test]
    fn at_the_level_capacity_equals_load() {
        let mut rng = Rng::new(9);
        for _ in 0..500 {
            let weights = [2.0, 2.0, 1.0, 1.0, 0.5];
            let mut loads: Vec<f64> = (0..5).map(|_| rng.spread(1, 300) as f64).collect();
            loads.sort_by(|one, two| two.total_cmp(one));
            let total = loads.iter().sum::<f64>() + 300.0;
            let level = level(total, &keys(&loads), &weights);
            let mut capacity = level * weights.iter().sum::<f64>();
            for (load, weight) in loads.iter().zip(weights) {
                if *load <= level * weight {
                    break;
                }
                capacity += load - level * weight;
            }
            assert!((capacity - total).abs() < 1e-6);
        }
    }

    #[test]
    fn the_peak_is_over_the_goal_of_its_owner() {
        let owner = |weight, load, largest_key| Carried { weight, load, largest_key };
        let even = [owner(1.0, 10.0, 1.0), owner(2.0, 20.0, 1.0)];
        assert_eq!(peak_over_floor(10.0, even), 1.0);
        let uneven = [owner(1.0, 15.0, 1.0), owner(2.0, 20.0, 1.0)];
        assert_eq!(peak_over_floor(10.0, uneven), 1.5);
        let large_key = [owner(1.0, 30.0, 30.0), owner(1.0, 11.0, 1.0)];
        assert_eq!(peak_over_floor(10.0, large_key), 1.1);
    }
}
