//! A peer's synchronised clock: it slews, and never leaves its half of epsilon around real time.

use centrifuge_core::time::Instant;

use super::TrueTime;

/// What every clock shows at the start of the run, give or take.
const ORIGIN: u64 = 1_000_000_000_000_000;

/// Shows real time plus an offset that moves towards a target at a steady rate and stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlewingClock {
    since: TrueTime,
    offset: i64,
    target: i64,
    /// The offset changes by one in this much real time: two or more, so that the clock always advances.
    slowness: u64,
}

impl SlewingClock {
    /// A clock with a steady offset, in nanoseconds.
    pub(crate) fn steady(offset: i64) -> SlewingClock {
        SlewingClock { since: TrueTime(0), offset, target: offset, slowness: 2 }
    }

    /// What it shows.
    pub(crate) fn read(&self, at: TrueTime) -> Instant {
        let shown = i128::from(ORIGIN) + i128::from(at.0) + i128::from(self.offset_at(at));
        Instant(u64::try_from(shown).expect("the origin is far from both ends"))
    }

    /// The first real instant at which it shows `local` or more, if it goes on as now.
    pub(crate) fn when(&self, local: Instant) -> TrueTime {
        let exact = local.0.saturating_sub(ORIGIN);
        let reach = self.offset.unsigned_abs().max(self.target.unsigned_abs()) + 1;
        let (mut early, mut late) =
            (exact.saturating_sub(reach).max(self.since.0), exact.saturating_add(reach));
        while early < late {
            let middle = early + (late - early) / 2;
            if self.read(TrueTime(middle)) < local { early = middle + 1 } else { late = middle }
        }
        TrueTime(early)
    }

    /// From `at` on the offset moves towards `target`.
    pub(crate) fn slew(&mut self, at: TrueTime, target: i64, slowness: u64) {
        *self = SlewingClock { since: at, offset: self.offset_at(at), target, slowness: slowness.max(2) };
    }

    fn offset_at(&self, at: TrueTime) -> i64 {
        let way = i64::try_from(at.0.saturating_sub(self.since.0) / self.slowness).unwrap_or(i64::MAX);
        if self.offset < self.target {
            self.offset.saturating_add(way).min(self.target)
        } else {
            self.offset.saturating_sub(way).max(self.target)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_slews_to_its_target_and_advances_all_the_way() {
        let mut clock = SlewingClock::steady(-500);
        clock.slew(TrueTime(1_000), 500, 2);
        let shows = |at| clock.read(TrueTime(at)).0 - ORIGIN;
        assert_eq!((shows(1_000), shows(2_000), shows(3_000), shows(9_000)), (500, 2_000, 3_500, 9_500));
        clock.slew(TrueTime(9_000), -500, 2);
        assert!((9_000..12_000).all(|at| clock.read(TrueTime(at)) <= clock.read(TrueTime(at + 1))));
    }

    #[test]
    fn a_reading_is_found_at_its_first_instant() {
        let mut clock = SlewingClock::steady(70);
        clock.slew(TrueTime(500), -70, 3);
        for at in [500, 501, 640, 900, 5_000] {
            let local = clock.read(TrueTime(at));
            let found = clock.when(local);
            assert!(found.0 <= at && clock.read(found) == local, "{at}");
            assert!(found.0 == 500 || clock.read(TrueTime(found.0 - 1)) < local, "{at}");
        }
    }
}
