//! How much each leased range is asked for, and which of its keys the most, from what checks leave behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::time::Instant;

use crate::hot::{CHECKS_PER_SAMPLE, LeaseTable, Sketch};

/// Load is told in requests per this many seconds.
const PER_SECONDS: u128 = 1000;

/// A hottest key is named only if it was sampled at least so often: the standard error of its load is a quarter then.
const MIN_SAMPLES: u64 = 16;

/// A hottest key is named only if one part in so many of its range's load is its own. A key with less is predicted well
/// enough as part of a load that is spread evenly.
const MIN_SHARE: u64 = 8;

/// Turns counts of checks into rates.
///
/// The hottest key of a range comes from samples. It is named where the evidence is good: at least [`MIN_SAMPLES`] samples
/// and one part in [`MIN_SHARE`] of the range's load, both counted after the sketch's error is taken off. Its load is what
/// it surely had among the samples, so rather too little than too much, and never more than the range's. Samples serve
/// one measurement: a key that is no longer asked for is not named in the next. With a measurement every five seconds, a key
/// with fewer than some 400 requests a second is not named.
#[derive(Debug)]
pub(super) struct LoadMeter {
    table: Arc<LeaseTable>,
    /// The counts of the table that earlier measurements took, by first key.
    taken: BTreeMap<Key, u64>,
    /// What was counted in earlier tables since the last measurement, by first key of its range there.
    carried: BTreeMap<Key, u64>,
    /// Keys sampled in earlier tables since the last measurement. Empty after each measurement.
    samples: Sketch,
    since: Instant,
}

impl LoadMeter {
    pub(super) fn new(table: Arc<LeaseTable>, now: Instant) -> LoadMeter {
        LoadMeter {
            table,
            taken: BTreeMap::new(),
            carried: BTreeMap::new(),
            samples: Sketch::new(),
            since: now,
        }
    }

    /// Readers count in another table from now on. The few that are still in the old one are not counted.
    pub(super) fn turn_to(&mut self, table: Arc<LeaseTable>) {
        for (range, count) in self.fresh() {
            *self.carried.entry(range.first()).or_default() += count;
        }
        self.table.take_samples(&mut self.samples);
        self.taken.clear();
        self.table = table;
    }

    /// The load of every leased range since the last measurement.
    pub(super) fn measure(&mut self, now: Instant) -> Vec<RangeLoad> {
        let elapsed = now.since(self.since).as_nanos();
        if elapsed == 0 {
            return Vec::new();
        }
        let fresh = self.fresh();
        for (range, count) in &fresh {
            *self.taken.entry(range.first()).or_default() += count;
        }
        let carried = std::mem::take(&mut self.carried);
        self.since = now;
        let with_carried = |(range, count): (KeyRange, u64)| {
            let carried: u64 = carried.range(range.first()..=range.last()).map(|(_, count)| count).sum();
            (range, count.saturating_add(carried))
        };
        let counts: Vec<(KeyRange, u64)> = fresh.into_iter().map(with_carried).collect();
        let hottest = self.take_hottest(&counts);
        let load = |((range, count), hottest): ((KeyRange, u64), Option<(Key, u64)>)| {
            let hottest = hottest.map(|(key, count)| (key, rate(count, elapsed)));
            RangeLoad { range, load: rate(count, elapsed), hottest }
        };
        counts.into_iter().zip(hottest).map(load).collect()
    }

    /// The hottest key of each range, as far as the evidence allows, and how much of the range's count is its own. The
    /// ranges are in key order.
    fn take_hottest(&mut self, counts: &[(KeyRange, u64)]) -> Vec<Option<(Key, u64)>> {
        self.table.take_samples(&mut self.samples);
        let mut hottest = vec![None; counts.len()];
        for counter in self.samples.counters() {
            let (key, samples) = (counter.key(), counter.at_least());
            let place = counts.partition_point(|(range, _)| range.last() < key);
            let Some((range, count)) = counts.get(place) else { continue };
            let own_count = samples.saturating_mul(CHECKS_PER_SAMPLE).min(*count);
            let is_evident = samples >= MIN_SAMPLES && own_count >= count.div_ceil(MIN_SHARE).max(1);
            let is_hotter = hottest[place].is_none_or(|(_, hottest)| hottest < own_count);
            if range.contains(key) && is_evident && is_hotter {
                hottest[place] = Some((key, own_count));
            }
        }
        self.samples.clear();
        hottest
    }

