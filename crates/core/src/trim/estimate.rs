//! What the load of a range, or of a key, is taken to be, given reports that are counts and therefore vary by chance.

use std::time::Duration;

/// No load is taken to be larger than this, in requests per 1,000 s; sums of 2^17 of them are exact.
pub(super) const MAX_LOAD: u64 = 1 << 36;
/// A report that differs by more of its standard deviations than this is believed at once.
const SURPRISING_SIGMAS: u64 = 3;
/// How much of the way to an unsurprising report the estimate goes, in percent.
const SMOOTHING_PERCENT: u64 = 30;
/// The same for a range with so many requests in a report: they vary little, and smoothing only lags behind.
const SURE_SMOOTHING_PERCENT: u64 = 45;
const SURE_REQUESTS: u64 = 200;
/// How many reports ahead loads are judged: one until the move, one until it has ended.
const REPORTS_AHEAD: i64 = 2;

/// The load that a single request in a time stands for; a load's variance is itself times this.
pub(super) fn load_of_one_request(span: Duration) -> u64 {
    let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    (1_000_000 / span_ms.max(1)).max(1)
}

/// How well a report knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Precision {
    /// Over how long it was counted.
    pub(super) span: Duration,
    /// The load that a single request stands for.
    pub(super) one_request: u64,
    /// How much of the way to it an estimate goes if it is not surprising, in percent.
    believed: u64,
    /// It was counted over about a renewal, and so compares with the ones before and after.
    pub(super) is_whole: bool,
}

impl Precision {
    /// The precision of a report that was counted over a time, among others that are counted over renewals.
    pub(super) fn new(span: Duration, renewal: Duration) -> Precision {
        let span = if span.is_zero() { renewal } else { span.min(renewal) };
        let part = span.as_millis() * u128::from(SMOOTHING_PERCENT) / renewal.as_millis().max(1);
        Precision {
            span,
            one_request: load_of_one_request(span),
            believed: u64::try_from(part).unwrap_or(SMOOTHING_PERCENT).clamp(1, SMOOTHING_PERCENT),
            is_whole: span >= renewal / 4 * 3,
        }
    }

    /// Whether a report differs from an estimate by more than chance explains.
    pub(super) fn is_surprised(self, estimate: u64, reported: u64) -> bool {
        is_surprising(estimate, reported, self.one_request)
    }

    /// The estimate after an unsurprising report.
    pub(super) fn smoothed(self, estimate: u64, reported: u64) -> u64 {
        let is_sure = estimate / self.one_request >= SURE_REQUESTS;
        let believed = self.believed * if is_sure { SURE_SMOOTHING_PERCENT } else { SMOOTHING_PERCENT };
        let (believed, whole) = (believed / SMOOTHING_PERCENT, 100);
        (estimate * (whole - believed) + reported * believed + whole / 2) / whole
    }
}

/// The standard deviation of a reported load.
pub(super) fn sigma(load: u64, one_request: u64) -> u64 {
    let variance = u128::from(load) * u128::from(one_request);
    u64::try_from(variance.isqrt()).unwrap_or(u64::MAX)
}

/// Whether two loads differ by more than chance explains.
pub(super) fn is_surprising(estimate: u64, reported: u64, one_request: u64) -> bool {
    estimate.abs_diff(reported) > SURPRISING_SIGMAS.saturating_mul(sigma(estimate.max(reported), one_request))
}

/// A load and where it is going.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Estimate {
    /// The load now; at most [`MAX_LOAD`].
    pub(super) load: u64,
    /// How much it grows, or shrinks, with every report.
    pub(super) trend: i64,
    /// The last report's surprise; 0 if it was none.
    pub(super) surprise: i64,
}

impl Estimate {
    /// A load that was reported for the first time.
    pub(super) fn first(reported: u64) -> Estimate {
        Estimate { load: reported.min(MAX_LOAD), ..Estimate::default() }
    }

    /// Takes a report into account. Two surprises in one direction are a trend; one alone is a step, and so is what an Owner
    /// reports at once: it may have counted from before the step on.
    pub(super) fn observe(&mut self, reported: u64, precision: Precision) {
        let reported = reported.min(MAX_LOAD);
        if !precision.is_surprised(self.load, reported) {
            self.load = precision.smoothed(self.load, reported);
            if precision.is_whole {
                (self.trend, self.surprise) = (self.trend / 2, 0);
            }
            return;
        }
        if !precision.is_whole {
            *self = Estimate::first(reported);
            return;
        }
        let surprise = reported as i64 - self.load as i64;
        let continues = surprise.signum() == self.surprise.signum();
        let smaller = surprise.abs().min(self.surprise.abs()) * surprise.signum();
        self.trend = if continues { smaller } else { 0 };
        self.surprise = surprise;
        self.load = reported;
    }

