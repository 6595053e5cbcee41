//! How a Lookup is described and finds its table.

use std::future::Future;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{ManagerId, NameError, Namespace};
use centrifuge_core::lookup::{LookupConfig, LookupEvent, LookupMachine};
use centrifuge_core::namespace_kind::{ExpectedKind, KeyKind, KindMismatch, Mode};
use centrifuge_core::random::Random;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::settings::SettingsError;
use centrifuge_net::dial::Dialer;
use centrifuge_net::driver::Driver;
use centrifuge_net::record::{RecordError, Recorder};
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::AbortHandle;

use super::host::LookupHost;
use super::links::WatchLinks;
use super::news::{BACKLOG, Loss, LossReason, Losses};
use super::{Inner, Lookup, Shared, Status};
use crate::hot::HotRoutes;
use crate::keys::{Hashed, KeyOrder};
use crate::managers::{self, Managers, ManagersError};

/// How many events wait for the driver.
const QUEUE: usize = 1024;
/// How long connecting waits unless told otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Clocks that move against each other by more than this are a jump.
const CLOCK_SLACK: Duration = Duration::from_secs(1);

type OnLoss = Box<dyn Fn(Loss) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Describes a Lookup before it connects.
pub struct LookupBuilder<K: KeyOrder = Hashed> {
    managers: Managers,
    namespace: String,
    on_loss: Option<OnLoss>,
    poll: Option<Duration>,
    contact_timeout: Option<Duration>,
    unowned_delay: Option<Duration>,
    silence: Option<Duration>,
    connect_timeout: Duration,
    record: Option<PathBuf>,
    expects: ExpectedKind,
    keys: PhantomData<K>,
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
    /// The namespace makes keys in the other way.
    #[error(
        "the namespace {namespace} does not have {} keys, which this Lookup is built for: name another namespace, or build it {}",
        built_for.as_str(),
        if *built_for == KeyKind::Ordered { "with Lookup::builder" } else { "with Lookup::ordered" }
    )]
    WrongKeys {
        /// The namespace.
        namespace: String,
        /// How the Lookup makes keys.
        built_for: KeyKind,
    },
    /// The namespace is of the other mode.
    #[error(
        "the namespace {namespace} does not have {} leases, which this Lookup is built for: name another namespace, or use {}",
        built_for.as_str(),
        if *built_for == Mode::Affinity { "Lookup" } else { "AffinityLookup" }
    )]
    WrongMode {
        /// The namespace.
        namespace: String,
        /// What the Lookup takes leases for.
        built_for: Mode,
    },
    /// A Lookup that never pauses would only be a burden.
    #[error(
        "poll and silence must be longer than nothing: leave them as they are, or make them some seconds"
    )]
    ZeroInterval,
    /// The contact timeout is too short for two polls.
    #[error("the contact timeout must be longer than two polls: lengthen it or poll more often")]
    ContactTooShort,
    /// Nobody answered who leads.
    #[error(
        "no leading Manager answered within {within:?}: check that one runs at one of {managers} and that it can be reached{problem}"
    )]
    NoLeader {
        /// Whom it asked.
        managers: String,
        /// How long it waited.
        within: Duration,
        /// What went wrong last, in words that end a sentence; empty if nothing is known.
        problem: String,
    },
    /// One leader after the other died before it had learned the table from the Owners.
    #[error(
        "the leader of {managers} learns the table from the Owners, and had not done so within {within:?}: see `centrifuge status`, and try again"
    )]
    Learning {
        /// Whom it asked.
        managers: String,
        /// How long it waited.
        within: Duration,
    },
    /// The recording cannot begin.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The driver ended.
    #[error("the Lookup's task ended while it connected: see the log")]
    Stopped,
}

impl<K: KeyOrder> LookupBuilder<K> {
    pub(super) fn new(managers: Managers, namespace: &str) -> LookupBuilder<K> {
        LookupBuilder {
            managers,
            namespace: namespace.to_owned(),
            on_loss: None,
            poll: None,
            contact_timeout: None,
            unowned_delay: None,
            silence: None,
            connect_timeout: CONNECT_TIMEOUT,
            record: None,
            expects: ExpectedKind { keys: K::KIND, ..ExpectedKind::default() },
            keys: PhantomData,
        }
    }

