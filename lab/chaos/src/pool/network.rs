//! How processes reach each other, and how they are kept from it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use centrifuge_harness::Rng;
use centrifuge_net::dial::Dialer;

use super::addresses::{Addresses, Node, Part};
use super::namespaces;
use crate::plan::Sizes;
use crate::proxy::{ByteLink, Counts, Link, LinkFaults, Relay, Renewals, Sender, Way, carry_datagrams};

/// Links to Managers for every client, ways between peers, and either namespaces or relays for the rest.
pub(super) struct Network {
    addresses: Addresses,
    /// From the first process to the second, one message at a time.
    ways: BTreeMap<(Node, Node), Way>,
    relay: Relay,
    usual: LinkFaults,
    is_direct: bool,
    /// Whether links carry what they cannot read.
    is_secure: bool,
    pub(super) counts: Arc<Counts>,
    pub(super) renewals: Arc<Renewals>,
}

impl Network {
    pub(super) async fn start(
        addresses: Addresses,
        sizes: Sizes,
        usual: LinkFaults,
        is_direct: bool,
        is_secure: bool,
        rng: &mut Rng,
    ) -> io::Result<Network> {
        let mut network = Network {
            addresses,
            ways: BTreeMap::new(),
            relay: Relay::new(),
            usual,
            is_direct,
            is_secure,
            counts: Arc::default(),
            renewals: Arc::default(),
        };
        if !is_direct {
            network.start_links(sizes, rng).await?;
            network.start_ways(sizes, rng).await?;
        }
        if addresses.is_loopback {
            network.start_relays(sizes).await?;
        }
        Ok(network)
    }

    fn way(&self, rng: &mut Rng) -> Way {
        Way::new(rng.fork(), self.usual, &self.counts)
    }

    async fn start_links(&mut self, sizes: Sizes, rng: &mut Rng) -> io::Result<()> {
        for client in Node::all(sizes).into_iter().filter(|node| is_client(*node)) {
            let name = |manager: u8| {
                (self.addresses.grpc(manager).to_string(), self.addresses.link(client, manager).to_string())
            };
            let names: Arc<[(String, String)]> = (0..sizes.managers).map(name).collect();
            for manager in Part::Manager.nodes(sizes.managers) {
                let (up, down) = (self.way(rng), self.way(rng));
                self.ways.extend([((client, manager), up.clone()), ((manager, client), down.clone())]);
                let address = self.addresses.link(client, manager.index);
                if self.is_secure {
                    let manager = self.addresses.grpc(manager.index);
                    ByteLink { up, down, manager }.listen(address).await?;
                    continue;
                }
                let link = Link {
                    up,
                    down,
                    client: client.to_string().into(),
                    manager: self.addresses.grpc(manager.index).to_string().as_str().into(),
                    names: Arc::clone(&names),
                    dialer: Dialer::new(),
                    renewals: Arc::clone(&self.renewals),
                };
                link.listen(address).await?;
            }
        }
        Ok(())
    }

    async fn start_ways(&mut self, sizes: Sizes, rng: &mut Rng) -> io::Result<()> {
        for from in Part::Peer.nodes(sizes.peers) {
            for to in Part::Peer.nodes(sizes.peers).filter(|to| *to != from) {
                let way = self.way(rng);
                self.ways.insert((from, to), way.clone());
                let listen = self.addresses.peer_way(from.index, to.index);
                carry_datagrams(listen, self.addresses.peer(to.index), way).await?;
            }
        }
        Ok(())
    }

    async fn start_relays(&self, sizes: Sizes) -> io::Result<()> {
        for owner in Part::Owner.nodes(sizes.owners + sizes.joiners) {
            let (listen, to) = (self.addresses.url(owner.index), self.addresses.application(owner.index));
            self.relay.listen(listen, Sender::Named, owner.to_string(), to).await?;
        }
        for manager in Part::Manager.nodes(sizes.managers) {
            for etcd in Part::Etcd.nodes(sizes.etcd) {
                let listen = self.addresses.etcd_for(manager.index, etcd.index);
                let sender = Sender::Known(manager.to_string());
                self.relay.listen(listen, sender, etcd.to_string(), self.addresses.etcd(etcd.index)).await?;
            }
        }
        Ok(())
    }

    /// Lets nothing get from one to the other, or lets it again.
    pub(super) fn set_cut(&self, from: Node, to: Node, is_cut: bool) -> io::Result<()> {
        match self.ways.get(&(from, to)) {
            _ if !self.addresses.is_loopback => {
                namespaces::set_cut(self.source(from, to), self.destination(from, to), is_cut)?;
            }
            Some(way) => way.set_cut(is_cut),
            None => self.relay.set_cut(&from.to_string(), &to.to_string(), is_cut),
        }
        Ok(())
    }

    /// What the packets from one process to another come from: clients see of a Manager only what stands for it.
    fn source(&self, from: Node, to: Node) -> IpAddr {
        match from.part {
            Part::Manager if is_client(to) && !self.is_direct => self.addresses.stand_in(from.index),
            _ => self.addresses.of(from),
        }
    }

    /// ... and where they go. What stands for a peer only receives.
    fn destination(&self, from: Node, to: Node) -> IpAddr {
        match to.part {
            Part::Manager if is_client(from) && !self.is_direct => self.addresses.stand_in(to.index),
            Part::Peer if !self.is_direct => self.addresses.peer_stand_in(to.index),
            _ => self.addresses.of(to),
        }
    }

    /// Sets the link faults between a client and a Manager, or from one peer to another; without, the usual ones.
    pub(super) fn set_link_faults(&self, from: Node, to: Node, link_faults: Option<LinkFaults>) {
        let back = Some((to, from)).filter(|_| to.part == Part::Manager);
        for way in [(from, to)].iter().chain(&back).filter_map(|way| self.ways.get(way)) {
            way.set_link_faults(link_faults.unwrap_or(self.usual));
        }
    }

    /// Sets what happens to messages where no fault says otherwise.
    pub(super) fn set_usual(&mut self, usual: LinkFaults) {
        self.usual = usual;
        self.ways.values().for_each(|way| way.set_link_faults(usual));
    }

    /// All peers as one of them finds them, by their numbers.
    pub(super) fn peers_of(&self, me: u8, sizes: Sizes) -> Vec<(u16, String)> {
        let address = |peer| match peer {
            _ if peer == me || self.is_direct => self.addresses.peer(peer),
            _ => self.addresses.peer_way(me, peer),
        };
        (0..sizes.peers).map(|peer| (peer_id(peer), address(peer).to_string())).collect()
    }

    /// The Managers as a client finds them.
    pub(super) fn managers_of(&self, client: Node, sizes: Sizes) -> Vec<String> {
        let address = |manager| -> SocketAddr {
            if self.is_direct || !is_client(client) {
                self.addresses.grpc(manager)
            } else {
                self.addresses.link(client, manager)
            }
        };
        (0..sizes.managers).map(|manager| address(manager).to_string()).collect()
    }
}

/// A peer's number in Flease.
pub(super) fn peer_id(peer: u8) -> u16 {
    u16::from(peer) + 1
}

/// Whether a process has links to the Managers. Fleets of Lookups have none: the harness would be busy with nothing
/// else.
fn is_client(node: Node) -> bool {
    matches!(node.part, Part::Owner | Part::Caller)
}
