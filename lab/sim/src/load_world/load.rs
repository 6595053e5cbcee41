//! The load of the whole key space at a time, and over a short past: sums over the keys in the order of positions.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use centrifuge_core::key::{Key, KeyRange};

use super::keys::{Keys, Popularity};

/// A key is looked at one by one if it has this part of what an Owner of half the usual weight should have.
const HOT_PART: f64 = 0.0015;
/// How much of the past is kept, in nanoseconds: longer than an Owner ever waits between two measurements.
const PAST: u64 = 120 * super::SECOND;

/// A part of the key space that is hotter than usual, with soft edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wave {
    /// Its centre, as a part of the key space.
    pub(super) centre: f64,
    /// Its width, as a part of the key space.
    pub(super) width: f64,
    /// How many times as hot its centre is.
    pub(super) height: f64,
}

impl Wave {
    /// The places of the keys that it makes hotter.
    fn places(&self, keys: &Keys) -> Vec<Range<usize>> {
        let [first, last] = [self.centre - self.width / 2.0, self.centre + self.width / 2.0]
            .map(|edge| key_at(edge.rem_euclid(1.0)));
        match KeyRange::new(first, last) {
            Some(range) => vec![keys.places(range)],
            None => {
                let ends = [KeyRange::new(Key::MIN, last), KeyRange::new(first, Key::MAX)];
                ends.into_iter().flatten().map(|range| keys.places(range)).collect()
            }
        }
    }

    /// How many times as hot a position is.
    fn factor(&self, Key(position): Key) -> f64 {
        let away = (position as f64 / 2f64.powi(64) - self.centre).abs();
        let away = away.min(1.0 - away) / (self.width / 2.0);
        if away >= 1.0 {
            return 1.0;
        }
        1.0 + (self.height - 1.0) * (std::f64::consts::PI * away / 2.0).cos().powi(2)
    }
}

/// The key at a part of the key space.
fn key_at(part: f64) -> Key {
    Key((part * 2f64.powi(64)) as u64)
}

/// What makes the load of a time from the usual shares.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shape {
    /// Requests per second of all keys together before wave and flash.
    pub(super) total: f64,
    /// The part that is hotter.
    pub(super) wave: Option<Wave>,
    /// Keys, by place, that have this part of the total instead of their own.
    pub(super) flash: Vec<(usize, f64)>,
}

/// The load of every key at a time, in requests per second.
#[derive(Debug)]
pub(super) struct Load {
    /// The load of all keys before each place, and of all.
    before: Vec<f64>,
    /// The keys that are looked at one by one, in key order.
    hot: Vec<(Key, f64)>,
    /// The same, the hottest first.
    hottest: Vec<(Key, f64)>,
}

impl Load {
    /// The load of these keys in this shape, if Owners of this weight in all share it.
    pub(super) fn new(keys: &Keys, popularity: &Popularity, shape: &Shape, weight: f64) -> Load {
        let threshold = HOT_PART * 0.5 * shape.total / weight;
        let mut before = Vec::with_capacity(keys.len() + 1);
        let (mut sum, mut hot) = (0.0, Vec::new());
        let waves = shape.wave.map_or_else(Vec::new, |wave| wave.places(keys));
        before.push(0.0);
        for (place, share) in popularity.shares().iter().enumerate() {
            let wave = shape.wave.filter(|_| waves.iter().any(|part| part.contains(&place)));
            let factor = wave.map_or(1.0, |wave| wave.factor(keys.key(place)));
            let flash = shape.flash.iter().find(|(key, _)| *key == place);
            let rate = flash.map_or(share * factor, |(_, part)| *part) * shape.total;
            if rate >= threshold {
                hot.push((keys.key(place), rate));
            }
            sum += rate;
            before.push(sum);
        }
        let mut hottest = hot.clone();
        hottest.sort_by(|one, two| two.1.total_cmp(&one.1).then(one.0.cmp(&two.0)));
        Load { before, hot, hottest }
    }

