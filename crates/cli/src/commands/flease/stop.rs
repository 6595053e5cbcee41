//! When a command that runs under a lease is told to stop, and when it is killed.

use std::time::Duration;

/// What to do to the command now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing, and look again after this long.
    Run(Duration),
    /// Tell it to stop (SIGTERM).
    Stop,
    /// End it (SIGKILL).
    Kill,
}

/// How much of the lease is left for the command to stop in, and for the kernel to end it in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// With so much of the lease left the command is told to stop. Renewals fail for a while by then.
    pub(super) grace: Duration,
    /// With so much of it left the command is killed, so that it is gone when the lease ends.
    pub(super) margin: Duration,
}

impl Patience {
    /// A holder renews at half of the lease, so that a quarter is missed only after many attempts.
    pub(super) fn new(lease: Duration, grace: Option<Duration>) -> Patience {
        Patience { grace: grace.unwrap_or(lease / 4), margin: lease / 16 }
    }

    /// `rest` of the lease is left, and the command has been told to stop or not.
    pub(super) fn judge(&self, rest: Duration, was_told: bool) -> Verdict {
        if rest <= self.margin {
            Verdict::Kill
        } else if was_told {
            Verdict::Run(rest - self.margin)
        } else if rest <= self.grace {
            Verdict::Stop
        } else {
            Verdict::Run(rest - self.grace.max(self.margin))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_first_and_gone_before_the_lease() {
        let seconds = Duration::from_secs;
        let patience = Patience::new(seconds(16), None);
        assert_eq!(patience.judge(seconds(16), false), Verdict::Run(seconds(12)));
        assert_eq!(patience.judge(seconds(4), false), Verdict::Stop);
        assert_eq!(patience.judge(seconds(4), true), Verdict::Run(seconds(3)));
        assert_eq!(patience.judge(seconds(1), true), Verdict::Kill);
        assert_eq!(patience.judge(Duration::ZERO, false), Verdict::Kill, "the lease is over");
        assert_eq!(patience.judge(seconds(12), true), Verdict::Run(seconds(11)), "it was renewed after all");
    }
}
