//! How long rounds took, counted in steps of a sixteenth.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How many steps a doubling has, as a power of two.
const STEP_BITS: u32 = 4;
const STEPS: usize = 1 << STEP_BITS;
/// As many as nanoseconds in 64 bits need.
const PLACES: usize = (64 - STEP_BITS as usize + 1) * STEPS;

/// How long a peer's rounds took that ended with a lease: from the start of the round, by which the lease counts, until the
/// lease was held.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RoundTimes {
    /// Rounds that acquired a cell. Earlier rounds in vain are not in it.
    pub acquired: Times,
    /// Rounds that renewed a lease.
    pub renewed: Times,
}

impl RoundTimes {
    /// What came since an earlier reading of the same peer.
    #[must_use]
    pub fn since(&self, earlier: &RoundTimes) -> RoundTimes {
        RoundTimes {
            acquired: self.acquired.since(&earlier.acquired),
            renewed: self.renewed.since(&earlier.renewed),
        }
    }
}

/// Many times, each known to a sixteenth.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Times {
    /// How many are in each step, as far as there are any.
    counts: Vec<u64>,
}

impl Times {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Each step that has any: the longest time in it, and how many there are.
    pub fn steps(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let some = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        some.map(|(place, count)| (Duration::from_nanos(longest(place)), *count))
    }

    /// The time that this share of them does not exceed; zero without any.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Duration {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reaches = |(_, count): &(Duration, u64)| {
            seen += count;
            seen >= wanted
        };
        self.steps().find(reaches).map_or(Duration::ZERO, |(time, _)| time)
    }

    fn since(&self, earlier: &Times) -> Times {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        Times { counts: self.counts.iter().zip(before).map(|(now, before)| now - before).collect() }
    }
}

/// Times as they are counted, while others read them.
#[derive(Debug)]
pub(super) struct Tally {
    counts: Box<[AtomicU64]>,
}

impl Default for Tally {
    fn default() -> Tally {
        Tally { counts: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Tally {
    pub(super) fn add(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[place(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Times {
        let mut counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let len = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        counts.truncate(len);
        Times { counts }
    }
}

/// The step of a time: its highest bits, after the place of the first of them.
fn place(nanos: u64) -> usize {
    let shift = nanos.checked_ilog2().unwrap_or(0).saturating_sub(STEP_BITS);
    shift as usize * STEPS + (nanos >> shift) as usize
}

/// The longest time of a step.
fn longest(place: usize) -> u64 {
    let shift = (place / STEPS).saturating_sub(1);
    let first = ((place - shift * STEPS) as u64) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_step_that_is_at_most_a_sixteenth_long() {
        for nanos in (0..5_000).chain((0..64).map(|bit| u64::MAX >> bit)).chain([u64::MAX / 3]) {
            let place = place(nanos);
            assert!(place < PLACES, "{nanos}");
            let longest = longest(place);
            assert!(longest >= nanos && longest - nanos <= nanos / 16, "{nanos} is taken for {longest}");
        }
        assert!((0..5_000).is_sorted_by_key(|nanos| longest(place(nanos))), "steps rise");
    }

    #[test]
    fn quantiles_are_of_what_came_since() {
        let tally = Tally::default();
        tally.add(Duration::from_secs(9));
        let before = tally.read();
        (1..=100).for_each(|millis| tally.add(Duration::from_millis(millis)));
        let times = tally.read().since(&before);
        assert_eq!((times.count(), before.count()), (100, 1));
        for (share, millis) in [(0.5, 50), (0.99, 99), (1.0, 100)] {
            let (found, exact) = (times.quantile(share), Duration::from_millis(millis));
            assert!(found >= exact && found <= exact + exact / 16, "{share}: {found:?}");
        }
        assert_eq!(Times::default().quantile(0.5), Duration::ZERO);
    }
}
