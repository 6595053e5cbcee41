//! What the loads of a report can say at most, whoever made it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::key::Key;
use crate::load::RangeLoad;

/// A key is heavy from so many thousandths of its Owner's load on.
pub const HEAVY_PER_MILLE: u64 = 3;

/// The most heavy keys that count in one report: so many have [`HEAVY_PER_MILLE`] each. On the wire a key has at most 22
/// bytes, so that all of them have less than 8 KiB.
pub const MAX_HEAVY_KEYS: usize = 333;

/// The most quantiles of a range: they enclose sixteen parts of its load.
pub const MAX_QUANTILES: usize = 17;

/// The most quantiles that count in one report: eight bytes each, 16 KiB in all.
pub const MAX_QUANTILES_IN_ALL: usize = 2_048;

const _: () = assert!(MAX_HEAVY_KEYS as u64 == 1_000 / HEAVY_PER_MILLE);

/// Fewer samples than this in each part say little about where it ends.
const SAMPLES_PER_PART: usize = 8;

/// Where the load of a range begins, what cuts it into equal parts, and where it ends, by samples of its keys in key order, each with the
/// load that it stands for. Few samples make few parts, or none.
#[must_use]
pub fn quantiles(samples: &[(Key, u64)]) -> Vec<Key> {
    let parts = (samples.len() / SAMPLES_PER_PART).min(MAX_QUANTILES - 1) as u128;
    let (Some((last, _)), 1..) = (samples.last(), parts) else { return Vec::new() };
    let total: u128 = samples.iter().map(|(_, load)| u128::from(*load)).sum();
    let mut quantiles = Vec::new();
    let mut before = 0_u128;
    for (key, load) in samples {
        // The key with which the next part begins.
        while (quantiles.len() as u128) < parts && before * parts >= total * quantiles.len() as u128 {
            quantiles.push(*key);
        }
        before += u128::from(*load);
    }
    quantiles.push(*last);
    quantiles
}

impl RangeLoad {
    /// Drops what cannot be true of the heavy keys, and puts the rest in key order.
    ///
    /// A key outside the range, or named twice, is dropped. What all keys have together is at most the range's load: the
    /// greatest keep theirs, and what is left over is cut.
    #[must_use]
    pub fn bounded(mut self) -> RangeLoad {
        self.bound();
        self
    }

    fn bound(&mut self) {
        let RangeLoad { range, load, heavy, quantiles } = self;
        quantiles.retain(|key| range.contains(*key));
        quantiles.sort_unstable();
        // Of too many those that are left would not enclose equal parts.
        if quantiles.len() > MAX_QUANTILES {
            quantiles.clear();
        }
        heavy.retain(|(key, load)| range.contains(*key) && *load > 0);
        heavy.sort_unstable_by_key(|(key, load)| (*key, Reverse(*load)));
        heavy.dedup_by_key(|(key, _)| *key);
        if heavy.iter().map(|(_, load)| u128::from(*load)).sum::<u128>() > u128::from(*load) {
            cut(heavy, *load);
        }
    }
}

/// Lets the keys have `load` together, the greatest first.
fn cut(heavy: &mut Vec<(Key, u64)>, load: u64) {
    heavy.sort_unstable_by_key(|(key, load)| (Reverse(*load), *key));
    let mut left = load;
    for (_, load) in heavy.iter_mut() {
        *load = left.min(*load);
        left -= *load;
    }
    heavy.retain(|(_, load)| *load > 0);
    heavy.sort_unstable_by_key(|(key, _)| *key);
}

/// Drops what cannot be true of a report's loads, and puts the rest in key order: a range that overlaps an earlier one, what
/// [`RangeLoad::bounded`] drops, the lighter ones of more than [`MAX_HEAVY_KEYS`] heavy keys, and quantiles beyond
/// [`MAX_QUANTILES_IN_ALL`].
pub fn bound_loads(loads: &mut Vec<RangeLoad>) {
    loads.sort_by_key(|load| load.range);
    let mut before: Option<Key> = None;
    loads.retain(|load| {
        let is_apart = before.is_none_or(|last| last < load.range.first());
        before = before.max(Some(load.range.last()));
        is_apart
    });
    loads.iter_mut().for_each(RangeLoad::bound);
    if loads.iter().map(|load| load.heavy.len()).sum::<usize>() > MAX_HEAVY_KEYS {
        keep_heaviest(loads);
    }
    let mut room = MAX_QUANTILES_IN_ALL;
    for load in loads.iter_mut() {
        match room.checked_sub(load.quantiles.len()) {
            Some(left) => room = left,
            None => load.quantiles.clear(),
        }
    }
}

