//! Which keys load is spread over, by a few of them drawn at random: where keys are ordered, they say where in a range its load lies.

use centrifuge_core::key::Key;

/// How many keys are kept: enough to cut the load of each of some twenty ranges into several parts.
const KEYS: usize = 1_024;
/// How many are kept of all threads together.
const MOST_TOGETHER: usize = 8 * KEYS;

/// Keys of a stream, each as likely to be here as its load was great (Algorithm R of Vitter, ACM TOMS 1985).
#[derive(Clone, Debug, Default)]
pub(super) struct Reservoir {
    keys: Vec<Key>,
    /// How many samples were seen, and the load that they stand for.
    seen: u64,
    load: u64,
}

impl Reservoir {
    /// A key was sampled `samples` times, which stand for `load`; `draw` is a random number.
    pub(super) fn add(&mut self, key: Key, samples: u64, load: u64, draw: u64) {
        self.seen = self.seen.saturating_add(samples);
        self.load = self.load.saturating_add(load);
        if self.keys.len() < KEYS {
            return self.keys.push(key);
        }
        // A place among all that were seen; those of the last samples are taken if they are among the first.
        let place = (u128::from(draw) * u128::from(self.seen)) >> 64;
        let place = place as u64 / samples.max(1);
        if let Some(old) = usize::try_from(place).ok().and_then(|place| self.keys.get_mut(place)) {
            *old = key;
        }
    }

    /// Moves the keys, each with the load that it stands for.
    pub(super) fn take_into(&mut self, spread: &mut Spread) {
        if let Some(each) = self.load.checked_div(self.keys.len() as u64) {
            spread.keys.extend(self.keys.drain(..).map(|key| (key, each.max(1))));
        }
        (self.seen, self.load) = (0, 0);
        spread.bound();
    }
}

/// Keys of several threads, each with the load that it stands for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    keys: Vec<(Key, u64)>,
}

impl Spread {
    pub(super) fn merge(&mut self, other: &Spread) {
        self.keys.extend_from_slice(&other.keys);
        self.bound();
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
    }

    /// The keys in key order, with the load that each stands for.
    pub(crate) fn take_sorted(&mut self) -> Vec<(Key, u64)> {
        let mut keys = std::mem::take(&mut self.keys);
        keys.sort_unstable();
        keys
    }

    /// Lets every other key go, and the ones that stay stand for twice as much, until they are few enough.
    fn bound(&mut self) {
        while self.keys.len() > MOST_TOGETHER {
            let mut place = 0;
            self.keys.retain(|_| {
                place += 1;
                place % 2 == 0
            });
            self.keys.iter_mut().for_each(|(_, load)| *load = load.saturating_mul(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that looks drawn.
    fn drawn(number: u64) -> u64 {
        let mixed = (number ^ 0x5555).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
    }

    /// The part of the keys kept, in percent, that are below a key.
    fn below(keys: &[(Key, u64)], key: u64) -> u64 {
        let load = |keys: &mut dyn Iterator<Item = &(Key, u64)>| keys.map(|(_, load)| *load).sum::<u64>();
        let all = load(&mut keys.iter());
        load(&mut keys.iter().filter(|(of, _)| of.0 < key)) * 100 / all.max(1)
    }

    #[test]
    fn keys_are_kept_as_often_as_they_come() {
        let mut reservoir = Reservoir::default();
        for number in 0..100_000 {
            // A quarter of the load is below 1,000, and three quarters above a million.
            let key = if number % 4 == 0 { number % 1_000 } else { 1_000_000 + number };
            reservoir.add(Key(key), 1, 10, drawn(number));
        }
        let mut spread = Spread::default();
        reservoir.take_into(&mut spread);
        let keys = spread.take_sorted();
        assert_eq!(keys.len(), KEYS);
        assert!((20..=30).contains(&below(&keys, 500_000)), "{}", below(&keys, 500_000));
        let middle = 1_050_000;
        assert!((57..=68).contains(&below(&keys, middle)), "{}", below(&keys, middle));
        let load: u64 = keys.iter().map(|(_, load)| load).sum();
        assert!(load.abs_diff(1_000_000) < 2_000, "{load}");
    }

    #[test]
    fn a_sample_that_stands_for_many_counts_as_many() {
        let mut reservoir = Reservoir::default();
        for number in 0..20_000 {
            reservoir.add(Key(1), 1, 1, drawn(3 * number));
            reservoir.add(Key(2), 3, 3, drawn(3 * number + 1));
        }
        let mut spread = Spread::default();
        reservoir.take_into(&mut spread);
        let ones = below(&spread.take_sorted(), 2);
        assert!((20..=31).contains(&ones), "{ones}");
    }

    #[test]
    fn the_keys_of_many_threads_are_bounded_and_stand_for_all_load() {
        let mut all = Spread::default();
        for thread in 0..40 {
            let mut reservoir = Reservoir::default();
            (0..2_000).for_each(|number| reservoir.add(Key(number), 1, 5, drawn(number * 64 + thread)));
            let mut own = Spread::default();
            reservoir.take_into(&mut own);
            all.merge(&own);
        }
        let keys = all.take_sorted();
        assert!(keys.len() <= MOST_TOGETHER);
        let load: u64 = keys.iter().map(|(_, load)| load).sum();
        assert!(load.abs_diff(40 * 10_000) < 40 * 10_000 / 5, "{load}");
        assert!((44..=56).contains(&below(&keys, 1_000)), "{}", below(&keys, 1_000));
    }
}