    /// What was counted in the table since the last measurement.
    fn fresh(&self) -> Vec<(KeyRange, u64)> {
        let taken = |range: &KeyRange| self.taken.get(&range.first()).copied().unwrap_or_default();
        let counts = self.table.counts();
        counts.into_iter().map(|(range, count)| (range, count.saturating_sub(taken(&range)))).collect()
    }
}

/// How often in [`PER_SECONDS`], if it was so often in `elapsed` nanoseconds.
fn rate(count: u64, elapsed: u128) -> u64 {
    let rate = u128::from(count).saturating_mul(PER_SECONDS * 1_000_000_000) / elapsed;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;
    use crate::hot::HotLeases;

    /// Leases on ranges of equal size, and what is measured of them every thousand seconds: rates are counts.
    struct Pool {
        hot: HotLeases,
        meter: LoadMeter,
        now: Instant,
    }

    impl Pool {
        fn new(ranges: u32) -> Pool {
            let hot = HotLeases::evenly(ranges, Duration::from_secs(1_000_000));
            let meter = LoadMeter::new(Arc::clone(&hot.snapshot().table), Instant::ZERO);
            Pool { hot, meter, now: Instant::ZERO }
        }

        fn measure(&mut self) -> Vec<RangeLoad> {
            self.now = self.now + Duration::from_secs(1_000);
            self.meter.measure(self.now)
        }

        /// The key named in each range.
        fn hottest_keys(&mut self) -> Vec<Option<Key>> {
            self.measure().into_iter().map(|load| load.hottest.map(|(key, _)| key)).collect()
        }

        /// The ranges are other ones from now on.
        fn turn_to(&mut self, ranges: u32) {
            let next = HotLeases::evenly(ranges, Duration::from_secs(1_000_000)).snapshot();
            self.meter.turn_to(Arc::clone(&next.table));
            self.hot.publish(Arc::clone(&next.table), next.validity);
        }
    }

    /// So many checks, half of them for one key.
    fn check_half(hot: &HotLeases, key: Key, checks: u64) {
        for number in 0..checks / 2 {
            hot.check_lease_now(key).expect("held");
            hot.check_lease_now(Key(number % 5_000)).expect("held");
        }
    }

    /// A number that looks drawn.
    fn drawn(number: u64) -> u64 {
        let mixed = (number ^ 0x5555).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 11
    }

    /// So many draws of ranks, rank n in proportion to n to the power of -1.2.
    fn zipf(ranks: usize, draws: u64) -> Vec<u64> {
        let mut sums = Vec::with_capacity(ranks);
        let mut sum = 0.0;
        for rank in 1..=ranks {
            sum += (rank as f64).powf(-1.2);
            sums.push(sum);
        }
        let draw = |number| drawn(number) as f64 / (1_u64 << 53) as f64 * sum;
        (0..draws).map(|number| sums.partition_point(|sum| *sum <= draw(number)) as u64).collect()
    }

    fn assert_close(load: u64, truth: u64) {
        assert!(load.abs_diff(truth) <= truth / 5, "{load} of {truth}");
    }

    #[test]
    fn the_hottest_key_of_a_zipf_load_is_named_with_its_load() {
        let mut pool = Pool::new(4);
        let mut exact = BTreeMap::<Key, u64>::new();
        for rank in zipf(10_000, 200_000) {
            let key = Key(1_000_000 + rank * 7_919);
            *exact.entry(key).or_default() += 1;
            pool.hot.check_lease_now(key).expect("held");
        }
        let (hottest, truth) = exact.into_iter().max_by_key(|(_, count)| *count).expect("some");
        let loads = pool.measure();
        assert_eq!(loads[0].load, 200_000);
        let (key, load) = loads[0].hottest.expect("a key that has a fifth of the load");
        assert_eq!(key, hottest);
        assert_close(load, truth);
        assert!(loads[1..].iter().all(|load| load.hottest.is_none()));
    }

    #[test]
    fn no_key_of_an_even_load_is_named() {
        // Few keys have many samples each and a small share all the same.
        for keys in [50, 10_000] {
            let mut pool = Pool::new(4);
            for number in 0..200_000 {
                pool.hot.check_lease_now(Key(drawn(number) % keys)).expect("held");
            }
            assert_eq!(pool.hottest_keys(), [None; 4], "{keys} keys");
        }
    }

    #[test]
    fn few_checks_are_no_evidence() {
        let mut pool = Pool::new(4);
        for _ in 0..MIN_SAMPLES * CHECKS_PER_SAMPLE / 4 {
            pool.hot.check_lease_now(Key(1)).expect("held");
        }
        assert_eq!(pool.hottest_keys(), [None; 4]);
    }

    #[test]
    fn each_range_has_a_hottest_key_of_its_own() {
        let mut pool = Pool::new(64);
        let keys: Vec<Key> = pool.hot.counts().iter().map(|(range, _)| Key(range.first().0 + 99)).collect();
        for number in 0..8_000 {
            for key in &keys {
                pool.hot.check_lease_now(*key).expect("held");
                pool.hot.check_lease_now(Key(key.0 + 1 + drawn(number) % 1_000)).expect("held");
            }
        }
        for (load, key) in pool.measure().iter().zip(keys) {
            let (hottest, hottest_load) = load.hottest.expect("a key with half of the load");
            assert_eq!(hottest, key);
            assert!((4_000..=12_000).contains(&hottest_load), "{hottest_load} of 8000");
        }
    }

    /// Even where its successor has less load than it had.
    #[test]
    fn a_key_that_cooled_down_is_forgotten() {
        let mut pool = Pool::new(1);
        check_half(&pool.hot, Key(10_001), 80_000);
        assert_eq!(pool.hottest_keys(), [Some(Key(10_001))]);
        check_half(&pool.hot, Key(10_002), 10_000);
        assert_eq!(pool.hottest_keys(), [Some(Key(10_002))]);
        check_half(&pool.hot, Key(0), 100);
        assert_eq!(pool.measure(), [RangeLoad { range: KeyRange::ALL, load: 100, hottest: None }]);
    }

    #[test]
    fn threads_that_read_and_threads_that_ended_are_added_up() {
        let mut pool = Pool::new(1);
        let hot = &pool.hot.clone();
        let (counted, measured) = (&Barrier::new(5), &Barrier::new(5));
        let first = std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| check_half(hot, Key(10_001), 80_000)).join().expect("it ends");
                scope.spawn(|| {
                    check_half(hot, Key(10_001), 80_000);
                    counted.wait();
                    measured.wait();
                    check_half(hot, Key(10_002), 20_000);
                });
            }
            counted.wait();
            let first = pool.measure();
            measured.wait();
            first
        });
        let (key, load) = first[0].hottest.expect("half of the load");
        assert_eq!(key, Key(10_001));
        assert_close(load, 320_000);
        let (key, load) = pool.measure()[0].hottest.expect("half of the load");
        assert_eq!(key, Key(10_002));
        assert!((20_000..=60_000).contains(&load), "{load} of 40000");
    }

    #[test]
    fn a_table_change_loses_no_sample() {
        let mut pool = Pool::new(4);
        check_half(&pool.hot, Key(10_001), 40_000);
        pool.turn_to(2);
        check_half(&pool.hot, Key(10_001), 40_000);
        let loads = pool.measure();
        assert_eq!((loads.len(), loads[0].load), (2, 80_000));
        let (key, load) = loads[0].hottest.expect("half of the load");
        assert_eq!(key, Key(10_001));
        assert_close(load, 40_000);
    }

    /// A range whose keys were hot in an earlier table has no load of its own yet.
    #[test]
    fn the_hottest_key_never_has_more_than_its_range() {
        let mut pool = Pool::new(1);
        check_half(&pool.hot, Key::MAX, 40_000);
        pool.turn_to(2);
        check_half(&pool.hot, Key::MAX, 100);
        let loads = pool.measure();
        assert_eq!((loads[1].load, loads[1].hottest), (50, Some((Key::MAX, 50))));
        pool.turn_to(1);
        check_half(&pool.hot, Key::MAX, 40_000);
        pool.turn_to(2);
        let loads = pool.measure();
        assert_eq!((loads[1].load, loads[1].hottest), (0, None));
    }

    #[test]
    fn load_that_the_application_reports_counts_too() {
        let mut pool = Pool::new(1);
        check_half(&pool.hot, Key(10_001), 10_000);
        for _ in 0..10 {
            pool.hot.add_load(Key(10_002), 5_000);
        }
        let (key, load) = pool.measure()[0].hottest.expect("most of the load");
        assert_eq!(key, Key(10_002));
        assert_close(load, 50_000);
    }
}
