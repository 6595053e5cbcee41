//! How much each leased range is asked for, and which keys the most, from what checks leave behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{HEAVY_PER_MILLE, LoadMeasurement, RangeLoad, quantiles};
use centrifuge_core::time::Instant;

use crate::hot::{LeaseTable, Samples, load_per_sample};

/// Load is told in requests, or whatever the application counts, per this many seconds.
const PER_SECONDS: u128 = 1000;

/// A heavy key has at least this much load in a measurement: with less, its next load cannot be told from it.
const MIN_HEAVY_LOAD: u64 = 16;

/// How often an Owner reports at once between two reports that are due: load that jumps all the time costs Managers no more.
const MAX_URGENT_REPORTS: u32 = 2;

/// Turns counts into rates.
///
/// Ranges are counted exactly, and the load of heavy keys comes from samples in a sketch. A key is heavy if the sketch is sure
/// of [`HEAVY_PER_MILLE`] of all load and of [`MIN_HEAVY_LOAD`]. Below 20,000 checks a second every check is a sample, and the
/// load of a key is at most what it had. Above, the samples are as many, so that the load of a key with `n` thousandths
/// has a standard error of some `6 / sqrt(n)` percent in fifteen seconds. Samples serve one measurement: a key
/// that is no longer asked for is not named in the next.
#[derive(Debug)]
pub(super) struct LoadMeter {
    table: Arc<LeaseTable>,
    /// The counts of the table that earlier measurements took, by first key.
    taken: BTreeMap<Key, u64>,
    /// What was counted in earlier tables since the last measurement, by first key of its range there.
    carried: BTreeMap<Key, u64>,
    /// Keys sampled in earlier tables since the last measurement. Empty after each measurement.
    samples: Samples,
    since: Instant,
    /// The last measurement.
    last: LoadMeasurement,
    /// How often load that shifts may still be reported at once.
    urgent_left: u32,
}

impl LoadMeter {
    pub(super) fn new(table: Arc<LeaseTable>, now: Instant) -> LoadMeter {
        LoadMeter {
            table,
            taken: BTreeMap::new(),
            carried: BTreeMap::new(),
            samples: Samples::new(),
            since: now,
            last: LoadMeasurement::default(),
            urgent_left: 0,
        }
    }

    /// When the last measurement was.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    /// Readers count in another table from now on. The few that are still in the old one are not counted.
    pub(super) fn turn_to(&mut self, table: Arc<LeaseTable>) {
        for (range, count) in self.fresh() {
            *self.carried.entry(range.first()).or_default() += count;
        }
        self.table.take_samples(&mut self.samples);
        table.set_load_per_sample(self.table.load_per_sample());
        self.taken.clear();
        self.table = table;
    }

    /// The load of every leased range since the last measurement, for the report that is due.
    pub(super) fn measure(&mut self, now: Instant) -> LoadMeasurement {
        self.urgent_left = MAX_URGENT_REPORTS;
        self.take_measurement(now, false)
    }

    /// The same if the load has shifted so much that the Manager should hear of it at once.
    pub(super) fn measure_if_shifted(&mut self, now: Instant) -> Option<LoadMeasurement> {
        let has_shifted = self.urgent_left > 0 && self.is_outdated(now);
        self.urgent_left -= u32::from(has_shifted);
        has_shifted.then(|| self.take_measurement(now, true))
    }

    fn is_outdated(&self, now: Instant) -> bool {
        self.last.is_outdated_by(&self.with_carried(self.fresh()), now.since(self.since))
    }

    fn take_measurement(&mut self, now: Instant, is_urgent: bool) -> LoadMeasurement {
        let span = now.since(self.since);
        self.last = LoadMeasurement { loads: self.take_loads(now, span.as_nanos()), span, is_urgent };
        self.last.clone()
    }

