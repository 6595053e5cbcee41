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
    /// The counts are in key order. Ranges that the measurement does not have say nothing: their load is news to nobody but
    /// the Owner, which has just been granted them.
    #[must_use]
    pub fn is_outdated_by(&self, counts: &[(KeyRange, u64)], elapsed: Duration) -> bool {
        let total: u128 = counts.iter().map(|(_, count)| u128::from(*count)).sum();
        let (mut shift, mut before, mut known) = (0, 0, 0);
        let mut loads = self.loads.iter().peekable();
        for (range, count) in counts {
            while loads.next_if(|load| load.range < *range).is_some() {}
            let Some(load) = loads.next_if(|load| load.range == *range) else { continue };
            let expected = u128::from(load.load) * elapsed.as_nanos() / PER_NANOS;
            before += expected;
            known += u128::from(*count);
            shift += self.beyond_chance(expected, u128::from(*count), elapsed);
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
    fn a_short_measurement_is_trusted_less() {
        let short = LoadMeasurement { span: Duration::from_millis(200), ..measured(&[100]) };
        let counts = [(range(0), 290)];
        assert!(measured(&[100]).is_outdated_by(&counts, Duration::from_secs(2)));
        assert!(!short.is_outdated_by(&counts, Duration::from_secs(2)));
    }
}