fn keep_heaviest(loads: &mut [RangeLoad]) {
    let mut all: Vec<(Key, u64)> = loads.iter().flat_map(|load| &load.heavy).copied().collect();
    all.sort_unstable_by_key(|(key, load)| (Reverse(*load), *key));
    let kept: BTreeSet<Key> = all.into_iter().take(MAX_HEAVY_KEYS).map(|(key, _)| key).collect();
    loads.iter_mut().for_each(|load| load.heavy.retain(|(key, _)| kept.contains(key)));
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::key::KeyRange;

    fn range(first: u64, last: u64) -> KeyRange {
        KeyRange::new(Key(first), Key(last)).expect("in order")
    }

    /// The heavy keys that are left of these, in the range from 10 to 19 with a load of 100.
    fn bounded(heavy: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let heavy = heavy.iter().map(|(key, load)| (Key(*key), *load)).collect();
        let bounded = RangeLoad { range: range(10, 19), load: 100, heavy, quantiles: Vec::new() }.bounded();
        assert_eq!((bounded.range, bounded.load), (range(10, 19), 100));
        bounded.heavy.into_iter().map(|(key, load)| (key.0, load)).collect()
    }

    #[test]
    fn what_is_true_stays_as_it_is() {
        assert_eq!(bounded(&[]), []);
        assert_eq!(bounded(&[(10, 40), (12, 1), (19, 59)]), [(10, 40), (12, 1), (19, 59)]);
    }

    #[test]
    fn keys_come_in_key_order() {
        assert_eq!(bounded(&[(19, 1), (10, 2), (15, 3)]), [(10, 2), (15, 3), (19, 1)]);
    }

    #[test]
    fn keys_outside_the_range_are_dropped() {
        assert_eq!(bounded(&[(9, 50), (10, 1), (20, 50), (u64::MAX, 9)]), [(10, 1)]);
    }

    #[test]
    fn keys_without_load_and_keys_named_twice_are_dropped() {
        assert_eq!(bounded(&[(12, 0), (13, 5), (13, 9)]), [(13, 9)]);
    }

    #[test]
    fn more_than_the_load_of_the_range_is_cut() {
        assert_eq!(bounded(&[(11, 30), (12, 60), (13, 20)]), [(11, 30), (12, 60), (13, 10)]);
        assert_eq!(bounded(&[(11, u64::MAX), (12, u64::MAX), (13, 20)]), [(11, 100)]);
    }

    #[test]
    fn a_range_counts_once() {
        let load = |first, last, load| RangeLoad {
            range: range(first, last),
            load,
            heavy: Vec::new(),
            quantiles: Vec::new(),
        };
        let mut loads =
            vec![load(50, 59, 5), load(0, 40, 1), load(10, 19, 2), load(40, 49, 3), load(41, 49, 4)];
        bound_loads(&mut loads);
        assert_eq!(loads, [load(0, 40, 1), load(50, 59, 5)]);
        let mut twice = vec![load(1, 5, 7), load(1, 5, 9)];
        bound_loads(&mut twice);
        assert_eq!(twice, [load(1, 5, 7)]);
    }

    #[test]
    fn samples_cut_load_into_as_many_parts_as_they_can_tell() {
        let samples: Vec<(Key, u64)> = (0..160).map(|key| (Key(key), 7)).collect();
        let sixteenths: Vec<Key> = (0..16).map(|part| Key(part * 10)).chain([Key(159)]).collect();
        assert_eq!(quantiles(&samples), sixteenths);
        assert_eq!(quantiles(&samples[..24]), [Key(0), Key(8), Key(16), Key(23)]);
        assert_eq!(quantiles(&samples[..15]), [Key(0), Key(14)], "one part, which begins and ends somewhere");
        assert_eq!(quantiles(&samples[..7]), []);
        assert_eq!(quantiles(&[]), []);
        let uneven: Vec<(Key, u64)> = (0..32).map(|key| (Key(key), if key < 16 { 1 } else { 3 })).collect();
        assert_eq!(quantiles(&uneven), [Key(0), Key(16), Key(22), Key(27), Key(31)]);
    }

    #[test]
    fn quantiles_are_few_in_order_and_in_their_range() {
        let quantiles = |range, keys: &[u64]| {
            let quantiles = keys.iter().copied().map(Key).collect();
            RangeLoad { range, load: 9, heavy: Vec::new(), quantiles }
        };
        let of = |load: &RangeLoad| load.quantiles.iter().map(|key| key.0).collect::<Vec<u64>>();
        assert_eq!(of(&quantiles(range(10, 19), &[15, 12, 9, 20, 15]).bounded()), [12, 15, 15]);
        assert_eq!(
            of(&quantiles(range(0, 99), &[7; 18]).bounded()),
            [0; 0],
            "too many cut it into nobody knows what"
        );
        let mut loads: Vec<RangeLoad> = (0..200)
            .map(|number| quantiles(range(number * 10, number * 10 + 9), &[number * 10; 17]))
            .collect();
        bound_loads(&mut loads);
        let all: usize = loads.iter().map(|load| load.quantiles.len()).sum();
        assert_eq!(all, MAX_QUANTILES_IN_ALL / 17 * 17);
    }

    #[test]
    fn the_heaviest_keys_of_too_many_are_kept() {
        let heavy = |first: u64| (first..first + 300).map(|key| (Key(key), key)).collect();
        let load = |first| RangeLoad {
            range: range(first, first + 999),
            load: u64::MAX,
            heavy: heavy(first),
            quantiles: Vec::new(),
        };
        let mut loads = vec![load(1_000), load(2_000)];
        bound_loads(&mut loads);
        let lengths: Vec<usize> = loads.iter().map(|load| load.heavy.len()).collect();
        assert_eq!(lengths, [MAX_HEAVY_KEYS - 300, 300]);
        assert_eq!(loads[0].heavy[0].0, Key(1_300 - 33));
    }

    proptest! {
        /// Whatever a report says, what is left of it is consistent, and no load grows.
        #[test]
        fn what_is_left_is_consistent(
            raw in vec((0_u64..60, 0_u64..20, any::<u64>(), vec((0_u64..80, any::<u64>()), 0..6)), 0..6),
        ) {
            let load = |(first, more, load, heavy): &(u64, u64, u64, Vec<(u64, u64)>)| {
                let heavy = heavy.iter().map(|(key, load)| (Key(*key), *load)).collect();
                let quantiles = (0..*more).map(|step| Key(first + step * 3)).collect();
                RangeLoad { range: range(*first, first + more), load: *load, heavy, quantiles }
            };
            let reported: Vec<RangeLoad> = raw.iter().map(load).collect();
            let mut bounded = reported.clone();
            bound_loads(&mut bounded);
            prop_assert!(bounded.windows(2).all(|pair| pair[0].range.last() < pair[1].range.first()));
            for RangeLoad { range, load, heavy, quantiles } in &bounded {
                prop_assert!(quantiles.len() <= MAX_QUANTILES && quantiles.is_sorted());
                prop_assert!(quantiles.iter().all(|key| range.contains(*key)));
                prop_assert!(reported.iter().any(|it| it.range == *range && it.load == *load));
                prop_assert!(heavy.windows(2).all(|pair| pair[0].0 < pair[1].0));
                prop_assert!(heavy.iter().all(|(key, load)| range.contains(*key) && *load > 0));
                let sum: u128 = heavy.iter().map(|(_, load)| u128::from(*load)).sum();
                prop_assert!(sum <= u128::from(*load));
            }
            let mut again = bounded.clone();
            bound_loads(&mut again);
            prop_assert_eq!(again, bounded);
        }
    }
}
