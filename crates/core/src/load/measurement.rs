//! What an Owner measures of its load, and when it should say so before its next report is due.

use std::time::Duration;

use crate::key::KeyRange;
use crate::load::RangeLoad;

/// Loads are told per this many nanoseconds.
const PER_NANOS: u128 = 1_000_000_000_000;
/// Chance explains differences up to so many standard deviations: an Owner has hundreds of ranges and looks many times.
const CHANCE_SIGMAS: u128 = 4;
/// Load has shifted among an Owner's ranges if so many percent of it are more, or less, than chance explains.
const SHIFT_PERCENT: u128 = 5;
/// The Owner's load has shifted as a whole if it is more, or less, by so many percent.
const TOTAL_SHIFT_PERCENT: u128 = 3;
/// Fewer requests than this are no shift, whatever part of the load they are.
const LEAST_SHIFT: u128 = 16;

/// How often an Owner looks whether its load has shifted.
#[must_use]
pub fn glance_interval(renewal: Duration) -> Duration {
    renewal / 6
}

/// The load of the ranges that an Owner holds, as it counted it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LoadMeasurement {
    /// Range by range, in key order.
    pub loads: Vec<RangeLoad>,
    /// Over how long it was counted; zero: about a renewal.
    pub span: Duration,
    /// The load has shifted since the last measurement: the Manager should hear of it at once.
    pub is_urgent: bool,
}

impl From<Vec<RangeLoad>> for LoadMeasurement {
    /// A measurement that waits for the next report.
    fn from(loads: Vec<RangeLoad>) -> LoadMeasurement {
        LoadMeasurement { loads, ..LoadMeasurement::default() }
    }
}

impl LoadMeasurement {
    /// Whether counts since this measurement differ from it by more than chance explains, and by enough to matter.
    ///
    /// The counts are in key order. Keys that the measurement does not have say nothing: their load is news to nobody but
    /// the Owner, which has just been granted them.
    #[must_use]
    pub fn is_outdated_by(&self, counts: &[(KeyRange, u64)], elapsed: Duration) -> bool {
        let total: u128 = counts.iter().map(|(_, count)| u128::from(*count)).sum();
        let (mut shift, mut before, mut known) = (0, 0, 0);
        for [load, count] in common_stretches(&self.loads, counts) {
            let expected = load * elapsed.as_nanos() / PER_NANOS;
            before += expected;
            known += count;
            shift += self.beyond_chance(expected, count, elapsed);
        }
        let matters =
            |shift: u128, percent: u128| shift >= LEAST_SHIFT && shift * 100 >= total.max(before) * percent;
        matters(shift, SHIFT_PERCENT)
            || matters(self.beyond_chance(before, known, elapsed), TOTAL_SHIFT_PERCENT)
    }

    /// By how much a count differs from what was to be expected, after what chance explains.
    fn beyond_chance(&self, expected: u128, count: u128, elapsed: Duration) -> u128 {
        let elapsed = elapsed.as_nanos();
        let span = if self.span.is_zero() { elapsed } else { self.span.as_nanos() };
        // What is expected was counted too, and varies as much as its own span makes it.
        let variance = expected.max(count) * (span + elapsed) / span.max(1) + 1;
        expected.abs_diff(count).saturating_sub(CHANCE_SIGMAS * variance.isqrt())
    }
}

