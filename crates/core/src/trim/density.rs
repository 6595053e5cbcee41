//! How load lies inside a range: heavy keys are points, and the rest is spread as its shape says.

use crate::key::{Key, KeyRange};
use crate::trim::shape::Shape;

/// One of the two ends of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum End {
    Low,
    High,
}

/// A range with its load, and the part of it that single keys have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Density<'a> {
    pub(super) range: KeyRange,
    pub(super) load: u64,
    /// Keys of the range in key order; together they have at most its load.
    pub(super) heavy: &'a [(Key, u64)],
    /// Where the rest lies.
    pub(super) shape: &'a Shape,
}

impl<'a> Density<'a> {
    /// The load of a part. The parts of a range add up to its load.
    pub(super) fn load_of(&self, part: KeyRange) -> u64 {
        if part == self.range {
            return self.load;
        }
        let points = sum(heavy_within(self.heavy, part));
        points + self.spread_up_to(part.last())
            - part.first().previous().map_or(0, |key| self.spread_up_to(key))
    }

    /// The longest proper part at one end whose load is at most `target`; `None` if there is none.
    pub(super) fn end_of(&self, end: End, target: u64) -> Option<KeyRange> {
        let distance = |key: Key| match end {
            End::Low => key.0 - self.range.first().0,
            End::High => self.range.last().0 - key.0,
        };
        let mut points = 0;
        // The key that the part must not reach, as its distance from the end.
        let mut barrier = self.range.last().0 - self.range.first().0;
        for step in 0..self.heavy.len() {
            let (key, load) = match end {
                End::Low => self.heavy[step],
                End::High => self.heavy[self.heavy.len() - 1 - step],
            };
            let before = self.spread_before(end, key).saturating_add(points);
            if before.saturating_add(load) > target {
                barrier = barrier.min(distance(key));
                break;
            }
            points += load;
        }
        self.end_of_keys(end, self.keys_with(end, target.saturating_sub(points)).min(barrier))
    }

    /// So many keys at one end.
    fn end_of_keys(&self, end: End, keys: u64) -> Option<KeyRange> {
        let reach = keys.checked_sub(1)?;
        let (first, last) = (self.range.first(), self.range.last());
        match end {
            End::Low => KeyRange::new(first, Key(first.0.saturating_add(reach).min(last.0))),
            End::High => KeyRange::new(Key(last.0.saturating_sub(reach).max(first.0)), last),
        }
    }

    /// How many keys at one end have this much of the load that is spread.
    fn keys_with(&self, end: End, load: u64) -> u64 {
        let spread = self.spread();
        if load >= spread {
            return u64::MAX;
        }
        let measure = u128::from(load) * self.shape.measure(self.range) / u128::from(spread);
        let keys = match end {
            End::Low => self.shape.keys_from_low(self.range, measure),
            End::High => self.shape.keys_from_high(self.range, measure),
        };
        u64::try_from(keys).unwrap_or(u64::MAX)
    }

    /// What is spread between one end and a key, without the key.
    fn spread_before(&self, end: End, key: Key) -> u64 {
        match end {
            End::Low => key.previous().map_or(0, |before| self.spread_up_to(before)),
            End::High => self.spread() - self.spread_up_to(key),
        }
    }

    /// What is spread over the keys from the lowest up to this one.
    fn spread_up_to(&self, key: Key) -> u64 {
        let Some(part) = KeyRange::new(self.range.first(), key.min(self.range.last())) else { return 0 };
        if part == self.range {
            return self.spread();
        }
        let whole = self.shape.measure(self.range).max(1);
        (u128::from(self.spread()) * self.shape.measure(part) / whole) as u64
    }

    fn spread(&self) -> u64 {
        self.load.saturating_sub(sum(self.heavy))
    }
}

/// The keys of a list in key order that lie in `range`.
pub(super) fn heavy_within(heavy: &[(Key, u64)], range: KeyRange) -> &[(Key, u64)] {
    let first = heavy.partition_point(|(key, _)| *key < range.first());
    let end = heavy.partition_point(|(key, _)| *key <= range.last());
    &heavy[first..end]
}

/// Lowers the loads of keys, from the last on, until together they are at most `load`.
pub(super) fn fit_heavy(heavy: &mut Vec<(Key, u64)>, load: u64) {
    let mut left = load;
    for (_, key_load) in heavy.iter_mut() {
        *key_load = (*key_load).min(left);
        left -= *key_load;
    }
    heavy.retain(|(_, key_load)| *key_load > 0);
}

fn sum(heavy: &[(Key, u64)]) -> u64 {
    heavy.iter().fold(0, |sum, (_, load)| sum.saturating_add(*load))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(first: u64, last: u64) -> KeyRange {
        KeyRange::new(Key(first), Key(last)).expect("not empty")
    }

    #[test]
    fn parts_add_up() {
        let heavy = [(Key(10), 30), (Key(55), 7)];
        let density = Density { range: keys(0, 99), load: 100, heavy: &heavy, shape: &Shape::default() };
        for cut in 1..100 {
            let parts = [keys(0, cut - 1), keys(cut, 99)].map(|part| density.load_of(part));
            assert_eq!(parts[0] + parts[1], 100);
        }
    }

    #[test]
    fn an_end_stops_before_the_key_that_does_not_fit() {
        let heavy = [(Key(10), 50)];
        let density = Density { range: keys(0, 99), load: 150, heavy: &heavy, shape: &Shape::default() };
        assert_eq!(density.end_of(End::Low, 5), Some(keys(0, 4)));
        assert_eq!(density.end_of(End::Low, 30), Some(keys(0, 9)), "the heavy key would be too much");
        assert_eq!(density.end_of(End::Low, 70), Some(keys(0, 19)), "with the heavy key");
        assert_eq!(density.end_of(End::High, 30), Some(keys(70, 99)));
        assert_eq!(density.end_of(End::High, 1_000), Some(keys(1, 99)), "never the whole");
        assert_eq!(density.end_of(End::Low, 0), None);
    }

    #[test]
    fn the_whole_key_space_is_cut_too() {
        let density = Density { range: KeyRange::ALL, load: 1_000, heavy: &[], shape: &Shape::default() };
        let end = density.end_of(End::High, 500).expect("half");
        assert_eq!(density.load_of(end), 500);
        let one = Density { range: keys(7, 7), load: 10, heavy: &[(Key(7), 10)], shape: &Shape::default() };
        assert_eq!(one.end_of(End::Low, 10), None, "one key has no proper part");
    }

    #[test]
    fn keys_never_have_more_than_their_range() {
        let mut heavy = vec![(Key(1), 60), (Key(2), 60), (Key(3), 60)];
        fit_heavy(&mut heavy, 100);
        assert_eq!(heavy, [(Key(1), 60), (Key(2), 40)]);
    }
}
