//! A space-saving sketch (Metwally, Agrawal and El Abbadi 2005): the heavy keys of an Owner with guaranteed lower bounds.
//!
//! Only heavy keys are counted one by one. The rest comes in bulk and is taken to be of keys that are all different, which is the
//! worst case for the sketch: each takes the smallest counter over.

use centrifuge_core::key::Key;

/// How many counters an Owner has.
pub(super) const COUNTERS: usize = 256;

/// The counters; those of keys that came in bulk have no name.
#[derive(Debug)]
pub(super) struct SpaceSaving {
    counters: Vec<Counter>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    key: Option<Key>,
    count: u64,
    /// What the counter had when the key took it over.
    error: u64,
}

impl SpaceSaving {
    pub(super) fn new(counters: usize) -> SpaceSaving {
        SpaceSaving { counters: vec![Counter::default(); counters] }
    }

    /// Counts requests for one key.
    pub(super) fn add(&mut self, key: Key, count: u64) {
        if count == 0 {
            return;
        }
        let counter = match self.counters.iter_mut().position(|counter| counter.key == Some(key)) {
            Some(known) => &mut self.counters[known],
            None => {
                let least = self.counters.iter_mut().min_by_key(|counter| counter.count);
                let least = least.expect("there are counters");
                *least = Counter { key: Some(key), count: least.count, error: least.count };
                least
            }
        };
        counter.count += count;
    }

    /// Counts requests for keys that are all different: they fill the smallest counters up to one level.
    pub(super) fn add_others(&mut self, mut count: u64) {
        self.counters.sort_unstable_by_key(|counter| counter.count);
        let mut lowest = 1;
        while count > 0 {
            let level = self.counters[0].count;
            while lowest < self.counters.len() && self.counters[lowest].count <= level {
                lowest += 1;
            }
            let next = self.counters.get(lowest).map_or(u64::MAX, |counter| counter.count);
            let step = (next - level).min(count / lowest as u64);
            if step == 0 {
                self.counters[..count as usize].iter_mut().for_each(|counter| counter.take_over(level + 1));
                return;
            }
            self.counters[..lowest].iter_mut().for_each(|counter| counter.take_over(level + step));
            count -= step * lowest as u64;
        }
    }

    /// The keys that surely had at least this many requests, with that bound, in key order.
    pub(super) fn at_least(&self, count: u64) -> Vec<(Key, u64)> {
        let bound = |counter: &Counter| Some((counter.key?, counter.count - counter.error));
        let mut heavy: Vec<(Key, u64)> =
            self.counters.iter().filter_map(bound).filter(|(_, bound)| *bound >= count.max(1)).collect();
        heavy.sort_unstable();
        heavy
    }
}

impl Counter {
    fn take_over(&mut self, count: u64) {
        *self = Counter { key: None, count, error: count - 1 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut sketch = SpaceSaving::new(4);
        sketch.add(Key(1), 10);
        sketch.add(Key(2), 5);
        sketch.add(Key(1), 1);
        assert_eq!(sketch.at_least(1), [(Key(1), 11), (Key(2), 5)]);
        assert_eq!(sketch.at_least(6), [(Key(1), 11)]);
    }

    #[test]
    fn a_key_that_takes_a_counter_over_is_bounded_from_below() {
        let mut sketch = SpaceSaving::new(2);
        sketch.add(Key(1), 10);
        sketch.add(Key(2), 5);
        sketch.add(Key(3), 2);
        assert_eq!(sketch.at_least(1), [(Key(1), 10), (Key(3), 2)]);
    }

    #[test]
    fn others_fill_the_smallest_counters_and_drown_light_keys() {
        let mut sketch = SpaceSaving::new(4);
        sketch.add(Key(1), 100);
        sketch.add(Key(2), 3);
        sketch.add_others(60);
        assert_eq!(sketch.at_least(1), [(Key(1), 100)]);
        let total: u64 = sketch.counters.iter().map(|counter| counter.count).sum();
        assert_eq!(total, 163);
        sketch.add(Key(2), 7);
        assert_eq!(sketch.at_least(1), [(Key(1), 100), (Key(2), 7)]);
    }
}
