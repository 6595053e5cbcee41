//! Managers that have no store, on addresses of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use centrifuge::{Key, Managers};
use centrifuge_core::id::Namespace;
use centrifuge_core::manager::DeclaredNamespace;
use centrifuge_core::settings::{Drift, Settings};
use centrifuge_harness::ports::{free_addresses, numbered};
use centrifuge_net::flease::Peers;
use centrifuge_server::store::{Backend, PeerKey, PeerOptions};
use centrifuge_server::{Config, Manager, RunningManager};

use crate::clients::POOL;
use crate::support::{self, eventually};

pub(crate) use crate::support::{shut_down, stands_by};

pub(crate) const SECRET: &[u8] = b"what only these Managers know";

fn declared() -> DeclaredNamespace {
    DeclaredNamespace { settings: Arc::new(settings()), ..DeclaredNamespace::default() }
}

/// Leases that no slow machine loses while Owners look for a leader, and a hold that tests can wait for.
pub(crate) fn settings() -> Settings {
    Settings {
        lease: Duration::from_secs(16),
        hold: Duration::from_secs(18),
        renewal: Duration::from_millis(500),
        answer_allowance: Duration::from_secs(2),
        settle: Duration::from_millis(200),
        virtual_nodes: 16,
        load_interval: Duration::from_secs(3_600),
        heartbeat: Duration::from_millis(200),
        ..Settings::default()
    }
}

pub(crate) fn pool() -> Namespace {
    Namespace::new(POOL).expect("a label")
}

/// A few Managers that know each other.
pub(crate) struct Group {
    peers: Peers,
    lease: Duration,
    /// How far the Managers' clock is ahead.
    pub(crate) ahead: Duration,
}

impl Group {
    /// So many Managers; a leader that is silent for `lease` is followed by another.
    pub(crate) fn new(managers: u16, lease: Duration) -> Group {
        let addresses = free_addresses(usize::from(managers)).expect("free ports");
        let peers = numbered(&addresses).parse().expect("a list");
        Group { peers, lease, ahead: Duration::ZERO }
    }

    pub(crate) fn options(&self, me: u16) -> PeerOptions {
        let key = PeerKey::new(SECRET).expect("long enough");
        let (lease, epsilon, round) = (self.lease, Duration::from_millis(200), Duration::from_secs(1));
        let clock_ahead = self.ahead;
        PeerOptions { lease, epsilon, round, clock_ahead, ..PeerOptions::new(self.peers.clone(), me, key) }
    }

    pub(crate) async fn start(&self, me: u16) -> RunningManager {
        self.start_with(self.options(me)).await
    }

    pub(crate) async fn start_with(&self, options: PeerOptions) -> RunningManager {
        let leader_lease = options.election().leader_lease(Drift::default());
        let config = Config {
            grpc_listen: options.own_address().parse().expect("an address"),
            namespaces: BTreeMap::from([(pool(), declared())]),
            leader_lease,
            campaign_interval: leader_lease / 4,
            ..support::config()
        };
        Manager::start(config, Backend::None(Box::new(options))).await.expect("it starts")
    }

    pub(crate) async fn start_all(&self) -> Vec<RunningManager> {
        let mut managers = Vec::new();
        for (peer, _) in self.peers.iter() {
            managers.push(self.start(peer).await);
        }
        managers
    }

    /// The Managers as clients know them.
    pub(crate) fn listed(&self) -> Managers {
        Managers::list(self.peers.iter().map(|(_, address)| address.to_owned())).expect("addresses")
    }
}

/// Waits until one of them leads, and says where it is among them.
pub(crate) async fn leader(managers: &[RunningManager]) -> usize {
    eventually(async || managers.iter().position(|manager| manager.view().role().is_leading())).await
}

/// Every lease of the pool: its first key, owner, number, and since when its state is.
pub(crate) fn leases(manager: &RunningManager) -> Vec<(Key, String, u64, u64)> {
    let Some(group) = manager.view().group() else { return Vec::new() };
    let Some(stored) = group.namespaces.get(&pool()) else { return Vec::new() };
    let owned = stored.table.iter().filter_map(|(range, entry)| Some((range, entry, entry.owner?)));
    owned
        .map(|(range, entry, owner)| {
            (range.first(), owner.to_string(), entry.generation.0, entry.state_since.0)
        })
        .collect()
}
