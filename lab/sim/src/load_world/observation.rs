//! What an Owner counts between two measurements: exact counts by range, and its heavy keys from a sketch.

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::quantiles;

use super::load::LoadHistory;
use super::poisson::poisson_at;
use super::sketch::{COUNTERS, SpaceSaving};
use crate::world::rng::{Rng, mix};

/// A key is heavy if it has one part in so many of its Owner's load.
const HEAVY_PART: u64 = 333;
/// Keys with at least this part of the Owner's load go through the sketch one by one.
const DRAWN_PART: f64 = 0.0015;
/// How often the requests for heavy keys and for others take turns at the sketch.
const TURNS: u64 = 4;
/// How many keys an Owner samples to know where its load lies.
const SAMPLED_KEYS: u64 = 1_024;
/// Below this many requests all of them are drawn one by one: a key with two or three counts as heavy then.
const ONE_BY_ONE: f64 = 1_500.0;

/// What an Owner counted of a range.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Counted {
    /// The range.
    pub(super) range: KeyRange,
    /// Requests for all of its keys.
    pub(super) count: u64,
    /// Its heavy keys, in key order, each with what it had at least.
    pub(super) heavy: Vec<(Key, u64)>,
    /// What cuts the rest into equal parts, if that is asked for.
    pub(super) quantiles: Vec<Key>,
}

/// What an Owner has counted since its last measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Counters {
    counted: Vec<Counted>,
    requests: Requests,
}

impl Counters {
    /// Counts on up to `to`, of ranges that the Owner has now, each from when.
    pub(super) fn count(&mut self, history: &LoadHistory, seed: u64, ranges: &[(KeyRange, u64)], to: u64) {
        let before = std::mem::take(&mut self.counted);
        self.counted = count(&mut self.requests, history, seed, ranges, to);
        for Counted { range, count, .. } in before {
            // What was counted of a range that is gone, or was cut, stays with whoever has its first key.
            if let Some(now) = self.counted.iter_mut().find(|now| now.range.contains(range.first())) {
                now.count += count;
            }
        }
    }

    /// The count of every range.
    pub(super) fn counts(&self) -> Vec<(KeyRange, u64)> {
        self.counted.iter().map(|counted| (counted.range, counted.count)).collect()
    }

    /// What was counted, with the heavy keys; begins anew.
    pub(super) fn take(&mut self) -> Vec<Counted> {
        let Counters { mut counted, requests } = std::mem::take(self);
        requests.note_heavy(&mut counted);
        counted
    }
}

fn count(
    requests: &mut Requests,
    history: &LoadHistory,
    seed: u64,
    ranges: &[(KeyRange, u64)],
    to: u64,
) -> Vec<Counted> {
    let expected: Vec<f64> = ranges.iter().map(|(range, from)| history.expected(*range, *from, to)).collect();
    let total = expected.iter().sum::<f64>();
    let mut counted = Vec::with_capacity(ranges.len());
    for ((range, from), expected) in ranges.iter().zip(expected) {
        let (mut rest, mut count) = (expected, 0);
        let hot = history.expected_hot(*range, *from, to);
        for (key, mean) in hot.into_iter().filter(|(_, mean)| *mean >= DRAWN_PART * total) {
            let drawn = poisson_at(seed, key.0, to, mean);
            requests.of_hot.push((key, drawn));
            count += drawn;
            rest -= mean;
        }
        let others = poisson_at(!seed, range.first().0, to, rest);
        if total < ONE_BY_ONE {
            requests.draw_others(history, *range, others, mix(seed ^ to));
        }
        counted.push(Counted {
            range: *range,
            count: count + others,
            heavy: Vec::new(),
            quantiles: Vec::new(),
        });
    }
    counted
}

/// Notes what cuts the load of each range into equal parts, by as many samples as an Owner has: by range as many as it has of all load.
pub(super) fn note_quantiles(counted: &mut [Counted], history: &LoadHistory, seed: u64) {
    let total = counted.iter().map(|counted| counted.count).sum::<u64>().max(1);
    for counted in counted {
        let samples = (u128::from(SAMPLED_KEYS) * u128::from(counted.count) / u128::from(total)) as usize;
        let mut rng = Rng::new(mix(seed ^ counted.range.first().0));
        let draw = |_| history.key_after(counted.range, (rng.next() >> 11) as f64 / (1u64 << 53) as f64);
        let heavy = |key: &Key| counted.heavy.iter().any(|(heavy, _)| heavy == key);
        let draws = (0..samples).filter_map(draw).filter(|key| !heavy(key));
        let mut keys: Vec<(Key, u64)> = draws.map(|key| (key, 1)).collect();
        keys.sort_unstable();
        counted.quantiles = quantiles(&keys);
    }
}

/// The requests that the sketch of an Owner sees.
#[derive(Clone, Debug, Default)]
struct Requests {
    /// Those for keys that are hot, by key.
    of_hot: Vec<(Key, u64)>,
    /// Those for other keys, one by one, if there are few requests: then a key that nobody asks for often may count as heavy.
    of_others: Vec<Key>,
}

