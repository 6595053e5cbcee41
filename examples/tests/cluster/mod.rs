//! A Manager in the process of a test, and the programs of this package around it.

use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_examples::Failure;
use centrifuge_harness::{Cluster, Program};
use centrifuge_server::store::Backend;
use centrifuge_server::{Config, Manager};

/// Leases that a machine that does much else does not lose by accident, and that run out while one waits.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// A Manager with these pools, and nothing else yet.
pub(crate) async fn cluster(pools: &[&str]) -> Result<Cluster, Failure> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = Config { grpc_listen: any, http_listen: any, ..Config::default() };
    let folder = tempfile::tempdir()?;
    let manager = Manager::start(config, Backend::File(folder.path().join("centrifuge.db"))).await?;
    manager.leads().await;
    let (address, programs) =
        (manager.grpc_addr().to_string(), Program::beside(env!("CARGO_BIN_EXE_visits")));
    Cluster::around((manager, folder), &address, programs, pools, LEASE).await
}
