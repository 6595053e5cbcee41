//! How long a message and its answer take, as one side of a conversation has measured it.

use std::time::Duration;

/// The round trip assumed until one is measured.
const ASSUMED: Duration = Duration::from_millis(200);
/// A first answer that took longer says more about its sender than about the way.
const LONGEST_FIRST_SAMPLE: Duration = Duration::from_secs(2);

/// An estimate that paces resends. The first answer replaces what was assumed, so that a quick network is known as one from the
/// start; later ones count for an eighth each. It is never below what a message in the way has proved since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RoundTrip {
    estimate: Duration,
    /// Nothing was measured yet, and so much at least was seen.
    unmeasured: Option<Duration>,
}

impl RoundTrip {
    pub(crate) fn assumed() -> RoundTrip {
        RoundTrip { estimate: ASSUMED, unmeasured: Some(Duration::ZERO) }
    }

    pub(crate) fn estimate(self) -> Duration {
        self.estimate
    }

    /// A message was answered after so long. An answer at the same instant measured nothing.
    pub(crate) fn answered(&mut self, sample: Duration) {
        let is_measured = !sample.is_zero() && sample <= LONGEST_FIRST_SAMPLE;
        self.estimate = match self.unmeasured.take_if(|_| is_measured) {
            Some(seen) => sample.max(seen),
            None => (self.estimate * 7 + sample) / 8,
        };
    }

    /// An answer could not have come within this time.
    pub(crate) fn at_least(&mut self, bound: Duration) {
        self.estimate = self.estimate.max(bound);
        self.unmeasured = self.unmeasured.map(|seen| seen.max(bound));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_answer_replaces_what_was_assumed_and_the_next_ones_weigh_in() {
        let mut trip = RoundTrip::assumed();
        assert_eq!(trip.estimate(), ASSUMED);
        trip.answered(MS * 8);
        assert_eq!(trip.estimate(), MS * 8);
        trip.answered(MS * 16);
        assert_eq!(trip.estimate(), MS * 9);
    }

    #[test]
    fn it_is_not_below_what_was_seen() {
        let mut trip = RoundTrip::assumed();
        trip.at_least(MS * 50);
        assert_eq!(trip.estimate(), ASSUMED, "no more is known than that it is longer than this");
        trip.answered(MS);
        assert_eq!(trip.estimate(), MS * 50);
        trip.at_least(MS * 70);
        assert_eq!(trip.estimate(), MS * 70);
        let mut slow = RoundTrip::assumed();
        slow.answered(LONGEST_FIRST_SAMPLE * 4);
        assert_eq!(slow.estimate(), (ASSUMED * 7 + LONGEST_FIRST_SAMPLE * 4) / 8);
        slow.answered(MS);
        assert_eq!(slow.estimate(), MS, "that was the first that measured something");
    }
}
