//! A Manager in a process of its own, clients in a few others, and an operator's connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use centrifuge_core::id::ManagerId;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tempfile::TempDir;
use tonic::transport::Channel;

use super::meter::Meter;
use super::order::{Answer, Order};
use super::{ManagerBenchArgs, NAMESPACE};
use crate::bench::process::{Process, Reads, start_manager};
use crate::failure::Failure;

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// How long one may take to come about.
const BOUND: Duration = Duration::from_secs(600);

/// Everything that runs; it ends when this is dropped.
pub(super) struct Testbed {
    // The clients go first, and the Manager before its directory.
    clients: Vec<Process>,
    manager: Process,
    _directory: TempDir,
    address: String,
    http: SocketAddr,
    dialer: Dialer,
    owners: usize,
    lookups: usize,
}

impl Testbed {
    /// Starts the processes; clients start by an order.
    pub(super) async fn start(args: &ManagerBenchArgs) -> Result<Testbed, Failure> {
        let directory =
            tempfile::tempdir().map_err(|error| Failure::failed(format!("no directory: {error}")))?;
        let store = directory.path().join("centrifuge.db").display().to_string();
        let (manager, address, http) = start_manager(&["--store", &store]).await?;
        let mut testbed = Testbed {
            clients: Vec::new(),
            manager,
            _directory: directory,
            address,
            http,
            dialer: Dialer::new(),
            owners: args.owners,
            lookups: args.lookups,
        };
        testbed.await_leader().await?;
        testbed.create_namespace().await?;
        testbed.start_clients(args.processes)?;
        Ok(testbed)
    }

    /// An operator's connection.
    pub(super) fn admin(&self) -> Result<AdminClient<Channel>, Failure> {
        self.dialer.admin(&self.manager_id()).map_err(|error| Failure::failed(error.to_string()))
    }

    pub(super) fn meter(&self) -> Meter {
        Meter::new(self.manager.id(), self.http)
    }

    /// Gives every process of clients an order, and waits for all answers.
    pub(super) async fn order(&mut self, order: &Order) -> Result<Vec<Answer>, Failure> {
        let line = serde_json::to_string(order).map_err(|error| Failure::failed(error.to_string()))?;
        for process in &mut self.clients {
            process.tell(&line)?;
        }
        let mut answers = Vec::new();
        for process in &mut self.clients {
            let line = process.next_line().await?;
            match serde_json::from_str(&line) {
                Ok(Answer::Failed { why }) => return Err(Failure::failed(why)),
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    return Err(Failure::failed(format!("a process of clients said {line:?}: {error}")));
                }
            }
        }
        self.manager.check()?;
        Ok(answers)
    }

    /// Waits until every Owner holds leases, nothing moves, and every Lookup has the latest table.
    pub(super) async fn await_rest(&mut self) -> Result<(), Failure> {
        let since = Instant::now();
        loop {
            let space = self.namespace().await?;
            let is_whole = space.unowned_ranges == 0 && space.moving_ranges == 0;
            let (mut owners, mut lookups) = (0, 0);
            for answer in self.order(&Order::Count { lsn: space.lsn }).await? {
                if let Answer::Counted { owners: holding, lookups: current } = answer {
                    (owners, lookups) = (owners + holding, lookups + current);
                }
            }
            if is_whole && owners == self.owners && lookups == self.lookups {
                return Ok(());
            }
            if since.elapsed() > BOUND {
                return Err(Failure::failed(format!(
                    "after {BOUND:?} {owners} of {} Owners hold leases, {lookups} of {} Lookups are up to date, \
                     {} ranges have no owner and {} move",
                    self.owners, self.lookups, space.unowned_ranges, space.moving_ranges
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(super) async fn namespace(&self) -> Result<v1::NamespaceStatus, Failure> {
        let request = v1::ListNamespacesRequest { namespace: Some(NAMESPACE.to_owned()) };
        let reply = self.admin()?.list_namespaces(request).await?.into_inner();
        reply.namespaces.into_iter().next().ok_or_else(|| Failure::failed("the namespace is gone"))
    }

    /// Unowned ranges no longer wait for anyone: the default.
    pub(super) async fn grant_at_once(&self) -> Result<(), Failure> {
        let settings = v1::Settings { min_owners: Some(1), ..v1::Settings::default() };
        let request = v1::ConfigureNamespaceRequest {
            namespace: NAMESPACE.to_owned(),
            settings: Some(settings),
            expected: None,
        };
        self.admin()?.configure_namespace(request).await?;
        Ok(())
    }

    /// Bytes of a snapshot of the table for each of its ranges.
    pub(super) async fn bytes_per_range(&self) -> Result<u64, Failure> {
        let ranges = u64::from(self.namespace().await?.ranges);
        let request = v1::WatchRequest {
            namespace: NAMESPACE.to_owned(),
            lookup: vec![1; 16].into(),
            seq: 1,
            position: None,
            term: 0,
        };
        let client = self.dialer.lookup(&self.manager_id());
        let mut client = client.map_err(|error| Failure::failed(error.to_string()))?;
        let reply = client.watch(request).await?.into_inner().message().await?;
        match reply.and_then(|reply| reply.kind) {
            Some(v1::watch_reply::Kind::Update(update)) => Ok(update.news.len() as u64 / ranges.max(1)),
            _ => Err(Failure::failed("the Manager gave no table")),
        }
    }

    fn manager_id(&self) -> ManagerId {
        ManagerId::from(self.address.as_str())
    }

    async fn await_leader(&mut self) -> Result<(), Failure> {
        let since = Instant::now();
        while self.admin()?.status(v1::StatusRequest {}).await?.into_inner().role() != v1::Role::Leader {
            self.manager.check()?;
            if since.elapsed() > BOUND {
                return Err(Failure::failed("the Manager does not lead"));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// The first ranges are granted when all Owners are there: else they would move with every one that joins.
    async fn create_namespace(&self) -> Result<(), Failure> {
        let settings = v1::Settings {
            min_owners: Some(u32::try_from(self.owners).unwrap_or(u32::MAX)),
            settle_ms: Some(u64::try_from(BOUND.as_millis()).unwrap_or(u64::MAX)),
            ..v1::Settings::default()
        };
        let request =
            v1::CreateNamespaceRequest { namespace: NAMESPACE.to_owned(), settings: Some(settings) };
        self.admin()?.create_namespace(request).await?;
        Ok(())
    }

    /// The Owners have a process of their own, where nothing else delays their renewals.
    fn start_clients(&mut self, processes: usize) -> Result<(), Failure> {
        let others = processes - 1;
        let lookups_of = |number: usize| match number.checked_sub(1) {
            None => self.lookups * usize::from(others == 0),
            Some(number) => self.lookups * (number + 1) / others - self.lookups * number / others,
        };
        for number in 0..processes {
            let (owners, lookups) = (self.owners * usize::from(number == 0), lookups_of(number));
            let words = [
                "bench",
                "manager-clients",
                "--manager",
                &self.address,
                "--owners",
                &owners.to_string(),
                "--lookups",
                &lookups.to_string(),
            ]
            .map(str::to_owned);
            self.clients.push(Process::start(&words, Reads::Stdout)?);
        }
        Ok(())
    }
}
