//! A Manager in a process of its own, and Owners and Lookups in a few others, as applications link them.

mod clients;
mod meter;
mod secured;

use std::time::{Duration, Instant};

use centrifuge_core::id::ManagerId;
use centrifuge_harness::Process;
use centrifuge_harness::signals::Signal;
use centrifuge_net::dial::Channel;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

pub(crate) use self::clients::{ClientsPart, Counted, Kind, Order, make_room, run as run_clients};
pub(crate) use self::meter::{Cost, Meter, Reading};
pub(crate) use self::secured::{ClientFiles, Secured};
use crate::process::{Part, ask_all, start_manager};
use crate::{Failure, Result};

/// The pool.
pub(crate) const NAMESPACE: &str = "bench";
/// How long it may take until everything is at rest.
pub(crate) const REST_TIMEOUT: Duration = Duration::from_secs(600);
/// How often a condition is checked.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn owner_name(number: usize) -> String {
    format!("owner-{number}")
}

pub(crate) fn owner_url(name: &str) -> String {
    format!("http://{name}.example:8080")
}

/// The Manager that is measured, in a process of its own; that ends, and its store is deleted, when this is dropped.
pub(crate) struct MeasuredManager {
    // The process goes before its files.
    process: Process,
    _directory: Option<TempDir>,
    secured: Option<Secured>,
    /// What it is started with, but for its addresses.
    arguments: Vec<String>,
    id: ManagerId,
    meter: Meter,
    dialer: Dialer,
}

impl MeasuredManager {
    /// Starts the process on a file of its own, and waits until it leads.
    pub(crate) async fn start() -> Result<MeasuredManager> {
        MeasuredManager::start_inside(None).await
    }

    /// The same inside TLS, if there is something to do that with.
    pub(crate) async fn start_inside(secured: Option<Secured>) -> Result<MeasuredManager> {
        let directory = tempfile::tempdir()?;
        let store = directory.path().join("centrifuge.db").display().to_string();
        let manager = MeasuredManager::start_by(&["--store", &store], secured).await?;
        Ok(MeasuredManager { _directory: Some(directory), ..manager })
    }

    /// The same in the clear, on a store that somebody else looks after.
    pub(crate) async fn start_on(store: &[&str]) -> Result<MeasuredManager> {
        MeasuredManager::start_by(store, None).await
    }

    async fn start_by(store: &[&str], secured: Option<Secured>) -> Result<MeasuredManager> {
        let mut arguments: Vec<String> = store.iter().map(|word| (*word).to_owned()).collect();
        arguments.extend(secured.iter().flat_map(Secured::arguments));
        let (process, address, http) = start_manager(&at(&arguments, "127.0.0.1:0", "127.0.0.1:0")).await?;
        let security = secured.as_ref().map(Secured::client).unwrap_or_default().security();
        let (id, dialer) = (ManagerId::from(address.as_str()), Dialer::secured(security.clone()));
        let meter = Meter { process: process.id(), http, security };
        Ok(MeasuredManager { process, _directory: None, secured, arguments, id, meter, dialer })
    }

    /// Kills the process and starts another at the same addresses, on the same store; waits until that leads.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.process.signal(Signal::KILL)?;
        while self.process.ended()?.is_none() {
            tokio::time::sleep(POLL_INTERVAL / 10).await;
        }
        let arguments = at(&self.arguments, self.id.as_str(), &self.meter.http.to_string());
        let (process, ..) = start_manager(&arguments).await?;
        self.meter.process = process.id();
        self.process = process;
        Ok(())
    }

    /// What clients trust and show.
    pub(crate) fn client_files(&self) -> ClientFiles {
        self.secured.as_ref().map(Secured::client).unwrap_or_default()
    }

    /// What it has counted since it was started last, as text.
    pub(crate) async fn metrics(&self) -> Result<String> {
        self.meter.metrics().await
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> &str {
        self.id.as_str()
    }

    /// An operator's connection.
    pub(crate) fn admin(&self) -> Result<AdminClient<Channel>> {
        Ok(self.dialer.admin(&self.id)?)
    }

    /// What it has cost by now.
    pub(crate) async fn read_meter(&self) -> Result<Reading> {
        self.meter.read().await
    }

    /// Fails if the process has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        Ok(self.process.check()?)
    }

    pub(crate) async fn create_namespace(
        &self,
        namespace: &str,
        settings: Option<v1::Settings>,
    ) -> Result<()> {
        let request = v1::CreateNamespaceRequest { namespace: namespace.to_owned(), settings, kind: None };
        self.admin()?.create_namespace(request).await?;
        Ok(())
    }
}

/// The arguments of a Manager at these addresses.
fn at(arguments: &[String], grpc: &str, http: &str) -> Vec<String> {
    let addresses = ["--grpc-listen", grpc, "--http-listen", http].map(str::to_owned);
    [&addresses, arguments].concat()
}