    /// The namespace is in affinity mode. Whoever calls this wraps the Lookup into a type without lease numbers.
    pub(crate) fn affinity(mut self) -> LookupBuilder<K> {
        self.expects.mode = Mode::Affinity;
        self
    }

    /// Called with every loss, one after the other, on a task of its own. A caller that is too slow to be told which
    /// keys were lost is told that all of them were.
    #[must_use]
    pub fn on_loss<F, R>(mut self, callback: F) -> LookupBuilder<K>
    where
        F: Fn(Loss) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on_loss = Some(Box::new(move |loss| Box::pin(callback(loss))));
        self
    }

    /// How often to ask when all is well; 30 s unless set. Changes are pushed: this is the repair.
    #[must_use]
    pub fn poll(mut self, every: Duration) -> LookupBuilder<K> {
        self.poll = Some(every);
        self
    }

    /// How old knowledge may become before everything is taken for lost; 90 s unless set. Longer than a change of
    /// leaders and two polls take.
    #[must_use]
    pub fn contact_timeout(mut self, timeout: Duration) -> LookupBuilder<K> {
        self.contact_timeout = Some(timeout);
        self
    }

    /// How long a loss waits for the range's next owner before it is told without one; 30 s unless set.
    #[must_use]
    pub fn unowned_delay(mut self, delay: Duration) -> LookupBuilder<K> {
        self.unowned_delay = Some(delay);
        self
    }

    /// How long a request may go unanswered before every Manager is asked; 5 s unless set.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> LookupBuilder<K> {
        self.silence = Some(silence);
        self
    }

    /// How long [`LookupBuilder::connect`] waits for a table; 30 s unless set.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> LookupBuilder<K> {
        self.connect_timeout = timeout;
        self
    }

    /// Writes everything that the Lookup's machine is fed to this file, for `centrifuge-sim replay FILE`, which runs it again
    /// step by step. The file has the Lookup's seed in it: keep it as you keep a key. One file for each Lookup.
    #[must_use]
    pub fn record(mut self, file: impl Into<PathBuf>) -> LookupBuilder<K> {
        self.record = Some(file.into());
        self
    }

    /// Gets the table.
    pub async fn connect(self) -> Result<Lookup<K>, ConnectError> {
        let managers = self.managers.read()?;
        let asked = managers::names(&managers);
        let config = self.config(managers)?;
        let seed = crate::seed::os_seed().map_err(ConnectError::Randomness)?;
        let recorder =
            self.record.as_deref().map(|file| Recorder::create(file, &config, seed)).transpose()?;
        let machine = LookupMachine::new(config.clone(), Random::from_seed(seed));
        let timeout = self.connect_timeout;
        let dialer = self.managers.dialer()?;
        let lookup = self.start(dialer.clone(), config, machine, recorder);
        if let Ok(connected) = tokio::time::timeout(timeout, lookup.connected()).await {
            return connected.map(|()| lookup);
        }
        let Some(hold) = lookup.inner.shared.status.borrow().learning else {
            let problem = managers::last_problem(&dialer);
            return Err(ConnectError::NoLeader { managers: asked, within: timeout, problem });
        };
        // A leader is there, and knows the table by then.
        match tokio::time::timeout(hold, lookup.connected()).await {
            Ok(connected) => connected.map(|()| lookup),
            Err(_) => Err(ConnectError::Learning { managers: asked, within: timeout + hold }),
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
            expects: self.expects,
            ..usual
        };
        // What choosing a leader takes is the Managers' to know; here only what is wrong in any case is refused.
        config.check(Duration::ZERO, Duration::ZERO).map_err(|error| match error {
            SettingsError::ZeroInterval => ConnectError::ZeroInterval,
            _ => ConnectError::ContactTooShort,
        })?;
        Ok(config)
    }

    fn start(
        self,
        dialer: Dialer,
        config: LookupConfig,
        machine: LookupMachine,
        recorder: Option<Recorder<LookupMachine>>,
    ) -> Lookup<K> {
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
        let host = LookupHost::new(Arc::clone(&shared), WatchLinks::new(dialer, events.clone()));
        let mut driver = Driver::new(machine, host, CLOCK_SLACK);
        if let Some(recorder) = recorder {
            driver = driver.with_tee(Box::new(recorder));
        }
        // The queue is empty: there is room.
        let _ = events.try_send(LookupEvent::Start);
        let panic_guard = PanicGuard(Arc::clone(&shared));
        tasks.push(spawn(async move {
            let _panic_guard = panic_guard;
            driver.run(queue).await;
        }));
        tasks.push(spawn(follow(self.managers, config.managers, events)));
        let LookupConfig { namespace, expects, .. } = config;
        Lookup::new(Arc::new(Inner { shared, tasks, namespace, nonce, expects }))
    }
}

