//! Where everything is. Runs at the same time have different addresses, and a process has the same one in all its
//! lives.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::plan::Sizes;

/// A kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Part {
    Etcd,
    Manager,
    Owner,
    Caller,
    /// With many Lookups.
    LookupFleet,
    /// A Flease peer.
    Peer,
}

impl Part {
    /// What faults call it, and the number of the first of its kind.
    fn label(self) -> (&'static str, u8) {
        match self {
            Part::Etcd => ("etcd", 1),
            Part::Manager => ("manager", 11),
            Part::Owner => ("owner", 31),
            Part::Caller => ("caller", 61),
            Part::LookupFleet => ("lookups", 91),
            Part::Peer => ("peer", 141),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.label().0
    }

    /// The process of this kind with this index, from 0.
    pub(crate) fn node(self, index: u8) -> Node {
        Node { part: self, index }
    }

    /// The first so many of this kind.
    pub(crate) fn nodes(self, count: u8) -> impl Iterator<Item = Node> {
        (0..count).map(move |index| self.node(index))
    }
}

/// One process of the pool, through all its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    pub(crate) part: Part,
    /// Which of its kind it is, from 0.
    pub(crate) index: u8,
}

impl Node {
    /// A number for each, from 1.
    fn number(self) -> u8 {
        self.part.label().1 + self.index
    }

    /// Every process of a pool.
    pub(crate) fn all(sizes: Sizes) -> Vec<Node> {
        let counts = [
            (Part::Etcd, sizes.etcd),
            (Part::Manager, sizes.managers),
            (Part::Owner, sizes.owners + sizes.joiners),
            (Part::Caller, sizes.callers),
            (Part::LookupFleet, sizes.lookup_fleets),
            (Part::Peer, sizes.peers),
        ];
        counts.into_iter().flat_map(|(part, count)| part.nodes(count)).collect()
    }

    /// Those of a kind.
    pub(crate) fn all_of(part: Part, sizes: Sizes) -> Vec<Node> {
        Node::all(sizes).into_iter().filter(|node| node.part == part).collect()
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.part.name(), self.index + 1)
    }
}

/// The addresses of a run: a network of its own, of 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// Loopback with relays, or namespaces with none.
    pub(crate) is_loopback: bool,
    middle: [u8; 2],
}

/// The ports of clients' links begin here.
const LINKS: u16 = 20_000;

impl Addresses {
    /// The network of the run whose harness is process `id`.
    pub(crate) fn new(is_loopback: bool, id: u32) -> Addresses {
        // Neither zero nor 255, and not the loopback that others use.
        let part = |number: u32| u8::try_from(1 + number % 250).unwrap_or(1);
        Addresses { is_loopback, middle: [part(id / 250), part(id)] }
    }

    fn ip(&self, last: u8) -> IpAddr {
        let first = if self.is_loopback { 127 } else { 10 };
        IpAddr::V4(Ipv4Addr::new(first, self.middle[0], self.middle[1], last))
    }

    /// Where a process is.
    pub(crate) fn of(&self, node: Node) -> IpAddr {
        self.ip(node.number())
    }

    pub(crate) fn grpc(&self, manager: u8) -> SocketAddr {
        SocketAddr::new(self.of(Part::Manager.node(manager)), 7_600)
    }

    pub(crate) fn http(&self, manager: u8) -> SocketAddr {
        SocketAddr::new(self.of(Part::Manager.node(manager)), 7_601)
    }

    /// The address that stands for a Manager, at the harness.
    pub(crate) fn stand_in(&self, manager: u8) -> IpAddr {
        self.ip(200 + manager)
    }

    /// Where a client finds a Manager: at a link of its own.
    pub(crate) fn link(&self, client: Node, manager: u8) -> SocketAddr {
        SocketAddr::new(self.stand_in(manager), LINKS + u16::from(client.number()))
    }

    /// The address that stands for a peer, at the harness.
    pub(crate) fn peer_stand_in(&self, peer: u8) -> IpAddr {
        self.ip(220 + peer)
    }

    /// Where a peer listens.
    pub(crate) fn peer(&self, peer: u8) -> SocketAddr {
        SocketAddr::new(self.of(Part::Peer.node(peer)), 7_700)
    }

    /// Where a peer finds another: at a way of its own.
    pub(crate) fn peer_way(&self, from: u8, to: u8) -> SocketAddr {
        SocketAddr::new(self.peer_stand_in(to), LINKS + u16::from(from))
    }

    /// Where an Owner's application listens.
    pub(crate) fn application(&self, owner: u8) -> SocketAddr {
        SocketAddr::new(self.of(Part::Owner.node(owner)), 8_000)
    }

    /// Where others find it.
    pub(crate) fn url(&self, owner: u8) -> SocketAddr {
        if self.is_loopback { SocketAddr::new(self.ip(101 + owner), 8_000) } else { self.application(owner) }
    }

    pub(crate) fn etcd(&self, etcd: u8) -> SocketAddr {
        SocketAddr::new(self.of(Part::Etcd.node(etcd)), 2_379)
    }

    pub(crate) fn etcd_peer(&self, etcd: u8) -> SocketAddr {
        SocketAddr::new(self.of(Part::Etcd.node(etcd)), 2_380)
    }

    /// Where a Manager finds a node of etcd.
    pub(crate) fn etcd_for(&self, manager: u8, etcd: u8) -> SocketAddr {
        let relay = SocketAddr::new(self.ip(151 + etcd), LINKS + u16::from(manager));
        if self.is_loopback { relay } else { self.etcd(etcd) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nobody_shares_an_address() {
        let sizes = Sizes {
            etcd: 5,
            managers: 9,
            owners: 27,
            joiners: 3,
            callers: 30,
            lookup_fleets: 9,
            peers: 9,
            keys: 1,
        };
        let addresses = Addresses::new(true, 54_321);
        let mut seen = BTreeSet::new();
        for node in Node::all(sizes) {
            assert!(seen.insert(addresses.of(node)), "{node}");
        }
        for manager in 0..9 {
            assert!(seen.insert(addresses.stand_in(manager)));
        }
        for peer in 0..9 {
            assert!(seen.insert(addresses.peer_stand_in(peer)));
        }
        for owner in 0..30 {
            assert!(seen.insert(addresses.url(owner).ip()));
        }
    }
}
