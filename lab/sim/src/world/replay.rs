//! Packets that arrive again, long after they did: a network may duplicate whatever it carried, whenever it likes.

use centrifuge_core::message::OwnerToManager;

use crate::seen::Node;
use crate::world::World;
use crate::world::network::{Body, Packet};
use crate::world::plan::{MILLISECOND, SECOND};
use crate::world::queue::Event;
use crate::world::tally::Fault;

/// How many packets are kept.
const MOST_KEPT: usize = 48;

impl World {
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
