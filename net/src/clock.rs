//! The clock of real nodes: boot time, and whether the machine was paused without it.

use std::time::Duration;

use centrifuge_core::time::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Reads CLOCK_BOOTTIME, which goes on while a machine sleeps: a lease must not stand still.
#[must_use]
#[inline]
pub fn now() -> Instant {
    Instant(nanos(clock_gettime(ClockId::Boottime)))
}

/// Wall time minus boot time. It moves when somebody sets the wall clock, or when the machine was paused or restored in
/// a way that boot time does not show. Coarse, so that a check costs little beside the reading of the clock itself.
#[must_use]
#[inline]
pub fn wall_offset(now: Instant) -> i64 {
    let wall = nanos(clock_gettime(ClockId::RealtimeCoarse));
    wall.cast_signed().wrapping_sub(now.0.cast_signed())
}

/// Nanoseconds of a clock that counts from its origin.
#[inline]
fn nanos(reading: Timespec) -> u64 {
    reading.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(reading.tv_nsec.cast_unsigned())
}

/// Notices that wall time minus boot time has moved by more than a slack (DESIGN §12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JumpWatch {
    offset: i64,
    slack: i64,
}

impl JumpWatch {
    /// Watches from the clocks as they are now.
    #[must_use]
    pub fn new(slack: Duration) -> JumpWatch {
        let slack = i64::try_from(slack.as_nanos()).unwrap_or(i64::MAX);
        JumpWatch { offset: wall_offset(now()), slack }
    }

    /// Whether the clocks have moved against each other since the watch began.
    #[must_use]
    pub fn has_jumped(&self, now: Instant) -> bool {
        self.is_beyond(wall_offset(now))
    }

    /// Says once that the clocks have moved, and watches on from where they are now.
    pub fn take_jump(&mut self, now: Instant) -> bool {
        let offset = wall_offset(now);
        let jumped = self.is_beyond(offset);
        if jumped {
            self.offset = offset;
        }
        jumped
    }

    fn is_beyond(&self, offset: i64) -> bool {
        offset.wrapping_sub(self.offset).unsigned_abs() > self.slack.unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_tells_a_jump_once() {
        let mut watch = JumpWatch::new(Duration::from_secs(1));
        assert!(!watch.take_jump(now()));
        watch.offset -= 2_000_000_000;
        assert!(watch.has_jumped(now()));
        assert!(watch.take_jump(now()));
        assert!(!watch.take_jump(now()));
    }

    #[test]
    fn the_clock_does_not_go_backwards() {
        let first = now();
        assert!(now() >= first);
    }
}
