//! How an Owner is described and joins its pool.

use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_core::id::{ManagerId, NameError, Namespace, OwnerName, SessionId, Url};
use centrifuge_core::message::RefusedWhy;
use centrifuge_core::owner::{OwnerConfig, OwnerEvent, OwnerMachine};
use centrifuge_core::plant::Plants;
use centrifuge_net::clock;
use centrifuge_net::driver::Driver;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::AbortHandle;

use super::change::{BACKLOG, Change, Changes, LeftWhy};
use super::heartbeat::{self, Probe};
use super::host::{LONGEST_SLACK, Links, OwnerHost, Watched};
use super::links::ManagerLinks;
use super::load::LoadMeter;
use super::migration::{BoxError, Imports, MigrationOut};
use super::{DiscardHook, InFlight, Inner, Owner, Shared, Status};
use crate::hot::HotLeases;
use crate::leased_map::{LeasedKey, LeasedMap};
use crate::managers::{Managers, ManagersError};

/// How many events wait for the driver.
const QUEUE: usize = 1024;
/// How often the load of ranges is told to the machine.
const LOAD_INTERVAL: Duration = Duration::from_secs(5);
/// How long a join waits unless told otherwise.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Moves a range away.
pub(super) type MigrateOut =
    Arc<dyn Fn(MigrationOut) -> BoxFuture<Result<SessionId, BoxError>> + Send + Sync>;
type OnChange = Box<dyn Fn(Change) -> BoxFuture<()> + Send + Sync>;

/// Told of the leases once they exist.
type OnStart = Box<dyn FnOnce(HotLeases) + Send>;

/// Describes an Owner before it joins.
pub struct OwnerBuilder {
    managers: Managers,
    namespace: String,
    name: Option<String>,
    url: String,
    takes_over_previous: bool,
    weight: u32,
    on_change: Option<OnChange>,
    migrate_out: Option<MigrateOut>,
    discard_hooks: Vec<DiscardHook>,
    maps: Vec<OnStart>,
    heartbeat: Option<Duration>,
    probe: Option<Probe>,
    join_timeout: Duration,
    waits_for_name: bool,
}

/// Why an Owner could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The namespace is no label.
    #[error("the namespace {0:?} is refused: {1}")]
    Namespace(String, NameError),
    /// The name is no name.
    #[error("the Owner's name {0:?} is refused: {1}")]
    Name(String, NameError),
    /// Callers could not find the Owner.
    #[error("the Owner has no url: say where callers reach it, with url()")]
    NoUrl,
    /// The Managers are not known.
    #[error(transparent)]
    Managers(#[from] ManagersError),
    /// The operating system gave no random bits, which the session's identity needs.
    #[error("the operating system gave no randomness: {0}")]
    Randomness(String),
    /// Another process of that name was heard of within the hold.
    #[error(
        "another process named {0} is or was just alive: wait until its hold has run out, choose another name, or say takes_over_previous if it is known to be gone"
    )]
    NameInUse(String),
    /// There is no such namespace.
    #[error("there is no namespace {0}: create it with `centrifuge namespace create {0}`")]
    UnknownNamespace(String),
    /// An operator evicted this process.
    #[error("an operator evicted this process: start a new one when it is welcome again")]
    Evicted,
    /// The namespace is full.
    #[error("the namespace has as many Owners as it may have: raise max_owners or stop one")]
    TooManyOwners,
    /// Nobody answered who leads.
    #[error(
        "no leading Manager answered within {0:?}: check that one runs at an address that was given and that it can be reached"
    )]
    NoLeader(Duration),
    /// The driver ended.
    #[error("the Owner's task ended while it joined: see the log")]
    Stopped,
}

impl OwnerBuilder {
    pub(super) fn new(managers: Managers, namespace: &str) -> OwnerBuilder {
        OwnerBuilder {
            managers,
            namespace: namespace.to_owned(),
            name: None,
            url: String::new(),
            takes_over_previous: false,
            weight: 100,
            on_change: None,
            migrate_out: None,
            discard_hooks: Vec::new(),
            maps: Vec::new(),
            heartbeat: None,
            probe: None,
            join_timeout: JOIN_TIMEOUT,
            waits_for_name: false,
        }
    }

    /// The name that the restarts of this server share; its url if none is given. What it owns derives from it.
    #[must_use]
    pub fn name(mut self, name: &str) -> OwnerBuilder {
        self.name = Some(name.to_owned());
        self
    }

    /// Where callers reach this server. Centrifuge hands it on and never reads it.
    #[must_use]
    pub fn url(mut self, url: &str) -> OwnerBuilder {
        self.url = url.to_owned();
        self
    }

    /// The application knows that the previous process of this name is gone, for instance because it has bound the
    /// listening socket that the name denotes. Its ranges are then granted at once. False, if it may still live, breaks
    /// the promise that a key has one owner.
    #[must_use]
    pub fn takes_over_previous(mut self, knows: bool) -> OwnerBuilder {
        self.takes_over_previous = knows;
        self
    }