impl<K: KeyOrder> Lookup<K> {
    async fn connected(&self) -> Result<(), ConnectError> {
        let mut status = self.inner.shared.status.subscribe();
        // The table is told before the contact it came by: whoever is connected has both.
        let has_table = |status: &Status| status.position.is_some() && status.is_in_contact;
        let decided = |status: &Status| has_table(status) || status.is_unknown || status.refused.is_some();
        let status = status.wait_for(decided).await.map_err(|_| ConnectError::Stopped)?;
        let namespace = || self.inner.namespace.to_string();
        let ExpectedKind { keys, mode } = self.inner.expects;
        match status.refused {
            Some(KindMismatch::Keys) => {
                Err(ConnectError::WrongKeys { namespace: namespace(), built_for: keys })
            }
            Some(KindMismatch::Mode) => {
                Err(ConnectError::WrongMode { namespace: namespace(), built_for: mode })
            }
            None if status.position.is_some() => Ok(()),
            None => Err(ConnectError::UnknownNamespace(namespace())),
        }
    }
}

/// Nobody would hear of a loss after the driver's panic: so everything is told to be lost then.
struct PanicGuard(Arc<Shared>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.status.send_modify(|status| status.is_in_contact = false);
            // Without readers nobody wants to know.
            let _ = self.0.losses.send(Loss { keys: RangeSet::all(), why: LossReason::OutOfContact });
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

#[cfg(test)]
mod tests {
    use centrifuge_core::id::{Lsn, Nonce};
    use centrifuge_core::message::Position;

    use super::*;

    #[tokio::test]
    async fn whoever_is_connected_has_a_table_and_is_in_contact() {
        let shared = Arc::new(Shared {
            hot: HotRoutes::new(),
            losses: broadcast::channel(BACKLOG).0,
            status: watch::channel(Status::default()).0,
        });
        let namespace = Namespace::new("rooms").expect("a label");
        let (shared, tasks, expects) = (Arc::clone(&shared), Vec::new(), ExpectedKind::default());
        let inner = Inner { shared: Arc::clone(&shared), tasks, namespace, nonce: Nonce(1), expects };
        let lookup: Lookup = Lookup::new(Arc::new(inner));
        let position = Position { log: Nonce(7), lsn: Lsn(1) };
        shared.status.send_modify(|status| status.position = Some(position));
        let early = tokio::time::timeout(Duration::ZERO, lookup.connected()).await;
        assert!(early.is_err(), "the table is told before the contact that it came by");
        shared.status.send_modify(|status| status.is_in_contact = true);
        lookup.connected().await.expect("connected");
        assert!(lookup.in_contact());
    }

    #[tokio::test]
    async fn a_panic_of_the_driver_is_told_as_the_loss_of_everything() {
        let status = Status { is_in_contact: true, ..Status::default() };
        let shared = Arc::new(Shared {
            hot: HotRoutes::new(),
            losses: broadcast::channel(BACKLOG).0,
            status: watch::channel(status).0,
        });
        let mut losses = Losses::new(shared.losses.subscribe());
        drop(PanicGuard(Arc::clone(&shared)));
        assert!(shared.status.borrow().is_in_contact, "an end without a panic is nobody's loss");
        let panic_guard = PanicGuard(Arc::clone(&shared));
        let driver = tokio::spawn(async move {
            let _panic_guard = panic_guard;
            panic!("on purpose");
        });
        assert!(driver.await.is_err_and(|error| error.is_panic()));
        let everything = Loss { keys: RangeSet::all(), why: LossReason::OutOfContact };
        assert_eq!(losses.next().await, Some(everything));
        assert!(!shared.status.borrow().is_in_contact);
    }
}
