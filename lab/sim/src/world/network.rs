//! The network: loses, duplicates, delays and reorders packets, and can be cut one way or both.

use std::ops::{BitOr, Not};

use centrifuge_core::flease;
use centrifuge_core::message::{LookupRequest, ManagerToLookup, ManagerToOwner, OwnerToManager};

use super::queue::Queue;
use super::tally::Tally;
use super::{Copy, CopyAnswer, Event, Fault, Node, Rng, TrueTime};

/// Something on its way from one node to another. Whoever runs at the node when it arrives gets it.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: Node,
    pub(crate) to: Node,
    pub(crate) sent: TrueTime,
    pub(crate) body: Body,
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    OwnerToManager(OwnerToManager),
    ManagerToOwner(ManagerToOwner),
    LookupToManager(LookupRequest),
    ManagerToLookup(ManagerToLookup),
    /// State, from application to application.
    Copy(Copy),
    CopyAnswer(CopyAnswer),
    /// From Manager to Manager, about who leads.
    Flease(flease::Packet),
}

/// How packets fare. Times in nanoseconds, shares in a thousand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) shortest: u64,
    pub(crate) longest: u64,
    /// Some take longer.
    pub(crate) slow: u64,
    pub(crate) slowest: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    /// Of the duplicates, those that arrive minutes later.
    pub(crate) straggling: u64,
    pub(crate) straggle: u64,
}

impl Profile {
    /// Every packet arrives after a time between these.
    pub(crate) const fn reliable(shortest: u64, longest: u64) -> Profile {
        let (slow, slowest, lost, duplicated, straggling, straggle) = (0, 0, 0, 0, 0, 0);
        Profile { shortest, longest, slow, slowest, lost, duplicated, straggling, straggle }
    }

    /// The longest that a packet may take which is neither lost nor a duplicate.
    pub(crate) fn usually_slowest(&self) -> u64 {
        if self.slow > 0 { self.longest.max(self.slowest) } else { self.longest }
    }
}

/// How many nodes of each kind there are; numbers every node and the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) managers: usize,
    pub(crate) owners: usize,
    pub(crate) lookups: usize,
}

impl Layout {
    pub(crate) fn place(&self, node: Node) -> usize {
        match node {
            Node::Manager(number) => number,
            Node::Owner(number) => self.managers + number,
            Node::Lookup(number) => self.managers + self.owners + number,
        }
    }

    pub(crate) fn store(&self) -> usize {
        self.managers + self.owners + self.lookups
    }

    /// How many places there are, the store's included.
    pub(crate) fn places(&self) -> usize {
        self.store() + 1
    }
}

#[derive(Debug)]
struct Cut {
    number: u32,
    from: Places,
    to: Places,
}

/// The simulated network.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) layout: Layout,
    rng: Rng,
    usual: Profile,
    profile: Profile,
    /// How packets between Managers fare usually, and now.
    usual_peers: Profile,
    peers: Profile,
    cuts: Vec<Cut>,
    cuts_made: u32,
    /// By sender: whom it cannot reach.
    unreachable: Vec<Places>,
    /// By sender and receiver: the latest planned arrival.
    latest: Vec<u64>,
}

impl Network {
    pub(crate) fn new(layout: Layout, profile: Profile, rng: Rng) -> Network {
        let places = layout.places();
        assert!(places <= Places::MOST, "a set of places has a bit for each");
        Network {
            layout,
            rng,
            usual: profile,
            profile,
            usual_peers: profile,
            peers: profile,
            cuts: Vec::new(),
            cuts_made: 0,
            unreachable: vec![Places::default(); places],
            latest: vec![0; places * places],
        }
    }

    /// Managers are nearer to each other than others are.
    pub(crate) fn with_peers(self, profile: Profile) -> Network {
        Network { usual_peers: profile, peers: profile, ..self }
    }

    /// Sends a packet: it arrives once, twice or never.
    pub(crate) fn send(&mut self, packet: Packet, queue: &mut Queue<Event>, tally: &mut Tally) {
        let (from, to) = (self.layout.place(packet.from), self.layout.place(packet.to));
        if self.is_cut(from, to) {
            return tally.count(Fault::CutOff);
        }
        let profile = if matches!(packet.body, Body::Flease(_)) { self.peers } else { self.profile };
        if self.rng.chance(profile.duplicated) {
            tally.count(Fault::Duplicated);
            let due = packet.sent.0 + self.duplicate_delay(profile);
            queue.push(due, Event::Packet(Box::new(packet.clone())));
        }
        if self.rng.chance(profile.lost) {
            return tally.count(Fault::Lost);
        }
        let due = packet.sent.0 + self.delay(profile);
        let link = from * self.unreachable.len() + to;
        if due < self.latest[link] {
            tally.count(Fault::Reordered);
        }
        self.latest[link] = self.latest[link].max(due);
        queue.push(due, Event::Packet(Box::new(packet)));
    }

    fn delay(&mut self, profile: Profile) -> u64 {
        let Profile { shortest, longest, slow, slowest, .. } = profile;
        let most = if self.rng.chance(slow) { slowest } else { longest };
        if shortest >= most { shortest } else { self.rng.between(shortest, most) }
    }