    fn take_loads(&mut self, now: Instant, elapsed: u128) -> Vec<RangeLoad> {
        if elapsed == 0 {
            return Vec::new();
        }
        let counts = self.take_counts();
        self.since = now;
        let total = counts.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        self.table.take_samples(&mut self.samples);
        let heavy = self.heavy(&counts, total);
        let spread = self.samples.spread.take_sorted();
        self.samples.clear();
        self.table.set_load_per_sample(load_per_sample(total, elapsed));
        let load = |((range, count), heavy): ((KeyRange, u64), Vec<(Key, u64)>)| {
            let quantiles = quantiles_of(range, &heavy, &spread);
            let heavy = heavy.into_iter().map(|(key, count)| (key, rate(count, elapsed))).collect();
            RangeLoad { range, load: rate(count, elapsed), heavy, quantiles }.bounded()
        };
        counts.into_iter().zip(heavy).map(load).collect()
    }

    /// Takes the load of every leased range, in key order.
    fn take_counts(&mut self) -> Vec<(KeyRange, u64)> {
        let fresh = self.fresh();
        for (range, count) in &fresh {
            *self.taken.entry(range.first()).or_default() += count;
        }
        let counts = self.with_carried(fresh);
        self.carried.clear();
        counts
    }

    /// Counts of the table's ranges together with what was counted of their keys in earlier tables.
    fn with_carried(&self, mut counts: Vec<(KeyRange, u64)>) -> Vec<(KeyRange, u64)> {
        for (range, count) in &mut counts {
            let carried: u64 = self.carried.range(range.first()..=range.last()).map(|(_, count)| count).sum();
            *count = count.saturating_add(carried);
        }
        counts
    }

    /// The heavy keys of each range and how much of the range's count is surely their own. The ranges are in key order.
    fn heavy(&self, counts: &[(KeyRange, u64)], total: u64) -> Vec<Vec<(Key, u64)>> {
        let least = u128::from(total) * u128::from(HEAVY_PER_MILLE);
        let is_heavy = |load: u64| load >= MIN_HEAVY_LOAD && u128::from(load) * 1_000 >= least;
        let mut heavy = vec![Vec::new(); counts.len()];
        for counter in self.samples.sketch.counters().filter(|counter| is_heavy(counter.at_least())) {
            let place = counts.partition_point(|(range, _)| range.last() < counter.key());
            if counts.get(place).is_some_and(|(range, _)| range.contains(counter.key())) {
                heavy[place].push((counter.key(), counter.at_least()));
            }
        }
        heavy
    }

    /// What was counted in the table since the last measurement.
    fn fresh(&self) -> Vec<(KeyRange, u64)> {
        let taken = |range: &KeyRange| self.taken.get(&range.first()).copied().unwrap_or_default();
        let counts = self.table.counts();
        counts.into_iter().map(|(range, count)| (range, count.saturating_sub(taken(&range)))).collect()
    }
}

/// What cuts the load of a range that no heavy key has into equal parts, by samples in key order.
fn quantiles_of(range: KeyRange, heavy: &[(Key, u64)], spread: &[(Key, u64)]) -> Vec<Key> {
    let first = spread.partition_point(|(key, _)| *key < range.first());
    let end = spread.partition_point(|(key, _)| *key <= range.last());
    let is_heavy = |key: &Key| heavy.iter().any(|(heavy, _)| heavy == key);
    let samples = spread[first..end].iter().filter(|(key, _)| !is_heavy(key)).copied();
    quantiles(&samples.collect::<Vec<_>>())
}

