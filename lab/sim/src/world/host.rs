//! What every node has: a process that may run, stand still or be gone, a clock, a timer, and messages that wait.

use std::collections::VecDeque;

use centrifuge_core::time::Instant;

use crate::clock::Clock;
use crate::seen::TrueTime;
use crate::world::queue::Event;

/// The most events that wait for a process that stands still; what comes then is lost.
const MOST_WAITING: usize = 256;

/// One node.
#[derive(Debug)]
pub(crate) struct Host<P> {
    /// What runs there; `None`: nothing.
    pub(crate) process: Option<P>,
    /// How many processes have run there, so that what was meant for one does not reach the next.
    pub(crate) life: u32,
    pub(crate) clock: Clock,
    pub(crate) condition: Condition,
    pub(crate) alarm: Alarm,
    waiting: VecDeque<Event>,
}

/// Whether a process takes steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Running,
    /// It stands still while its clock runs.
    Paused,
    /// It stands still, and its clock with it.
    Suspended {
        since: TrueTime,
    },
}

impl<P> Host<P> {
    pub(crate) fn new(clock: Clock) -> Host<P> {
        let alarm = Alarm::default();
        let waiting = VecDeque::new();
        Host { process: None, life: 0, clock, condition: Condition::Running, alarm, waiting }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some() && self.condition == Condition::Running
    }

    pub(crate) fn stands_still(&self) -> bool {
        self.condition != Condition::Running
    }

    /// Begins a process.
    pub(crate) fn start(&mut self, process: P) {
        self.life += 1;
        self.process = Some(process);
    }

    /// Ends the process, with all that waits for it.
    pub(crate) fn end(&mut self) -> Option<P> {
        self.waiting.clear();
        self.alarm.clear();
        self.condition = Condition::Running;
        self.process.take()
    }

    /// Keeps an event until the process goes on.
    pub(crate) fn keep(&mut self, event: Event) {
        if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back(event);
        }
    }

    /// Lets the process go on, and returns what waited for it.
    pub(crate) fn resume(&mut self, now: TrueTime) -> VecDeque<Event> {
        if let Condition::Suspended { since } = self.condition {
            self.clock.lost += now.0 - since.0;
            self.alarm.clear();
        }
        self.condition = Condition::Running;
        std::mem::take(&mut self.waiting)
    }
}

/// A node's one timer. Machines move it with every step, so a planned ring that comes too early is left in the queue
/// and plans the next when it rings.
#[derive(Debug)]
pub(crate) struct Alarm {
    wanted: Option<Instant>,
    /// When it should ring, in real time.
    due: u64,
    /// When the planned ring comes.
    planned: u64,
    token: u32,
}

/// What a ring means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// Nothing: another ring replaced it, or none is wanted any more.
    Stale,
    /// It came early; the next is to be planned for then.
    Again(u64),
    /// The machine wants to be woken.
    Due,
}

impl Default for Alarm {
    fn default() -> Alarm {
        Alarm { wanted: None, due: u64::MAX, planned: u64::MAX, token: 0 }
    }
}

impl Alarm {
    /// When the machine wants to be woken.
    pub(crate) fn wanted(&self) -> Option<Instant> {
        self.wanted
    }

    pub(crate) fn token(&self) -> u32 {
        self.token
    }

    /// Sets the timer; returns when a ring is to be planned, if none is planned in time.
    pub(crate) fn set(&mut self, wanted: Option<Instant>, clock: &Clock, now: TrueTime) -> Option<u64> {
        if wanted == self.wanted {
            return None;
        }
        self.set_due(wanted, wanted.map_or(u64::MAX, |local| clock.when(local).0.max(now.0)))
    }

    /// The same for a clock that turns: it is `due` then.
    pub(crate) fn set_due(&mut self, wanted: Option<Instant>, due: u64) -> Option<u64> {
        (self.wanted, self.due) = (wanted, due);
        self.plan()
    }

    /// Returns when a ring is to be planned, if none is planned in time.
    pub(crate) fn plan(&mut self) -> Option<u64> {
        if self.due >= self.planned {
            return None;
        }
        self.plan_at(self.due);
        Some(self.due)
    }

    /// Replaces the planned ring.
    pub(crate) fn plan_at(&mut self, at: u64) {
        self.planned = at;
        self.token = self.token.wrapping_add(1);
    }

    /// Takes a ring.
    pub(crate) fn ring(&mut self, token: u32, now: TrueTime) -> Ring {
        if token != self.token {
            return Ring::Stale;
        }
        self.planned = u64::MAX;
        match self.due {
            u64::MAX => Ring::Stale,
            due if due > now.0 => {
                self.plan_at(due);
                Ring::Again(due)
            }
            _ => Ring::Due,
        }
    }

    /// Whether the machine should have been woken by now.
    pub(crate) fn is_overdue(&self, now: TrueTime) -> bool {
        self.due <= now.0
    }

    /// Forgets the machine's wish, because it is being woken or is gone.
    pub(crate) fn clear(&mut self) {
        self.wanted = None;
        self.due = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCK: Clock = Clock { offset: 100, numerator: 1, denominator: 1, lost: 0 };

    #[test]
    fn a_timer_that_moves_back_rings_once_and_then_in_time() {
        let mut alarm = Alarm::default();
        assert_eq!(alarm.set(Some(Instant(150)), &CLOCK, TrueTime(0)), Some(50));
        let first = alarm.token();
        assert_eq!(alarm.set(Some(Instant(180)), &CLOCK, TrueTime(10)), None);
        assert_eq!(alarm.ring(first, TrueTime(50)), Ring::Again(80));
        assert_eq!(alarm.ring(alarm.token(), TrueTime(80)), Ring::Due);
    }

    #[test]
    fn a_timer_that_moves_forward_replaces_the_planned_ring() {
        let mut alarm = Alarm::default();
        alarm.set(Some(Instant(150)), &CLOCK, TrueTime(0));
        let first = alarm.token();
        assert_eq!(alarm.set(Some(Instant(120)), &CLOCK, TrueTime(0)), Some(20));
        assert_eq!(alarm.ring(first, TrueTime(50)), Ring::Stale);
        alarm.clear();
        assert_eq!(alarm.ring(alarm.token(), TrueTime(20)), Ring::Stale);
    }

    #[test]
    fn a_suspended_clock_stands_still() {
        let mut host: Host<()> = Host::new(CLOCK);
        host.start(());
        host.condition = Condition::Suspended { since: TrueTime(10) };
        host.keep(Event::Tend);
        assert_eq!(host.resume(TrueTime(50)).len(), 1);
        assert_eq!(host.clock.read(TrueTime(50)), Instant(110));
        assert!(host.is_running());
    }
}
