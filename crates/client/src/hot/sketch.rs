//! The heaviest keys of a stream in bounded memory: a space-saving sketch.
//!
//! Space-saving (Metwally, Agrawal and El Abbadi, ICDT 2005) has a fixed number of counters. A key without one takes the
//! smallest counter and inherits its count, which becomes the key's error. Here a key's hash chooses a small set of
//! counters, as in a cache, so that a step costs the same however many counters there are.

use std::cmp::Reverse;

use centrifuge_core::key::Key;

/// How many sets there are: two to this power.
const SET_BITS: u32 = 6;
const SETS: usize = 1 << SET_BITS;
/// Counters of a set.
const WAYS: usize = 8;

type Set = [Counter; WAYS];

/// Which keys came most often, and how often.
///
/// It never loses a key that came more often than its set's total divided by the counters of a set (eight). As 64 sets
/// share the keys, that is about one part in 512 of everything. The size is fixed: 12 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sketch {
    sets: Box<[Set]>,
}

/// What a sketch knows of one key. The true count is at least [`Counter::at_least`] and at most [`Counter::at_most`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    key: Key,
    /// Zero: the counter is free.
    count: u64,
    /// How much of the count may be of other keys.
    error: u64,
}

impl Counter {
    const FREE: Counter = Counter { key: Key::MIN, count: 0, error: 0 };

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    pub(crate) fn at_least(&self) -> u64 {
        self.count.saturating_sub(self.error)
    }

    #[cfg(test)]
    pub(crate) fn at_most(&self) -> u64 {
        self.count
    }

    fn is_free(&self) -> bool {
        self.count == 0
    }

    /// With as much more as the key can have had where it has no counter.
    fn with_unseen(self, unseen: u64) -> Counter {
        let (count, error) = (self.count.saturating_add(unseen), self.error.saturating_add(unseen));
        Counter { count, error, ..self }
    }

    fn plus(self, other: Counter) -> Counter {
        let (count, error) = (self.count.saturating_add(other.count), self.error.saturating_add(other.error));
        Counter { count, error, ..self }
    }
}

impl Sketch {
    /// A sketch of nothing. Only this allocates.
    pub(crate) fn new() -> Sketch {
        Sketch { sets: vec![[Counter::FREE; WAYS]; SETS].into() }
    }

    /// The key came `count` times more.
    pub(crate) fn add(&mut self, key: Key, count: u64) {
        if count == 0 {
            return;
        }
        let set = &mut self.sets[set_of(key)];
        let place = find(set, key).unwrap_or_else(|| {
            let smallest = smallest(set);
            set[smallest] = Counter { key, error: set[smallest].count, ..set[smallest] };
            smallest
        });
        set[place].count = set[place].count.saturating_add(count);
    }

