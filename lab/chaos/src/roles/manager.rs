//! A Manager's process.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_net::convert::read_settings;
use centrifuge_server::Manager;
use centrifuge_server::config::{ConfigArgs, EtcdArgs, FleaseArgs};

use crate::plan::{EPSILON, NAMESPACE, ROUND, Times};

use super::{ManagerRole, ManagerStore, Part, told_to_stop};

/// Serves until it is told to stop; then it resigns.
pub(super) async fn run(part: &Part, role: &ManagerRole) -> Result<(), Box<dyn Error>> {
    let (store, etcd_endpoints) = match &role.store {
        ManagerStore::File(path) => (format!("file:{}", path.display()), None),
        ManagerStore::Etcd(endpoints) => ("etcd".to_owned(), Some(endpoints.join(","))),
        ManagerStore::None { .. } => ("none".to_owned(), None),
    };
    let is_diskless = matches!(role.store, ManagerStore::None { .. });
    let wanted = ConfigArgs {
        store: Some(store.into()),
        etcd: EtcdArgs { etcd_endpoints, ..EtcdArgs::default() },
        grpc_listen: Some(role.grpc.clone()),
        http_listen: Some(role.http.clone()),
        leader_lease: role.leader_lease.clone(),
        campaign_interval: role.campaign_interval.clone(),
        // Namespaces of our own are no other machine.
        insecure: Some(true),
        flease: flease(&role.store),
        namespace: Vec::from_iter(is_diskless.then(|| NAMESPACE.to_owned())),
        ..ConfigArgs::default()
    };
    let mut config = wanted.resolve()?;
    for settings in config.namespaces.values_mut() {
        *settings = Arc::new(read_settings(&part.times.settings(), settings)?);
    }
    if let Some(bug) = part.bug {
        bug.inject();
    }
    let store = config.store.clone();
    let manager = Manager::start(config, store).await?;
    told_to_stop().await;
    manager.shutdown().await;
    Ok(())
}

/// What Managers without a store are told.
fn flease(store: &ManagerStore) -> FleaseArgs {
    let ManagerStore::None { peers, me, key, is_short } = store else { return FleaseArgs::default() };
    let short = |time: Duration| is_short.then(|| format!("{}ms", time.as_millis()));
    FleaseArgs {
        peers: Some(peers.clone()),
        peer_id: Some(*me),
        peer_key_file: Some(key.clone()),
        flease_lease: short(Times::PEERS.lease),
        flease_epsilon: short(EPSILON),
        flease_round: short(ROUND),
        ..FleaseArgs::default()
    }
}
