//! A Manager in a process of its own, and Owners and Lookups in a few others, as applications link them.

mod clients;
mod manager;
mod meter;
mod order;

use std::time::{Duration, Instant};

use centrifuge_harness::Process;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tonic::transport::Channel;

pub(crate) use self::clients::{ClientsArgs, make_room, run as run_clients};
pub(crate) use self::manager::{MeasuredManager, POLL_INTERVAL, namespace_status};
pub(crate) use self::meter::{Cost, Meter, Reading};
pub(crate) use self::order::{Answer, Kind, Order};
use crate::Failure;
use crate::process::{hear, start, tell};

/// The pool.
pub(crate) const NAMESPACE: &str = "bench";
/// How long it may take until everything is at rest.
pub(crate) const REST_TIMEOUT: Duration = Duration::from_secs(600);

pub(crate) fn owner_name(number: usize) -> String {
    format!("owner-{number}")
}

pub(crate) fn owner_url(name: &str) -> String {
    format!("http://{name}.example:8080")
}

/// The clients of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    manager: MeasuredManager,
    owners: usize,
    lookups: usize,
}

impl Testbed {
    /// Starts the processes and creates the namespace; clients start by an order.
    pub(crate) async fn start(shares: &[Share], settings: v1::Settings) -> Result<Testbed, Failure> {
        let manager = MeasuredManager::start().await?;
        manager.create_namespace(NAMESPACE, settings).await?;
        let clients = shares.iter().map(|share| start_clients(manager.address(), *share));
        let clients = clients.collect::<Result<_, _>>()?;
        let owners = shares.iter().map(|share| share.owners).sum();
        let lookups = shares.iter().map(|share| share.lookups).sum();
        Ok(Testbed { clients, manager, owners, lookups })
    }

    /// An operator's connection.
    pub(crate) fn admin(&self) -> Result<AdminClient<Channel>, Failure> {
        self.manager.admin()
    }

    pub(crate) fn meter(&self) -> Meter {
        self.manager.meter()
    }

    /// Gives every process of clients an order, and waits for all answers.
    pub(crate) async fn order(&mut self, order: &Order) -> Result<Vec<Answer>, Failure> {
        for process in &mut self.clients {
            tell(process, order)?;
        }
        let mut answers = Vec::new();
        for process in &mut self.clients {
            match hear(process).await? {
                Answer::Failed { why } => return Err(why.into()),
                answer => answers.push(answer),
            }
        }
        self.manager.check()?;
        Ok(answers)
    }

    /// Waits until every Owner holds leases, nothing moves, and every Lookup has the latest table.
    pub(crate) async fn await_rest(&mut self) -> Result<(), Failure> {
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
            if since.elapsed() > REST_TIMEOUT {
                return Err(Failure::from(format!(
                    "after {REST_TIMEOUT:?} {owners} of {} Owners hold leases, {lookups} of {} Lookups are up to \
                     date, {} ranges have no owner and {} move",
                    self.owners, self.lookups, space.unowned_ranges, space.moving_ranges
                )));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(crate) async fn namespace(&self) -> Result<v1::NamespaceStatus, Failure> {
        self.manager.namespace(NAMESPACE).await
    }

    /// Unowned ranges no longer wait for anyone: the default.
    pub(crate) async fn grant_at_once(&self) -> Result<(), Failure> {
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
    pub(crate) async fn bytes_per_range(&self) -> Result<u64, Failure> {
        let ranges = u64::from(self.namespace().await?.ranges);
        let request = v1::WatchRequest {
            namespace: NAMESPACE.to_owned(),
            lookup: vec![1; 16].into(),
            seq: 1,
            position: None,
            term: 0,
        };
        let client = self.manager.dialer().lookup(&self.manager.id());
        let mut client = client?;
        let reply = client.watch(request).await?.into_inner().message().await?;
        match reply.and_then(|reply| reply.kind) {
            Some(v1::watch_reply::Kind::Update(update)) => Ok(update.news.len() as u64 / ranges.max(1)),
            _ => Err(Failure::from("the Manager gave no table")),
        }
    }
}

fn start_clients(manager: &str, share: Share) -> Result<Process, Failure> {
    let [first, owners, lookups] = [share.first_owner, share.owners, share.lookups].map(|n| n.to_string());
    let role = ["manager-clients", "--manager", manager, "--first-owner", &first];
    start(&[&role[..], &["--owners", &owners, "--lookups", &lookups]].concat())
}
