//! A Manager on a file of its own, with one pool whose leases are short.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use centrifuge_harness::wait::within;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_server::store::Backend;
use centrifuge_server::{Config, Manager, RunningManager};

pub(crate) const POOL: &str = "rooms";

/// Starts a Manager, which may record what it is fed, and waits until it leads.
pub(crate) async fn start(folder: &Path, record: Option<PathBuf>) -> RunningManager {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = Config { grpc_listen: any, http_listen: any, record, ..Config::default() };
    let manager =
        Manager::start(config, Backend::File(folder.join("centrifuge.db"))).await.expect("it starts");
    within(manager.leads()).await;
    let settings = v1::Settings {
        lease_ms: Some(3_000),
        hold_ms: Some(3_300),
        renewal_ms: Some(500),
        answer_allowance_ms: Some(500),
        settle_ms: Some(50),
        ..v1::Settings::default()
    };
    let request =
        v1::CreateNamespaceRequest { namespace: POOL.to_owned(), settings: Some(settings), kind: None };
    let mut admin = Dialer::new().admin(&manager.id()).expect("an address");
    admin.create_namespace(request).await.expect("created");
    manager
}
