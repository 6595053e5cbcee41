//! Sorted boundaries, indexed by the top bits of a key.

use centrifuge_core::key::{Key, KeyRange};

/// The index never has more buckets than two to this power: four megabytes.
const MOST_BITS: u32 = 20;

/// A value for every key, kept as the first key of each run of keys that share one.
///
/// A key's top bits name a bucket, and the bucket says where in the sorted runs to begin. With keys spread evenly a
/// bucket holds less than one boundary; where boundaries crowd, the crowd is searched by halves.
#[derive(Debug)]
pub(super) struct RangeIndex<T> {
    shift: u32,
    /// For each bucket the run of its first key, and at the end the last run.
    buckets: Box<[u32]>,
    runs: Box<[Run<T>]>,
}

#[derive(Debug)]
struct Run<T> {
    first: u64,
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
                runs.push(Run { first: free.0, value: gap.clone() });
            }
            runs.push(Run { first: range.first().0, value });
            next = range.last().next();
        }
        if let Some(free) = next {
            runs.push(Run { first: free.0, value: gap });
        }
        let shift = u64::BITS - bits_for(runs.len());
        RangeIndex { shift, buckets: buckets(&runs, shift), runs: runs.into_boxed_slice() }
    }

    /// How many runs there are.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Which run has the key. Most buckets hold one boundary or none: that is decided without a branch, which the
    /// processor could only guess.
    #[inline(always)]
    pub(super) fn find(&self, key: Key) -> usize {
        let bucket = (key.0 >> self.shift) as usize;
        let [low, high] = self.buckets[bucket..=bucket.wrapping_add(1)] else { unreachable!("two of them") };
        let after = low.wrapping_add(1);
        if after < high {
            return self.search(low as usize, high as usize, key);
        }
        let next = &self.runs[after.min(high) as usize];
        (low as usize).wrapping_add(usize::from((low < high) & (next.first <= key.0)))
    }

    /// Searches a bucket of several boundaries.
    #[inline(never)]
    fn search(&self, low: usize, high: usize, key: Key) -> usize {
        low + self.runs[low + 1..=high].partition_point(|run| run.first <= key.0)
    }

    /// The value of a run.
    #[inline]
    pub(super) fn value(&self, run: usize) -> &T {
        &self.runs[run].value
    }

    /// The keys of a run.
    #[inline]
    pub(super) fn range(&self, run: usize) -> KeyRange {
        let first = self.runs[run].first;
        let last = self.runs.get(run.wrapping_add(1)).map_or(u64::MAX, |next| next.first.wrapping_sub(1));
        // Runs are in key order, so that there always is such a range.
        KeyRange::new(Key(first), Key(last)).unwrap_or(KeyRange::one(Key(first)))
    }
}

/// Four to eight buckets a run while that is small, and at least two: most then have no boundary to compare with.
fn bits_for(runs: usize) -> u32 {
    let spare = if runs <= 1 << 15 { 2 } else { 1 };
    (runs.next_power_of_two().ilog2() + spare).min(MOST_BITS)
}

/// Bucket by bucket the run that has its first key. A run has the buckets that begin in it, from the first at or after
/// its own first key to the first of the next run.
fn buckets<T>(runs: &[Run<T>], shift: u32) -> Box<[u32]> {
    let count = 1_usize << (u64::BITS - shift);
    let begins = |first: u64| first.checked_sub(1).map_or(0, |before| (before >> shift) as usize + 1);
    let mut buckets = vec![0; count + 1];
    let mut number = 0_u32;
    for pair in runs.windows(2) {
        buckets[begins(pair[0].first)..begins(pair[1].first)].fill(number);
        number += 1;
    }
    let last = runs.last().map_or(0, |run| begins(run.first));
    buckets[last..].fill(number);
    // The end of the last bucket, even where the last run begins within it.
    buckets[count] = number;
    buckets.into_boxed_slice()
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
