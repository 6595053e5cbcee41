//! Sorted boundaries, indexed by the top bits of a key.

use std::sync::Arc;

use centrifuge_core::key::{Key, KeyRange};

/// The index never has more buckets than two to this power: four megabytes.
const MOST_BITS: u32 = 20;

/// Marks a bucket with more than one boundary.
const CROWDED: u32 = 1 << 31;

/// A value for every key, kept as the last key of each run of keys that share one.
///
/// A key's top bits name a bucket, and the bucket says which run has its first key. With keys spread evenly a bucket
/// holds less than one boundary, so that the key is in that run or in the next; where boundaries crowd, the crowd is
/// searched by halves.
#[derive(Debug)]
pub(super) struct RangeIndex<T> {
    shift: u32,
    buckets: Arc<[u32]>,
    runs: Arc<[Run<T>]>,
}

/// Two to a cache line, and none in two of them, while the value is small.
#[derive(Debug)]
#[repr(align(32))]
struct Run<T> {
    last: u64,
    value: T,
}

impl<T: Clone> RangeIndex<T> {
    /// The values of these ranges, which are in key order and do not overlap; keys between them have `gap`.
    pub(super) fn new(ranges: impl IntoIterator<Item = (KeyRange, T)>, gap: T) -> RangeIndex<T> {
        let mut runs: Vec<Run<T>> = Vec::new();
        // The first key that no run covers yet; `None` once the highest key is covered.
        let mut next = Some(Key::MIN);
        for (range, value) in ranges {
            let free = next.expect("ranges are in key order");
            assert!(free <= range.first(), "ranges are in key order and do not overlap");
            if free < range.first() {
                runs.push(Run { last: range.first().0 - 1, value: gap.clone() });
            }
            runs.push(Run { last: range.last().0, value });
            next = range.last().next();
        }
        if next.is_some() {
            runs.push(Run { last: u64::MAX, value: gap });
        }
        let shift = u64::BITS - bits_for(runs.len());
        RangeIndex { shift, buckets: buckets(&runs, shift).into(), runs: runs.into() }
    }
}

/// A copy shares everything.
impl<T> Clone for RangeIndex<T> {
    fn clone(&self) -> RangeIndex<T> {
        RangeIndex { shift: self.shift, buckets: Arc::clone(&self.buckets), runs: Arc::clone(&self.runs) }
    }
}

impl<T> RangeIndex<T> {
    /// Another value for every run; the boundaries are shared.
    pub(super) fn map<U>(&self, value: impl Fn(&T) -> U) -> RangeIndex<U> {
        let run = |run: &Run<T>| Run { last: run.last, value: value(&run.value) };
        RangeIndex {
            shift: self.shift,
            buckets: Arc::clone(&self.buckets),
            runs: self.runs.iter().map(run).collect(),
        }
    }

    /// Whether somebody else has a copy that shares the values.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.runs) > 1
    }

    /// How many runs there are.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Which run has the key. Most buckets hold one boundary or none: that is decided without a branch, which the
    /// processor could only guess.
    #[inline(always)]
    pub(super) fn find(&self, key: Key) -> usize {
        let bucket = self.buckets[key.0.wrapping_shr(self.shift) as usize];
        if bucket & CROWDED != 0 {
            return self.search(key);
        }
        let run = bucket as usize;
        run.wrapping_add(usize::from(self.runs[run].last < key.0))
    }

    /// Searches a bucket of several boundaries.
    #[inline(never)]
    fn search(&self, key: Key) -> usize {
        let bucket = key.0.wrapping_shr(self.shift) as usize;
        let of = |bucket: usize| (self.buckets[bucket] & !CROWDED) as usize;
        let (low, high) = (of(bucket), of(bucket + 1));
        low + self.runs[low..high].partition_point(|run| run.last < key.0)
    }

    /// The last key of a run, and its value.
    #[inline(always)]
    pub(super) fn run(&self, run: usize) -> (Key, &T) {
        let Run { last, value } = &self.runs[run];
        (Key(*last), value)
    }

    /// The value of a run.
    #[inline(always)]
    pub(super) fn value(&self, run: usize) -> &T {
        &self.runs[run].value
    }

    /// The values of all runs, in key order.
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.runs.iter().map(|run| &run.value)
    }

    /// The keys of a run.
    pub(super) fn range(&self, run: usize) -> KeyRange {
        let before = run.checked_sub(1).map(|before| Key(self.runs[before].last));
        let first = before.map_or(Some(Key::MIN), Key::next).expect("only the last run has the highest key");
        KeyRange::new(first, Key(self.runs[run].last)).expect("runs are in key order")
    }
}

