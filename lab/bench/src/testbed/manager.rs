//! A Manager in a process of its own on a store of its own, and an operator's connection to it.

use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_harness::Process;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tempfile::TempDir;
use tonic::transport::Channel;

use super::meter::Meter;
use crate::Failure;
use crate::process::start_manager;

/// How often a condition is checked.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);

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
        let directory = tempfile::tempdir()?;
        let store = directory.path().join("centrifuge.db").display().to_string();
        let (process, address, http) = start_manager(&["--store", &store]).await?;
        Ok(MeasuredManager { process, _directory: directory, address, http, dialer: Dialer::new() })
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
        Ok(self.dialer.admin(&self.id())?)
    }

    pub(crate) fn meter(&self) -> Meter {
        Meter::new(self.process.id(), self.http)
    }

    /// Fails if the process has ended by itself.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        Ok(self.process.check()?)
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
}

/// What the Manager says of a namespace.
pub(crate) async fn namespace_status(
    admin: &mut AdminClient<Channel>,
    namespace: &str,
) -> Result<v1::NamespaceStatus, Failure> {
    let request = v1::ListNamespacesRequest { namespace: Some(namespace.to_owned()) };
    let reply = admin.list_namespaces(request).await?.into_inner();
    reply.namespaces.into_iter().next().ok_or_else(|| Failure::from("the namespace is gone"))
}
