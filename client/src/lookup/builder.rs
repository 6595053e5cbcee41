//! How a Lookup is described and finds its table.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{ManagerId, NameError, Namespace};
use centrifuge_core::lookup::{LookupConfig, LookupEvent, LookupMachine};
use centrifuge_core::plant::Plants;
use centrifuge_net::driver::Driver;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::AbortHandle;

use super::host::LookupHost;
use super::links::WatchLinks;
use super::news::{BACKLOG, Loss, Losses};
use super::{Inner, Lookup, Shared, Status};
use crate::hot::HotRoutes;
use crate::managers::{Managers, ManagersError};

/// How many events wait for the driver.
const QUEUE: usize = 1024;
/// How long connecting waits unless told otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Clocks that move against each other by more than this are a jump.
const CLOCK_SLACK: Duration = Duration::from_secs(1);

type OnLoss = Box<dyn Fn(Loss) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Describes a Lookup before it connects.
pub struct LookupBuilder {
    managers: Managers,
    namespace: String,
    on_loss: Option<OnLoss>,
    poll: Option<Duration>,
    contact_timeout: Option<Duration>,
    unowned_delay: Option<Duration>,
    silence: Option<Duration>,
    connect_timeout: Duration,
}

/// Why a Lookup has no table.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The namespace is no label.
    #[error("the namespace {0:?} is refused: {1}")]
    Namespace(String, NameError),
    /// The Managers are not known.
    #[error(transparent)]
    Managers(#[from] ManagersError),
    /// The operating system gave no random bits, which the Lookup's identity needs.
    #[error("the operating system gave no randomness: {0}")]
    Randomness(String),
    /// There is no such namespace.
    #[error("there is no namespace {0}: create it with `centrifuge namespace create {0}`")]
    UnknownNamespace(String),
    /// The contact timeout is too short for two polls.
    #[error("the contact timeout must be longer than two polls: lengthen it or poll more often")]
    ContactTooShort,
    /// Nobody answered who leads.
    #[error(
        "no leading Manager answered within {0:?}: check that one runs at an address that was given and that it can be reached"
    )]
    NoLeader(Duration),
    /// The driver ended.
    #[error("the Lookup's task ended while it connected: see the log")]
    Stopped,
}

impl LookupBuilder {
    pub(super) fn new(managers: Managers, namespace: &str) -> LookupBuilder {
        LookupBuilder {
            managers,
            namespace: namespace.to_owned(),
            on_loss: None,
            poll: None,
            contact_timeout: None,
            unowned_delay: None,
            silence: None,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }

    /// Called with every loss, one after the other, on a task of its own. A caller that is too slow to be told which
    /// keys were lost is told that all of them were.
    #[must_use]
    pub fn on_loss<F, R>(mut self, callback: F) -> LookupBuilder
    where
        F: Fn(Loss) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on_loss = Some(Box::new(move |loss| Box::pin(callback(loss))));
        self
    }

    /// How often to ask when all is well; 30 s unless set. Changes are pushed: this is the repair.
    #[must_use]
    pub fn poll(mut self, every: Duration) -> LookupBuilder {
        self.poll = Some(every);
        self
    }

    /// How old knowledge may become before everything is taken for lost; 90 s unless set. Longer than a change of
    /// leaders and two polls take.
    #[must_use]
    pub fn contact_timeout(mut self, timeout: Duration) -> LookupBuilder {
        self.contact_timeout = Some(timeout);
        self
    }

    /// How long a loss waits for the range's next owner before it is told without one; 30 s unless set.
    #[must_use]
    pub fn unowned_delay(mut self, delay: Duration) -> LookupBuilder {
        self.unowned_delay = Some(delay);
        self
    }

    /// How long a request may go unanswered before every Manager is asked; 5 s unless set.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> LookupBuilder {
        self.silence = Some(silence);
        self
    }

    /// How long [`LookupBuilder::connect`] waits for a table; 30 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> LookupBuilder {
        self.connect_timeout = timeout;
        self
    }

    /// Gets the table.
    pub async fn connect(self) -> Result<Lookup, ConnectError> {
        let managers = self.managers.read()?;
        let config = self.config(Arc::clone(&managers))?;
        let random = crate::seed::random().map_err(ConnectError::Randomness)?;
        let namespace = config.namespace.clone();
        let machine = LookupMachine::new(config, random, Plants::NONE);
        let timeout = self.connect_timeout;
        let lookup = self.start(namespace, managers, machine);
        match tokio::time::timeout(timeout, lookup.connected()).await {
            Ok(connected) => connected.map(|()| lookup),
            Err(_) => Err(ConnectError::NoLeader(timeout)),
        }
    }

    fn config(&self, managers: Arc<[ManagerId]>) -> Result<LookupConfig, ConnectError> {
        let namespace = Namespace::new(&self.namespace)
            .map_err(|error| ConnectError::Namespace(self.namespace.clone(), error))?;
        let usual = LookupConfig::new(namespace, managers);
        let config = LookupConfig {
            poll: self.poll.unwrap_or(usual.poll),
            contact_timeout: self.contact_timeout.unwrap_or(usual.contact_timeout),
            unowned_delay: self.unowned_delay.unwrap_or(usual.unowned_delay),
            silence: self.silence.unwrap_or(usual.silence),
            ..usual
        };
        // What choosing a leader takes is the Managers' to know; here only what is wrong in any case is refused.
        config.check(Duration::ZERO, Duration::ZERO).map_err(|_| ConnectError::ContactTooShort)?;
        Ok(config)
    }

    fn start(self, namespace: Namespace, managers: Arc<[ManagerId]>, machine: LookupMachine) -> Lookup {
        let (events, queue) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            hot: HotRoutes::new(),
            losses: broadcast::channel(BACKLOG).0,
            status: watch::channel(Status::default()).0,
        });
        let nonce = machine.nonce();
        let mut tasks = Vec::new();
        if let Some(on_loss) = self.on_loss {
            tasks.push(spawn(call(on_loss, Losses::new(shared.losses.subscribe()))));
        }
        let host = LookupHost::new(Arc::clone(&shared), WatchLinks::new(events.clone()));
        let driver = Driver::new(machine, host, CLOCK_SLACK);
        // The queue is empty: there is room.
        let _ = events.try_send(LookupEvent::Start);
        tasks.push(spawn(async move {
            driver.run(queue).await;
        }));
        tasks.push(spawn(follow(self.managers, managers, events)));
        Lookup { inner: Arc::new(Inner { shared, tasks, namespace, nonce }) }
    }
}

impl Lookup {
    async fn connected(&self) -> Result<(), ConnectError> {
        let mut status = self.inner.shared.status.subscribe();
        let decided = |status: &Status| status.position.is_some() || status.is_unknown;
        let status = status.wait_for(decided).await.map_err(|_| ConnectError::Stopped)?;
        if status.position.is_some() {
            Ok(())
        } else {
            Err(ConnectError::UnknownNamespace(self.inner.namespace.to_string()))
        }
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}

async fn call(on_loss: OnLoss, mut losses: Losses) {
    while let Some(loss) = losses.next().await {
        on_loss(loss).await;
    }
}

async fn follow(managers: Managers, known: Arc<[ManagerId]>, events: mpsc::Sender<LookupEvent>) {
    let changed = |list| {
        let events = events.clone();
        async move { events.send(LookupEvent::ManagersChanged(list)).await.is_ok() }
    };
    managers.watch(known, changed).await;
}
