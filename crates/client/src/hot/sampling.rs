//! Which checks are sampled, and what the samples of one thread add up to.
//!
//! A thread counts its load down to the next sample. The gaps between samples are drawn anew each time, from the geometric
//! distribution: every n-th check would see a periodic caller always in the same phase, and a gap with a memory would
//! favour either long-lived or short-lived threads. A sample stands for as much load as its gap had on average, so that
//! sums of samples are right on average however often the average changes.

use centrifuge_core::key::Key;

use super::sketch::Sketch;
use super::spread::{Reservoir, Spread};

/// The load for each sample until the rate is known.
pub(crate) const FIRST_LOAD_PER_SAMPLE: u64 = 128;

/// How many samples of all threads together are wanted in a second. A lower rate of checks is counted one by one. A sample
/// costs less than 80 ns, so that this is less than two thousandths of one core.
const SAMPLES_PER_SECOND: u128 = 20_000;

/// After two to this power samples that nobody has taken, a thread samples half as often, and so on: a burst that no measurement
/// has seen yet doubles the cost of its first million checks, and of later ones less and less. That is more than
/// [`SAMPLES_PER_SECOND`] for a usual renewal interval.
const BURST_BITS: u32 = 19;

/// Samples drawn one by one for a single load. The rest of a greater load is divided.
const MAX_DRAWS: u64 = 64;

/// How much load there should be for each sample at a rate of `load` in `elapsed` nanoseconds. One: every load is sampled.
pub(crate) fn load_per_sample(load: u64, elapsed: u128) -> u64 {
    let samples = (SAMPLES_PER_SECOND * elapsed / 1_000_000_000).max(1);
    u64::try_from(u128::from(load) / samples).unwrap_or(u64::MAX).max(1)
}

/// The samples of one thread.
#[derive(Debug)]
pub(super) struct Sampler {
    state: u64,
    /// What the next sample stands for: the mean of the gap before it.
    load_per_sample: u64,
    /// Samples since they were last taken away.
    samples: u64,
    /// The load of the samples.
    sketch: Sketch,
    /// Some of their keys, where keys are ordered.
    keys: Option<Reservoir>,
}

/// What samples say: which keys are heavy, and where the rest lies.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub(crate) sketch: Sketch,
    pub(crate) spread: Spread,
}

impl Samples {
    pub(crate) fn new() -> Samples {
        Samples { sketch: Sketch::new(), spread: Spread::default() }
    }

    pub(super) fn merge(&mut self, other: &Samples) {
        self.sketch.merge(&other.sketch);
        self.spread.merge(&other.spread);
    }

    pub(crate) fn clear(&mut self) {
        self.sketch.clear();
        self.spread.clear();
    }
}

impl Sampler {
    /// Equal seeds draw equal gaps.
    pub(super) fn new(seed: u64, load_per_sample: u64) -> Sampler {
        Sampler { state: seed, load_per_sample, samples: 0, sketch: Sketch::new(), keys: None }
    }

    /// It also keeps some keys, by which it is known where load lies.
    pub(super) fn keeping_keys(self) -> Sampler {
        Sampler { keys: Some(Reservoir::default()), ..self }
    }

    /// Load of `key` reached the next sample and went `beyond` it. Returns how much load there is to the next but one, if
    /// there should be `load_per_sample` on average. The samples of a load are of one mean, and the last gap, whose end the
    /// load did not reach, is drawn once more: it has no memory.
    pub(super) fn sample(&mut self, key: Key, mut beyond: u64, load_per_sample: u64) -> u64 {
        let mut samples = 1;
        let mut gap = self.gap();
        while gap <= beyond && samples < MAX_DRAWS {
            samples += 1;
            beyond -= gap;
            gap = self.gap();
        }
        if gap <= beyond {
            samples += beyond / self.load_per_sample;
        }
        let load = samples.saturating_mul(self.load_per_sample);
        self.sketch.add(key, load);
        if self.keys.is_some() {
            let draw = self.draw();
            self.keys.iter_mut().for_each(|keys| keys.add(key, samples, load, draw));
        }
        self.samples += 1;
        let bursts = (self.samples >> BURST_BITS).min(u64::from(u32::BITS)) as u32;
        self.load_per_sample = load_per_sample.saturating_mul(1 << bursts);
        self.gap()
    }

    /// Moves the samples.
    pub(super) fn take_into(&mut self, samples: &mut Samples) {
        samples.sketch.merge(&self.sketch);
        self.sketch.clear();
        self.keys.iter_mut().for_each(|keys| keys.take_into(&mut samples.spread));
        self.samples = 0;
    }

