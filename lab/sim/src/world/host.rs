//! What every node has: a process that may run, stand still or be gone, a clock, messages that wait, and a timer that rings
//! early, late or not at all while its process stands still, because no machine may trust it.

use std::collections::VecDeque;

use centrifuge_core::machine::Machine;
use centrifuge_core::time::Instant;

use crate::clock::Clock;

use super::{Event, Fault, Node, SECOND, TrueTime, World};

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
    /// It takes steps.
    Running,
    /// It stands still while its clock runs.
    Paused,
    /// It stands still, and its clock with it.
    Suspended { since: TrueTime },
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

/// Whose timer it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Timer {
    /// That of the machine at a node.
    Machine(Node),
    /// That of a Manager's part in the election.
    Election(usize),
}

impl Timer {
    fn node(self) -> Node {
        match self {
            Timer::Machine(node) => node,
            Timer::Election(manager) => Node::Manager(manager),
        }
    }
}

/// The same for the host of a node, of whichever kind its process is.
macro_rules! with_host {
    (&$world:ident, $node:expr, |$host:ident| $act:expr) => {
        with_host!(@ (&) $world, $node, $host, $act)
    };
    (&mut $world:ident, $node:expr, |$host:ident| $act:expr) => {
        with_host!(@ (&mut) $world, $node, $host, $act)
    };
    (@ ($($borrow:tt)+) $world:ident, $node:expr, $host:ident, $act:expr) => {
        match $node {
            Node::Manager(number) => { let $host = $($borrow)+ $world.managers[number]; $act }
            Node::Owner(number) => { let $host = $($borrow)+ $world.owners[number]; $act }
            Node::Lookup(number) => { let $host = $($borrow)+ $world.lookups[number]; $act }
        }
    };
}
pub(super) use with_host;

impl World {
    pub(super) fn read_clock(&self, node: Node) -> Instant {
        with_host!(&self, node, |host| host.clock.read(self.now))
    }

    pub(super) fn stands_still(&self, node: Node) -> bool {
        with_host!(&self, node, |host| host.stands_still())
    }

    pub(super) fn is_running(&self, node: Node) -> bool {
        with_host!(&self, node, |host| host.is_running())
    }

    pub(super) fn lives(&self, node: Node) -> bool {
        with_host!(&self, node, |host| host.process.is_some())
    }

    pub(super) fn life(&self, node: Node) -> u32 {
        with_host!(&self, node, |host| host.life)
    }

    pub(super) fn keep(&mut self, node: Node, event: Event) {
        with_host!(&mut self, node, |host| host.keep(event));
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        let (managers, owners, lookups) = (self.managers.len(), self.owners.len(), self.lookups.len());
        let managers = (0..managers).map(Node::Manager);
        managers.chain((0..owners).map(Node::Owner)).chain((0..lookups).map(Node::Lookup))
    }

    pub(super) fn running_nodes(&self) -> Vec<Node> {
        self.nodes().filter(|node| self.is_running(*node)).collect()
    }

    /// A timer rings: perhaps too early, perhaps late, because no machine may trust it.
    pub(super) fn ring(&mut self, timer: Timer, token: u32, late: bool) {
        let (now, stands_still) = (self.now, self.stands_still(timer.node()));
        match self.with_alarm(timer, |alarm| alarm.ring(token, now)).unwrap_or(Ring::Stale) {
            Ring::Stale => {}
            Ring::Again(at) => self.plan_ring(timer, at, false),
            // It is found overdue when the process goes on.
            Ring::Due if stands_still => {}
            Ring::Due if !late && self.is_late() => {
                let at = now.0 + self.rng.spread(1_000, self.plan.late_wakes.1);
                if let Timer::Machine(node) = timer {
                    self.show_disturbance(node, at);
                }
                self.with_alarm(timer, |alarm| alarm.plan_at(at));
                self.plan_ring(timer, at, true);
            }
            Ring::Due => self.wake(timer),
        }
    }

    fn is_late(&mut self) -> bool {
        let late = self.faults_happen && self.rng.chance(self.plan.late_wakes.0);
        if late {
            self.tally.count(Fault::LateWake);
        }
        late
    }

    pub(super) fn plan_ring(&mut self, timer: Timer, at: u64, late: bool) {
        let Some(token) = self.with_alarm(timer, |alarm| alarm.token()) else { return };
        let event = match timer {
            Timer::Machine(node) => Event::Wake { node, token, late },
            Timer::Election(manager) => {
                Event::ElectionWake { manager, life: self.managers[manager].life, token, late }
            }
        };
        self.queue.push(at, event);
    }

    fn wake(&mut self, timer: Timer) {
        self.with_alarm(timer, Alarm::clear);
        match timer {
            Timer::Machine(Node::Manager(number)) => self.feed_manager(number, None),
            Timer::Machine(Node::Owner(number)) => self.feed_owner(number, None),
            Timer::Machine(Node::Lookup(number)) => self.feed_lookup(number, None),
            Timer::Election(manager) => self.step_election(manager, |machine, now| machine.on_wake(now)),
        }
    }

    /// A wake that comes before its time must change nothing.
    pub(super) fn wake_somebody_early(&mut self) {
        let next = self.now.0 + self.rng.between(5 * SECOND, 30 * SECOND);
        self.queue.push(next, Event::WakeEarly);
        let nodes = self.running_nodes();
        let Some(node) = self.rng.pick_any(&nodes) else { return };
        let wanted = with_host!(&self, node, |host| host.alarm.wanted());
        if wanted.is_some_and(|wanted| self.read_clock(node) < wanted) {
            self.tally.count(Fault::EarlyWake);
            self.wake_early(node, wanted);
        }
    }

    pub(super) fn with_alarm<T>(&mut self, timer: Timer, act: impl FnOnce(&mut Alarm) -> T) -> Option<T> {
        match timer {
            Timer::Machine(node) => Some(with_host!(&mut self, node, |host| act(&mut host.alarm))),
            Timer::Election(manager) => {
                let process = self.managers[manager].process.as_mut()?;
                Some(act(&mut process.election.as_mut()?.alarm))
            }
        }
    }

    /// Wakes a machine before the time it asked for, and accuses it if it does anything.
    fn wake_early(&mut self, node: Node, wanted: Option<Instant>) {
        let local = self.read_clock(node);
        let (actions, wake) = with_host!(&mut self, node, |host| {
            let Some(process) = &mut host.process else { return };
            let output = process.machine.on_wake(local);
            (output.actions.len(), output.wake)
        });
        if actions > 0 || wake != wanted {
            let what =
                format!("{node:?}, woken at {local} before {wanted:?}, wants {actions} actions and {wake:?}");
            self.witness.accuse(self.now, "early wake", what);
        }
    }

    /// Rings the timers of a node that should have rung while its process stood still, or sees that they ring in time.
    pub(super) fn catch_up(&mut self, node: Node) {
        let now = self.now;
        if !self.is_running(node) {
            return;
        }
        let is_overdue = |alarm: &mut Alarm| alarm.is_overdue(now);
        if let Node::Manager(number) = node
            && self.with_alarm(Timer::Election(number), is_overdue) == Some(true)
        {
            self.wake(Timer::Election(number));
        }
        let timer = Timer::Machine(node);
        if self.with_alarm(timer, is_overdue) == Some(true) {
            self.wake(timer);
        } else if let Some(at) = self.with_alarm(timer, |alarm| alarm.plan()).flatten() {
            self.plan_ring(timer, at, false);
        }
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
