//! Where in a range the load lies that no single key has: in slices, each with its part of the load, or evenly if nothing is known.

use std::sync::Arc;

use crate::key::{Key, KeyRange};

/// Weights are counted in so many parts of one, so that the smallest slices of a slice have some.
const UNIT: u128 = 1 << 20;

/// How the load of a range is spread over its keys. It may be that of a larger range of which the range was a part.
///
/// Only proportions count: a shape knows nothing of how much load there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// In key order: the first key of each slice and its weight. The last slice ends with `last`. None: all keys are alike.
    slices: Arc<[(Key, u64)]>,
    last: Key,
}

impl Shape {
    /// The shape of a range whose load lies in equal parts between these keys, which are in key order. Before the first of them and after the
    /// last there is none. Some of them may be the same: then one key has several parts.
    pub(super) fn of(range: KeyRange, quantiles: &[Key]) -> Shape {
        let is_true = quantiles.is_sorted() && quantiles.iter().all(|quantile| range.contains(*quantile));
        let (true, [first, .., last]) = (is_true, quantiles) else { return Shape::default() };
        let mut slices: Vec<(Key, u64)> = Vec::with_capacity(quantiles.len() + 2);
        if range.first() < *first {
            slices.push((range.first(), 0));
        }
        for pair in quantiles.windows(2) {
            add_part(&mut slices, pair[0], pair[1]);
        }
        if let Some(after) = last.next().filter(|after| range.contains(*after)) {
            slices.push((after, 0));
        }
        Shape { slices: slices.into(), last: range.last() }
    }

    /// The shape of ranges that follow each other, each with its load and its own shape.
    pub(super) fn of_parts(parts: &[(KeyRange, u64, &Shape)]) -> Shape {
        let ([.., (last, ..)], true) = (parts, parts.iter().any(|(.., shape)| shape.is_known())) else {
            return Shape::default();
        };
        let mut slices = Vec::new();
        for (range, load, shape) in parts {
            let shape = shape.of_part(*range);
            let whole = shape.measure(*range).max(1);
            for part in shape.slices_in(*range) {
                let weight = u128::from(*load) * shape.measure(part) / whole;
                slices.push((part.first(), u64::try_from(weight).unwrap_or(u64::MAX)));
            }
        }
        Shape { slices: slices.into(), last: last.last() }
    }

    /// The shape of a part. Where no load was seen, any that comes may lie anywhere.
    pub(super) fn of_part(&self, part: KeyRange) -> Shape {
        if self.measure(part) == 0 { Shape::default() } else { self.clone() }
    }

    /// Whether more is known than that there is load.
    pub(super) fn is_known(&self) -> bool {
        !self.slices.is_empty()
    }

    /// The slices that share keys with a range, cut to it.
    fn slices_in(&self, range: KeyRange) -> Vec<KeyRange> {
        if !self.is_known() {
            return vec![range];
        }
        (0..self.slices.len()).filter_map(|place| self.slice(place).intersection(range)).collect()
    }

    fn slice(&self, place: usize) -> KeyRange {
        let next = self.slices.get(place + 1).and_then(|(next, _)| next.previous());
        KeyRange::new(self.slices[place].0, next.unwrap_or(self.last)).expect("slices are in key order")
    }

    /// How much lies in a range, in a unit of the shape's own.
    pub(super) fn measure(&self, range: KeyRange) -> u128 {
        if !self.is_known() {
            return range.key_count();
        }
        let first = self.slices.partition_point(|(key, _)| *key <= range.first()).saturating_sub(1);
        let parts = (first..self.slices.len()).map(|place| (self.slice(place), self.slices[place].1));
        let within = parts.take_while(|(slice, _)| slice.first() <= range.last());
        within.map(|(slice, weight)| part_of_slice(slice, weight, range)).sum()
    }

    /// The longest part of a range, from its lowest key on, that has no more than `measure`, as a number of keys.
    pub(super) fn keys_from_low(&self, range: KeyRange, measure: u128) -> u128 {
        let mut left = measure;
        let mut keys = 0;
        for (slice, whole) in self.measured(range) {
            if whole > left {
                return keys + slice.key_count() * left / whole;
            }
            left -= whole;
            keys += slice.key_count();
        }
        keys
    }

    /// The same from its highest key down.
    pub(super) fn keys_from_high(&self, range: KeyRange, measure: u128) -> u128 {
        let mut left = measure;
        let mut keys = 0;
        for (slice, whole) in self.measured(range).into_iter().rev() {
            if whole > left {
                return keys + slice.key_count() * left / whole;
            }
            left -= whole;
            keys += slice.key_count();
        }
        keys
    }

    fn measured(&self, range: KeyRange) -> Vec<(KeyRange, u128)> {
        self.slices_in(range).into_iter().map(|part| (part, self.measure(part))).collect()
    }
}

/// Adds one part of the load, between two keys. What lies between two equal keys is at that key; what lies after it begins after it.
fn add_part(slices: &mut Vec<(Key, u64)>, from: Key, to: Key) {
    match slices.last_mut() {
        Some((first, weight)) if *first == from && from == to => *weight += 1,
        Some((first, _)) if *first == from => slices.extend(from.next().map(|after| (after, 1))),
        _ => slices.push((from, 1)),
    }
}

fn part_of_slice(slice: KeyRange, weight: u64, range: KeyRange) -> u128 {
    let Some(part) = slice.intersection(range) else { return 0 };
    let weight = u128::from(weight) * UNIT;
    if part == slice { weight } else { scaled(weight, part.key_count(), slice.key_count()) }
}