/// Two to four buckets a run: most then have no boundary to compare with.
fn bits_for(runs: usize) -> u32 {
    (runs.next_power_of_two().ilog2() + 1).min(MOST_BITS)
}

/// Bucket by bucket the run that has its first key, and at the end the last run. A run has the buckets that begin in
/// it, up to the one in which it ends.
fn buckets<T>(runs: &[Run<T>], shift: u32) -> Vec<u32> {
    let count = 1_usize << (u64::BITS - shift);
    let mut buckets = Vec::with_capacity(count + 1);
    for (number, run) in (0_u32..CROWDED).zip(runs) {
        let ends_in = (run.last >> shift) as usize;
        match buckets.len().checked_sub(ends_in + 1) {
            // An earlier run ends in the same bucket, which is the last one so far.
            Some(_) => buckets[ends_in] |= CROWDED,
            None => buckets.resize(ends_in + 1, number),
        }
    }
    buckets.push(u32::try_from(runs.len() - 1).expect("fewer runs than two to the power of 31"));
    buckets
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    /// Ranges between neighbouring boundaries, every third left out.
    fn ranges(boundaries: &std::collections::BTreeSet<u64>) -> Vec<(KeyRange, usize)> {
        let bounds: Vec<u64> = boundaries.iter().copied().collect();
        let pairs = bounds.windows(2).enumerate().filter(|(number, _)| number % 3 != 2);
        let range = |pair: &[u64]| KeyRange::new(Key(pair[0]), Key(pair[1] - 1)).expect("in order");
        pairs.map(|(number, pair)| (range(pair), number + 1)).collect()
    }

    fn agrees(ranges: &[(KeyRange, usize)], index: &RangeIndex<usize>, key: Key) {
        let wanted = ranges.iter().find(|(range, _)| range.contains(key));
        let run = index.find(key);
        assert_eq!(*index.value(run), wanted.map_or(0, |(_, value)| *value), "{key}");
        assert!(index.range(run).contains(key));
        if let Some((range, _)) = wanted {
            assert_eq!(index.range(run), *range);
        }
    }

    fn check(boundaries: &std::collections::BTreeSet<u64>, keys: &[u64]) {
        let ranges = ranges(boundaries);
        let index = RangeIndex::new(ranges.iter().copied(), 0);
        let edges =
            boundaries.iter().flat_map(|bound| [bound.wrapping_sub(1), *bound, bound.wrapping_add(1)]);
        for key in keys.iter().copied().chain(edges).chain([0, u64::MAX]) {
            agrees(&ranges, &index, Key(key));
        }
    }

    proptest! {
        #[test]
        fn every_key_has_the_value_of_its_range(
            spread in btree_set(any::<u64>(), 0..60),
            keys in proptest::collection::vec(any::<u64>(), 0..40),
        ) {
            check(&spread, &keys);
        }

        #[test]
        fn crowded_boundaries_are_found_too(
            base in any::<u64>(),
            crowd in btree_set(0_u64..500, 0..200),
            keys in proptest::collection::vec(0_u64..600, 0..40),
        ) {
            let crowd = crowd.iter().map(|step| base.saturating_add(*step)).collect();
            let keys: Vec<u64> = keys.iter().map(|step| base.saturating_add(*step)).collect();
            check(&crowd, &keys);
        }
    }

    #[test]
    fn no_range_and_one_range_of_everything() {
        let none = RangeIndex::new([], 7);
        assert_eq!((none.len(), *none.value(none.find(Key(5)))), (1, 7));
        let all = RangeIndex::new([(KeyRange::ALL, 1)], 0);
        assert_eq!((all.len(), *all.value(all.find(Key::MAX))), (1, 1));
        assert_eq!(all.range(0), KeyRange::ALL);
    }
}