/// What the Manager says of the pool.
pub(crate) async fn pool_status(mut admin: AdminClient<Channel>) -> Result<v1::NamespaceStatus> {
    let request = v1::ListNamespacesRequest { namespace: Some(NAMESPACE.to_owned()) };
    let reply = admin.list_namespaces(request).await?.into_inner();
    reply.namespaces.into_iter().next().ok_or_else(|| "the namespace is gone".into())
}

/// How many clients one process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Share {
    /// The number of its first Owner; the others are numbered on.
    pub(crate) first_owner: usize,
    pub(crate) owners: usize,
    pub(crate) lookups: usize,
}

/// Everything that runs; it ends when this is dropped.
pub(crate) struct Testbed {
    // The clients go first.
    clients: Vec<Process>,
    pub(crate) manager: MeasuredManager,
    owners: usize,
    lookups: usize,
}

impl Testbed {
    /// Starts the processes and creates the namespace; clients start by an order.
    pub(crate) async fn start(shares: &[Share], settings: v1::Settings) -> Result<Testbed> {
        Testbed::start_inside(None, shares, settings).await
    }

    /// The same inside TLS, if there is something to do that with.
    pub(crate) async fn start_inside(
        secured: Option<Secured>,
        shares: &[Share],
        settings: v1::Settings,
    ) -> Result<Testbed> {
        let manager = MeasuredManager::start_inside(secured).await?;
        manager.create_namespace(NAMESPACE, Some(settings)).await?;
        let part = |share| {
            let (manager, files) = (manager.address().to_owned(), manager.client_files());
            Part::Clients(ClientsPart { manager, files, share })
        };
        let clients = shares.iter().map(|share| part(*share).start()).collect::<Result<_, _>>()?;
        let owners = shares.iter().map(|share| share.owners).sum();
        let lookups = shares.iter().map(|share| share.lookups).sum();
        Ok(Testbed { clients, manager, owners, lookups })
    }

    /// Gives every process of clients an order, and waits until all have obeyed.
    pub(crate) async fn order(&mut self, order: &Order) -> Result<()> {
        self.ask(order).await.map(|_: Vec<()>| ())
    }

    /// The same for an order that is answered.
    pub(crate) async fn ask<A: DeserializeOwned>(&mut self, order: &Order) -> Result<Vec<A>> {
        let answers = ask_all(&mut self.clients, |_| order).await?;
        self.manager.check()?;
        Ok(answers)
    }

    /// Waits until every Owner holds leases, nothing moves, and every Lookup has the latest table.
    pub(crate) async fn await_rest(&mut self) -> Result<()> {
        let since = Instant::now();
        loop {
            let pool = self.status().await?;
            let is_whole = pool.unowned_ranges == 0 && pool.moving_ranges == 0;
            let counted: Vec<Counted> = self.ask(&Order::Count { lsn: pool.lsn }).await?;
            let owners: usize = counted.iter().map(|counted| counted.owners).sum();
            let lookups: usize = counted.iter().map(|counted| counted.lookups).sum();
            if is_whole && owners == self.owners && lookups == self.lookups {
                return Ok(());
            }
            if since.elapsed() > REST_TIMEOUT {
                return Err(Failure::from(format!(
                    "after {REST_TIMEOUT:?} {owners} of {} Owners hold leases, {lookups} of {} Lookups are up to \
                     date, {} ranges have no owner and {} move",
                    self.owners, self.lookups, pool.unowned_ranges, pool.moving_ranges
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// What the Manager says of the pool.
    pub(crate) async fn status(&self) -> Result<v1::NamespaceStatus> {
        pool_status(self.manager.admin()?).await
    }

    /// Unowned ranges no longer wait for anyone: the default.
    pub(crate) async fn grant_at_once(&self) -> Result<()> {
        let settings = v1::Settings { min_owners: Some(1), ..v1::Settings::default() };
        let request = v1::ConfigureNamespaceRequest {
            namespace: NAMESPACE.to_owned(),
            settings: Some(settings),
            expected: None,
            kind: None,
        };
        self.manager.admin()?.configure_namespace(request).await?;
        Ok(())
    }

    /// Bytes of a snapshot of the table for each of its ranges.
    pub(crate) async fn bytes_per_range(&self) -> Result<u64> {
        let ranges = u64::from(self.status().await?.ranges);
        let request = v1::WatchRequest {
            namespace: NAMESPACE.to_owned(),
            lookup: vec![1; 16].into(),
            seq: 1,
            position: None,
            ..Default::default()
        };
        let mut client = self.manager.dialer.lookup(&self.manager.id)?;
        let reply = client.watch(request).await?.into_inner().message().await?;
        match reply.and_then(|reply| reply.kind) {
            Some(v1::watch_reply::Kind::Update(update)) => Ok(update.news.len() as u64 / ranges.max(1)),
            _ => Err(Failure::from("the Manager gave no table")),
        }
    }
}
