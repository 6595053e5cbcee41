//! How old a Lookup's knowledge is, and when it becomes too old.

use std::time::Duration;

use crate::injected_bug::{Bug, injected};
use crate::time::Instant;

/// Counts from the send of the latest request whose answer the Lookup has, or from its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Contact {
    /// When the latest request was sent as of which the Lookup knows everything.
    base: Option<Instant>,
    /// Until when leaders that learn the table excuse older knowledge.
    excused_until: Instant,
    /// When everything is next taken for lost; never before the start.
    alarm: Instant,
    /// What the application was last told; nothing at first.
    told: Option<bool>,
}

/// The alarm went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Alarm {
    /// The application has not been told yet that contact is lost.
    pub(super) is_first: bool,
}

impl Default for Contact {
    fn default() -> Contact {
        Contact { base: None, excused_until: Instant::ZERO, alarm: Instant::NEVER, told: None }
    }
}

impl Contact {
    /// Whether the Lookup was started.
    pub(super) fn is_watched(&self) -> bool {
        self.alarm != Instant::NEVER
    }

    /// Begins to count.
    pub(super) fn watch(&mut self, alarm: Instant) {
        self.alarm = alarm;
    }

    /// When everything is next taken for lost.
    pub(super) fn deadline(&self) -> Instant {
        self.alarm
    }

    /// Whether knowledge is young enough.
    pub(super) fn is_kept(&self, now: Instant, timeout: Duration) -> bool {
        self.base.is_some_and(|base| now < self.end(base, timeout))
    }

    fn end(&self, base: Instant, timeout: Duration) -> Instant {
        (base + timeout).max(self.excused_until)
    }

    /// Everything is known as of `base`. True if the application is to be told that contact is regained.
    pub(super) fn keep(&mut self, now: Instant, base: Instant, timeout: Duration) -> bool {
        if self.base.is_none_or(|known| known < base) {
            self.base = Some(base);
            self.excused_until = Instant::ZERO;
        }
        self.watch_on(now, timeout)
    }

    /// A leader that learns the table, which takes it `hold` at most, answered a request of `asked`. It knows of no change, and
    /// excuses knowledge that is so much older than usual: however many leaders do so in a row.
    pub(super) fn excuse(&mut self, now: Instant, asked: Instant, timeout: Duration, hold: Duration) -> bool {
        let Some(base) = self.base else { return false };
        let for_ever = injected(Bug::UnchangedExcusesForEver);
        let latest = if for_ever { Instant::NEVER } else { base + timeout + hold };
        let end = (asked + timeout).min(latest);
        self.excused_until = self.excused_until.max(end);
        self.watch_on(now, timeout)
    }

    /// Puts the alarm off if knowledge is young enough; says whether the application is to be told of contact.
    fn watch_on(&mut self, now: Instant, timeout: Duration) -> bool {
        if !self.is_kept(now, timeout) {
            return false;
        }
        self.alarm = self.base.map_or(self.alarm, |base| self.end(base, timeout));
        self.told.replace(true) != Some(true)
    }

    /// Nobody knows how old knowledge is: the alarm is due.
    pub(super) fn lose(&mut self, now: Instant) {
        self.base = None;
        if self.is_watched() {
            self.alarm = now;
        }
    }

    /// Raises the alarm if it is due, and sets the next.
    pub(super) fn expire(&mut self, now: Instant, timeout: Duration) -> Option<Alarm> {
        if now < self.alarm {
            return None;
        }
        self.alarm = now + timeout;
        Some(Alarm { is_first: self.told.replace(false) != Some(false) })
    }
}
