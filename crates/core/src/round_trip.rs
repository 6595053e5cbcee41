//! How long a message and its answer take, as one side of a conversation has measured it.

use std::time::Duration;

/// The round trip assumed until one is measured.
const ASSUMED: Duration = Duration::from_millis(200);
/// A first answer that took longer says more about its sender than about the way.
const LONGEST_FIRST_SAMPLE: Duration = Duration::from_secs(2);
/// And so does any answer, as far as it took longer than this.
const LONGEST_SAMPLE: Duration = Duration::from_secs(5);

/// An estimate that paces resends. The first answer replaces what was assumed, so that a quick network is known as one from the
/// start. Of later ones a slower one counts for half and a quicker one for an eighth: to resend late costs some time, to resend
/// before the answer can be there costs a race. It is never below what a message in the way has proved since.
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
            None if sample > self.estimate => {
                self.estimate.max((self.estimate + sample.min(LONGEST_SAMPLE)) / 2)
            }
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
        assert_eq!(trip.estimate(), MS * 12);
        trip.answered(MS * 4);
        assert_eq!(trip.estimate(), MS * 11);
    }

    #[test]
    fn a_slow_network_is_known_after_four_answers_and_one_long_pause_does_little() {
        let mut trip = RoundTrip::assumed();
        (0..4).for_each(|_| trip.answered(MS * 4_000));
        assert!(trip.estimate() * 9 / 8 > MS * 4_000, "{:?}", trip.estimate());
        trip.answered(MS * 60_000);
        assert!(trip.estimate() <= LONGEST_SAMPLE, "{:?}", trip.estimate());
        trip.at_least(MS * 7_000);
        trip.answered(MS * 60_000);
        assert_eq!(trip.estimate(), MS * 7_000);
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
        assert_eq!(slow.estimate(), (ASSUMED + LONGEST_SAMPLE) / 2);
        slow.answered(MS);
        assert_eq!(slow.estimate(), MS, "that was the first that measured something");
    }
}
