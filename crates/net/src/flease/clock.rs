//! The clock of a Flease peer: wall time as the machine's operator keeps it, counted on by boot time.
//!
//! Peers share nothing but wall time. It may be set at any moment, so it is read once, and boot time counts on from there: the
//! two differ by an offset that stays, because both follow the same corrections of rate. When they part all the same, somebody
//! set the clock, or the machine was paused in a way that boot time does not show. After a suspension both may be wrong alike, by
//! what the battery's clock is. Each is a jump: the peer then gives up all it has and begins anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use centrifuge_core::time::Instant;

use crate::clock;
use crate::driver::Clock;

/// Clocks that part by more than this share of epsilon have jumped. Two peers may each be off by it, so that half of epsilon
/// is left for how well the machines' clocks are kept.
const SLACK_OF_EPSILON: u32 = 4;
/// The coarse wall clock may be behind by this much.
const COARSE: u64 = 10_000_000;
/// A reading of both clocks that takes longer is taken again, a few times.
const TIGHT: u64 = 50_000;
const MAX_READINGS: usize = 5;

/// One reading of the machine's clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockReading {
    boot: u64,
    wall: u64,
    suspended: u64,
    /// How long the reading took: no reading is more certain than that.
    took: u64,
}

impl ClockReading {
    /// The quickest of a few readings, or the first that is quick enough.
    fn of_machine() -> ClockReading {
        let mut best: Option<ClockReading> = None;
        for _ in 0..MAX_READINGS {
            let (before, wall, boot) = clock::wall_between();
            let suspended = clock::suspended();
            let took = clock::now().since(before).as_nanos().try_into().unwrap_or(u64::MAX);
            let reading = ClockReading { boot: boot.0, wall, suspended, took };
            if best.is_none_or(|best| took < best.took) {
                best = Some(reading);
            }
            if took <= TIGHT {
                break;
            }
        }
        best.unwrap_or(ClockReading { boot: 0, wall: 0, suspended: 0, took: 0 })
    }

    fn offset(&self) -> i64 {
        self.wall.cast_signed().wrapping_sub(self.boot.cast_signed())
    }
}

/// What a peer's clock adds to boot time. Cheap to clone; clones follow the clock.
#[derive(Clone, Debug)]
pub struct Offset {
    nanos: Arc<AtomicI64>,
    /// How far the peer's clock is set ahead of the machine's.
    ahead: i64,
    slack: u64,
}

impl Offset {
    /// The peer's time now.
    #[must_use]
    pub fn now(&self) -> Instant {
        shift(clock::now().0, self.nanos.load(Ordering::Relaxed))
    }
}

fn shift(boot: u64, offset: i64) -> Instant {
    Instant(boot.saturating_add_signed(offset))
}

/// The `now` of a Flease peer, in nanoseconds since 1970.
#[derive(Debug)]
pub struct SyncedClock {
    offset: Offset,
    suspended: u64,
    last: Instant,
    source: fn() -> ClockReading,
}

impl SyncedClock {
    /// Takes the time from the machine's wall clock as it is now. `ahead` is added to that, for peers whose machine is known to be
    /// off, and for tests.
    #[must_use]
    pub fn new(epsilon: Duration, ahead: i64) -> SyncedClock {
        SyncedClock::with_source(epsilon, ahead, ClockReading::of_machine)
    }

    fn with_source(epsilon: Duration, ahead: i64, source: fn() -> ClockReading) -> SyncedClock {
        let slack = u64::try_from((epsilon / SLACK_OF_EPSILON).as_nanos()).unwrap_or(u64::MAX);
        let offset = Offset { nanos: Arc::default(), ahead, slack };
        let mut clock = SyncedClock { offset, suspended: 0, last: Instant::ZERO, source };
        let reading = source();
        clock.follow(&reading);
        clock.last = clock.shows(&reading);
        clock
    }

    /// What readers on other threads need to know of the clock.
    #[must_use]
    pub fn offset(&self) -> Offset {
        self.offset.clone()
    }

