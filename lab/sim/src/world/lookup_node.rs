//! The node of a Lookup: a caller with a copy of the table.

use centrifuge_core::lookup::{LookupAction, LookupEvent, LookupMachine};
use centrifuge_core::machine::{Machine, Output};

use super::witness::told_within;
use super::{Body, Node, Packet, Seen, Timer, World};

/// A running Lookup.
#[derive(Debug)]
pub(crate) struct LookupProcess {
    pub(crate) machine: LookupMachine,
}

impl World {
    pub(super) fn start_lookup(&mut self, number: usize) {
        let config = self.plan.lookups[number].config.clone();
        let machine = LookupMachine::new(config, self.random());
        self.lookups[number].start(LookupProcess { machine });
        let namespace = &self.plan.namespaces[self.plan.lookups[number].namespace].name;
        let told_within = told_within(&self.plan, number);
        self.witness.see(self.now, &Seen::LookupStarted { node: number, namespace, told_within });
        self.feed_lookup(number, LookupEvent::Start);
    }

    pub(super) fn end_lookup(&mut self, number: usize) {
        if self.lookups[number].end().is_some() {
            self.witness.see(self.now, &Seen::LookupEnded { node: number });
        }
    }

    pub(super) fn deliver_to_lookup(&mut self, number: usize, packet: Packet) {
        let (Node::Manager(from), Body::ManagerToLookup(message)) = (packet.from, packet.body) else {
            return;
        };
        let from = self.plan.manager_ids[from].clone();
        self.feed_lookup(number, LookupEvent::FromManager { from, message });
    }

    /// Feeds an event to the process, or wakes it.
    pub(super) fn feed_lookup(&mut self, number: usize, event: impl Into<Option<LookupEvent>>) {
        let host = &mut self.lookups[number];
        let Some(process) = &mut host.process else { return };
        let now = host.clock.read(self.now);
        let output = match event.into() {
            Some(event) => process.machine.on_event(now, event),
            None => process.machine.on_wake(now),
        };
        self.lookup_stepped(number, output);
    }

    pub(super) fn lookup_stepped(&mut self, number: usize, output: Output<LookupAction>) {
        self.note_output(Node::Lookup(number), &output);
        let host = &mut self.lookups[number];
        let Some(process) = &host.process else { return };
        let (machine, clock, actions) = (&process.machine, &host.clock, &*output.actions);
        self.witness.see(self.now, &Seen::LookupStepped { node: number, machine, clock, actions });
        if let Some(at) = host.alarm.set(output.wake, &host.clock, self.now) {
            self.plan_ring(Timer::Machine(Node::Lookup(number)), at, false);
        }
        for action in output.actions {
            if let LookupAction::ToManager { to, request } = action
                && let Some(to) = self.manager_called(&to)
            {
                self.send(Node::Lookup(number), Node::Manager(to), Body::LookupToManager(request));
            }
        }
    }
}