/// The load and the count of every stretch of keys that both lists cover without a gap, each as short as can be: a range of
/// both, or one that was cut or joined in between.
fn common_stretches(loads: &[RangeLoad], counts: &[(KeyRange, u64)]) -> Vec<[u128; 2]> {
    let loads: Vec<(KeyRange, u64)> = loads.iter().map(|load| (load.range, load.load)).collect();
    let (lists, mut at) = ([&loads, counts], [0, 0]);
    let mut stretches = Vec::new();
    while let (Some(one), Some(other)) = (lists[0].get(at[0]), lists[1].get(at[1])) {
        if one.0.first() != other.0.first() {
            at[usize::from(other.0.first() < one.0.first())] += 1;
            continue;
        }
        let (mut last, mut sums) = ([one.0.last(), other.0.last()], [one.1, other.1].map(u128::from));
        at = at.map(|place| place + 1);
        while last[0] != last[1] {
            let short = usize::from(last[1] < last[0]);
            let follows = |(range, _): &&(KeyRange, u64)| Some(range.first()) == last[short].next();
            let Some((range, amount)) = lists[short].get(at[short]).filter(follows) else { break };
            (last[short], at[short]) = (range.last(), at[short] + 1);
            sums[short] += u128::from(*amount);
        }
        if last[0] == last[1] {
            stretches.push(sums);
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    const RENEWAL: Duration = Duration::from_secs(15);

    fn range(number: u64) -> KeyRange {
        KeyRange::new(Key(number * 10), Key(number * 10 + 9)).expect("in order")
    }

    /// What these requests per second, range by range, look like after a renewal.
    fn measured(rates: &[u64]) -> LoadMeasurement {
        let load = |(number, rate): (usize, &u64)| RangeLoad {
            range: range(number as u64),
            load: rate * 1_000,
            heavy: Vec::new(),
            quantiles: Vec::new(),
        };
        LoadMeasurement {
            loads: rates.iter().enumerate().map(load).collect(),
            span: RENEWAL,
            is_urgent: false,
        }
    }

    fn shifts(rates: &[u64], counts: &[u64]) -> bool {
        let counts: Vec<_> = (0..).map(range).zip(counts.iter().copied()).collect();
        measured(rates).is_outdated_by(&counts, Duration::from_secs(2))
    }

    #[test]
    fn a_range_with_far_more_or_far_less_is_a_shift() {
        assert!(shifts(&[100, 100], &[200, 400]));
        assert!(shifts(&[100, 100], &[200, 20]));
        assert!(shifts(&[0, 0], &[0, 100]), "out of nothing");
        assert!(shifts(&[100, 100], &[0, 0]), "into nothing");
    }

    #[test]
    fn chance_is_no_shift_and_neither_is_little() {
        assert!(!shifts(&[100, 100], &[200, 200]));
        assert!(!shifts(&[100, 100], &[240, 165]), "3 standard deviations");
        assert!(!shifts(&[2, 2], &[9, 0]), "few requests vary much");
        assert!(!shifts(&[100_000, 10], &[200_000, 500]), "less than a twentieth of all");
    }

    #[test]
    fn little_in_every_range_is_a_shift_of_the_whole() {
        assert!(!shifts(&[100; 400], &[207; 400]));
        assert!(shifts(&[100; 400], &[213; 400]));
        assert!(shifts(&[100; 400], &[187; 400]));
    }

    #[test]
    fn ranges_that_came_or_went_say_nothing() {
        let before = measured(&[100, 100]);
        let elapsed = Duration::from_secs(2);
        assert!(!before.is_outdated_by(&[(range(0), 200), (range(7), 9_000)], elapsed));
        assert!(!before.is_outdated_by(&[(range(1), 200)], elapsed));
        assert!(!LoadMeasurement::default().is_outdated_by(&[(range(1), 200)], elapsed));
        assert!(!before.is_outdated_by(&[], Duration::ZERO));
    }

    #[test]
    fn ranges_that_were_cut_or_joined_are_compared_as_before() {
        let part = |first, last| KeyRange::new(Key(first), Key(last)).expect("in order");
        let elapsed = Duration::from_secs(2);
        let before = measured(&[100, 100, 100]);
        let cut = [(part(0, 3), 0), (part(4, 9), 200), (range(1), 200), (range(2), 200)];
        assert!(!before.is_outdated_by(&cut, elapsed));
        let hot = [(part(0, 3), 400), (part(4, 9), 200), (range(1), 200), (range(2), 200)];
        assert!(before.is_outdated_by(&hot, elapsed));
        assert!(!before.is_outdated_by(&[(part(0, 19), 400), (range(2), 200)], elapsed));
        assert!(before.is_outdated_by(&[(part(0, 19), 900), (range(2), 200)], elapsed));
        let without_a_part = [(part(0, 3), 900), (range(1), 200), (range(2), 200)];
        assert!(!before.is_outdated_by(&without_a_part, elapsed), "the rest of the range is gone");
        assert!(!before.is_outdated_by(&[(part(5, 14), 900), (range(2), 200)], elapsed));
    }

    #[test]
    fn a_short_measurement_is_trusted_less() {
        let short = LoadMeasurement { span: Duration::from_millis(200), ..measured(&[100]) };
        let counts = [(range(0), 290)];
        assert!(measured(&[100]).is_outdated_by(&counts, Duration::from_secs(2)));
        assert!(!short.is_outdated_by(&counts, Duration::from_secs(2)));
    }
}
