//! A set of keys, kept as the fewest ranges that say it.

use std::fmt;

use crate::key::{Key, KeyRange};
use crate::range_map::RangeMap;

/// Some of the keys of a key space.
///
/// Always canonical: its ranges are in order, and between two of them lies at least one key that is not in the set.
/// Two sets are therefore equal exactly when they have the same keys.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct RangeSet {
    // A map whose only value is "in the set" merges neighbours just as a set must.
    ranges: RangeMap<()>,
}

impl RangeSet {
    /// The set without keys.
    #[must_use]
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// The set of every key there is.
    #[must_use]
    pub fn all() -> RangeSet {
        RangeSet::from_ranges([KeyRange::ALL])
    }

    /// The keys of all these ranges, which may come in any order and overlap.
    #[must_use]
    pub fn from_ranges(ranges: impl IntoIterator<Item = KeyRange>) -> RangeSet {
        RangeSet { ranges: ranges.into_iter().map(|range| (range, ())).collect() }
    }

    /// Adds every key of `range`.
    pub fn insert(&mut self, range: KeyRange) {
        self.ranges.insert(range, ());
    }

    /// Takes out every key of `range`.
    pub fn remove(&mut self, range: KeyRange) {
        self.ranges.remove(range);
    }

    /// Whether `key` is in the set.
    #[must_use]
    pub fn contains(&self, key: Key) -> bool {
        self.ranges.get(key).is_some()
    }

    /// Whether every key of `range` is in the set.
    #[must_use]
    pub fn contains_range(&self, range: KeyRange) -> bool {
        self.ranges.covers(range)
    }

    /// Whether any key of `range` is in the set.
    #[must_use]
    pub fn overlaps(&self, range: KeyRange) -> bool {
        self.ranges.overlapping(range).next().is_some()
    }

    /// The keys that are in either set.
    #[must_use]
    pub fn union(&self, other: &RangeSet) -> RangeSet {
        let mut either = self.clone();
        other.iter().for_each(|range| either.insert(range));
        either
    }

    /// The keys of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &RangeSet) -> RangeSet {
        // Looks only at those ranges of the other set that are in the way: it may be much larger.
        self.iter().flat_map(|range| other.ranges.gaps(range)).collect()
    }

    /// The keys that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &RangeSet) -> RangeSet {
        let (fewer, more) = if self.len() < other.len() { (self, other) } else { (other, self) };
        fewer.iter().flat_map(|range| more.pieces(range)).collect()
    }

    /// The keys of this set that lie in `range`.
    #[must_use]
    pub fn intersect_range(&self, range: KeyRange) -> RangeSet {
        self.pieces(range).collect()
    }

    /// The ranges of the set, in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = KeyRange> {
        self.ranges.iter().map(|(range, ())| range)
    }

    /// How many ranges the set is kept as.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the set has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many keys the set has; as `u128`, because the full set has one more than `u64` can say.
    #[must_use]
    pub fn key_count(&self) -> u128 {
        self.iter().map(KeyRange::key_count).sum()
    }

    /// The parts of `range` that are in the set, in key order.
    fn pieces(&self, range: KeyRange) -> impl Iterator<Item = KeyRange> {
        self.ranges.overlapping(range).map(|(piece, ())| piece)
    }
}

impl FromIterator<KeyRange> for RangeSet {
    fn from_iter<I: IntoIterator<Item = KeyRange>>(ranges: I) -> RangeSet {
        RangeSet::from_ranges(ranges)
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
