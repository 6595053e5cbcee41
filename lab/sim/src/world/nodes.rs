//! The nodes of all kinds as one: whether they run, what their clocks show, and what waits for them.

use centrifuge_core::time::Instant;

use crate::seen::Node;
use crate::world::World;
use crate::world::queue::Event;

impl World {
    pub(super) fn read_clock(&self, node: Node) -> Instant {
        let clock = match node {
            Node::Manager(number) => &self.managers[number].clock,
            Node::Owner(number) => &self.owners[number].clock,
            Node::Lookup(number) => &self.lookups[number].clock,
        };
        clock.read(self.now)
    }

    pub(super) fn stands_still(&self, node: Node) -> bool {
        match node {
            Node::Manager(number) => self.managers[number].stands_still(),
            Node::Owner(number) => self.owners[number].stands_still(),
            Node::Lookup(number) => self.lookups[number].stands_still(),
        }
    }

    pub(super) fn is_running(&self, node: Node) -> bool {
        match node {
            Node::Manager(number) => self.managers[number].is_running(),
            Node::Owner(number) => self.owners[number].is_running(),
            Node::Lookup(number) => self.lookups[number].is_running(),
        }
    }

    pub(super) fn life(&self, node: Node) -> u32 {
        match node {
            Node::Manager(number) => self.managers[number].life,
            Node::Owner(number) => self.owners[number].life,
            Node::Lookup(number) => self.lookups[number].life,
        }
    }

    pub(super) fn keep(&mut self, node: Node, event: Event) {
        match node {
            Node::Manager(number) => self.managers[number].keep(event),
            Node::Owner(number) => self.owners[number].keep(event),
            Node::Lookup(number) => self.lookups[number].keep(event),
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        let (managers, owners, lookups) = (self.managers.len(), self.owners.len(), self.lookups.len());
        let managers = (0..managers).map(Node::Manager);
        managers.chain((0..owners).map(Node::Owner)).chain((0..lookups).map(Node::Lookup))
    }

    pub(super) fn running_nodes(&self) -> Vec<Node> {
        self.nodes().filter(|node| self.is_running(*node)).collect()
    }

    pub(super) fn lives(&self, node: Node) -> bool {
        match node {
            Node::Manager(number) => self.managers[number].process.is_some(),
            Node::Owner(number) => self.owners[number].process.is_some(),
            Node::Lookup(number) => self.lookups[number].process.is_some(),
        }
    }
}
