//! Which checks are sampled, and what the samples of one thread add up to.
//!
//! A check adds to a count and compares it with the count at which the next sample is due. The gaps between samples are
//! drawn anew each time, from the exponential distribution: every n-th check would see a periodic caller always in the
//! same phase, and a gap with a memory would favour either long-lived or short-lived threads.

use centrifuge_core::key::Key;

use super::sketch::Sketch;

/// One check of so many is sampled. Twice as often would cost a check several percent more.
pub(crate) const CHECKS_PER_SAMPLE: u64 = 128;

/// Samples drawn one by one for a single load. The rest of a greater load is divided.
const MAX_DRAWS: u64 = 64;

/// The samples of one thread.
#[derive(Debug)]
pub(super) struct Sampler {
    state: u64,
    pub(super) samples: Sketch,
}

impl Sampler {
    /// Equal seeds draw equal gaps.
    pub(super) fn new(seed: u64) -> Sampler {
        Sampler { state: seed, samples: Sketch::new() }
    }

    /// The count of a range came to `count` with `key`, and a sample was due at `due`; zero: none was drawn yet. Returns
    /// when the next one is due.
    pub(super) fn sample(&mut self, key: Key, count: u64, due: u64) -> u64 {
        let mut due = if due == 0 { self.gap() } else { due };
        let mut samples = 0;
        while due <= count && samples < MAX_DRAWS {
            samples += 1;
            due = due.saturating_add(self.gap());
        }
        if due <= count {
            samples += (count - due) / CHECKS_PER_SAMPLE;
            due = count.saturating_add(self.gap());
        }
        self.samples.add(key, samples);
        due
    }

    /// How many checks lie between one sample and the next: at least one, [`CHECKS_PER_SAMPLE`] on average.
    fn gap(&mut self) -> u64 {
        // The geometric distribution: one more than the whole steps of an exponential one with this mean.
        const MEAN: f64 = CHECKS_PER_SAMPLE as f64 - 0.5;
        1 + (-MEAN * self.fraction().ln()) as u64
    }

    /// Above zero, at most one.
    fn fraction(&mut self) -> f64 {
        ((self.draw() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
    fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of each key of a load that comes `times` times, all of it in one range.
    fn samples(load: &[(u64, u64)], times: u64) -> Vec<u64> {
        let mut sampler = Sampler::new(1);
        let (mut count, mut due) = (0, 0);
        for _ in 0..times {
            for (key, amount) in load {
                count += amount;
                if due <= count {
                    due = sampler.sample(Key(*key), count, due);
                }
            }
        }
        let of = |key: u64| sampler.samples.counters().find(|it| it.key() == Key(key));
        load.iter().map(|(key, _)| of(*key).map_or(0, |counter| counter.at_least())).collect()
    }

    /// Within an eighth of what is expected.
    fn assert_close(samples: u64, load: u64) {
        let expected = load / CHECKS_PER_SAMPLE;
        assert!(samples.abs_diff(expected) <= expected / 8, "{samples} samples, {expected} expected");
    }

    /// Each key of a periodic caller is sampled in proportion, also where the period is the sampling interval.
    #[test]
    fn periods_do_not_show() {
        for period in [2, 3, 89, CHECKS_PER_SAMPLE, 144] {
            let load: Vec<_> = (0..period).map(|key| (key, 1)).collect();
            for samples in samples(&load, 200_000) {
                assert_close(samples, 200_000);
            }
        }
    }

    /// A load is sampled by its amount, whatever it is made of.
    #[test]
    fn great_and_small_amounts_are_sampled_alike() {
        for amount in [1, 10, 64, 1_000, 100_000] {
            let times = 2_000_000 / amount;
            let samples = samples(&[(1, amount), (2, 2 * amount)], times);
            assert_close(samples[0], times * amount);
            assert_close(samples[1], times * amount * 2);
        }
    }

    /// Counts that begin anew again and again, as those of short-lived threads do, are sampled as often as one long count.
    #[test]
    fn short_counts_are_sampled_as_often_as_long_ones() {
        let mut sampler = Sampler::new(1);
        for _ in 0..200_000 {
            let mut due = 0;
            for count in 1..=10 {
                if due <= count {
                    due = sampler.sample(Key(1), count, due);
                }
            }
        }
        assert_close(sampler.samples.counters().map(|counter| counter.at_least()).sum(), 2_000_000);
    }

    #[test]
    fn the_greatest_count_is_the_end() {
        let mut sampler = Sampler::new(1);
        assert_eq!(sampler.sample(Key(1), u64::MAX, 5), u64::MAX);
    }
}