    fn duplicate_delay(&mut self, profile: Profile) -> u64 {
        let straggle = profile.straggle;
        if straggle > 0 && self.rng.chance(profile.straggling) {
            return self.rng.spread(straggle / 64, straggle);
        }
        self.delay(profile) + self.delay(profile)
    }

    /// Whether nothing gets from one place to another.
    pub(crate) fn is_cut(&self, from: usize, to: usize) -> bool {
        self.unreachable[from].has(to)
    }

    /// Cuts the way from every place of one set to every place of another, and names the cut.
    pub(crate) fn cut(&mut self, from: Places, to: Places) -> u32 {
        self.cuts_made += 1;
        self.cuts.push(Cut { number: self.cuts_made, from, to });
        self.redraw();
        self.cuts_made
    }

    pub(crate) fn heal(&mut self, number: u32) {
        self.cuts.retain(|cut| cut.number != number);
        self.redraw();
    }

    fn redraw(&mut self) {
        for (place, unreachable) in self.unreachable.iter_mut().enumerate() {
            let leaving = self.cuts.iter().filter(|cut| cut.from.has(place));
            *unreachable = leaving.fold(Places::default(), |places, cut| places | cut.to);
        }
    }

    /// Packets fare otherwise until [`Network::calm`].
    pub(crate) fn storm(&mut self, change: impl Fn(&mut Profile)) {
        change(&mut self.profile);
        change(&mut self.peers);
    }

    pub(crate) fn calm(&mut self) {
        self.profile = self.usual;
        self.peers = self.usual_peers;
    }

    /// From now on every packet arrives quickly.
    pub(crate) fn heal_all(&mut self, profile: Profile) {
        (self.usual, self.profile) = (profile, profile);
        let shortest = self.usual_peers.shortest;
        self.usual_peers =
            Profile::reliable(shortest, self.usual_peers.longest.min(profile.longest).max(shortest));
        self.peers = self.usual_peers;
        self.cuts.clear();
        self.redraw();
    }
}

/// Words of 64 places each: room for the 250 Owners of PRS §7.2.
const WORDS: usize = 5;

/// A set of places, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places([u64; WORDS]);

impl Places {
    pub(crate) const MOST: usize = WORDS * 64;

    pub(crate) fn only(place: usize) -> Places {
        let mut places = Places::default();
        places.0[place / 64] = 1 << (place % 64);
        places
    }

    /// The first places, that many.
    pub(crate) fn below(end: usize) -> Places {
        (0..end).fold(Places::default(), |places, place| places | Places::only(place))
    }

    pub(crate) fn has(self, place: usize) -> bool {
        self.0[place / 64] & (1 << (place % 64)) != 0
    }
}

impl BitOr for Places {
    type Output = Places;

    fn bitor(self, other: Places) -> Places {
        Places(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }
}

impl Not for Places {
    type Output = Places;

    fn not(self) -> Places {
        Places(self.0.map(|word| !word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use centrifuge_core::message::ManagerToOwner;

    const LAYOUT: Layout = Layout { managers: 1, owners: 2, lookups: 0 };

    fn network(profile: Profile) -> Network {
        Network::new(LAYOUT, profile, Rng::new(1))
    }

    fn arrivals(network: &mut Network, from: Node, to: Node) -> usize {
        let (mut queue, mut tally) = (Queue::default(), Tally::default());
        let body = Body::ManagerToOwner(ManagerToOwner::NotLeader { leader: None });
        network.send(Packet { from, to, sent: TrueTime(0), body }, &mut queue, &mut tally);
        std::iter::from_fn(|| queue.pop()).count()
    }

    #[test]
    fn a_one_way_cut_stops_one_way() {
        let mut network = network(Profile::reliable(1, 5));
        let (manager, owner) = (Node::Manager(0), Node::Owner(0));
        let cut = network.cut(Places::only(LAYOUT.place(manager)), Places::only(LAYOUT.place(owner)));
        assert_eq!(arrivals(&mut network, manager, owner), 0);
        assert_eq!(arrivals(&mut network, owner, manager), 1);
        assert_eq!(arrivals(&mut network, manager, Node::Owner(1)), 1);
        network.heal(cut);
        assert_eq!(arrivals(&mut network, manager, owner), 1);
    }

    #[test]
    fn a_cut_stays_while_another_over_it_heals() {
        let mut network = network(Profile::reliable(1, 5));
        let first = network.cut(Places::only(0), Places::only(1) | Places::only(2));
        network.cut(Places::only(0), Places::only(1));
        network.heal(first);
        assert!(network.is_cut(0, 1) && !network.is_cut(0, 2));
        network.heal_all(Profile::reliable(0, 0));
        assert!(!network.is_cut(0, 1));
    }

    #[test]
    fn losses_and_duplicates_happen_as_often_as_the_profile_says() {
        let (manager, owner) = (Node::Manager(0), Node::Owner(0));
        let mut lossy = network(Profile { lost: 1_000, ..Profile::reliable(1, 5) });
        assert_eq!(arrivals(&mut lossy, manager, owner), 0);
        let mut doubling = network(Profile { duplicated: 1_000, ..Profile::reliable(1, 5) });
        assert_eq!(arrivals(&mut doubling, manager, owner), 2);
    }
}