    /// The load of all keys.
    pub(super) fn total(&self) -> f64 {
        self.before.last().copied().unwrap_or_default()
    }

    /// The load of a range.
    pub(super) fn of(&self, keys: &Keys, range: KeyRange) -> f64 {
        self.at(&keys.places(range))
    }

    /// The load of the keys at these places.
    fn at(&self, places: &Range<usize>) -> f64 {
        self.before[places.end] - self.before[places.start]
    }

    /// The hot keys of a range, in key order.
    pub(super) fn hot_in(&self, range: KeyRange) -> &[(Key, f64)] {
        let start = self.hot.partition_point(|(key, _)| *key < range.first());
        let end = self.hot.partition_point(|(key, _)| *key <= range.last());
        &self.hot[start..end]
    }

    /// All hot keys, the hottest first.
    pub(super) fn hottest(&self) -> &[(Key, f64)] {
        &self.hottest
    }
}

/// The load of the last minutes, so that counts over an interval know of what changed within it.
#[derive(Debug)]
pub(super) struct LoadHistory {
    keys: Rc<Keys>,
    /// From when each was the load, the oldest first.
    spans: VecDeque<(u64, Rc<Load>)>,
}

impl LoadHistory {
    pub(super) fn new(keys: Rc<Keys>, load: Rc<Load>) -> LoadHistory {
        LoadHistory { spans: VecDeque::from([(0, load)]), keys }
    }

    /// The load is this from now on.
    pub(super) fn push(&mut self, now: u64, load: Rc<Load>) {
        self.spans.push_back((now, load));
        while self.spans.get(1).is_some_and(|(from, _)| from + PAST < now) {
            self.spans.pop_front();
        }
    }

    /// The load now.
    pub(super) fn now(&self) -> &Load {
        &self.spans.back().expect("there always is one").1
    }

    /// The load of a range now.
    pub(super) fn rate(&self, range: KeyRange) -> f64 {
        self.now().of(&self.keys, range)
    }

    /// The key of a range that has this part of the range's load before it: drawn evenly, keys come as often as they are asked for.
    pub(super) fn key_after(&self, range: KeyRange, part: f64) -> Option<Key> {
        let places = self.keys.places(range);
        let before = &self.now().before;
        let wanted = before[places.start] + part * self.now().at(&places);
        let place = before[places.start..places.end].partition_point(|sum| *sum <= wanted);
        (!places.is_empty()).then(|| self.keys.key(places.start + place.max(1) - 1))
    }

    /// How many requests for a range are to be expected between two times.
    pub(super) fn expected(&self, range: KeyRange, from: u64, to: u64) -> f64 {
        let places = self.keys.places(range);
        self.within(from, to).map(|(seconds, load)| seconds * load.at(&places)).sum()
    }

    /// The same for each hot key of a range, in key order.
    pub(super) fn expected_hot(&self, range: KeyRange, from: u64, to: u64) -> Vec<(Key, f64)> {
        let mut spans = self.within(from, to);
        let Some((seconds, load)) = spans.next() else { return Vec::new() };
        let hot: Vec<(Key, f64)> =
            load.hot_in(range).iter().map(|(key, rate)| (*key, seconds * rate)).collect();
        let rest: Vec<_> = spans.collect();
        if rest.is_empty() {
            return hot;
        }
        let mut sums: BTreeMap<Key, f64> = hot.into_iter().collect();
        for (seconds, load) in rest {
            for (key, rate) in load.hot_in(range) {
                *sums.entry(*key).or_default() += seconds * rate;
            }
        }
        sums.into_iter().collect()
    }

