//! A partial map from keys to values, kept as the fewest ranges that say it.

use std::collections::BTreeMap;
use std::fmt;
use std::iter;
use std::ops::Bound;

use crate::key::{Key, KeyRange};
use crate::range_set::RangeSet;

/// Gives some keys a value, range by range.
///
/// Always canonical: ranges never overlap, and neighbours that touch differ in value. Two maps are therefore equal
/// exactly when every key has the same value in both. A lookup takes `O(log n)`, and a change `O(log n)` for each
/// range it touches; only what speaks of the whole map walks all of it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RangeMap<T> {
    /// First key of a range -> its last key and its value.
    ranges: BTreeMap<Key, (Key, T)>,
}

impl<T> RangeMap<T> {
    /// The map in which no key has a value.
    #[must_use]
    pub fn new() -> RangeMap<T> {
        RangeMap::default()
    }

    /// The value of `key`, and the whole stored range that shares it.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<(KeyRange, &T)> {
        let (&first, (last, value)) = self.ranges.range(..=key).next_back()?;
        (key <= *last).then(|| (stored(first, *last), value))
    }

    /// The ranges and their values, in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (KeyRange, &T)> {
        self.ranges.iter().map(|(&first, (last, value))| (stored(first, *last), value))
    }

    /// The value of each range, in key order; equal values of separate ranges come more than once.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.ranges.values().map(|(_, value)| value)
    }

    /// The pieces of `range` that have a value, in key order, clipped to `range`.
    pub fn overlapping(&self, range: KeyRange) -> impl DoubleEndedIterator<Item = (KeyRange, &T)> {
        // The first piece may belong to a stored range that begins before `range` does, and is often all there is.
        let head = self.get(range.first());
        let is_all = head.is_some_and(|(around, _)| around.last() >= range.last());
        let after = (Bound::Excluded(range.first()), Bound::Included(range.last()));
        let tail = (!is_all && range.first() < range.last()).then(|| self.ranges.range(after));
        let tail = tail.into_iter().flatten().map(|(&first, (last, value))| (stored(first, *last), value));
        head.into_iter().chain(tail).map(move |(around, value)| {
            let piece = stored(around.first().max(range.first()), around.last().min(range.last()));
            (piece, value)
        })
    }

    /// The pieces that have a value in both maps, with both values, in key order. Walks each map once.
    pub fn overlay<'a, U>(
        &'a self,
        other: &'a RangeMap<U>,
    ) -> impl Iterator<Item = (KeyRange, &'a T, &'a U)> + 'a {
        let (mut left, mut right) = (self.iter().peekable(), other.iter().peekable());
        iter::from_fn(move || {
            loop {
                let (&(here, value), &(there, others)) = (left.peek()?, right.peek()?);
                if here.last() <= there.last() {
                    left.next();
                }
                if there.last() <= here.last() {
                    right.next();
                }
                if let Some(piece) = here.intersection(there) {
                    return Some((piece, value, others));
                }
            }
        })
    }

    /// The pieces of `range` that have no value, in key order.
    pub fn gaps(&self, range: KeyRange) -> impl Iterator<Item = KeyRange> {
        // Where the next gap would begin; `None` once a value reaches the highest key.
        let mut start = Some(range.first());
        let pieces = self.overlapping(range).map(|(piece, _)| Some(piece));
        pieces.chain(iter::once(None)).filter_map(move |piece| {
            let first = start?;
            let Some(piece) = piece else {
                return KeyRange::new(first, range.last());
            };
            start = piece.last().next();
            KeyRange::new(first, piece.first().previous()?)
        })
    }

    /// Whether every key of `range` has a value.
    #[must_use]
    pub fn covers(&self, range: KeyRange) -> bool {
        self.gaps(range).next().is_none()
    }

    /// The keys that have a value.
    #[must_use]
    pub fn keys(&self) -> RangeSet {
        self.iter().map(|(range, _)| range).collect()
    }

    /// How many ranges the map is kept as.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether no key has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl<T: Clone + Eq> RangeMap<T> {
    /// Gives every key of `range` this value, whatever it had before.
    pub fn insert(&mut self, range: KeyRange, value: T) {
        self.remove(range);
        self.fill(range, value);
    }

    /// Takes the value from every key of `range`.
    pub fn remove(&mut self, range: KeyRange) {
        self.take(range);
    }

    /// Replaces the value on each piece of `range` that has one; `None` takes it away.
    ///
    /// `change` sees the pieces in key order, clipped to `range`.
    pub fn update(&mut self, range: KeyRange, mut change: impl FnMut(KeyRange, &T) -> Option<T>) {
        for (piece, old) in self.take(range) {
            if let Some(new) = change(piece, &old) {
                self.fill(piece, new);
            }
        }
    }

    /// Gives every key of `others`, which are in key order and apart from each other, the value that it has there.
    pub fn insert_all(&mut self, others: &[(KeyRange, T)]) {
        if self.has_all(others) {
            return;
        }
        if others.len() < self.len() / 8 {
            return others.iter().for_each(|(range, value)| self.insert(*range, value.clone()));
        }
        let other: RangeMap<T> = others.iter().cloned().collect();
        let kept = self.iter().flat_map(|(range, value)| other.gaps(range).map(move |gap| (gap, value)));
        let mut all: Vec<(KeyRange, T)> = kept.map(|(range, value)| (range, value.clone())).collect();
        all.extend(other.iter().map(|(range, value)| (range, value.clone())));
        all.sort_unstable_by_key(|(range, _)| range.first());
        *self = all.into_iter().collect();
    }

    /// Whether every key of `others`, which are in key order, has the same value here. Walks both once.
    fn has_all(&self, others: &[(KeyRange, T)]) -> bool {
        let mut here = self.iter().peekable();
        others.iter().all(|(range, value)| {
            let mut next = Some(range.first());
            while let Some(first) = next.filter(|first| *first <= range.last()) {
                while here.next_if(|(around, _)| around.last() < first).is_some() {}
                match here.peek() {
                    Some((around, same)) if around.first() <= first && *same == value => {
                        next = around.last().next();
                    }
                    _ => return false,
                }
            }
            true
        })
    }

    /// Keeps the ranges for which `keep` is true. Sees the whole map.
    pub fn retain(&mut self, mut keep: impl FnMut(KeyRange, &T) -> bool) {
        self.ranges.retain(|&first, (last, value)| keep(stored(first, *last), value));
    }

    /// Takes the value from every key there is.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Takes out every piece of `range`, and leaves the map canonical: what remains lies on either side of the hole.
    fn take(&mut self, range: KeyRange) -> Vec<(KeyRange, T)> {
        self.cut(range.first());
        if let Some(after) = range.last().next() {
            self.cut(after);
        }
        let pieces = self.ranges.extract_if(range.first()..=range.last(), |_, _| true);
        pieces.map(|(first, (last, value))| (stored(first, last), value)).collect()
    }

    /// Makes a stored range around `key` two, so that one begins at `key`; the caller restores the canonical form.
    fn cut(&mut self, key: Key) {
        let Some((_, (last, value))) = self.ranges.range_mut(..key).next_back() else {
            return;
        };
        if *last < key {
            return;
        }
        let upper = (*last, value.clone());
        *last = key.previous().expect("a range begins below the key");
        self.ranges.insert(key, upper);
    }

    /// Gives a range without values this one, as one range with the neighbours that have it too.
    fn fill(&mut self, range: KeyRange, value: T) {
        debug_assert!(self.overlapping(range).next().is_none());
        let (mut first, mut last) = (range.first(), range.last());
        if let Some(below) = self.neighbour(first.previous(), &value) {
            first = below.first();
        }
        if let Some(above) = self.neighbour(last.next(), &value) {
            self.ranges.remove(&above.first());
            last = above.last();
        }
        self.ranges.insert(first, (last, value));
    }

    /// The stored range around `key`, if it has this value.
    fn neighbour(&self, key: Option<Key>, value: &T) -> Option<KeyRange> {
        let (range, held) = self.get(key?)?;
        (held == value).then_some(range)
    }
}