    /// The load once a move that is decided now has ended, within half and twice the load of now.
    pub(super) fn predicted(self) -> u64 {
        let ahead = self.load as i64 + REPORTS_AHEAD * self.trend;
        let ahead = u64::try_from(ahead).unwrap_or(0);
        ahead.clamp(self.load / 2, self.load * 2).min(MAX_LOAD)
    }

    /// The estimate of a part that has `part` of the load.
    pub(super) fn of_part(self, part: u64) -> Estimate {
        let scale = |amount: i64| {
            let scaled = i128::from(amount) * i128::from(part) / i128::from(self.load.max(1));
            i64::try_from(scaled).unwrap_or(0)
        };
        Estimate { load: part, trend: scale(self.trend), surprise: scale(self.surprise) }
    }

    /// The estimate of two parts together.
    pub(super) fn joined(self, other: Estimate) -> Estimate {
        Estimate {
            load: self.load.saturating_add(other.load).min(MAX_LOAD),
            trend: self.trend.saturating_add(other.trend).clamp(-(MAX_LOAD as i64), MAX_LOAD as i64),
            surprise: self.surprise.saturating_add(other.surprise).clamp(-(MAX_LOAD as i64), MAX_LOAD as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request is a load of one.
    const EXACT: Precision =
        Precision { span: Duration::ZERO, one_request: 1, believed: SMOOTHING_PERCENT, is_whole: true };

    #[test]
    fn noise_is_smoothed_and_a_step_is_believed() {
        let mut estimate = Estimate::first(10_000);
        estimate.observe(10_100, EXACT);
        assert_eq!(estimate, Estimate { load: 10_045, trend: 0, surprise: 0 });
        estimate.observe(20_000, EXACT);
        assert_eq!((estimate.load, estimate.predicted()), (20_000, 20_000), "one surprise is a step");
    }

    #[test]
    fn two_surprises_in_one_direction_are_a_trend_that_quiet_halves() {
        let mut estimate = Estimate::first(10_000);
        estimate.observe(12_000, EXACT);
        estimate.observe(15_000, EXACT);
        assert_eq!((estimate.trend, estimate.predicted()), (2_000, 19_000));
        estimate.observe(15_000, EXACT);
        assert_eq!(estimate.trend, 1_000);
        estimate.observe(10_000, EXACT);
        assert_eq!((estimate.trend, estimate.predicted()), (0, 10_000), "the direction changed");
    }

    #[test]
    fn predictions_stay_within_half_and_twice() {
        let falling = Estimate { load: 100, trend: -90, surprise: 0 };
        let rising = Estimate { load: 100, trend: 90, surprise: 0 };
        assert_eq!((falling.predicted(), rising.predicted()), (50, 200));
    }

    #[test]
    fn absurd_reports_saturate() {
        let mut estimate = Estimate::first(u64::MAX);
        let precision = Precision::new(Duration::ZERO, Duration::from_secs(15));
        [u64::MAX, 0, u64::MAX].into_iter().for_each(|load| estimate.observe(load, precision));
        assert_eq!(estimate.predicted(), MAX_LOAD);
        assert_eq!(estimate.joined(estimate).load, MAX_LOAD);
    }

    #[test]
    fn the_shorter_a_report_counted_the_less_it_changes() {
        let renewal = Duration::from_secs(15);
        let [whole, short] = [Duration::ZERO, renewal / 6].map(|span| Precision::new(span, renewal));
        assert_eq!(whole, Precision::new(renewal * 2, renewal));
        // 30 requests a second: 450 in a renewal, 75 in a glance.
        let after = |precision, reported| {
            let mut estimate = Estimate::first(30_000);
            estimate.observe(reported, precision);
            estimate.load
        };
        assert_eq!((after(whole, 31_000), after(short, 31_000)), (30_450, 30_050));
        assert_eq!((after(whole, 36_000), after(short, 36_000)), (36_000, 30_300), "noise of a short report");
        assert_eq!((after(whole, 50_000), after(short, 50_000)), (50_000, 50_000));
    }

    #[test]
    fn what_is_reported_at_once_is_a_step() {
        let short = Precision { is_whole: false, ..EXACT };
        let mut estimate = Estimate::first(10_000);
        estimate.observe(15_000, short);
        estimate.observe(20_000, short);
        estimate.observe(21_000, EXACT);
        assert_eq!((estimate.load, estimate.trend), (21_000, 0));
    }
}
