//! The parts of the demonstration in one process: a Manager, servers and callers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use centrifuge::{Managers, Tls};
use centrifuge_net::proto::v1;
use centrifuge_server::{Config, Manager, RunningManager};

use super::book::Book;
use super::caller::{Caller, Counts};
use super::server::Server;
use super::skew::Skew;
use super::{NAMESPACE, Place};
use crate::admin::Admin;
use crate::failure::Failure;

/// Everything that runs.
pub(super) struct Pool {
    manager: Option<RunningManager>,
    config: Config,
    /// As an operator reaches it.
    managers: Managers,
    /// The certificates, if it is inside TLS.
    certificates: Option<PathBuf>,
    servers: BTreeMap<String, Server>,
    callers: Vec<Caller>,
    pub(super) counts: Arc<Counts>,
    pub(super) book: Arc<Book>,
    pub(super) skew: Arc<Skew>,
}

/// What the Manager says of the pool.
#[derive(Debug, Default)]
pub(super) struct Sight {
    pub(super) owners: Vec<v1::OwnerStatus>,
    pub(super) space: v1::NamespaceStatus,
}

impl Sight {
    /// Whether every key has an owner and nothing moves.
    pub(super) fn is_at_rest(&self) -> bool {
        self.space.unowned_ranges == 0 && self.space.moving_ranges == 0 && !self.owners.is_empty()
    }

    pub(super) fn ranges_of(&self, name: &str) -> u32 {
        self.owners.iter().filter(|owner| owner.name == name).map(|owner| owner.ranges).sum()
    }

    pub(super) fn share_of(&self, name: &str) -> f64 {
        self.owners.iter().filter(|owner| owner.name == name).map(|owner| owner.key_share).sum()
    }
}

impl Pool {
    /// Starts a Manager on a new store, with a namespace of short leases; inside TLS if there are certificates.
    pub(super) async fn start(
        config: Config,
        settings: v1::Settings,
        certificates: Option<PathBuf>,
    ) -> Result<Pool, Failure> {
        let manager = start_manager(config.clone()).await?;
        // The second Manager of the story must be found where the first one was.
        let config = Config { grpc_listen: manager.grpc_addr(), http_listen: manager.http_addr(), ..config };
        let managers =
            Managers::list([manager.id().as_str()]).map_err(|error| Failure::failed(error.to_string()))?;
        let pool = Pool {
            managers: by(certificates.as_deref(), "operator", managers),
            certificates,
            manager: Some(manager),
            config,
            servers: BTreeMap::new(),
            callers: Vec::new(),
            counts: Arc::default(),
            book: Arc::default(),
            skew: Arc::default(),
        };
        let request = v1::CreateNamespaceRequest {
            namespace: NAMESPACE.to_owned(),
            settings: Some(settings),
            kind: None,
        };
        Admin::new(&pool.managers)
            .ask(async |mut admin| admin.create_namespace(request.clone()).await)
            .await?;
        Ok(pool)
    }

    /// Where the Manager is.
    pub(super) fn manager_address(&self) -> SocketAddr {
        self.config.grpc_listen
    }

    /// Where an operator finds certificates, if the Manager is inside TLS.
    pub(super) fn certificates(&self) -> Option<&Path> {
        self.certificates.as_deref()
    }

    pub(super) async fn start_server(&mut self, name: &str) -> Result<(), Failure> {
        let server = Server::start(name, self.place("server"), "127.0.0.1:0").await?;
        self.servers.insert(name.to_owned(), server);
        Ok(())
    }

    pub(super) async fn start_caller(&mut self, name: &str) -> Result<(), Failure> {
        let caller = Caller::start(name, self.place("caller"), &self.counts, &self.book, &self.skew).await?;
        self.callers.push(caller);
        Ok(())
    }

    /// Callers ask no more, and go on to hear of losses.
    pub(super) fn stop_asking(&mut self) {
        self.callers.iter_mut().for_each(Caller::stop_asking);
    }

    /// A server stops as if its power had failed.
    pub(super) fn crash_server(&mut self, name: &str) {
        self.servers.remove(name);
    }

    /// A server moves its state elsewhere and goes.
    pub(super) async fn drain_server(&mut self, name: &str) -> Result<(), Failure> {
        match self.servers.remove(name) {
            Some(server) => server.drain().await,
            None => Ok(()),
        }
    }

    /// The Manager stops as if it had crashed, and another process starts on the same store.
    pub(super) async fn crash_manager(&mut self) -> Result<(), Failure> {
        if let Some(manager) = self.manager.take() {
            manager.crash().await;
        }
        self.manager = Some(start_manager(self.config.clone()).await?);
        Ok(())
    }

    /// What the Manager says of the pool; nothing while it does not lead.
    pub(super) async fn sight(&self) -> Option<Sight> {
        let admin = Admin::new(&self.managers);
        let owners = v1::ListOwnersRequest { namespace: NAMESPACE.to_owned() };
        let owners = admin.ask(async |mut admin| admin.list_owners(owners.clone()).await).await.ok()?;
        let space = v1::ListNamespacesRequest { namespace: Some(NAMESPACE.to_owned()) };
        let space = admin.ask(async |mut admin| admin.list_namespaces(space.clone()).await).await.ok()?;
        Some(Sight { owners: owners.owners, space: space.namespaces.into_iter().next()? })
    }

    /// How many ranges have moved with their state so far.
    pub(super) async fn moves(&self) -> u64 {
        let request = v1::HistoryRequest {
            namespace: Some(NAMESPACE.to_owned()),
            key: None,
            limit: u32::try_from(centrifuge_net::limits::HISTORY_MOST).unwrap_or(u32::MAX),
        };
        let reply =
            Admin::new(&self.managers).ask(async |mut admin| admin.history(request.clone()).await).await;
        let is_move = |decision: &&v1::Decision| decision.kind == "granted" && decision.reason == "migrated";
        reply.map_or(0, |reply| reply.decisions.iter().filter(is_move).count() as u64)
    }

    pub(super) fn losses(&self) -> u64 {
        self.counts.losses.load(Ordering::Relaxed)
    }

    /// Ends everything.
    pub(super) async fn stop(mut self) {
        self.callers.clear();
        self.servers.clear();
        if let Some(manager) = self.manager.take() {
            manager.shutdown().await;
        }
    }

    fn place(&self, who: &str) -> Place<'static> {
        let managers = by(self.certificates(), who, self.managers.clone());
        Place { managers, namespace: NAMESPACE, record: None }
    }
}

/// The Managers, as somebody with a certificate reaches them.
fn by(certificates: Option<&Path>, who: &str, managers: Managers) -> Managers {
    let Some(folder) = certificates else { return managers };
    let file = |name: &str| folder.join(name);
    managers.tls(Tls::files(file("ca.pem"), file(&format!("{who}.pem")), file(&format!("{who}.key"))))
}

async fn start_manager(config: Config) -> Result<RunningManager, Failure> {
    let store = config.store.clone();
    let manager = Manager::start(config, store).await.map_err(|error| Failure::failed(error.to_string()))?;
    manager.leads().await;
    Ok(manager)
}