impl Requests {
    fn draw_others(&mut self, history: &LoadHistory, range: KeyRange, count: u64, seed: u64) {
        let mut rng = Rng::new(mix(seed ^ range.first().0));
        for _ in 0..count {
            let part = (rng.next() >> 11) as f64 / (1u64 << 53) as f64;
            let key = history.key_after(range, part);
            // A hot key is drawn already; its place among the others is left to a key without a name.
            let is_other = |key: &Key| !self.of_hot.iter().rev().any(|(hot, _)| hot == key);
            self.of_others.extend(key.filter(is_other));
        }
    }

    /// Runs everything through the sketch, and notes the heavy keys at their ranges.
    fn note_heavy(&self, counted: &mut [Counted]) {
        let total: u64 = counted.iter().map(|counted| counted.count).sum();
        // What was asked of ranges that went meanwhile is in the sketch and in no count.
        let named = self.of_hot.iter().map(|(_, drawn)| drawn).sum::<u64>() + self.of_others.len() as u64;
        let mut sketch = SpaceSaving::new(COUNTERS);
        for turn in 0..TURNS {
            let until = |count: u64, turn: u64| count * turn / TURNS;
            let part = |count: u64| until(count, turn + 1) - until(count, turn);
            self.of_hot.iter().for_each(|(key, drawn)| sketch.add(*key, part(*drawn)));
            let [from, to] = [turn, turn + 1].map(|turn| until(self.of_others.len() as u64, turn) as usize);
            self.of_others[from..to].iter().for_each(|key| sketch.add(*key, 1));
            sketch.add_others(part(total.saturating_sub(named)));
        }
        for (key, bound) in sketch.at_least(total.div_ceil(HEAVY_PART)) {
            if let Some(counted) = counted.iter_mut().find(|counted| counted.range.contains(key)) {
                counted.heavy.push((key, bound));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::super::SECOND;
    use super::super::keys::{Keys, Popularity};
    use super::super::load::{Load, Shape};
    use super::*;
    use crate::world::rng::Rng;

    fn count(history: &LoadHistory, seed: u64, ranges: &[(KeyRange, u64)], to: u64) -> Vec<Counted> {
        let mut counters = Counters::default();
        counters.count(history, seed, ranges, to);
        counters.take()
    }

    fn history(total: f64) -> LoadHistory {
        let mut rng = Rng::new(4);
        let keys = Rc::new(Keys::new(50_000, &mut rng));
        let popularity = Popularity::new(keys.len(), 0.99, &mut rng);
        let load = Load::new(&keys, &popularity, &Shape { total, ..Shape::default() }, 1.0);
        LoadHistory::new(keys, Rc::new(load))
    }

    #[test]
    fn counts_are_near_what_is_expected_and_heavy_keys_are_found() {
        let history = history(1_000.0);
        let counted = count(&history, 1, &[(KeyRange::ALL, 0)], 15 * SECOND);
        assert!((14_000..16_000).contains(&counted[0].count), "{counted:?}");
        let (hottest, rate) = history.now().hottest()[0];
        let found = counted[0].heavy.iter().find(|(key, _)| *key == hottest).expect("it is heavy");
        let expected = rate * 15.0;
        assert!(
            (found.1 as f64) < expected * 1.15 && found.1 as f64 > expected * 0.85,
            "{found:?} of {expected}"
        );
        assert!(counted[0].heavy.iter().all(|(_, bound)| *bound >= counted[0].count / HEAVY_PART));
    }

    #[test]
    fn with_few_requests_chance_names_keys_too() {
        let history = history(20.0);
        let counted = count(&history, 1, &[(KeyRange::ALL, 0)], 15 * SECOND);
        assert!((220..380).contains(&counted[0].count), "{}", counted[0].count);
        let is_hot = |(key, _): &&(Key, u64)| history.now().hottest()[..50].iter().any(|(hot, _)| hot == key);
        let by_chance = counted[0].heavy.iter().filter(|heavy| !is_hot(heavy)).count();
        assert!(by_chance > 20, "{by_chance}");
        let bounds: u64 = counted[0].heavy.iter().map(|(_, bound)| bound).sum();
        assert!(bounds <= counted[0].count);
    }

    #[test]
    fn the_same_interval_is_counted_the_same() {
        let history = history(1_000.0);
        let once = count(&history, 1, &[(KeyRange::ALL, 0)], 15 * SECOND);
        assert_eq!(once, count(&history, 1, &[(KeyRange::ALL, 0)], 15 * SECOND));
        assert_ne!(once, count(&history, 2, &[(KeyRange::ALL, 0)], 15 * SECOND));
    }

    #[test]
    fn a_range_counts_from_when_it_is_held() {
        let history = history(1_000.0);
        let whole = count(&history, 1, &[(KeyRange::ALL, 0)], 15 * SECOND)[0].count;
        let part = count(&history, 1, &[(KeyRange::ALL, 10 * SECOND)], 15 * SECOND)[0].count;
        assert!(part * 5 / 2 < whole && whole < part * 7 / 2, "{part} of {whole}");
    }
}
