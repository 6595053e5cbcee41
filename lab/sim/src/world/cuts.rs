//! Faults of the network: cuts between nodes, groups and the store, times in which packets fare badly, and packets that arrive
//! again long after they did.

use centrifuge_core::message::OwnerToManager;

use super::faults::is_manager;
use super::{
    Body, Event, Fault, MILLISECOND, Node, Packet, Places, Profile, SECOND, Undo, World, is_lookup, is_owner,
};

impl World {
    pub(super) fn cut(&mut self, from: Places, to: Places, both_ways: bool) {
        let length = self.a_while();
        self.cut_for(length, from, to, both_ways);
    }

    pub(super) fn cut_for(&mut self, length: u64, from: Places, to: Places, both_ways: bool) {
        let heal = self.now.0 + length;
        self.show_cut(heal, from, to);
        let cut = self.network.cut(from, to);
        self.queue.push(heal, Event::Undo(Undo::Heal { cut }));
        if both_ways {
            let cut = self.network.cut(to, from);
            self.queue.push(heal, Event::Undo(Undo::Heal { cut }));
        }
    }

    /// Every link of a cut has an end in `from`; the store's end is a Manager's trouble.
    fn show_cut(&mut self, until: u64, from: Places, to: Places) {
        let layout = self.network.layout;
        let cut_store = from.has(layout.store());
        let nodes: Vec<Node> = self.nodes().collect();
        for node in nodes {
            let place = layout.place(node);
            if from.has(place) || (cut_store && to.has(place)) {
                self.show_disturbance(node, until);
            }
        }
    }

    /// Cuts between a Manager, or an Owner, and somebody else.
    pub(super) fn cut_link(&mut self, both_ways: bool) -> bool {
        let clients: Vec<Node> = self.nodes().filter(|node| !is_manager(*node)).collect();
        let client = self.rng.pick(&clients);
        let other = if is_owner(client) && self.rng.chance(400) {
            Node::Owner(self.rng.below(self.owners.len() as u64) as usize)
        } else {
            Node::Manager(self.rng.below(self.managers.len() as u64) as usize)
        };
        let (client, other) = (self.bit(client), self.bit(other));
        let (from, to) = if self.rng.chance(500) { (client, other) } else { (other, client) };
        self.cut(from, to, both_ways);
        true
    }

    /// Cuts some nodes, of one kind or of several, off from all others.
    pub(super) fn isolate(&mut self) -> bool {
        if self.rng.chance(400) {
            return self.strike_one(is_lookup, World::isolate_lookup);
        }
        let share = self.rng.pick(&[100, 300, 500]);
        let nodes: Vec<Node> = self.nodes().collect();
        let first = self.rng.pick(&nodes);
        let mut group = self.bit(first);
        for node in nodes {
            if self.rng.chance(share) {
                group = group | self.bit(node);
            }
        }
        let store = Places::only(self.network.layout.store());
        let kept = if self.rng.chance(500) { group | store } else { group };
        self.cut(group, !kept, true);
        true
    }

    /// Cuts a node off from every Manager, or a Manager from everybody.
    pub(super) fn cut_off_from_managers(&mut self, node: Node) {
        let managers = Places::below(self.managers.len());
        let others = if is_manager(node) { !self.bit(node) } else { managers };
        let length = if self.rng.chance(700) { self.outlasting() } else { self.a_while() };
        self.cut_for(length, self.bit(node), others, true);
    }

    /// Cuts a Lookup off, perhaps for so long that it must take everything for lost.
    fn isolate_lookup(&mut self, node: Node) {
        let lookup = self.bit(node);
        let length = self.rng.between(20 * SECOND, 250 * SECOND);
        self.cut_for(length, lookup, !lookup, true);
        self.replay_to(node, length);
    }