    fn follow(&mut self, reading: &ClockReading) {
        let offset = reading.offset().saturating_add(self.offset.ahead);
        self.offset.nanos.store(offset, Ordering::Relaxed);
        self.suspended = reading.suspended;
    }

    fn shows(&self, reading: &ClockReading) -> Instant {
        shift(reading.boot, self.offset.nanos.load(Ordering::Relaxed))
    }

    /// A reading that took long proves less.
    fn has_jumped(&self, reading: &ClockReading) -> bool {
        let offset = self.offset.nanos.load(Ordering::Relaxed).saturating_sub(self.offset.ahead);
        let certain = self.offset.slack.saturating_add(reading.took);
        offset.abs_diff(reading.offset()) > certain || self.suspended.abs_diff(reading.suspended) > certain
    }
}

impl Clock for SyncedClock {
    /// After a step back the clock stands still until its time has come again: what it showed once it never takes back. All
    /// that while the machine recovers and holds nothing, because it has just heard of the jump.
    fn read(&mut self) -> (Instant, bool) {
        let reading = (self.source)();
        let has_jumped = self.has_jumped(&reading);
        if has_jumped {
            self.follow(&reading);
        }
        self.last = self.last.max(self.shows(&reading));
        (self.last, has_jumped)
    }

    fn rest(&self, wake: Instant) -> Duration {
        if wake <= self.last { Duration::ZERO } else { wake.since(self.offset.now()) }
    }
}

/// Until when something holds, for readers on other threads: they compare the clocks themselves, and wait for nobody.
#[derive(Debug)]
pub struct Deadline {
    /// By boot time; zero once it does not hold any more.
    until: AtomicU64,
    offset: i64,
    machine_offset: i64,
    slack: u64,
}

impl Deadline {
    /// Holds until `until` by the peer's clock as it is now. A clock that jumps ends it.
    #[must_use]
    pub fn new(until: Instant, offset: &Offset) -> Deadline {
        let nanos = offset.nanos.load(Ordering::Relaxed);
        Deadline {
            until: AtomicU64::new(shift(until.0, nanos.saturating_neg()).0),
            offset: nanos,
            machine_offset: nanos.saturating_sub(offset.ahead),
            slack: offset.slack.saturating_add(COARSE),
        }
    }

    /// Holds until a later time, unless it was ended.
    pub fn extend(&self, until: Instant) {
        let until = shift(until.0, self.offset.saturating_neg()).0;
        // What was ended stays so.
        let _ =
            self.until.fetch_update(Ordering::Release, Ordering::Relaxed, |old| (old != 0).then_some(until));
    }

