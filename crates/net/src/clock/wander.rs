//! A clock that wanders about true time, for tests with real processes alone: only `centrifuge-chaos` enables it.
//!
//! Boot time and wall time are wrong alike, as those of a machine whose clock is kept by somebody else: nothing in the process can
//! tell. Flease promises its leases while any two peers' clocks stay within epsilon, whichever way they wander in it.

use std::sync::OnceLock;

use rustix::time::{ClockId, clock_gettime};

use super::{Reading, nanos};

static WANDER: OnceLock<Begun> = OnceLock::new();

/// How a clock wanders. All in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Wander {
    /// How far it is ahead in the middle of its way to and fro,
    pub ahead: i64,
    /// ... and how far it swings from there to each side. A quarter of the period must be longer.
    pub swing: i64,
    /// How long it is on its way to and fro.
    pub period: u64,
    /// Once it goes further astray.
    pub astray: Option<Astray>,
}

/// A time at which a clock is wrong by more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Astray {
    /// From when, in true boot time; zero: from the start. A clock that does not go backwards can only then be behind.
    pub from: u64,
    /// Until when. What is ahead then goes at half speed until it is right again.
    pub until: u64,
    /// How much more it is ahead.
    pub ahead: i64,
}

struct Begun {
    wander: Wander,
    boot: u64,
    wall: u64,
}

/// From now on this process's clocks wander. To be called once, before anything reads a clock; says whether it took effect.
pub fn set_wander(wander: Wander) -> bool {
    let boot = nanos(clock_gettime(ClockId::Boottime));
    let wall = nanos(clock_gettime(ClockId::Realtime));
    WANDER.set(Begun { wander, boot, wall }).is_ok()
}

pub(super) fn wandered(reading: Reading, nanos: u64) -> u64 {
    WANDER.get().map_or(nanos, |begun| begun.apply(reading, nanos))
}

impl Begun {
    fn apply(&self, reading: Reading, nanos: u64) -> u64 {
        let boot = match reading {
            Reading::Boot => nanos,
            Reading::Wall => nanos.wrapping_sub(self.wall).wrapping_add(self.boot),
        };
        nanos.saturating_add_signed(self.wander.error_at(boot))
    }
}

impl Wander {
    /// How far the clock is ahead at a true boot time.
    #[must_use]
    pub fn error_at(&self, boot: u64) -> i64 {
        let period = self.period.max(4);
        let place = i128::from(boot % period) * 4;
        let (swing, whole) = (i128::from(self.swing), i128::from(period));
        // To and fro: up in the first half of a period, down in the second.
        let at =
            if place < whole * 2 { swing * (place - whole) } else { swing * (whole * 3 - place) } / whole;
        let astray = self.astray.map_or(0, |astray| astray.error_at(boot));
        self.ahead.saturating_add(i64::try_from(at).unwrap_or(0)).saturating_add(astray)
    }
}

impl Astray {
    fn error_at(&self, boot: u64) -> i64 {
        if boot < self.from {
            return 0;
        }
        let made_good = boot.saturating_sub(self.until) / 2;
        match self.ahead {
            ahead if boot < self.until => ahead,
            ahead if ahead > 0 => ahead.saturating_sub_unsigned(made_good).max(0),
            _ => 0,
        }
    }

    /// When the clock is where it belongs again, in true boot time.
    #[must_use]
    pub fn over_at(&self) -> u64 {
        self.until.saturating_add(u64::try_from(self.ahead).unwrap_or(0) * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn wander(astray: Option<Astray>) -> Wander {
        Wander { ahead: 10_000_000, swing: 90_000_000, period: 4_000 * MS, astray }
    }

    #[test]
    fn it_goes_to_and_fro_and_never_backwards() {
        let clock = wander(None);
        assert_eq!(clock.error_at(0), -80_000_000);
        assert_eq!(clock.error_at(1_000 * MS), 10_000_000);
        assert_eq!(clock.error_at(2_000 * MS), 100_000_000);
        assert_eq!(clock.error_at(3_000 * MS), 10_000_000);
        assert_eq!(clock.error_at(4_000 * MS), -80_000_000);
    }

    #[test]
    fn astray_it_is_ahead_at_once_and_comes_back_slowly() {
        let astray = Astray { from: 5_000 * MS, until: 15_000 * MS, ahead: 2_000_000_000 };
        let clock = wander(Some(astray));
        assert_eq!(clock.error_at(4_000 * MS), -80_000_000);
        assert_eq!(clock.error_at(8_000 * MS), 2_000_000_000 - 80_000_000);
        assert_eq!(clock.error_at(16_000 * MS), 1_500_000_000 - 80_000_000);
        assert_eq!((astray.over_at(), clock.error_at(20_000 * MS)), (19_000 * MS, -80_000_000));
        let mut last = 0;
        for boot in (0..30_000).map(|step| step * MS) {
            let now = Begun { wander: clock, boot: 0, wall: 0 }.apply(Reading::Boot, boot + 1_000 * MS);
            assert!(now > last);
            last = now;
        }
    }

    #[test]
    fn behind_it_is_right_again_at_once() {
        let clock = wander(Some(Astray { from: 0, until: 8_000 * MS, ahead: -1_000_000_000 }));
        assert_eq!(clock.error_at(4_000 * MS), -1_080_000_000);
        assert_eq!(clock.error_at(8_000 * MS), -80_000_000);
    }

    #[test]
    fn wall_time_is_wrong_as_boot_time_is() {
        let begun = Begun { wander: wander(None), boot: 1_000 * MS, wall: 900_000 * MS };
        assert_eq!(begun.apply(Reading::Boot, 2_000 * MS), 2_100 * MS);
        assert_eq!(begun.apply(Reading::Wall, 901_000 * MS), 901_100 * MS);
    }
}
