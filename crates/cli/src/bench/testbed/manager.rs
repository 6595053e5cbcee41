//! A Manager in a process of its own on a store of its own, and an operator's connection to it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use centrifuge_core::id::ManagerId;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tempfile::TempDir;
use tonic::transport::Channel;

use super::meter::Meter;
use crate::bench::process::{Process, start_manager};
use crate::failure::Failure;

/// How often a condition is checked.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long the Manager may take to lead.
const LEADER_TIMEOUT: Duration = Duration::from_secs(60);

/// The Manager that is measured; its process ends, and its store is deleted, when this is dropped.
pub(crate) struct MeasuredManager {
    // The process goes before its directory.
    process: Process,
    _directory: TempDir,
    address: String,
    http: SocketAddr,
    dialer: Dialer,
}

impl MeasuredManager {
    /// Starts the process and waits until it leads.
    pub(crate) async fn start() -> Result<MeasuredManager, Failure> {
        let directory =
            tempfile::tempdir().map_err(|error| Failure::failed(format!("no directory: {error}")))?;
        let store = directory.path().join("centrifuge.db").display().to_string();
        let (process, address, http) = start_manager(&["--store", &store]).await?;
        let mut manager =
            MeasuredManager { process, _directory: directory, address, http, dialer: Dialer::new() };
        manager.await_leader().await?;
        Ok(manager)
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Where clients reach it, as a dialer takes it.
    pub(crate) fn id(&self) -> ManagerId {
        ManagerId::from(self.address.as_str())
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// An operator's connection.
    pub(crate) fn admin(&self) -> Result<AdminClient<Channel>, Failure> {
        self.dialer.admin(&self.id()).map_err(|error| Failure::failed(error.to_string()))
    }

    pub(crate) fn meter(&self) -> Meter {
        Meter::new(self.process.id(), self.http)
    }

    /// Fails if the process has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        self.process.check()
    }

    pub(crate) async fn create_namespace(
        &self,
        namespace: &str,
        settings: v1::Settings,
    ) -> Result<(), Failure> {
        let request =
            v1::CreateNamespaceRequest { namespace: namespace.to_owned(), settings: Some(settings) };
        self.admin()?.create_namespace(request).await?;
        Ok(())
    }

    pub(crate) async fn namespace(&self, namespace: &str) -> Result<v1::NamespaceStatus, Failure> {
        namespace_status(&mut self.admin()?, namespace).await
    }

    async fn await_leader(&mut self) -> Result<(), Failure> {
        let since = Instant::now();
        while self.admin()?.status(v1::StatusRequest {}).await?.into_inner().role() != v1::Role::Leader {
            self.check()?;
            if since.elapsed() > LEADER_TIMEOUT {
                return Err(Failure::failed("the Manager does not lead"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// What the Manager says of a namespace.
pub(crate) async fn namespace_status(
    admin: &mut AdminClient<Channel>,
    namespace: &str,
) -> Result<v1::NamespaceStatus, Failure> {
    let request = v1::ListNamespacesRequest { namespace: Some(namespace.to_owned()) };
    let reply = admin.list_namespaces(request).await?.into_inner();
    reply.namespaces.into_iter().next().ok_or_else(|| Failure::failed("the namespace is gone"))
}