    /// Does not hold from now on, and never again.
    pub fn end(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// Whether it holds now: an atomic read, and two readings of clocks after it.
    #[must_use]
    #[inline]
    pub fn holds(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        let (now, offset) = clock::now_and_wall_offset();
        now.0 < until && (self.is_near(offset, 0) || self.holds_surely(until))
    }

    /// How long it still holds, if it does.
    #[must_use]
    pub fn rest(&self) -> Duration {
        let until = self.until.load(Ordering::Acquire);
        if self.holds() { Instant(until).since(clock::now()) } else { Duration::ZERO }
    }

    #[inline]
    fn is_near(&self, offset: i64, took: u64) -> bool {
        offset.abs_diff(self.machine_offset) <= self.slack.saturating_add(took)
    }

    /// The clocks seem to have parted. Perhaps this thread was only held up between the two readings.
    #[cold]
    fn holds_surely(&self, until: u64) -> bool {
        let reading = ClockReading::of_machine();
        reading.boot < until && self.is_near(reading.offset(), reading.took)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const MS: u64 = 1_000_000;
    const EPSILON: Duration = Duration::from_millis(400);
    /// A moment in 2026.
    const WALL: u64 = 1_790_000_000_000_000_000;

    thread_local! {
        static READING: Cell<ClockReading> = const { Cell::new(ClockReading { boot: 0, wall: 0, suspended: 0, took: 0 }) };
    }

    fn set(boot: u64, wall: u64, suspended: u64, took: u64) {
        READING.set(ClockReading {
            boot: boot * MS,
            wall: WALL + wall * MS,
            suspended: suspended * MS,
            took: took * MS,
        });
    }

    fn start() -> SyncedClock {
        set(1_000, 5_000, 0, 0);
        SyncedClock::with_source(EPSILON, 0, || READING.get())
    }

    fn at(ms: u64) -> Instant {
        Instant(WALL + ms * MS)
    }

    #[test]
    fn it_is_wall_time_counted_on_by_boot_time() {
        let mut clock = start();
        set(3_000, 7_000, 0, 0);
        assert_eq!(clock.read(), (at(7_000), false));
        // The wall clock was set by less than it may be wrong anyway: boot time counts on.
        set(4_000, 8_090, 0, 0);
        assert_eq!(clock.read(), (at(8_000), false));
    }

    #[test]
    fn a_clock_that_was_set_has_jumped_once() {
        let mut clock = start();
        set(2_000, 6_101, 0, 0);
        assert_eq!(clock.read(), (at(6_101), true), "forward, by more than a quarter of epsilon");
        set(3_000, 7_101, 0, 0);
        assert_eq!(clock.read(), (at(7_101), false), "and it counts on from there");
    }

    #[test]
    fn small_steps_add_up_to_a_jump() {
        let mut clock = start();
        set(2_000, 6_060, 0, 0);
        assert_eq!(clock.read(), (at(6_000), false));
        set(3_000, 7_120, 0, 0);
        assert_eq!(clock.read(), (at(7_120), true), "compared with the start, not with the last reading");
    }

    #[test]
    fn after_a_step_back_it_stands_still_and_never_goes_backwards() {
        let mut clock = start();
        set(2_000, 4_000, 0, 0);
        assert_eq!(clock.read(), (at(5_000), true), "it showed as much at its start at the least");
        set(2_500, 4_500, 0, 0);
        assert_eq!(clock.read(), (at(5_000), false));
        set(3_500, 5_500, 0, 0);
        assert_eq!(clock.read(), (at(5_500), false), "its time has come again");
    }

    #[test]
    fn a_suspension_is_a_jump_though_both_clocks_counted_it() {
        let mut clock = start();
        set(62_000, 66_000, 60_000, 0);
        assert_eq!(clock.read(), (at(66_000), true));
        set(63_000, 67_000, 60_000, 0);
        assert_eq!(clock.read(), (at(67_000), false));
    }

    #[test]
    fn a_look_that_took_long_proves_nothing() {
        let mut clock = start();
        set(2_000, 5_800, 0, 250);
        assert_eq!(clock.read(), (at(6_000), false), "perhaps the process was held up between its readings");
        set(3_000, 6_800, 0, 0);
        assert_eq!(clock.read(), (at(6_800), true));
    }

    #[test]
    fn the_machines_own_clocks_do_not_jump_and_do_not_go_back() {
        let mut clock = SyncedClock::new(Duration::from_secs(3_600), 0);
        let (first, _) = clock.read();
        let (second, has_jumped) = clock.read();
        assert!(second >= first && !has_jumped);
        let ahead = SyncedClock::new(Duration::from_secs(3_600), 10_000_000_000);
        assert!(ahead.offset().now() > clock.offset().now() + Duration::from_secs(9));
    }

    #[test]
    fn a_deadline_holds_until_its_time_or_until_it_is_ended() {
        let hour = Duration::from_secs(3_600);
        let offset = SyncedClock::new(hour, 10_000_000_000).offset();
        let past = Deadline::new(offset.now(), &offset);
        assert!(!past.holds() && past.rest().is_zero());
        let ahead = Deadline::new(offset.now() + hour, &offset);
        assert!(ahead.holds() && ahead.rest() > hour / 2 && ahead.rest() <= hour);
        ahead.end();
        ahead.extend(offset.now() + hour);
        assert!(!ahead.holds(), "what was ended stays so");
        let parted = Deadline { machine_offset: 0, slack: 0, ..Deadline::new(offset.now() + hour, &offset) };
        assert!(!parted.holds(), "the clock was set");
    }
}
