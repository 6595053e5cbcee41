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

const _: () = assert!(MAX_HEAVY_KEYS as u64 == 1_000 / HEAVY_PER_MILLE);

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
        let RangeLoad { range, load, heavy } = self;
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
/// [`RangeLoad::bounded`] drops, and the lighter ones of more than [`MAX_HEAVY_KEYS`] heavy keys.
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
        let bounded = RangeLoad { range: range(10, 19), load: 100, heavy }.bounded();
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
        let load = |first, last, load| RangeLoad { range: range(first, last), load, heavy: Vec::new() };
        let mut loads =
            vec![load(50, 59, 5), load(0, 40, 1), load(10, 19, 2), load(40, 49, 3), load(41, 49, 4)];
        bound_loads(&mut loads);
        assert_eq!(loads, [load(0, 40, 1), load(50, 59, 5)]);
        let mut twice = vec![load(1, 5, 7), load(1, 5, 9)];
        bound_loads(&mut twice);
        assert_eq!(twice, [load(1, 5, 7)]);
    }

    #[test]
    fn the_heaviest_keys_of_too_many_are_kept() {
        let heavy = |first: u64| (first..first + 300).map(|key| (Key(key), key)).collect();
        let load =
            |first| RangeLoad { range: range(first, first + 999), load: u64::MAX, heavy: heavy(first) };
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
                RangeLoad { range: range(*first, first + more), load: *load, heavy }
            };
            let reported: Vec<RangeLoad> = raw.iter().map(load).collect();
            let mut bounded = reported.clone();
            bound_loads(&mut bounded);
            prop_assert!(bounded.windows(2).all(|pair| pair[0].range.last() < pair[1].range.first()));
            for RangeLoad { range, load, heavy } in &bounded {
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
