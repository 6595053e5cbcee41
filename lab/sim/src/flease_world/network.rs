//! The network between peers: loses, repeats, delays and reorders packets, and can be cut one way or both.

use std::collections::BTreeMap;

use centrifuge_core::flease::Packet;

use crate::world::network::Profile;
use crate::world::rng::Rng;

use super::{Event, MILLISECOND, Queue, TrueTime};

#[derive(Debug)]
struct Cut {
    number: u32,
    /// The places from which nothing gets to the others, and those to which nothing gets, one bit each.
    from: u64,
    to: u64,
}

/// The simulated network.
#[derive(Debug)]
pub(super) struct Network {
    usual: Profile,
    profile: Profile,
    cuts: Vec<Cut>,
    made: u32,
    rng: Rng,
}

impl Network {
    pub(super) fn new(profile: Profile, rng: Rng) -> Network {
        Network { usual: profile, profile, cuts: Vec::new(), made: 0, rng }
    }

    /// Sends a packet: it arrives once, several times or never.
    pub(super) fn send(
        &mut self,
        now: TrueTime,
        (from, to): (usize, usize),
        packet: Packet,
        queue: &mut Queue<Event>,
        tally: &mut BTreeMap<&'static str, u64>,
    ) {
        let mut count = |what| *tally.entry(what).or_default() += 1;
        let is_cut = |cut: &Cut| cut.from & 1 << from != 0 && cut.to & 1 << to != 0;
        if self.cuts.iter().any(is_cut) {
            return count("message_cut_off");
        }
        if self.rng.chance(self.profile.straggling) {
            count("message_straggles");
            let at = now.0 + self.rng.below(self.profile.straggle.max(1));
            queue.push(at, Event::Packet { from, to, packet: packet.clone() });
        }
        if self.rng.chance(self.profile.lost) {
            return count("message_lost");
        }
        if self.rng.chance(self.profile.duplicated) {
            count("message_duplicated");
            queue.push(now.0 + self.delay(), Event::Packet { from, to, packet: packet.clone() });
        }
        queue.push(now.0 + self.delay(), Event::Packet { from, to, packet });
    }

    fn delay(&mut self) -> u64 {
        if self.rng.chance(self.profile.slow) {
            return self.rng.between(self.profile.shortest, self.profile.slowest);
        }
        self.rng.between(self.profile.shortest, self.profile.longest)
    }

    /// Cuts the ways from some places to others; heals by the number that is returned.
    pub(super) fn cut(&mut self, from: u64, to: u64) -> u32 {
        self.made += 1;
        self.cuts.push(Cut { number: self.made, from, to });
        self.made
    }

    pub(super) fn heal(&mut self, number: u32) {
        self.cuts.retain(|cut| cut.number != number);
    }

    /// Loses and delays much more than usual.
    pub(super) fn storm(&mut self) {
        self.profile.lost = self.rng.between(100, 700);
        self.profile.slow = self.rng.between(100, 700);
    }

    /// As usual again.
    pub(super) fn calm(&mut self) {
        self.profile = self.usual;
    }

    /// Every packet arrives soon, and once.
    pub(super) fn become_reliable(&mut self) {
        self.cuts.clear();
        let longest = self.usual.longest.min(20 * MILLISECOND);
        self.usual = Profile { longest, slow: 0, lost: 0, duplicated: 0, straggling: 0, ..self.usual };
        self.profile = self.usual;
    }
}