    /// The leader loses its lease before its time and does not hear of it: it is cut off, together with some of its
    /// clients, from the store and from everybody else.
    pub(super) fn split_brain(&mut self) -> bool {
        let Some(leader) = self.leader().filter(|_| self.managers.len() > 1) else { return false };
        let mut group = self.bit(Node::Manager(leader));
        let clients: Vec<Node> = self.nodes().filter(|node| !is_manager(*node)).collect();
        for client in clients {
            if self.rng.chance(500) {
                group = group | self.bit(client);
            }
        }
        let length = if self.rng.chance(500) { self.outlasting() } else { self.a_while() };
        self.cut_for(length, group, !group, true);
        self.plan.diskless.is_some() || self.store.revoke()
    }

    pub(super) fn cut_store(&mut self) -> bool {
        let manager = Node::Manager(self.rng.below(self.managers.len() as u64) as usize);
        let manager = self.bit(manager);
        let store = Places::only(self.network.layout.store());
        match self.rng.below(3) {
            0 => self.cut(manager, store, false),
            1 => self.cut(store, manager, false),
            _ => self.cut(manager, store, true),
        }
        true
    }

    pub(super) fn bit(&self, node: Node) -> Places {
        Places::only(self.network.layout.place(node))
    }

    /// Packets fare badly for a while.
    pub(super) fn storm_of_packets(&mut self) -> bool {
        let (lost, slow) = (self.rng.pick(&[0, 300, 700]), self.rng.pick(&[0, 500]));
        let slowest = self.rng.pick(&[3, 15]) * SECOND;
        self.network.storm(|profile| *profile = Profile { lost, slow, slowest, ..*profile });
        let at = self.now.0 + self.rng.spread(SECOND, 40 * SECOND);
        self.queue.push(at, Event::Undo(Undo::Calm));
        let nodes: Vec<Node> = self.nodes().collect();
        nodes.into_iter().for_each(|node| self.show_disturbance(node, at + slowest));
        true
    }

    /// Keeps a copy of a packet, in place of another once there are many.
    pub(super) fn keep_for_replay(&mut self, packet: &Packet) {
        if self.kept.len() < MOST_KEPT {
            return self.kept.push(packet.clone());
        }
        let place = self.rng.below(MOST_KEPT as u64) as usize;
        self.kept[place] = packet.clone();
    }

    /// Lets some kept packet arrive again, once or several times.
    pub(super) fn replay(&mut self) -> bool {
        if self.kept.is_empty() {
            return false;
        }
        let packet = self.rng.pick(&self.kept);
        let mut at = self.now.0;
        for _ in 0..self.rng.between(1, 5) {
            at += self.rng.spread(MILLISECOND, 20 * SECOND);
            self.arrive_again(at, packet.clone());
        }
        true
    }

    /// Lets kept packets for a node arrive again and again for a while.
    pub(super) fn replay_to(&mut self, node: Node, length: u64) {
        let kept: Vec<Packet> = self.kept.iter().filter(|packet| packet.to == node).cloned().collect();
        let end = self.now.0 + length;
        let mut at = self.now.0 + self.rng.below(30 * SECOND);
        while at < end && !kept.is_empty() {
            let packet = self.rng.pick(&kept);
            self.arrive_again(at, packet);
            at += self.rng.between(5 * SECOND, 30 * SECOND);
        }
    }

    /// Lets every kept report of an Owner arrive again some time soon, when another leader may have it.
    pub(super) fn replay_reports(&mut self, within: u64) {
        let is_report =
            |packet: &&Packet| matches!(packet.body, Body::OwnerToManager(OwnerToManager::Report(_)));
        let reports: Vec<Packet> = self.kept.iter().filter(is_report).cloned().collect();
        for packet in reports {
            let at = self.now.0 + self.rng.below(within);
            self.arrive_again(at, packet);
        }
    }

    fn arrive_again(&mut self, at: u64, packet: Packet) {
        self.tally.count(Fault::Replay);
        self.queue.push(at, Event::Packet(Box::new(packet)));
    }
}

/// How many packets are kept.
const MOST_KEPT: usize = 48;