    /// How much load lies between one sample and the next: at least one, the load for each sample on average.
    pub(super) fn gap(&mut self) -> u64 {
        if self.load_per_sample == 1 {
            return 1;
        }
        let failures = self.fraction().ln() / (-1.0 / self.load_per_sample as f64).ln_1p();
        1 + (failures as u64).min(u64::MAX - 1)
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

    /// One thread that counts its load down.
    struct Thread {
        sampler: Sampler,
        until_sample: u64,
    }

    impl Thread {
        fn new(load_per_sample: u64) -> Thread {
            let mut sampler = Sampler::new(1, load_per_sample);
            let until_sample = sampler.gap();
            Thread { sampler, until_sample }
        }

        fn load(&mut self, key: u64, amount: u64, load_per_sample: u64) {
            match self.until_sample.checked_sub(amount) {
                Some(rest @ 1..) => self.until_sample = rest,
                _ => {
                    let beyond = amount - self.until_sample;
                    self.until_sample = self.sampler.sample(Key(key), beyond, load_per_sample);
                }
            }
        }

        fn sampled(&self, key: u64) -> u64 {
            let counter = self.sampler.sketch.counters().find(|it| it.key() == Key(key));
            counter.map_or(0, |counter| counter.at_least())
        }
    }

    /// What samples say of each key of a load that comes `times` times.
    fn sampled(load: &[(u64, u64)], times: u64, load_per_sample: u64) -> Vec<u64> {
        let mut thread = Thread::new(load_per_sample);
        for _ in 0..times {
            for (key, amount) in load {
                thread.load(*key, *amount, load_per_sample);
            }
        }
        load.iter().map(|(key, _)| thread.sampled(*key)).collect()
    }

    /// Within an eighth of what is true.
    fn assert_close(sampled: u64, load: u64) {
        assert!(sampled.abs_diff(load) <= load / 8, "{sampled} of {load}");
    }

    /// Each key of a periodic caller is sampled in proportion, also where the period is the sampling interval.
    #[test]
    fn periods_do_not_show() {
        for period in [2, 3, 89, 128, 144] {
            let load: Vec<_> = (0..period).map(|key| (key, 1)).collect();
            for sampled in sampled(&load, 200_000, 128) {
                assert_close(sampled, 200_000);
            }
        }
    }

    /// A load is sampled by its amount, whatever it is made of.
    #[test]
    fn great_and_small_amounts_are_sampled_alike() {
        for (amount, load_per_sample) in [1, 10, 64, 1_000, 100_000].into_iter().zip([2, 16, 128, 128, 4_096])
        {
            let times = 2_000_000 / amount;
            let sampled = sampled(&[(1, amount), (2, 2 * amount)], times, load_per_sample);
            assert_close(sampled[0], times * amount);
            assert_close(sampled[1], times * amount * 2);
        }
    }

    #[test]
    fn one_load_per_sample_is_exact() {
        assert_eq!(sampled(&[(1, 1), (2, 7), (3, 1_500)], 1_000, 1), [1_000, 7_000, 1_500_000]);
    }

    /// Threads that live for a few checks are sampled as often as one that lives long.
    #[test]
    fn short_counts_are_sampled_as_often_as_long_ones() {
        let mut thread = Thread::new(128);
        for _ in 0..200_000 {
            thread.until_sample = thread.sampler.gap();
            for _ in 0..10 {
                thread.load(1, 1, 128);
            }
        }
        assert_close(thread.sampled(1), 2_000_000);
    }

    /// Neither a change of the mean nor the order of keys around it favours a key.
    #[test]
    fn sums_are_right_while_the_mean_changes() {
        let mut thread = Thread::new(128);
        for number in 0..2_000_000 {
            thread.load(number % 4, 1, [1, 128, 7, 1_000][number as usize / 500 % 4]);
        }
        for key in 0..4 {
            assert_close(thread.sampled(key), 500_000);
        }
    }

    #[test]
    fn a_burst_is_sampled_less_and_less_until_samples_are_taken() {
        let mut thread = Thread::new(1);
        let checks = 4 << BURST_BITS;
        for _ in 0..checks {
            thread.load(1, 1, 1);
        }
        assert!(thread.sampler.samples < 5 << (BURST_BITS - 1), "{}", thread.sampler.samples);
        assert_close(thread.sampled(1), checks);
        thread.sampler.take_into(&mut Samples::new());
        for _ in 0..1_000 {
            thread.load(1, 1, 1);
        }
        assert!((900..=1_000).contains(&thread.sampler.samples), "{}", thread.sampler.samples);
    }

    #[test]
    fn great_rates_are_sampled_so_often_and_small_ones_always() {
        const SECOND: u128 = 1_000_000_000;
        assert_eq!(load_per_sample(15 * 20_000, 15 * SECOND), 1);
        assert_eq!(load_per_sample(15 * 200_000, 15 * SECOND), 10);
        assert_eq!(load_per_sample(0, SECOND), 1);
        assert_eq!(load_per_sample(0, 0), 1);
        assert_eq!(load_per_sample(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn the_greatest_load_is_the_end() {
        let mut sampler = Sampler::new(1, u64::MAX);
        assert!(sampler.sample(Key(1), u64::MAX - 1, u64::MAX) >= 1);
        assert!(sampler.gap() >= 1);
        let mut sampler = Sampler::new(1, 1);
        sampler.sample(Key(1), u64::MAX - 1, 1);
        assert_eq!(sampler.sketch.counters().map(|it| it.at_least()).collect::<Vec<_>>(), [u64::MAX]);
    }
}