    /// What was the load between two times, and for how many seconds.
    fn within(&self, from: u64, to: u64) -> impl Iterator<Item = (f64, &Load)> {
        let ends = self.spans.iter().skip(1).map(|(from, _)| *from).chain([u64::MAX]);
        self.spans.iter().zip(ends).filter_map(move |((start, load), end)| {
            let nanos = end.min(to).saturating_sub(from.max(*start));
            (nanos > 0).then(|| (nanos as f64 / super::SECOND as f64, &**load))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::SECOND;
    use super::*;
    use crate::world::rng::Rng;

    fn keys() -> (Keys, Popularity) {
        let mut rng = Rng::new(9);
        (Keys::new(3_000, &mut rng), Popularity::new(3_000, 0.99, &mut rng))
    }

    #[test]
    fn the_load_of_ranges_adds_up_to_the_total() {
        let (keys, popularity) = keys();
        let load = Load::new(&keys, &popularity, &Shape { total: 500.0, ..Shape::default() }, 4.0);
        assert!((load.total() - 500.0).abs() < 1e-6);
        let middle = KeyRange::new(Key(0), Key(1 << 63)).expect("in order");
        let rest = KeyRange::new(Key((1 << 63) + 1), Key::MAX).expect("in order");
        assert!((load.of(&keys, middle) + load.of(&keys, rest) - 500.0).abs() < 1e-6);
        assert!(load.hottest()[0].1 >= load.hottest()[1].1);
    }

    #[test]
    fn flash_keys_have_their_part_of_the_total() {
        let (keys, popularity) = keys();
        let shape = Shape { total: 100.0, flash: vec![(17, 0.02)], wave: None };
        let load = Load::new(&keys, &popularity, &shape, 4.0);
        assert!((load.of(&keys, KeyRange::one(keys.key(17))) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_wave_is_highest_at_its_centre_and_goes_round_the_seam() {
        let wave = Wave { centre: 0.0, width: 0.05, height: 5.0 };
        assert!((wave.factor(Key(0)) - 5.0).abs() < 1e-9);
        assert!(wave.factor(Key(u64::MAX - (1 << 57))) > 4.0);
        assert_eq!(wave.factor(Key(1 << 63)), 1.0);
        let (keys, popularity) = keys();
        let shape = Shape { total: 1.0, wave: Some(wave), ..Shape::default() };
        let load = Load::new(&keys, &popularity, &shape, 4.0);
        for place in 0..keys.len() {
            let expected = popularity.shares()[place] * wave.factor(keys.key(place));
            assert!((load.of(&keys, KeyRange::one(keys.key(place))) - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn keys_are_drawn_as_often_as_they_are_asked_for() {
        let (keys, popularity) = keys();
        let (keys, total) = (Rc::new(keys), 1.0);
        let load = Load::new(&keys, &popularity, &Shape { total, ..Shape::default() }, 4.0);
        let (hottest, share) = load.hottest()[0];
        let history = LoadHistory::new(keys, Rc::new(load));
        let draws = (0..10_000).map(|draw| history.key_after(KeyRange::ALL, f64::from(draw) / 10_000.0));
        let found = draws.filter(|key| *key == Some(hottest)).count() as f64 / 10_000.0;
        assert!((found - share).abs() < 0.001, "{found} {share}");
    }

    #[test]
    fn what_is_expected_knows_of_changes_within_the_interval() {
        let (keys, popularity) = keys();
        let keys = Rc::new(keys);
        let load = |total| Rc::new(Load::new(&keys, &popularity, &Shape { total, ..Shape::default() }, 4.0));
        let mut history = LoadHistory::new(Rc::clone(&keys), load(10.0));
        history.push(100 * SECOND, load(30.0));
        let expected = history.expected(KeyRange::ALL, 95 * SECOND, 110 * SECOND);
        assert!((expected - 350.0).abs() < 1e-6, "{expected}");
        let hot = history.expected_hot(KeyRange::ALL, 95 * SECOND, 110 * SECOND);
        let one = history.expected_hot(KeyRange::ALL, 95 * SECOND, 96 * SECOND);
        assert!((hot[0].1 / one[0].1 - 35.0).abs() < 1e-6);
    }
}
