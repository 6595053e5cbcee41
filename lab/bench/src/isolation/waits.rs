//! How long renewals waited, with those that would have been due meanwhile.

use std::time::Duration;

/// Waits in order of their length.
pub(super) struct Waits {
    measured: usize,
    sorted: Vec<Duration>,
}

impl Waits {
    /// Renewals are due at a steady interval, but no Owner sends one before the last was answered. Each that a long
    /// wait held up counts with what was left of that wait when it was due.
    pub(super) fn new(measured: impl Iterator<Item = Duration>, interval: Duration) -> Waits {
        let mut sorted = Vec::new();
        let mut count = 0;
        for wait in measured {
            count += 1;
            let shorter = |wait: &Duration| wait.checked_sub(interval).filter(|left| !left.is_zero());
            sorted.extend(std::iter::successors(Some(wait), shorter));
        }
        sorted.sort_unstable();
        Waits { measured: count, sorted }
    }

    /// How many renewals were sent and answered.
    pub(super) fn measured(&self) -> usize {
        self.measured
    }

    /// The wait of the nearest rank: of few renewals the 99th percentile is the longest. Zero if there are none.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.sorted.len() * percent).div_ceil(100).max(1);
        self.sorted.get(rank - 1).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(10);

    fn waits(milliseconds: impl IntoIterator<Item = u64>) -> Waits {
        Waits::new(milliseconds.into_iter().map(Duration::from_millis), INTERVAL)
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let hundred = Waits::new((1..=100).rev().map(Duration::from_micros), INTERVAL);
        assert_eq!(hundred.percentile(50), Duration::from_micros(50));
        assert_eq!(hundred.percentile(99), Duration::from_micros(99));
        assert_eq!(hundred.percentile(100), Duration::from_micros(100));
        let few = waits([1, 2, 3]);
        assert_eq!(few.percentile(50), Duration::from_millis(2));
        assert_eq!(few.percentile(99), Duration::from_millis(3));
        assert_eq!(waits([]).percentile(99), Duration::ZERO);
    }

    #[test]
    fn what_a_long_wait_held_up_counts_too() {
        let held_up = waits([35, 1]);
        assert_eq!(held_up.measured(), 2);
        let expected = [1, 5, 15, 25, 35].map(Duration::from_millis);
        assert_eq!(held_up.sorted, expected);
        assert_eq!(waits([10]).sorted, [INTERVAL], "the next is due just when this one is answered");
    }
}
