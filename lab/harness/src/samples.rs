//! How long things took, each time, and what that comes to.

use std::time::Duration;

use serde::Serialize;

/// The times that something took. Every one is kept, so that percentiles are exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    times: Vec<Duration>,
}

/// The middle, the worst but a hundredth, and the worst, in whole units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// How many there were.
    pub count: u64,
    /// Half took no longer.
    pub p50: u64,
    /// All but one of a hundred took no longer.
    pub p99: u64,
    /// None took longer.
    pub max: u64,
}

impl Samples {
    /// One more.
    pub fn add(&mut self, time: Duration) {
        self.times.push(time);
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.times.len() as u64
    }

    /// The time of the nearest rank: of few samples the 99th percentile is the longest. Zero if there are none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        let rank = (self.times.len() as f64 * percent / 100.0).ceil() as usize;
        let place = rank.clamp(1, self.times.len().max(1)) - 1;
        let mut times = self.times.clone();
        if times.is_empty() { Duration::ZERO } else { *times.select_nth_unstable(place).1 }
    }

    /// The usual percentiles, in units of this length.
    #[must_use]
    pub fn percentiles(&self, unit: Duration) -> Percentiles {
        let at = |percent| {
            u64::try_from(self.percentile(percent).as_nanos() / unit.as_nanos()).unwrap_or(u64::MAX)
        };
        Percentiles { count: self.count(), p50: at(50.0), p99: at(99.0), max: at(100.0) }
    }
}

impl Extend<Duration> for Samples {
    fn extend<I: IntoIterator<Item = Duration>>(&mut self, times: I) {
        self.times.extend(times);
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Samples {
        Samples { times: times.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let hundred: Samples = (1..=100).rev().map(Duration::from_micros).collect();
        let wanted = Percentiles { count: 100, p50: 50, p99: 99, max: 100 };
        assert_eq!(hundred.percentiles(Duration::from_micros(1)), wanted);
        let few: Samples = [1, 2, 3].map(Duration::from_millis).into_iter().collect();
        assert_eq!(few.percentile(50.0), Duration::from_millis(2));
        assert_eq!(few.percentile(99.0), Duration::from_millis(3));
        assert_eq!(Samples::default().percentile(99.0), Duration::ZERO);
    }
}
