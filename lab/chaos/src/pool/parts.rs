//! Which part each process of a pool plays.

use std::net::SocketAddr;
use std::path::PathBuf;

use centrifuge_harness::StoreKind;
use centrifuge_harness::etcd::node_arguments;

use super::addresses::Node;
use super::launch::Pool;
use super::network::peer_id;
use crate::bug::Bug;
use crate::plan::MOST_SKEW_PPM;
use crate::roles::{CallerRole, EtcdRole, LookupFleetRole, ManagerRole, ManagerStore, OwnerRole, Role};
use crate::world::World;

impl Pool {
    /// How wrong the clock of a process's next life is.
    pub(super) fn clock_of(&mut self, node: Node) -> i32 {
        let drawn = self.rng.skew(MOST_SKEW_PPM);
        match (self.plan.bug, node) {
            (_, Node::Etcd(_) | Node::Peer(_)) => 0,
            // A wrong rate of boot time alone would take it out of epsilon of the others: theirs wander.
            (_, Node::Manager(_)) if self.plan.world == World::Diskless => 0,
            (Some(Bug::SlowOwnerClock), Node::Owner(_)) => -500_000,
            (Some(Bug::FastManagerClock), Node::Manager(_)) => 1_000_000,
            (Some(Bug::OutlivedLeader), Node::Manager(0)) => -700_000,
            _ if self.plan.is_skewed => drawn,
            _ => 0,
        }
    }

    pub(super) fn role(&self, node: Node, life: u32) -> Role {
        let plan = &self.plan;
        let journal = plan.directory.join(format!("{node}.{life}.jsonl"));
        match node {
            Node::Etcd(index) => Role::Etcd(EtcdRole { arguments: self.etcd_arguments(index) }),
            Node::Manager(index) => Role::Manager(ManagerRole {
                grpc: self.addresses.grpc(index).to_string(),
                http: self.addresses.http(index).to_string(),
                store: self.store_of(index),
                leader_lease: plan.leader_lease.clone(),
                campaign_interval: plan.campaign_interval.clone(),
            }),
            Node::Owner(index) => Role::Owner(OwnerRole {
                name: node.to_string(),
                managers: self.network.managers_of(node, plan.sizes),
                listen: self.addresses.application(index).to_string(),
                url: self.addresses.url(index).to_string(),
                keys: plan.sizes.keys,
                // Without state that is lost on purpose, every loss counts.
                migrates: plan.is_planned_only || index % 3 != 2,
                // The harness waits for the end of a process before it starts the next.
                takes_over: index % 2 == 0 && life > 1,
                journal,
            }),
            Node::Caller(index) => {
                let is_mine = |key: &u32| key % u32::from(plan.sizes.callers) == u32::from(index);
                Role::Caller(CallerRole {
                    name: node.to_string(),
                    managers: self.network.managers_of(node, plan.sizes),
                    keys: plan.sizes.keys,
                    writes: (0..plan.sizes.keys).filter(is_mine).collect(),
                    journal,
                })
            }
            Node::Peer(index) => Role::Peer(self.peer_role(index, life, journal)),
            Node::LookupFleet(_) => Role::LookupFleet(LookupFleetRole {
                managers: self.network.managers_of(node, plan.sizes),
                lookups: plan.lookups_each,
                journal,
            }),
        }
    }

    fn store_of(&self, manager: u8) -> ManagerStore {
        match self.plan.store {
            StoreKind::File => ManagerStore::File(self.plan.directory.join("centrifuge.db")),
            StoreKind::Etcd => {
                let endpoint = |etcd| format!("http://{}", self.addresses.etcd_for(manager, etcd));
                ManagerStore::Etcd((0..self.plan.sizes.etcd).map(endpoint).collect())
            }
            StoreKind::None => {
                let peer = |other: u8| format!("{}={}", peer_id(other), self.addresses.grpc(other));
                let peers: Vec<String> = (0..self.plan.sizes.managers).map(peer).collect();
                // What is measured has the usual times; faults come with short ones.
                let is_short = self.plan.is_skewed;
                ManagerStore::None {
                    peers: peers.join(","),
                    me: peer_id(manager),
                    key: self.key_file(),
                    is_short,
                }
            }
        }
    }

    /// Where the secret of Managers without a store is.
    pub(super) fn key_file(&self) -> PathBuf {
        self.plan.directory.join("peers.key")
    }

    fn etcd_arguments(&self, index: u8) -> Vec<String> {
        let member = |etcd: u8| (Node::Etcd(etcd).to_string(), self.addresses.etcd_peer(etcd));
        let members: Vec<(String, SocketAddr)> = (0..self.plan.sizes.etcd).map(member).collect();
        let data = self.plan.directory.join(format!("{}.data", Node::Etcd(index)));
        let endpoint = format!("http://{}", self.addresses.etcd(index));
        let mut arguments = node_arguments(&members, usize::from(index), &endpoint, &data);
        arguments.push("--log-level=error".to_owned());
        arguments
    }
}

/// Whether a bug changes what a process does. Clocks are another matter.
pub(super) fn concerns(bug: Bug, node: Node) -> bool {
    match bug {
        Bug::UncheckedOwner | Bug::ForgetfulOwner | Bug::BackwardOwner | Bug::HastyOwner => {
            matches!(node, Node::Owner(_))
        }
        Bug::DeafCaller | Bug::CryingCaller => node == Node::Caller(0),
        bug if bug.world() == World::Flease => matches!(node, Node::Peer(_)),
        _ => matches!(node, Node::Manager(_)),
    }
}