/// How often in [`PER_SECONDS`], if it was so often in `elapsed` nanoseconds.
fn rate(count: u64, elapsed: u128) -> u64 {
    let rate = u128::from(count).saturating_mul(PER_SECONDS * 1_000_000_000) / elapsed;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// When load is to be measured next: shortly before the report that will carry it, so that a report is about the time since
/// the one before. Reports in between, which have news, neither make it much shorter nor put it off for long.
pub(super) fn measurement_due(measured_at: Instant, reported_at: Instant, renewal: Duration) -> Instant {
    let before_report = reported_at + renewal * 15 / 16;
    before_report.max(measured_at + renewal / 2).min(measured_at + renewal * 5 / 4)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Barrier;

    use super::*;
    use centrifuge_core::namespace_kind::{KeyPrefix, Keys, Mode, NamespaceKind};

    use crate::hot::HotLeases;
    use crate::keys::KeySpace;

    /// Leases on ranges of equal size, and what is measured of them every thousand seconds: rates are counts.
    struct Pool {
        hot: HotLeases,
        meter: LoadMeter,
        now: Instant,
    }

    impl Pool {
        /// Every check is sampled.
        fn new(ranges: u32) -> Pool {
            Pool::sampled(ranges, 1)
        }

        /// There is so much load for each sample.
        fn sampled(ranges: u32, load_per_sample: u64) -> Pool {
            let hot = HotLeases::evenly(ranges, Duration::from_secs(1_000_000));
            let table = Arc::clone(&hot.snapshot().table);
            table.set_load_per_sample(load_per_sample);
            Pool { hot, meter: LoadMeter::new(table, Instant::ZERO), now: Instant::ZERO }
        }

        fn measure(&mut self) -> Vec<RangeLoad> {
            self.now = self.now + Duration::from_secs(1_000);
            self.meter.measure(self.now).loads
        }

        /// The heavy keys of all ranges.
        fn heavy(&mut self) -> Vec<(Key, u64)> {
            self.measure().into_iter().flat_map(|load| load.heavy).collect()
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

    /// So many draws of keys, the one of rank n in proportion to n to the power of -0.99, anywhere in the key space.
    fn zipf(ranks: usize, draws: u64) -> Vec<Key> {
        let mut sums = Vec::with_capacity(ranks);
        let mut sum = 0.0;
        for rank in 1..=ranks {
            sum += (rank as f64).powf(-0.99);
            sums.push(sum);
        }
        let draw = |number| drawn(number) as f64 / (1_u64 << 53) as f64 * sum;
        let rank = |number| sums.partition_point(|sum| *sum <= draw(number)) as u64;
        (0..draws).map(|number| Key(drawn(rank(number) + (1 << 40)) << 11)).collect()
    }

    /// Checks keys, and says how often each was.
    fn check_all(pool: &Pool, keys: &[Key]) -> BTreeMap<Key, u64> {
        let mut exact = BTreeMap::new();
        for key in keys {
            *exact.entry(*key).or_default() += 1;
            pool.hot.check_lease_now(*key).expect("held");
        }
        exact
    }

    fn assert_close(load: u64, truth: u64) {
        assert!(load.abs_diff(truth) <= truth / 5, "{load} of {truth}");
    }

    /// What is reported of a Zipf load against the truth, in per mille of the truth: the greatest excess of a key, the greatest
    /// lack, and the mean distance; and whether a key with 0.4 % is missing.
    fn errors(load_per_sample: u64, checks: u64) -> (i64, i64, i64, bool) {
        let mut pool = Pool::sampled(64, load_per_sample);
        let exact = check_all(&pool, &zipf(10_000, checks));
        let loads = pool.measure();
        assert_eq!(loads.iter().map(|load| load.load).sum::<u64>(), checks);
        let heavy: BTreeMap<Key, u64> = loads.into_iter().flat_map(|load| load.heavy).collect();
        let is_missing = exact.iter().any(|(key, count)| count * 250 >= checks && !heavy.contains_key(key));
        let error = |(key, load): (&Key, &u64)| {
            let truth = exact[key] as i64;
            (*load as i64 - truth) * 1_000 / truth
        };
        let errors: Vec<i64> = heavy.iter().map(error).collect();
        let mean = errors.iter().map(|error| error.abs()).sum::<i64>() / errors.len() as i64;
        let (least, greatest) = (errors.iter().min().copied(), errors.iter().max().copied());
        (greatest.unwrap_or_default(), least.unwrap_or_default(), mean, is_missing)
    }

    /// Every check is a sample: what is reported is a lower bound, and close.
    #[test]
    fn heavy_keys_of_a_zipf_load_are_lower_bounds_if_every_check_is_sampled() {
        let (greatest, least, mean, is_missing) = errors(1, 300_000);
        println!("greatest {greatest}, least {least}, mean {mean}");
        assert!(greatest <= 0 && least >= -250 && mean <= 40 && !is_missing, "{greatest} {least} {mean}");
    }

    /// As many samples as in fifteen seconds: a standard error of 3.3 % for the least of the heavy keys.
    #[test]
    fn heavy_keys_of_a_zipf_load_are_close_if_checks_are_sampled() {
        let (greatest, least, mean, is_missing) = errors(10, 3_000_000);
        println!("greatest {greatest}, least {least}, mean {mean}");
        assert!(greatest <= 120 && least >= -250 && mean <= 60 && !is_missing, "{greatest} {least} {mean}");
    }

    /// So many ranges of a namespace with ordered keys.
    fn ordered(ranges: u32) -> Pool {
        let prefix = KeyPrefix::new(b"user/").expect("short");
        let kind = NamespaceKind { keys: Keys::Ordered(prefix), mode: Mode::Exclusive };
        let hot = HotLeases::evenly(ranges, Duration::from_secs(1_000_000));
        let snapshot = hot.snapshot();
        let leases: Vec<_> = snapshot.table.leases().map(|lease| (*lease, false)).collect();
        let table = Arc::new(LeaseTable::new(&leases).with_space(KeySpace::of(Some(&kind))));
        table.set_load_per_sample(1);
        hot.publish(Arc::clone(&table), snapshot.validity);
        Pool { hot, meter: LoadMeter::new(table, Instant::ZERO), now: Instant::ZERO }
    }

    #[test]
    fn where_ordered_keys_have_their_load_is_told_in_sixteen_parts() {
        let mut pool = ordered(1);
        // Names as an application has them: all of them are close together among numbers of 64 bits.
        let key = |number: u64| Key::in_order(format!("{number:05}").as_bytes());
        (0..50_000).for_each(|number| {
            pool.hot.check_lease_now(key(number % 25_000)).expect("held");
        });
        let [load] = pool.measure().try_into().expect("one range");
        assert_eq!((load.load, load.heavy.len(), load.quantiles.len()), (50_000, 0, 17));
        for (part, quantile) in (0..).zip(&load.quantiles) {
            let truth: u64 = 25_000 * part / 16;
            let (least, most) = (key(truth.saturating_sub(1_200)), key(truth + 1_200));
            assert!((least..=most).contains(quantile), "part {part}: {quantile} is not near {truth}");
        }
        assert_eq!(pool.measure()[0].quantiles, [], "samples serve one measurement");
    }

    /// However many ranges there are and however much is asked for by however many threads: eight samples for each part.
    #[test]
    fn quantiles_add_little_to_a_report() {
        let mut pool = ordered(200);
        let hot = &pool.hot.clone();
        std::thread::scope(|scope| {
            for thread in 0..12 {
                scope.spawn(move || {
                    (0..20_000).for_each(|number| {
                        hot.check_lease_now(Key(drawn(number * 12 + thread) << 11)).expect("held");
                    });
                });
            }
        });
        let loads = pool.measure();
        let quantiles: usize = loads.iter().map(|load| load.quantiles.len()).sum();
        assert!((1..=2_048).contains(&quantiles), "{quantiles} of {} ranges", loads.len());
    }

    #[test]
    fn heavy_keys_are_no_part_of_the_rest() {
        let mut pool = ordered(1);
        check_half(&pool.hot, Key(1 << 60), 20_000);
        let [load] = pool.measure().try_into().expect("one range");
        assert_eq!(load.heavy.len(), 1);
        assert_eq!(load.quantiles.len(), 17);
        assert!(load.quantiles.iter().all(|key| key.0 < 5_000), "{:?}", load.quantiles);
    }

    #[test]
    fn hashed_keys_have_no_quantiles() {
        let mut pool = Pool::new(2);
        check_half(&pool.hot, Key(7), 20_000);
        assert!(pool.measure().iter().all(|load| load.quantiles.is_empty()));
    }

    #[test]
    fn no_key_of_an_even_load_is_heavy() {
        let mut pool = Pool::new(4);
        for number in 0..200_000 {
            pool.hot.check_lease_now(Key(drawn(number) % 10_000)).expect("held");
        }
        assert_eq!(pool.heavy(), []);
    }

    #[test]
    fn keys_are_heavy_from_three_thousandths_of_all_load_on() {
        let mut pool = Pool::new(4);
        let load = [(1, 30), (2, 29), (Key::MAX.0, 40), (3, 10_000 - 99)];
        for (key, count) in load {
            pool.hot.add_load(Key(key), count);
        }
        assert_eq!(pool.heavy(), [(Key(1), 30), (Key(3), 9_901), (Key::MAX, 40)]);
    }

    #[test]
    fn few_checks_are_no_evidence() {
        let mut pool = Pool::new(4);
        for _ in 0..MIN_HEAVY_LOAD - 1 {
            pool.hot.check_lease_now(Key(1)).expect("held");
        }
        assert_eq!(pool.heavy(), []);
    }

    #[test]
    fn each_range_has_heavy_keys_of_its_own() {
        let mut pool = Pool::new(64);
        let keys: Vec<Key> = pool.hot.counts().iter().map(|(range, _)| Key(range.first().0 + 99)).collect();
        for number in 0..1_000 {
            for key in &keys {
                pool.hot.check_lease_now(*key).expect("held");
                pool.hot.check_lease_now(Key(key.0 + 1 + drawn(number) % 1_000)).expect("held");
            }
        }
        for (load, key) in pool.measure().iter().zip(keys) {
            let [(heavy, heavy_load)] = load.heavy[..] else { panic!("{load:?}") };
            assert_eq!(heavy, key);
            assert!((800..=1_000).contains(&heavy_load), "{heavy_load} of 1000");
        }
    }

    /// Even where its successor has less load than it had.
    #[test]
    fn a_key_that_cooled_down_is_forgotten() {
        let mut pool = Pool::new(1);
        check_half(&pool.hot, Key(10_001), 80_000);
        assert_eq!(pool.heavy(), [(Key(10_001), 40_000)]);
        check_half(&pool.hot, Key(10_002), 10_000);
        assert_eq!(pool.heavy(), [(Key(10_002), 5_000)]);
        check_half(&pool.hot, Key(0), 24);
        assert_eq!(
            pool.measure(),
            [RangeLoad { range: KeyRange::ALL, load: 24, heavy: Vec::new(), quantiles: Vec::new() }]
        );
    }

    #[test]
    fn the_rate_of_samples_follows_the_load_through_changes_of_the_table() {
        let mut pool = Pool::sampled(1, 128);
        pool.hot.add_load(Key(1), 1_000 * 20_000 * 50);
        pool.measure();
        assert_eq!(pool.hot.snapshot().table.load_per_sample(), 50);
        pool.turn_to(4);
        assert_eq!(pool.hot.snapshot().table.load_per_sample(), 50);
        pool.measure();
        assert_eq!(pool.hot.snapshot().table.load_per_sample(), 1);
    }

    #[test]
    fn threads_that_read_and_threads_that_ended_are_added_up() {
        let mut pool = Pool::sampled(1, 128);
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
        let [(Key(10_001), load)] = first[0].heavy[..] else { panic!("{first:?}") };
        assert_close(load, 320_000);
        let second = pool.heavy();
        let [(Key(10_002), load)] = second[..] else { panic!("{second:?}") };
        assert_close(load, 40_000);
    }

    #[test]
    fn a_table_change_loses_no_sample() {
        let mut pool = Pool::new(4);
        check_half(&pool.hot, Key(10_001), 40_000);
        pool.turn_to(2);
        check_half(&pool.hot, Key(10_001), 40_000);
        let loads = pool.measure();
        assert_eq!((loads.len(), loads[0].load), (2, 80_000));
        assert_eq!(loads[0].heavy, [(Key(10_001), 40_000)]);
    }

    /// A range whose keys were hot in an earlier table has no load of its own yet.
    #[test]
    fn heavy_keys_never_have_more_than_their_range() {
        let mut pool = Pool::new(1);
        check_half(&pool.hot, Key::MAX, 40_000);
        pool.turn_to(2);
        check_half(&pool.hot, Key::MAX, 100);
        let loads = pool.measure();
        assert_eq!((loads[1].load, &loads[1].heavy[..]), (50, &[(Key::MAX, 50)][..]));
        pool.turn_to(1);
        check_half(&pool.hot, Key::MAX, 40_000);
        pool.turn_to(2);
        let loads = pool.measure();
        assert_eq!((loads[1].load, &loads[1].heavy[..]), (0, &[][..]));
    }

    #[test]
    fn load_that_shifts_is_measured_at_once_and_at_most_twice_in_a_row() {
        let mut pool = Pool::new(4);
        let add = |pool: &Pool, load| {
            pool.hot.counts().iter().for_each(|(range, _)| {
                pool.hot.add_load(range.first(), load);
            })
        };
        let glance = |pool: &mut Pool| {
            pool.now = pool.now + Duration::from_secs(100);
            pool.meter.measure_if_shifted(pool.now)
        };
        add(&pool, 1_000);
        assert_eq!(glance(&mut pool), None, "nothing was measured yet");
        pool.measure();
        add(&pool, 110);
        assert_eq!(glance(&mut pool), None, "as expected");
        pool.hot.add_load(Key::MAX, 5_000);
        let shifted = glance(&mut pool).expect("it shifted");
        assert_eq!((shifted.span, shifted.is_urgent), (Duration::from_secs(200), true));
        assert_eq!(shifted.loads[3].load, 25_550);
        assert_eq!(shifted.loads[3].heavy.last(), Some(&(Key::MAX, 25_000)));
        add(&pool, 1_000);
        assert!(glance(&mut pool).is_some(), "it shifted back");
        add(&pool, 9_000);
        assert_eq!(glance(&mut pool), None, "that was enough");
        assert_eq!(pool.measure()[0].load, 9_000 * 1_000 / 1_100, "and nothing is lost");
        pool.hot.add_load(Key::MAX, 50_000);
        assert!(glance(&mut pool).is_some());
    }

    #[test]
    fn load_that_the_application_reports_counts_too() {
        let mut pool = Pool::sampled(1, 128);
        check_half(&pool.hot, Key(10_001), 10_000);
        for _ in 0..10 {
            pool.hot.add_load(Key(10_002), 5_000);
        }
        let heavy: BTreeMap<Key, u64> = pool.heavy().into_iter().collect();
        assert_close(heavy[&Key(10_002)], 50_000);
    }

    #[test]
    fn checks_are_no_load_where_the_application_counts_something_else() {
        let mut pool = Pool::new(1);
        let snapshot = pool.hot.snapshot();
        let leases: Vec<_> = snapshot.table.leases().map(|lease| (*lease, false)).collect();
        let table = Arc::new(LeaseTable::new(&leases).with_load_per_check(0));
        pool.meter.turn_to(Arc::clone(&table));
        pool.hot.publish(table, snapshot.validity);
        check_half(&pool.hot, Key(10_001), 10_000);
        pool.hot.lease(Key(5)).expect("held");
        pool.hot.add_load(Key(10_002), 700);
        let heavy = vec![(Key(10_002), 700)];
        assert_eq!(
            pool.measure(),
            [RangeLoad { range: KeyRange::ALL, load: 700, heavy, quantiles: Vec::new() }]
        );
    }

    #[test]
    fn a_measurement_ends_shortly_before_a_report() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let due = |measured_at, reported_at| {
            measurement_due(at(measured_at), at(reported_at), Duration::from_secs(16))
        };
        assert_eq!(due(99, 100), at(115));
        // News was reported in between, early and late.
        assert_eq!(due(99, 102), at(117));
        assert_eq!(due(99, 112), at(119));
        // A report was sent soon after the measurement was late, and none is sent at all.
        assert_eq!(due(110, 100), at(118));
        assert_eq!(due(500, 100), at(508));
        assert_eq!(due(100, 0), at(108));
    }
}
