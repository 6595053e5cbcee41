//! How processes reach each other, and how they are kept from it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::addresses::{Addresses, Node};
use super::namespaces;
use crate::dice::Dice;
use crate::plan::Sizes;
use crate::proxy::{Counts, Link, LinkPlan, Relay, Renewals, Sender, Weather};

/// Links to Managers for every client, and either namespaces or relays for the rest.
pub(super) struct Network {
    addresses: Addresses,
    links: BTreeMap<(Node, u8), Link>,
    relay: Relay,
    usual: Weather,
    is_direct: bool,
    pub(super) counts: Arc<Counts>,
    pub(super) renewals: Arc<Renewals>,
}

impl Network {
    pub(super) async fn start(
        addresses: Addresses,
        sizes: Sizes,
        usual: Weather,
        is_direct: bool,
        dice: &mut Dice,
    ) -> io::Result<Network> {
        let mut network = Network {
            addresses,
            links: BTreeMap::new(),
            relay: Relay::new(),
            usual,
            is_direct,
            counts: Arc::default(),
            renewals: Arc::default(),
        };
        if !is_direct {
            network.start_links(sizes, dice).await?;
        }
        if addresses.is_loopback {
            network.start_relays(sizes).await?;
        }
        Ok(network)
    }

    async fn start_links(&mut self, sizes: Sizes, dice: &mut Dice) -> io::Result<()> {
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
                    weather: self.usual,
                    seeds: [dice.fork(), dice.fork()],
                };
                let link = Link::start(plan, &self.counts, &self.renewals).await?;
                self.links.insert((client, manager), link);
            }
        }
        Ok(())
    }

    async fn start_relays(&self, sizes: Sizes) -> io::Result<()> {
        for owner in 0..sizes.owners {
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
                namespaces::set_cut(self.place(from, to), self.place(to, from), is_cut)?;
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
            _ => self.relay.set_cut(&from.to_string(), &to.to_string(), is_cut),
        }
        Ok(())
    }

    /// Where a process is on its way to another: clients see of a Manager only what stands for it.
    fn place(&self, node: Node, other: Node) -> std::net::IpAddr {
        match node {
            Node::Manager(manager) if is_client(other) && !self.is_direct => self.addresses.stand_in(manager),
            _ => self.addresses.of(node),
        }
    }

    /// The weather between a client and a Manager; the usual one without.
    pub(super) fn set_weather(&self, client: Node, manager: u8, weather: Option<Weather>) {
        if let Some(link) = self.links.get(&(client, manager)) {
            link.set_weather(weather.unwrap_or(self.usual));
        }
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

/// Whether a process has links to the Managers. Crowds have none: the harness would be busy with nothing else.
fn is_client(node: Node) -> bool {
    matches!(node, Node::Owner(_) | Node::Caller(_))
}
