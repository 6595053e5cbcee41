//! Which part each process of a pool plays.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use centrifuge_harness::StoreKind;
use centrifuge_harness::etcd::node_arguments;
use centrifuge_harness::ports::numbered;

use super::addresses::{Node, Part};
use super::launch::Pool;
use super::network::peer_id;
use crate::bug::Bug;
use crate::plan::{EPSILON, MOST_SKEW_PPM, NAMESPACE, ROUND, Times, World};
use crate::roles::{OwnerRole, Role};

impl Pool {
    /// How wrong the clock of a process's next life is.
    pub(super) fn clock_of(&mut self, node: Node) -> i32 {
        let drawn = self.rng.skew(MOST_SKEW_PPM);
        match (self.plan.bug, node.part) {
            (_, Part::Etcd | Part::Peer) => 0,
            // A wrong rate of boot time alone would take it out of epsilon of the others: theirs wander.
            (_, Part::Manager) if self.plan.world == World::Diskless => 0,
            (Some(Bug::SlowOwnerClock), Part::Owner) => -500_000,
            (Some(Bug::FastManagerClock), Part::Manager) => 1_000_000,
            (Some(Bug::OutlivedLeader), Part::Manager) if node.index == 0 => -700_000,
            _ if self.plan.is_skewed => drawn,
            _ => 0,
        }
    }

    pub(super) fn role(&self, node: Node, life: u32) -> Role {
        let (plan, index) = (&self.plan, node.index);
        match node.part {
            Part::Etcd => Role::Etcd(self.etcd_arguments(index)),
            Part::Manager => Role::Manager(self.manager_arguments(index)),
            Part::Owner => Role::Owner(OwnerRole {
                listen: self.addresses.application(index).to_string(),
                url: self.addresses.url(index).to_string(),
                // Without state that is lost on purpose, every loss counts.
                migrates: plan.is_planned_only || index % 3 != 2,
                // The harness waits for the end of a process before it starts the next.
                takes_over: index.is_multiple_of(2) && life > 1,
            }),
            Part::Caller => {
                let is_mine = |key: &u32| key % u32::from(plan.sizes.callers) == u32::from(index);
                Role::Caller { writes: (0..plan.sizes.keys).filter(is_mine).collect() }
            }
            Part::Peer => Role::Peer(self.peer_role(index, life)),
            Part::LookupFleet => Role::LookupFleet { lookups: plan.lookups_each },
        }
    }

    fn manager_arguments(&self, manager: u8) -> Vec<String> {
        let (plan, ms) = (&self.plan, |time: Duration| format!("{}ms", time.as_millis()));
        let mut options = vec![
            ("grpc-listen", self.addresses.grpc(manager).to_string()),
            ("http-listen", self.addresses.http(manager).to_string()),
        ];
        options.extend(match &self.certificates {
            Some(certificates) => certificates.manager_options(Part::Manager.node(manager)),
            // Namespaces of our own are no other machine.
            None => vec![("insecure", "true".to_owned())],
        });
        options.extend(plan.leadership.clone());
        match plan.store {
            StoreKind::File => {
                options.push(("store", format!("file:{}", plan.directory.join("centrifuge.db").display())));
            }
            StoreKind::Etcd => {
                let endpoint = |etcd| format!("http://{}", self.addresses.etcd_for(manager, etcd));
                let endpoints: Vec<String> = (0..plan.sizes.etcd).map(endpoint).collect();
                options.extend([("store", "etcd".to_owned()), ("etcd-endpoints", endpoints.join(","))]);
            }
            StoreKind::None => {
                let peers: Vec<SocketAddr> =
                    (0..plan.sizes.managers).map(|manager| self.addresses.grpc(manager)).collect();
                options.extend([
                    ("store", "none".to_owned()),
                    ("namespace", NAMESPACE.to_owned()),
                    ("peers", numbered(&peers)),
                    ("peer-id", peer_id(manager).to_string()),
                    ("peer-key-file", self.key_file().display().to_string()),
                ]);
                // What is measured has the usual times; faults come with short ones.
                let times = [
                    ("flease-lease", Times::PEERS.lease),
                    ("flease-epsilon", EPSILON),
                    ("flease-round", ROUND),
                ];
                options.extend(
                    times.into_iter().filter(|_| plan.is_skewed).map(|(name, time)| (name, ms(time))),
                );
            }
        }
        options.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
    }

    /// Where the secret of Managers without a store is.
    pub(super) fn key_file(&self) -> PathBuf {
        self.plan.directory.join("peers.key")
    }

    fn etcd_arguments(&self, index: u8) -> Vec<String> {
        let member = |etcd: u8| (Part::Etcd.node(etcd).to_string(), self.addresses.etcd_peer(etcd));
        let members: Vec<(String, SocketAddr)> = (0..self.plan.sizes.etcd).map(member).collect();
        let data = self.plan.directory.join(format!("{}.data", Part::Etcd.node(index)));
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
            node.part == Part::Owner
        }
        Bug::DeafCaller | Bug::CryingCaller => node == Part::Caller.node(0),
        bug if bug.world() == World::Flease => node.part == Part::Peer,
        _ => node.part == Part::Manager,
    }
}