    /// How much this server can carry, in percent of the usual.
    #[must_use]
    pub fn weight(mut self, percent: u32) -> OwnerBuilder {
        self.weight = percent;
        self
    }

    /// Called with every change, one after the other, on a task of its own: it may take its time, and renewals go on.
    #[must_use]
    pub fn on_ownership_change<F, R>(mut self, callback: F) -> OwnerBuilder
    where
        F: Fn(Change) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.on_change = Some(Box::new(move |change| Box::pin(callback(change))));
        self
    }

    /// The application moves state: called for every range that should go to another Owner, on a task of its own. See
    /// [`MigrationOut`] for what it does, and [`Owner::begin_import`] for the other side. Without it every recall loses
    /// the state, and callers are told so.
    #[must_use]
    pub fn on_migrate_out<F, R>(mut self, callback: F) -> OwnerBuilder
    where
        F: Fn(MigrationOut) -> R + Send + Sync + 'static,
        R: Future<Output = Result<SessionId, BoxError>> + Send + 'static,
    {
        self.migrate_out = Some(Arc::new(move |out| Box::pin(callback(out))));
        self
    }

    /// The Owner keeps its state in `map`, and moves it: `carry` brings bytes to the server at a url, which gives them to
    /// [`LeasedMap::handle`], and brings back the answer.
    #[must_use]
    pub fn state<K, V, F, R>(mut self, map: &LeasedMap<K, V>, carry: F) -> OwnerBuilder
    where
        K: LeasedKey + Eq + Hash + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
        F: Fn(String, Vec<u8>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<u8>, BoxError>> + Send + 'static,
    {
        let (discarding, starting, moving) = (map.clone(), map.clone(), map.clone());
        self.discard_hooks.push(Box::new(move |range| discarding.discard_import(range)));
        self.maps.push(Box::new(move |leases| starting.attach(leases)));
        let carry = Arc::new(carry);
        self.on_migrate_out(move |out| {
            let (moving, carry) = (moving.clone(), Arc::clone(&carry));
            async move { moving.move_out(out, |url, bytes| carry(url, bytes)).await }
        })
    }

    /// Ties the leases to the application: without a sign of life ([`Owner::alive`] or a probe) for longer than `limit`
    /// the Owner gives everything up and leaves.
    #[must_use]
    pub fn heartbeat(mut self, limit: Duration) -> OwnerBuilder {
        self.heartbeat = Some(limit);
        self
    }

    /// Asked a few times in every heartbeat's limit; `true` is a sign of life.
    #[must_use]
    pub fn probe<F, R>(mut self, probe: F) -> OwnerBuilder
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = bool> + Send + 'static,
    {
        self.probe = Some(Arc::new(move || Box::pin(probe())));
        self
    }

    /// How long [`OwnerBuilder::join`] looks for a leader; 30 s unless set.
    #[must_use]
    pub fn join_timeout(mut self, timeout: Duration) -> OwnerBuilder {
        self.join_timeout = timeout;
        self
    }

    /// While another process has the name, waits for it to be gone instead of failing, up to the join's timeout.
    #[must_use]
    pub fn wait_for_name(mut self) -> OwnerBuilder {
        self.waits_for_name = true;
        self
    }

    /// Joins the pool. Leases come soon after: see [`Owner::changes`].
    pub async fn join(self) -> Result<Owner, JoinError> {
        let managers = self.managers.read()?;
        let config = self.config(Arc::clone(&managers))?;
        let (events, queue) = mpsc::channel(QUEUE);
        let random = crate::seed::random().map_err(JoinError::Randomness)?;
        let machine = OwnerMachine::new(config.clone(), random, Plants::NONE);
        let (timeout, waits_for_name) = (self.join_timeout, self.waits_for_name);
        let owner = self.start(config, managers, machine, events, queue);
        let joining = owner.joined(waits_for_name);
        match tokio::time::timeout(timeout, joining).await {
            Ok(joined) => joined.map(|()| owner),
            Err(_) => Err(owner.not_joined_within(timeout)),
        }
    }

    fn config(&self, managers: Arc<[ManagerId]>) -> Result<OwnerConfig, JoinError> {
        let namespace = Namespace::new(&self.namespace)
            .map_err(|error| JoinError::Namespace(self.namespace.clone(), error))?;
        if self.url.is_empty() {
            return Err(JoinError::NoUrl);
        }
        let name = self.name.as_deref().unwrap_or(&self.url);
        let name = OwnerName::new(name).map_err(|error| JoinError::Name(name.to_owned(), error))?;
        Ok(OwnerConfig {
            namespace,
            name,
            url: Url::from(self.url.as_str()),
            managers,
            takes_over_previous: self.takes_over_previous,
            weight: self.weight,
            migrates: self.migrate_out.is_some(),
        })
    }

    fn start(
        self,
        config: OwnerConfig,
        managers: Arc<[ManagerId]>,
        machine: OwnerMachine,
        events: mpsc::Sender<OwnerEvent>,
        queue: mpsc::Receiver<OwnerEvent>,
    ) -> Owner {
        let hot = HotLeases::default();
        let meter = LoadMeter::new(Arc::clone(&hot.snapshot().table), clock::now());
        let shared = Arc::new(Shared {
            session: machine.session(),
            hot,
            in_flight: Arc::new(InFlight::default()),
            imports: Imports::default(),
            discard_hooks: self.discard_hooks,
            changes: broadcast::channel(BACKLOG).0,
            status: watch::channel(Status::default()).0,
            meter: Mutex::new(meter),
            alive_at: AtomicU64::new(clock::now().0),
            gives_up: AtomicBool::new(false),
            drain_waits: AtomicBool::new(false),
        });
        self.maps.into_iter().for_each(|start| start(shared.hot.clone()));
        let links = ManagerLinks::new(events.clone(), Arc::clone(&shared));
        let mut tasks = Vec::new();
        if let Some(on_change) = self.on_change {
            let changes = Changes::new(shared.changes.subscribe());
            tasks.push(spawn(call(on_change, changes)));
        }
        tasks.push(spawn(drive(
            machine,
            Arc::clone(&shared),
            links,
            events.clone(),
            queue,
            self.migrate_out,
        )));
        tasks.push(spawn(tell_load(Arc::clone(&shared), events.clone())));
        tasks.push(spawn(follow(self.managers, managers, events.clone())));
        if let Some(limit) = self.heartbeat {
            let watching = heartbeat::watch(Arc::clone(&shared), events.clone(), limit, self.probe);
            tasks.push(spawn(watching));
        }
        let OwnerConfig { namespace, name, .. } = config;
        Owner { inner: Arc::new(Inner { shared, events, tasks, namespace, name }) }
    }
}

