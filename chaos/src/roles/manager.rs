//! A Manager's process.

use std::error::Error;

use centrifuge_core::plant::Plants;
use centrifuge_server::Manager;
use centrifuge_server::config::{ConfigArgs, EtcdArgs};

use super::{ManagerRole, ManagerStore, Part, told_to_stop};

/// Serves until it is told to stop; then it resigns.
pub(super) async fn run(part: &Part, role: &ManagerRole) -> Result<(), Box<dyn Error>> {
    let (store, etcd_endpoints) = match &role.store {
        ManagerStore::File(path) => (format!("file:{}", path.display()), None),
        ManagerStore::Etcd(endpoints) => ("etcd".to_owned(), Some(endpoints.join(","))),
    };
    let wanted = ConfigArgs {
        store: Some(store.into()),
        etcd: EtcdArgs { etcd_endpoints, ..EtcdArgs::default() },
        grpc_listen: Some(role.grpc.clone()),
        http_listen: Some(role.http.clone()),
        leader_lease: role.leader_lease.clone(),
        campaign_interval: role.campaign_interval.clone(),
        // Namespaces of our own are no other machine.
        insecure: Some(true),
        ..ConfigArgs::default()
    };
    let config = wanted.resolve()?;
    if let Some(plant) = part.plant {
        centrifuge_server::plant::set(
            plant.in_machine().map_or(Plants::NONE, Plants::only),
            plant.in_driver(),
        );
    }
    let store = config.store.clone();
    let manager = Manager::start(config, store).await?;
    told_to_stop().await;
    manager.shutdown().await;
    Ok(())
}
