//! What a report lists, in the order of keys or of lease numbers: each list is walked once, beside the table, however long both are.

use std::collections::BTreeMap;

use crate::id::Generation;
use crate::key::{Key, KeyRange};
use crate::message::HeldLease;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::table::LeaseNumbers;

/// What a report says it holds, for ranges that are asked for in key order.
pub(super) struct HeldInOrder<'a> {
    rest: &'a [HeldLease],
}

impl<'a> HeldInOrder<'a> {
    /// What a report holds is in key order: no other report counts.
    pub(super) fn new(held: &'a [HeldLease]) -> HeldInOrder<'a> {
        debug_assert!(held.windows(2).all(|pair| pair[0].range.last() < pair[1].range.first()));
        HeldInOrder { rest: held }
    }

    /// The pieces of `range` that are held under one of these numbers. A range that is asked for later begins no earlier.
    pub(super) fn pieces(
        &mut self,
        range: KeyRange,
        numbers: LeaseNumbers,
    ) -> impl Iterator<Item = KeyRange> + use<'a> {
        let before = self.rest.iter().take_while(|held| held.range.last() < range.first()).count();
        self.rest = &self.rest[before..];
        let around = self.rest.iter().take_while(move |held| held.range.first() <= range.last());
        let under = around.filter(move |held| numbers.have(held.generation));
        under.filter_map(move |held| held.range.intersection(range))
    }

    /// The keys of `range` that are not held under one of these numbers.
    pub(super) fn missing(&mut self, range: KeyRange, numbers: LeaseNumbers) -> RangeSet {
        let mut missing = Vec::new();
        let mut next = Some(range.first());
        for piece in self.pieces(range, numbers) {
            missing.extend(gap(next, piece.first().previous()));
            next = piece.last().next();
        }
        missing.extend(gap(next, Some(range.last())));
        if missing.is_empty() { RangeSet::new() } else { missing.into_iter().collect() }
    }
}

fn gap(first: Option<Key>, last: Option<Key>) -> Option<KeyRange> {
    KeyRange::new(first?, last?)
}

/// The items of a list by the number of the lease that they speak of. Of those that speak of the same keys, the first counts.
pub(super) struct ByNumber<'a, T> {
    items: &'a [T],
    places: BTreeMap<Generation, RangeMap<usize>>,
}

impl<'a, T> ByNumber<'a, T> {
    pub(super) fn new(items: &'a [T], of: impl Fn(&T) -> (Generation, KeyRange)) -> ByNumber<'a, T> {
        let mut sorted: Vec<(Generation, KeyRange, usize)> = Vec::with_capacity(items.len());
        sorted.extend(items.iter().enumerate().map(|(place, item)| {
            let (generation, range) = of(item);
            (generation, range, place)
        }));
        sorted.sort_unstable();
        let mut places = BTreeMap::new();
        for of_lease in sorted.chunk_by(|one, other| one.0 == other.0) {
            places.insert(of_lease[0].0, first_that_speaks(of_lease));
        }
        ByNumber { items, places }
    }

    /// What is said of the keys of `range` under a number, in the order of the list.
    pub(super) fn pieces(
        &self,
        generation: Generation,
        range: KeyRange,
    ) -> impl Iterator<Item = (KeyRange, &'a T)> + use<'_, 'a, T> {
        let of_lease = self.places.get(&generation).into_iter();
        let mut pieces: Vec<(usize, KeyRange)> = of_lease
            .flat_map(|places| places.overlapping(range))
            .map(|(piece, place)| (*place, piece))
            .collect();
        pieces.sort_unstable();
        pieces.into_iter().map(|(place, piece)| (piece, &self.items[place]))
    }
}

/// For each key the first item, by its place in the list, that speaks of it.
fn first_that_speaks(of_lease: &[(Generation, KeyRange, usize)]) -> RangeMap<usize> {
    let is_disjoint = of_lease.windows(2).all(|pair| pair[0].1.last() < pair[1].1.first());
    if is_disjoint {
        return of_lease.iter().map(|(_, range, place)| (*range, *place)).collect();
    }
    let mut last_first = of_lease.to_vec();
    last_first.sort_unstable_by_key(|(_, _, place)| std::cmp::Reverse(*place));
    last_first.into_iter().map(|(_, range, place)| (range, place)).collect()
}
