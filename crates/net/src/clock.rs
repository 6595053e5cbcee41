//! The clock of real nodes: boot time, and whether the machine was paused without it.

use std::time::Duration;

use centrifuge_core::time::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Reads CLOCK_BOOTTIME, which goes on while a machine sleeps: a lease must not stand still.
#[must_use]
#[inline(always)]
pub fn now() -> Instant {
    Instant(skewed(Reading::Boot, nanos(clock_gettime(ClockId::Boottime))))
}

/// Wall time minus boot time. It moves when somebody sets the wall clock, or when the machine was paused or restored in
/// a way that boot time does not show. Coarse, so that a check costs little beside the reading of the clock itself.
#[must_use]
#[inline]
pub fn wall_offset(now: Instant) -> i64 {
    wall().wrapping_sub(now.0.cast_signed())
}

/// Boot time, and wall time minus boot time. The wall clock is read first, while what was begun before is under way: boot
/// time is not read before that has ended.
#[must_use]
#[inline(always)]
pub fn now_and_wall_offset() -> (Instant, i64) {
    let wall = wall();
    let now = now();
    (now, wall.wrapping_sub(now.0.cast_signed()))
}

/// Wall time, coarsely.
#[inline(always)]
fn wall() -> i64 {
    skewed(Reading::Wall, nanos(clock_gettime(ClockId::RealtimeCoarse))).cast_signed()
}

/// Boot time before and after, and between them wall time to the nanosecond: what two clocks say of one moment.
pub(crate) fn wall_between() -> (Instant, u64, Instant) {
    let before = now();
    let wall = skewed(Reading::Wall, nanos(clock_gettime(ClockId::Realtime)));
    (before, wall, now())
}

/// For how long the machine has been suspended since its boot; a little more if this process was held up in between.
pub(crate) fn suspended() -> u64 {
    let monotonic = nanos(clock_gettime(ClockId::Monotonic));
    nanos(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic)
}

/// The two clocks that are read.
#[derive(Clone, Copy)]
enum Reading {
    Boot,
    Wall,
}

/// Whether this program's clocks can be made wrong.
pub const CAN_BE_WRONG: bool = cfg!(feature = "clock-rate");

/// A clock is what it is, except in builds that are meant to find out what happens if it is wrong.
#[cfg(not(feature = "clock-rate"))]
#[inline(always)]
fn skewed(_: Reading, nanos: u64) -> u64 {
    nanos
}

#[cfg(feature = "clock-rate")]
mod step;
#[cfg(feature = "clock-rate")]
mod wander;
#[cfg(feature = "clock-rate")]
pub use rate::set_rate;
#[cfg(feature = "clock-rate")]
pub use step::step_wall;
#[cfg(feature = "clock-rate")]
pub use wander::{Astray, Wander, set_wander};

/// ... and there it runs too fast or too slow, or wanders, or is set, or does nothing of it.
#[cfg(feature = "clock-rate")]
#[inline(always)]
fn skewed(reading: Reading, nanos: u64) -> u64 {
    step::stepped(reading, wander::wandered(reading, rate::skewed(reading, nanos)))
}

/// A clock that runs too fast or too slow, for tests with real processes alone: only `centrifuge-chaos` enables it.
///
/// Both clocks run at the same wrong rate, as those of a machine with a bad oscillator do. Timers sleep by the true one, so that
/// a wake can come late by the difference; nothing trusts a timer to come in time.
#[cfg(feature = "clock-rate")]
mod rate {
    use std::sync::OnceLock;

    use rustix::time::{ClockId, clock_gettime};

    use super::{Reading, nanos};

    static RATE: OnceLock<Rate> = OnceLock::new();

    /// How wrong the clocks are, and since when.
    struct Rate {
        ppm: i32,
        boot: u64,
        wall: u64,
    }

    /// From now on this process's clocks gain so many microseconds in every second, or lose them. To be called once, before
    /// anything reads a clock; says whether it took effect.
    pub fn set_rate(ppm: i32) -> bool {
        let boot = nanos(clock_gettime(ClockId::Boottime));
        let wall = nanos(clock_gettime(ClockId::RealtimeCoarse));
        RATE.set(Rate { ppm, boot, wall }).is_ok()
    }

    pub(super) fn skewed(reading: Reading, nanos: u64) -> u64 {
        RATE.get().map_or(nanos, |rate| rate.apply(reading, nanos))
    }