    /// Adds what another sketch saw. Bounds stay bounds, as if one sketch had seen both streams.
    ///
    /// A key without a counter in one of the two may have come there as often as that set's smallest counter says.
    /// The counters of a set never add up to more than came, so that the smallest stays below its share.
    pub(crate) fn merge(&mut self, other: &Sketch) {
        for (set, other) in self.sets.iter_mut().zip(&other.sets) {
            if other.iter().any(|counter| !counter.is_free()) {
                merge_set(set, other);
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.sets.fill([Counter::FREE; WAYS]);
    }

    /// The keys that have a counter, in no order that means anything, but always in the same.
    pub(crate) fn counters(&self) -> impl Iterator<Item = &Counter> {
        self.sets.iter().flatten().filter(|counter| !counter.is_free())
    }
}

/// An odd multiplier near 2^64 divided by the golden ratio spreads keys that an application did not hash.
fn set_of(key: Key) -> usize {
    (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - SET_BITS)) as usize
}

fn find(set: &Set, key: Key) -> Option<usize> {
    set.iter().position(|counter| counter.key == key && !counter.is_free())
}

/// The counter that gives way: a free one if there is one.
fn smallest(set: &Set) -> usize {
    let mut smallest = 0;
    for place in 1..WAYS {
        if set[place].count < set[smallest].count {
            smallest = place;
        }
    }
    smallest
}

fn merge_set(set: &mut Set, other: &Set) {
    let (unseen_here, unseen_there) = (set[smallest(set)].count, other[smallest(other)].count);
    let mut all = [Counter::FREE; 2 * WAYS];
    for (merged, counter) in all.iter_mut().zip(set.iter()).filter(|(_, counter)| !counter.is_free()) {
        let there = find(other, counter.key).map(|place| other[place]);
        *merged = there.map_or_else(|| counter.with_unseen(unseen_there), |there| counter.plus(there));
    }
    for (merged, counter) in all[WAYS..].iter_mut().zip(other).filter(|(_, counter)| !counter.is_free()) {
        if find(set, counter.key).is_none() {
            *merged = counter.with_unseen(unseen_here);
        }
    }
    all.sort_unstable_by_key(|counter| (Reverse(counter.count), counter.key));
    set.copy_from_slice(&all[..WAYS]);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// A sketch of one part of the stream for each thread there could be, merged, and the exact counts.
    fn sketched(parts: &[Vec<(u64, u64)>]) -> (Sketch, BTreeMap<Key, u64>) {
        let (mut merged, mut exact) = (Sketch::new(), BTreeMap::new());
        for part in parts {
            let mut sketch = Sketch::new();
            for &(key, count) in part {
                sketch.add(Key(key), count);
                *exact.entry(Key(key)).or_default() += count;
            }
            merged.merge(&sketch);
        }
        exact.retain(|_, count| *count > 0);
        (merged, exact)
    }

    /// What the module promises of a sketch, given the exact counts of its stream.
    fn check_bounds(sketch: &Sketch, exact: &BTreeMap<Key, u64>) {
        let mut totals = [0; SETS];
        for (key, count) in exact {
            totals[set_of(*key)] += count;
        }
        for counter in sketch.counters() {
            let truth = exact.get(&counter.key).copied().unwrap_or_default();
            assert!(counter.at_least() <= truth, "{counter:?} of {truth}");
            assert!(truth <= counter.at_most(), "{counter:?} of {truth}");
            assert!(counter.error <= totals[set_of(counter.key)] / WAYS as u64, "{counter:?}");
        }
        for (key, truth) in exact {
            let (set, total) = (&sketch.sets[set_of(*key)], totals[set_of(*key)]);
            let is_counted = find(set, *key).is_some();
            assert!(is_counted || *truth <= set[smallest(set)].count, "{key} came {truth} times");
            assert!(is_counted || *truth <= total / WAYS as u64, "{key} came {truth} of {total} times");
        }
        for (set, total) in sketch.sets.iter().zip(totals) {
            assert!(set.iter().map(|counter| counter.count).sum::<u64>() <= total);
        }
    }

    /// Keys that are all in one set, so that few of them fill it.
    fn crowded_keys() -> Vec<u64> {
        (0..).filter(|key| set_of(Key(*key)) == 5).take(40).collect()
    }

    proptest! {
        #[test]
        fn bounds_hold_against_exact_counts(
            parts in vec(vec((0_u64..3_000, 0_u64..20), 0..2_000), 1..4),
        ) {
            let (sketch, exact) = sketched(&parts);
            check_bounds(&sketch, &exact);
        }

        #[test]
        fn bounds_hold_in_a_crowded_set(
            parts in vec(vec((0_usize..40, 0_u64..20), 0..200), 1..5),
        ) {
            let keys = crowded_keys();
            let part = |part: &Vec<(usize, u64)>| part.iter().map(|(key, count)| (keys[*key], *count)).collect();
            let (sketch, exact) = sketched(&parts.iter().map(part).collect::<Vec<_>>());
            check_bounds(&sketch, &exact);
        }
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let (sketch, exact) = sketched(&[vec![(3, 5), (u64::MAX, 1), (0, 2)], vec![(3, 1), (9, 4)]]);
        let counted: BTreeMap<Key, u64> = sketch.counters().map(|it| (it.key(), it.at_least())).collect();
        assert_eq!(counted, exact);
        assert!(sketch.counters().all(|counter| counter.error == 0));
    }

    #[test]
    fn a_new_key_takes_the_smallest_counter_and_its_count() {
        let keys = crowded_keys();
        let mut sketch = Sketch::new();
        for (key, count) in keys.iter().zip([9, 9, 9, 3, 9, 9, 9, 9]) {
            sketch.add(Key(*key), count);
        }
        sketch.add(Key(keys[8]), 1);
        assert_eq!(find(&sketch.sets[5], Key(keys[3])), None);
        let place = find(&sketch.sets[5], Key(keys[8])).expect("it came last");
        assert_eq!(sketch.sets[5][place], Counter { key: Key(keys[8]), count: 4, error: 3 });
    }

    #[test]
    fn counts_end_at_the_greatest_number_and_what_is_cleared_is_forgotten() {
        let mut sketch = Sketch::new();
        sketch.add(Key(1), u64::MAX);
        sketch.add(Key(1), 5);
        sketch.merge(&sketch.clone());
        assert_eq!(sketch.counters().map(Counter::at_most).collect::<Vec<_>>(), [u64::MAX]);
        sketch.clear();
        assert_eq!(sketch, Sketch::new());
    }

    #[test]
    fn the_size_is_what_the_documentation_says() {
        assert_eq!(std::mem::size_of::<Set>() * SETS, 12 << 10);
    }
}
