//! Managers on one etcd, and what is asked of them.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::Namespace;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_net::proto::v1;
use centrifuge_server::config::Limits;
use centrifuge_server::store::EtcdOptions;
use centrifuge_server::{Config, Manager, RunningManager};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::etcd_support::backend;
use crate::support::{self, eventually, within};

pub(crate) use crate::support::{shut_down, stands_by};

/// The usual times on etcd, and room for a load of namespaces.
pub(crate) fn config() -> Config {
    Config {
        leader_lease: Duration::from_millis(4_600),
        campaign_interval: Duration::from_secs(1),
        limits: Limits { max_namespaces: 100_000, ..Limits::default() },
        ..support::config()
    }
}

pub(crate) async fn start(options: &EtcdOptions) -> RunningManager {
    start_with(options, config()).await
}

pub(crate) async fn start_with(options: &EtcdOptions, config: Config) -> RunningManager {
    Manager::start(config, backend(options)).await.expect("it starts")
}

/// A Manager that leads, and one that stands by and may reach etcd in another way.
pub(crate) async fn start_two(leader: &EtcdOptions, standby: &EtcdOptions) -> [RunningManager; 2] {
    let first = start(leader).await;
    within(first.leads()).await;
    let second = start(standby).await;
    stands_by(&second, &first).await;
    [first, second]
}

/// When it stops to lead.
pub(crate) fn stops(manager: &RunningManager) -> JoinHandle<Instant> {
    let mut roles = manager.view().roles();
    tokio::spawn(async move {
        within(roles.wait_for(|role| !role.is_leading())).await.expect("it runs");
        Instant::now()
    })
}

/// Waits until one of them leads.
pub(crate) async fn leader(managers: &[RunningManager]) -> &RunningManager {
    eventually(async || managers.iter().find(|manager| manager.view().role().is_leading())).await
}

pub(crate) async fn create(leader: &RunningManager, namespace: &str, settings: v1::Settings) {
    let request =
        v1::CreateNamespaceRequest { namespace: namespace.to_owned(), settings: Some(settings), kind: None };
    support::admin(leader.grpc_addr()).await.create_namespace(request).await.expect("created");
}

/// Leases that no slow machine loses while there is another leader to find.
pub(crate) fn long_leases() -> v1::Settings {
    v1::Settings { lease_ms: Some(40_000), hold_ms: Some(44_000), ..settings() }
}

/// What all pools here have in common: quick to settle, and no balancing by the load that tests make.
pub(crate) fn settings() -> v1::Settings {
    v1::Settings {
        settle_ms: Some(200),
        virtual_nodes: Some(16),
        load_interval_ms: Some(3_600_000),
        ..support::short_leases()
    }
}

/// Every lease of a namespace: range, owner, number, and since when its state is.
pub(crate) fn leases(manager: &RunningManager, namespace: &str) -> Vec<String> {
    let group: Arc<ManagerState> = manager.view().group().expect("it leads");
    let stored = &group.namespaces[&Namespace::new(namespace).expect("a label")];
    stored.table.iter().map(|entry| format!("{entry:?}")).collect()
}