    impl Rate {
        fn apply(&self, reading: Reading, nanos: u64) -> u64 {
            let since = match reading {
                Reading::Boot => self.boot,
                Reading::Wall => self.wall,
            };
            let passed = i128::from(nanos) - i128::from(since);
            let gained = passed * i128::from(self.ppm) / 1_000_000;
            u64::try_from(i128::from(nanos) + gained).unwrap_or(nanos)
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn both_clocks_are_wrong_alike() {
            let second = 1_000_000_000;
            let fast = Rate { ppm: 40_000, boot: 5 * second, wall: 100 * second };
            assert_eq!(fast.apply(Reading::Boot, 5 * second), 5 * second, "it was right when it began");
            assert_eq!(fast.apply(Reading::Boot, 6 * second), 6 * second + 40_000_000);
            assert_eq!(fast.apply(Reading::Wall, 101 * second), 101 * second + 40_000_000);
            let slow = Rate { ppm: -500_000, ..fast };
            assert_eq!(slow.apply(Reading::Boot, 7 * second), 6 * second);
        }
    }
}

/// Nanoseconds of a clock that counts from its origin.
#[inline]
fn nanos(reading: Timespec) -> u64 {
    reading.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(reading.tv_nsec.cast_unsigned())
}

/// Notices that wall time minus boot time has moved by more than a slack since any moment that is at most a span ago: whatever
/// was begun within the span counts from clocks that have not parted since (protocol §4.17). Small steps add up within the span,
/// in either direction, and not for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JumpWatch {
    slack: u64,
    span: Duration,
    /// What was seen since `since`, and in the span before that.
    recent: Offsets,
    before: Offsets,
    since: Instant,
}

/// The lowest and the highest offset of some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offsets {
    low: i64,
    high: i64,
}

impl Offsets {
    fn one(offset: i64) -> Offsets {
        Offsets { low: offset, high: offset }
    }

    fn with(self, offset: i64) -> Offsets {
        Offsets { low: self.low.min(offset), high: self.high.max(offset) }
    }

    fn farthest_from(self, offset: i64) -> u64 {
        self.low.abs_diff(offset).max(self.high.abs_diff(offset))
    }
}

impl JumpWatch {
    /// Watches from the clocks as they are now.
    #[must_use]
    pub fn new(slack: Duration, span: Duration) -> JumpWatch {
        let now = now();
        JumpWatch::at(now, wall_offset(now), slack, span)
    }

    fn at(now: Instant, offset: i64, slack: Duration, span: Duration) -> JumpWatch {
        let slack = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
        let seen = Offsets::one(offset);
        JumpWatch { slack, span, recent: seen, before: seen, since: now }
    }

    /// Says once that the clocks have moved, and watches on from where they are now.
    pub fn take_jump(&mut self, now: Instant) -> bool {
        self.take_jump_to(now, wall_offset(now))
    }

    fn take_jump_to(&mut self, now: Instant, offset: i64) -> bool {
        let jumped = self.recent.farthest_from(offset).max(self.before.farthest_from(offset));
        if jumped > self.slack {
            (self.recent, self.before, self.since) = (Offsets::one(offset), Offsets::one(offset), now);
            return true;
        }
        if now >= self.since + self.span {
            (self.before, self.recent, self.since) = (self.recent, Offsets::one(offset), now);
        }
        self.recent = self.recent.with(offset);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// A watch that allows a second within a minute, and has seen the clocks together at the start.
    fn watch() -> impl FnMut(u64, i64) -> bool {
        let mut watch = JumpWatch::at(Instant(0), 0, Duration::from_secs(1), Duration::from_secs(60));
        move |seconds, offset| watch.take_jump_to(Instant(seconds * SECOND.cast_unsigned()), offset)
    }

    #[test]
    fn a_watch_tells_a_jump_once() {
        let mut jumps_at = watch();
        assert!(!jumps_at(1, 0) && !jumps_at(2, SECOND), "within the slack");
        assert!(jumps_at(3, 2 * SECOND));
        assert!(!jumps_at(4, 2 * SECOND) && !jumps_at(5, 3 * SECOND));
        assert!(jumps_at(6, 0), "back is a jump as well");
    }

    #[test]
    fn a_pause_after_a_step_back_counts_from_the_step() {
        let mut jumps_at = watch();
        assert!(!jumps_at(1, -SECOND * 9 / 10), "somebody set the wall clock back by less than the slack");
        assert!(jumps_at(30, SECOND * 9 / 10), "what was begun after it has been paused for 1.8 s");
    }

    #[test]
    fn steps_add_up_within_a_span_and_not_for_ever() {
        let mut jumps_at = watch();
        assert!(!jumps_at(10, SECOND * 6 / 10) && jumps_at(50, SECOND * 12 / 10));
        let mut jumps_at = watch();
        for minute in 1..100 {
            let offset = i64::try_from(minute).expect("small") * SECOND * 3 / 10;
            assert!(!jumps_at(minute * 60, offset), "minute {minute}");
        }
    }

    #[test]
    fn a_real_clock_does_not_jump_by_itself() {
        let mut watch = JumpWatch::new(Duration::from_secs(10), Duration::from_secs(60));
        assert!(!watch.take_jump(now()));
    }

    #[test]
    fn the_clock_does_not_go_backwards() {
        let first = now();
        assert!(now() >= first);
    }
}