/// `weight * part / whole`, where the product may have more than 128 bits.
fn scaled(weight: u128, part: u128, whole: u128) -> u128 {
    match weight.checked_mul(part) {
        Some(product) => product / whole,
        None => weight / whole * part + (weight % whole) * (part >> 32) / (whole >> 32).max(1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn keys(first: u64, last: u64) -> KeyRange {
        KeyRange::new(Key(first), Key(last)).expect("not empty")
    }

    fn shape(quantiles: &[u64]) -> Shape {
        let quantiles: Vec<Key> = quantiles.iter().copied().map(Key).collect();
        Shape::of(keys(0, 999), &quantiles)
    }

    /// The part of the load of 0 to 999 that a range has, in percent.
    fn percent(shape: &Shape, range: KeyRange) -> u128 {
        shape.measure(range) * 100 / shape.measure(keys(0, 999))
    }

    #[test]
    fn without_quantiles_all_keys_are_alike() {
        assert_eq!(percent(&shape(&[]), keys(0, 249)), 25);
        assert_eq!(shape(&[]).keys_from_low(keys(0, 999), 250), 250);
    }

    #[test]
    fn quantiles_enclose_equal_parts_and_beside_them_is_nothing() {
        let shape = shape(&[900, 910, 920, 930, 939]);
        assert_eq!(percent(&shape, keys(0, 899)), 0);
        assert_eq!(percent(&shape, keys(900, 909)), 25);
        assert_eq!(percent(&shape, keys(900, 904)), 12);
        assert_eq!(percent(&shape, keys(930, 939)), 25);
        assert_eq!(percent(&shape, keys(940, 999)), 0);
        let half = shape.measure(keys(0, 999)) / 2;
        assert_eq!(shape.keys_from_low(keys(0, 999), half), 920);
        assert_eq!(shape.keys_from_high(keys(0, 999), half), 80);
    }

    /// The first of sixteen parts of names that begin alike is cut where they are, and not far below them.
    #[test]
    fn a_small_end_of_a_large_range_is_cut_where_its_load_begins() {
        let names = |place: u64| Key((0x75 << 56) + (place << 30));
        let quantiles: Vec<Key> = (0..=16).map(names).collect();
        let shape = Shape::of(KeyRange::ALL, &quantiles);
        let hundredth = shape.measure(KeyRange::ALL) / 100;
        let end = Key(u64::try_from(shape.keys_from_low(KeyRange::ALL, hundredth)).expect("some"));
        assert!(names(0) < end && end < names(1), "{end}");
    }

    #[test]
    fn quantiles_that_cannot_be_say_nothing() {
        assert!(!shape(&[7]).is_known() && !shape(&[7, 5]).is_known() && !shape(&[7, 1_000]).is_known());
    }

    #[test]
    fn where_no_load_was_seen_it_may_come_anywhere() {
        let shape = shape(&[900, 910]);
        assert!(!shape.of_part(keys(0, 899)).is_known());
        assert!(shape.of_part(keys(0, 900)).is_known());
    }

    #[test]
    fn a_key_that_is_several_quantiles_has_several_parts() {
        let parts = |quantiles| percent(&shape(quantiles), keys(500, 500));
        assert_eq!(parts(&[500, 500, 501, 501]), 33);
        assert_eq!(parts(&[500, 500, 900]), 50);
        assert_eq!(parts(&[500, 500, 500, 501]), 66);
        assert_eq!(parts(&[400, 500, 500]), 50);
        assert_eq!(parts(&[500, 500]), 100);
    }

    #[test]
    fn a_part_keeps_the_shape_and_neighbours_are_joined_by_their_load() {
        let (low, high) = (shape(&[100, 110, 120, 200]), Shape::default());
        let joined = Shape::of_parts(&[(keys(110, 199), 3_000, &low), (keys(200, 999), 7_000, &high)]);
        assert_eq!(percent_of(&joined, keys(110, 119), keys(110, 999)), 15, "half of its part");
        assert_eq!(percent_of(&joined, keys(200, 999), keys(110, 999)), 70);
        assert!(!Shape::of_parts(&[(keys(0, 9), 5, &high)]).is_known());
    }

    fn percent_of(shape: &Shape, part: KeyRange, whole: KeyRange) -> u128 {
        // Rounding costs less than one.
        (shape.measure(part) * 100 + shape.measure(whole) / 2) / shape.measure(whole)
    }

    proptest! {
        #[test]
        fn parts_add_up_and_ends_have_no_more_than_asked_for(
            mut quantiles in vec(any::<u64>(), 0..16),
            at in 1_u64..,
            percent in 0_u128..100,
        ) {
            quantiles.sort_unstable();
            let quantiles: Vec<Key> = quantiles.into_iter().map(Key).collect();
            let shape = Shape::of(KeyRange::ALL, &quantiles);
            let (below, rest) = KeyRange::ALL.split_at(Key(at)).expect("two parts");
            let whole = shape.measure(KeyRange::ALL);
            let sum = shape.measure(below) + shape.measure(rest);
            prop_assert!(sum <= whole && whole - sum <= 2 + quantiles.len() as u128);
            let wanted = whole / 100 * percent;
            for (keys, is_low) in
                [(shape.keys_from_low(KeyRange::ALL, wanted), true), (shape.keys_from_high(KeyRange::ALL, wanted), false)]
            {
                let keys = u64::try_from(keys).unwrap_or(u64::MAX);
                let Some(reach) = keys.checked_sub(1) else { continue };
                let end = if is_low { KeyRange::new(Key(0), Key(reach)) } else { KeyRange::new(Key(u64::MAX - reach), Key::MAX) };
                prop_assert!(shape.measure(end.expect("in order")) <= wanted + 1);
            }
        }
    }
}