/// A range from the map's own bounds, which are never out of order.
fn stored(first: Key, last: Key) -> KeyRange {
    KeyRange::new(first, last).expect("a stored range has at least one key")
}

impl<T> Default for RangeMap<T> {
    fn default() -> RangeMap<T> {
        RangeMap { ranges: BTreeMap::new() }
    }
}

impl<T: Clone + Eq> FromIterator<(KeyRange, T)> for RangeMap<T> {
    /// Where ranges overlap, the later one prevails. Ranges that come in key order are not searched for their places.
    fn from_iter<I: IntoIterator<Item = (KeyRange, T)>>(entries: I) -> RangeMap<T> {
        let mut entries = entries.into_iter();
        let mut in_order: Vec<(Key, (Key, T))> = Vec::new();
        let mut out_of_order = None;
        for (range, value) in entries.by_ref() {
            match in_order.last_mut() {
                Some((_, (last, _))) if *last >= range.first() => {
                    out_of_order = Some((range, value));
                    break;
                }
                Some((_, (last, same))) if last.next() == Some(range.first()) && *same == value => {
                    *last = range.last();
                }
                _ => in_order.push((range.first(), (range.last(), value))),
            }
        }
        let mut map = RangeMap { ranges: in_order.into_iter().collect() };
        out_of_order.into_iter().chain(entries).for_each(|(range, value)| map.insert(range, value));
        map
    }
}

impl<T: fmt::Debug> fmt::Debug for RangeMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
