//! Timers of nodes: they ring early, late or not at all while a process stands still, because no machine may trust them.

use centrifuge_core::machine::Machine;
use centrifuge_core::time::Instant;

use crate::seen::Node;
use crate::world::World;
use crate::world::host::{Alarm, Ring};
use crate::world::plan::SECOND;
use crate::world::queue::Event;
use crate::world::tally::Fault;

impl World {
    /// A node's timer rings: perhaps too early, perhaps late, because no machine may trust it.
    pub(super) fn ring(&mut self, node: Node, token: u32, late: bool) {
        let (now, stands_still) = (self.now, self.stands_still(node));
        let ring = self.with_alarm(node, |alarm| alarm.ring(token, now));
        match ring {
            Ring::Stale => {}
            Ring::Again(at) => self.plan_ring(node, at, false),
            // It is found overdue when the process goes on.
            Ring::Due if stands_still => {}
            Ring::Due if !late && self.is_late() => {
                let at = now.0 + self.rng.spread(1_000, self.plan.late_wakes.1);
                self.show_disturbance(node, at);
                self.with_alarm(node, |alarm| alarm.plan_at(at));
                self.plan_ring(node, at, true);
            }
            Ring::Due => self.wake(node),
        }
    }

    pub(super) fn is_late(&mut self) -> bool {
        let late = self.faults_happen && self.rng.chance(self.plan.late_wakes.0);
        if late {
            self.tally.count(Fault::LateWake);
        }
        late
    }

    pub(super) fn plan_ring(&mut self, node: Node, at: u64, late: bool) {
        let token = self.with_alarm(node, |alarm| alarm.token());
        self.queue.push(at, Event::Wake { node, token, late });
    }

    pub(super) fn wake(&mut self, node: Node) {
        self.with_alarm(node, Alarm::clear);
        match node {
            Node::Manager(number) => self.wake_manager(number),
            Node::Owner(number) => self.wake_owner(number),
            Node::Lookup(number) => self.wake_lookup(number),
        }
    }

    /// A wake that comes before its time must change nothing.
    pub(super) fn wake_somebody_early(&mut self) {
        let next = self.now.0 + self.rng.between(5 * SECOND, 30 * SECOND);
        self.queue.push(next, Event::WakeEarly);
        let nodes = self.running_nodes();
        if nodes.is_empty() {
            return;
        }
        let node = self.rng.pick(&nodes);
        let wanted = self.with_alarm(node, |alarm| alarm.wanted());
        if wanted.is_some_and(|wanted| self.read_clock(node) < wanted) {
            self.tally.count(Fault::EarlyWake);
            self.wake_early(node, wanted);
        }
    }

    pub(super) fn with_alarm<T>(&mut self, node: Node, act: impl FnOnce(&mut Alarm) -> T) -> T {
        act(match node {
            Node::Manager(number) => &mut self.managers[number].alarm,
            Node::Owner(number) => &mut self.owners[number].alarm,
            Node::Lookup(number) => &mut self.lookups[number].alarm,
        })
    }

    /// Wakes a machine before the time it asked for, and accuses it if it does anything.
    fn wake_early(&mut self, node: Node, wanted: Option<Instant>) {
        let local = self.read_clock(node);
        let (actions, wake) = match node {
            Node::Manager(number) => {
                let Some(process) = &mut self.managers[number].process else { return };
                let output = process.machine.on_wake(local);
                (output.actions.len(), output.wake)
            }
            Node::Owner(number) => {
                let Some(process) = &mut self.owners[number].process else { return };
                let output = process.machine.on_wake(local);
                (output.actions.len(), output.wake)
            }
            Node::Lookup(number) => {
                let Some(process) = &mut self.lookups[number].process else { return };
                let output = process.machine.on_wake(local);
                (output.actions.len(), output.wake)
            }
        };
        if actions > 0 || wake != wanted {
            let what =
                format!("{node:?}, woken at {local} before {wanted:?}, wants {actions} actions and {wake:?}");
            self.witness.accuse(self.now, "early wake", what);
        }
    }

    /// Rings a timer that should have rung while the process stood still, or sees that it rings in time.
    pub(super) fn catch_up(&mut self, node: Node) {
        let now = self.now;
        if !self.is_running(node) {
            return;
        }
        if let Node::Manager(number) = node {
            self.catch_up_election(number);
        }
        if self.with_alarm(node, |alarm| alarm.is_overdue(now)) {
            self.wake(node);
        } else if let Some(at) = self.with_alarm(node, |alarm| alarm.plan()) {
            self.plan_ring(node, at, false);
        }
    }
}
