//! A node's own clock: it reads true time through an offset and a rate.

use std::time::Duration;

use centrifuge_core::time::Instant;

/// A clock that shows `offset` at the start of the world and counts `ticks` while true time counts `per`.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset: Duration,
    ticks: u64,
    per: u64,
}

impl Clock {
    /// A clock that shows true time.
    pub const TRUE: Clock = Clock { offset: Duration::ZERO, ticks: 1, per: 1 };

    /// A clock that is ahead by `offset` and runs as fast as true time.
    pub fn ahead_by(offset: Duration) -> Clock {
        Clock { offset, ..Clock::TRUE }
    }

    /// A clock that counts `ticks` while true time counts `per`.
    pub fn counting(ticks: u64, per: u64) -> Clock {
        Clock { ticks, per, ..Clock::TRUE }
    }

    /// What the clock shows at an instant of true time.
    pub fn read(self, time: Instant) -> Instant {
        Instant(scale(time.0, self.ticks, self.per, 0)) + self.offset
    }

    /// The first instant of true time at which the clock shows `shown`.
    pub fn when(self, shown: Instant) -> Instant {
        Instant(scale((shown - self.offset).0, self.per, self.ticks, self.ticks - 1))
    }
}

fn scale(nanos: u64, times: u64, by: u64, round: u64) -> u64 {
    let scaled = (u128::from(nanos) * u128::from(times) + u128::from(round)) / u128::from(by);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