impl Owner {
    /// Waits for a conversation with a leader, or for a refusal that waiting does not mend.
    async fn joined(&self, waits_for_name: bool) -> Result<(), JoinError> {
        let is_final = |why| match why {
            RefusedWhy::StaleTerm => false,
            RefusedWhy::NameInUse => !waits_for_name,
            RefusedWhy::UnknownNamespace | RefusedWhy::Evicted | RefusedWhy::TooManyOwners => true,
        };
        let mut status = self.inner.shared.status.subscribe();
        let decided = |status: &Status| {
            status.is_joined || status.left.is_some() || status.refused.is_some_and(is_final)
        };
        let status = status.wait_for(decided).await.map_err(|_| JoinError::Stopped)?;
        match (status.is_joined, status.refused) {
            (true, _) => Ok(()),
            (false, Some(why)) => Err(self.refused(why)),
            (false, None) => Err(JoinError::Stopped),
        }
    }

    fn not_joined_within(&self, timeout: Duration) -> JoinError {
        let refused = self.inner.shared.status.borrow().refused;
        match refused.filter(|why| *why != RefusedWhy::StaleTerm) {
            Some(why) => self.refused(why),
            None => JoinError::NoLeader(timeout),
        }
    }

    fn refused(&self, why: RefusedWhy) -> JoinError {
        match why {
            RefusedWhy::NameInUse => JoinError::NameInUse(self.inner.name.to_string()),
            RefusedWhy::UnknownNamespace => JoinError::UnknownNamespace(self.inner.namespace.to_string()),
            RefusedWhy::Evicted => JoinError::Evicted,
            RefusedWhy::TooManyOwners => JoinError::TooManyOwners,
            RefusedWhy::StaleTerm => JoinError::Stopped,
        }
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}

async fn drive<L: Links>(
    machine: OwnerMachine,
    shared: Arc<Shared>,
    links: L,
    events: mpsc::Sender<OwnerEvent>,
    queue: mpsc::Receiver<OwnerEvent>,
    migrate_out: Option<MigrateOut>,
) {
    let host = OwnerHost::new(shared, links, events.clone(), migrate_out);
    let driver = Driver::new(Watched::new(machine), host, LONGEST_SLACK);
    // The queue is empty: there is room.
    let _ = events.try_send(OwnerEvent::Start);
    driver.run(queue).await;
}

/// Upcalls have a task of their own, so that a slow one holds up nothing but the next.
async fn call(on_change: OnChange, mut changes: Changes) {
    while let Some(change) = changes.next().await {
        let is_last = matches!(change, Change::Left(LeftWhy::Stopped));
        on_change(change).await;
        if is_last {
            return;
        }
    }
}

async fn tell_load(shared: Arc<Shared>, events: mpsc::Sender<OwnerEvent>) {
    loop {
        tokio::time::sleep(LOAD_INTERVAL).await;
        if events.send(OwnerEvent::Load(shared.measure())).await.is_err() {
            return;
        }
    }
}

async fn follow(managers: Managers, known: Arc<[ManagerId]>, events: mpsc::Sender<OwnerEvent>) {
    let changed = |list| {
        let events = events.clone();
        async move { events.send(OwnerEvent::ManagersChanged(list)).await.is_ok() }
    };
    managers.watch(known, changed).await;
}
