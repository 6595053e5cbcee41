//! How processes reach each other, and how they are kept from it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use centrifuge_harness::Rng;

use super::addresses::{Addresses, Node};
use super::namespaces;
use crate::plan::Sizes;
use crate::proxy::{Counts, DatagramWay, Link, LinkFaults, LinkPlan, Relay, Renewals, Sender};

/// Links to Managers for every client, ways between peers, and either namespaces or relays for the rest.
pub(super) struct Network {
    addresses: Addresses,
    links: BTreeMap<(Node, u8), Link>,
    /// From the first peer to the second.
    ways: BTreeMap<(u8, u8), DatagramWay>,
    relay: Relay,
    usual: LinkFaults,
    is_direct: bool,
    pub(super) counts: Arc<Counts>,
    pub(super) renewals: Arc<Renewals>,
}

impl Network {
    pub(super) async fn start(
        addresses: Addresses,
        sizes: Sizes,
        usual: LinkFaults,
        is_direct: bool,
        rng: &mut Rng,
    ) -> io::Result<Network> {
        let mut network = Network {
            addresses,
            links: BTreeMap::new(),
            ways: BTreeMap::new(),
            relay: Relay::new(),
            usual,
            is_direct,
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

    async fn start_links(&mut self, sizes: Sizes, rng: &mut Rng) -> io::Result<()> {
        let clients = Node::all(sizes).into_iter().filter(|node| is_client(*node));
        for client in clients {
            let name = |manager: u8| {
                (self.addresses.grpc(manager).to_string(), self.addresses.link(client, manager).to_string())
            };
            for manager in 0..sizes.managers {
                let plan = LinkPlan {
                    listen: self.addresses.link(client, manager),
                    client: client.to_string(),
                    manager: self.addresses.grpc(manager).to_string(),
                    names: (0..sizes.managers).map(name).collect(),
                    link_faults: self.usual,
                    seeds: [rng.fork(), rng.fork()],
                };
                let link = Link::start(plan, &self.counts, &self.renewals).await?;
                self.links.insert((client, manager), link);
            }
        }
        Ok(())
    }

    async fn start_ways(&mut self, sizes: Sizes, rng: &mut Rng) -> io::Result<()> {
        for from in 0..sizes.peers {
            for to in (0..sizes.peers).filter(|to| *to != from) {
                let (listen, address) = (self.addresses.peer_way(from, to), self.addresses.peer(to));
                let way = DatagramWay::start(listen, address, self.usual, rng.fork(), &self.counts).await?;
                self.ways.insert((from, to), way);
            }
        }
        Ok(())
    }

    async fn start_relays(&self, sizes: Sizes) -> io::Result<()> {
        for owner in 0..sizes.owners + sizes.joiners {
            let (listen, to) = (self.addresses.url(owner), self.addresses.application(owner));
            self.relay.listen(listen, Sender::Named, Node::Owner(owner).to_string(), to).await?;
        }
        for manager in 0..sizes.managers {
            for etcd in 0..sizes.etcd {
                let (listen, to) = (self.addresses.etcd_for(manager, etcd), self.addresses.etcd(etcd));
                let sender = Sender::Known(Node::Manager(manager).to_string());
                self.relay.listen(listen, sender, Node::Etcd(etcd).to_string(), to).await?;
            }
        }
        Ok(())
    }

    /// Lets nothing get from one to the other, or lets it again.
    pub(super) fn set_cut(&self, from: Node, to: Node, is_cut: bool) -> io::Result<()> {
        match (from, to) {
            _ if !self.addresses.is_loopback => {
                namespaces::set_cut(self.source(from, to), self.destination(from, to), is_cut)?;
            }
            (client, Node::Manager(manager)) if is_client(client) => {
                if let Some(link) = self.links.get(&(client, manager)) {
                    link.set_cut(true, is_cut);
                }
            }
            (Node::Manager(manager), client) if is_client(client) => {
                if let Some(link) = self.links.get(&(client, manager)) {
                    link.set_cut(false, is_cut);
                }
            }
            (Node::Peer(from), Node::Peer(to)) => {
                if let Some(way) = self.ways.get(&(from, to)) {
                    way.set_cut(is_cut);
                }
            }
            _ => self.relay.set_cut(&from.to_string(), &to.to_string(), is_cut),
        }
        Ok(())
    }

    /// What the packets from one process to another come from: clients see of a Manager only what stands for it.
    fn source(&self, from: Node, to: Node) -> std::net::IpAddr {
        match from {
            Node::Manager(manager) if is_client(to) && !self.is_direct => self.addresses.stand_in(manager),
            _ => self.addresses.of(from),
        }
    }

    /// ... and where they go. What stands for a peer only receives.
    fn destination(&self, from: Node, to: Node) -> std::net::IpAddr {
        match to {
            Node::Manager(manager) if is_client(from) && !self.is_direct => self.addresses.stand_in(manager),
            Node::Peer(peer) if !self.is_direct => self.addresses.peer_stand_in(peer),
            _ => self.addresses.of(to),
        }
    }

    /// Sets the link faults between a client and a Manager, or from one peer to another; without, the usual ones.
    pub(super) fn set_link_faults(&self, from: Node, to: Node, link_faults: Option<LinkFaults>) {
        let link_faults = link_faults.unwrap_or(self.usual);
        match (from, to) {
            (Node::Peer(from), Node::Peer(to)) => {
                if let Some(way) = self.ways.get(&(from, to)) {
                    way.set_link_faults(link_faults);
                }
            }
            (client, Node::Manager(manager)) => {
                if let Some(link) = self.links.get(&(client, manager)) {
                    link.set_link_faults(link_faults);
                }
            }
            _ => {}
        }
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
    matches!(node, Node::Owner(_) | Node::Caller(_))
}
