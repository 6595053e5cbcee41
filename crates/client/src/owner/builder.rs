//! How an Owner is described and joins its pool.

use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_core::id::{LoadDimension, ManagerId, Namespace, OwnerName, SessionId, Url};
use centrifuge_core::namespace_kind::{ExpectedKind, Mode};
use centrifuge_core::owner::{OwnerConfig, OwnerEvent, OwnerMachine};
use centrifuge_core::random::Random;
use centrifuge_core::text::unprintable_in;
use centrifuge_net::clock;
use centrifuge_net::credential;
use centrifuge_net::dial::Dialer;
use centrifuge_net::driver::Driver;
use centrifuge_net::record::Recorder;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::AbortHandle;

use super::change::{BACKLOG, Change, Changes, LeftReason};
use super::heartbeat::{self, Probe};
use super::host::{LONGEST_SLACK, OwnerHost};
use super::join::JoinError;
use super::links::ManagerLinks;
use super::load::LoadMeter;
use super::migration::{BoxError, Imports, MigrationOut};
use super::migrations::{self, Migrations};
use super::{DiscardHook, InFlight, Inner, Owner, Shared, Status};
use crate::hot::HotLeases;
use crate::keys::{Hashed, KeyOrder};
use crate::leased_map::{LeasedMap, Place};
use crate::managers::{self, Managers};

/// How many events wait for the driver.
const QUEUE: usize = 1024;
/// Load is measured at most this often, however often reports are sent.
const SHORTEST_MEASUREMENT: Duration = Duration::from_millis(100);
/// How long a join waits unless told otherwise.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// Moves a range away.
pub(super) type MigrateOut =
    Arc<dyn Fn(MigrationOut) -> BoxFuture<Result<SessionId, BoxError>> + Send + Sync>;
type OnChange = Box<dyn Fn(Change) -> BoxFuture<()> + Send + Sync>;

/// Told of the leases once they exist.
type OnStart = Box<dyn FnOnce(HotLeases) + Send>;

/// Describes an Owner before it joins. Only the url must be given.
///
/// ```no_run
/// use centrifuge::owner::{BoxError, Change};
/// use centrifuge::{LeasedMap, Managers, Owner};
/// use std::time::Duration;
///
/// # async fn post(url: String, bytes: Vec<u8>) -> Result<Vec<u8>, BoxError> { unimplemented!() }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let rooms: LeasedMap<String, u32> = LeasedMap::new();
/// let owner = Owner::builder(Managers::file("/etc/centrifuge/managers"), "rooms")
///     .name("server-7") // what its restarts share
///     .url("http://10.0.0.7:8080")
///     .state(&rooms, post) // ranges move with their entries
///     .heartbeat(Duration::from_secs(20))
///     .probe(|| async { true }) // whether the application is well
///     .on_ownership_change(|change| async move {
///         match change {
///             Change::Granted(lease) => println!("{} is ours, its state from {:?}", lease.range, lease.source),
///             Change::Revoked { range, why, .. } => println!("{range} is not: {why:?}"),
///             other => println!("{other:?}"),
///         }
///     })
///     .join()
///     .await?;
/// # Ok(())
/// # }
/// ```
pub struct OwnerBuilder<K: KeyOrder = Hashed> {
    managers: Managers,
    namespace: String,
    name: Option<String>,
    url: String,
    takes_over_previous: bool,
    weight: u32,
    load_dimension: Option<String>,
    on_change: Option<OnChange>,
    migrate_out: Option<MigrateOut>,
    moves_twice: bool,
    discard_hooks: Vec<DiscardHook>,
    maps: Vec<OnStart>,
    heartbeat: Option<Duration>,
    probe: Option<Probe>,
    join_timeout: Duration,
    waits_for_name: bool,
    record: Option<PathBuf>,
    expects: ExpectedKind,
    keys: PhantomData<K>,
}

impl<K: KeyOrder> OwnerBuilder<K> {
    pub(super) fn new(managers: Managers, namespace: &str) -> OwnerBuilder<K> {
        OwnerBuilder {
            managers,
            namespace: namespace.to_owned(),
            name: None,
            url: String::new(),
            takes_over_previous: false,
            weight: 100,
            load_dimension: None,
            on_change: None,
            migrate_out: None,
            moves_twice: false,
            discard_hooks: Vec::new(),
            maps: Vec::new(),
            heartbeat: None,
            probe: None,
            join_timeout: JOIN_TIMEOUT,
            waits_for_name: false,
            record: None,
            expects: ExpectedKind { keys: K::KIND, ..ExpectedKind::default() },
            keys: PhantomData,
        }
    }

    /// The name that the restarts of this server share; its url if none is given. What it owns derives from it.
    #[must_use]
    pub fn name(mut self, name: &str) -> OwnerBuilder<K> {
        self.name = Some(name.to_owned());
        self
    }

    /// Where callers reach this server. Centrifuge hands it on and never reads it.
    #[must_use]
    pub fn url(mut self, url: &str) -> OwnerBuilder<K> {
        self.url = url.to_owned();
        self
    }

    /// The application knows that the previous process of this name is gone, for instance because it has bound the
    /// listening socket that the name denotes. Its ranges are then granted at once. False, if it may still live, breaks
    /// the promise that a key has one owner.
    #[must_use]
    pub fn takes_over_previous(mut self, knows: bool) -> OwnerBuilder<K> {
        self.takes_over_previous = knows;
        self
    }

    /// How much this server can carry, in percent of the usual.
    #[must_use]
    pub fn weight(mut self, percent: u32) -> OwnerBuilder<K> {
        self.weight = percent;
        self
    }

    /// The namespace is in affinity mode. Whoever calls this wraps the Owner into a type without lease numbers.
    pub(crate) fn affinity(mut self) -> OwnerBuilder<K> {
        self.expects.mode = Mode::Affinity;
        self
    }

    /// What load is counted in, for instance `cpu-ms` or `bytes`; requests, unless set. Load is then what
    /// [`Owner::report_load`] says, and checks are no load. Name it alike in all servers of the pool: loads in another
    /// dimension than that of most servers are ignored, and a server that reports them keeps what it has.
    #[must_use]
    pub fn load_dimension(mut self, name: &str) -> OwnerBuilder<K> {
        self.load_dimension = Some(name.to_owned());
        self
    }

    /// Called with every change, one after the other, on a task of its own: it may take its time, and renewals go on.
    /// A range that arrives with its state is a [`Change::Granted`] whose lease has a `source`; [`Owner::changes`] is the same
    /// as a stream.
    #[must_use]
    pub fn on_ownership_change<F, R>(mut self, callback: F) -> OwnerBuilder<K>
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
    pub fn on_migrate_out<F, R>(mut self, callback: F) -> OwnerBuilder<K>
    where
        F: Fn(MigrationOut) -> R + Send + Sync + 'static,
        R: Future<Output = Result<SessionId, BoxError>> + Send + 'static,
    {
        self.moves_twice |= self.migrate_out.is_some();
        self.migrate_out = Some(Arc::new(move |out| Box::pin(callback(out))));
        self
    }

    /// Like [`OwnerBuilder::on_migrate_out`], as a stream.
    ///
    /// ```no_run
    /// # async fn copy_to(url: &str, offer: centrifuge::owner::ImportOffer) -> centrifuge::SessionId { unimplemented!() }
    /// # async fn example(builder: centrifuge::owner::OwnerBuilder) -> Result<(), Box<dyn std::error::Error>> {
    /// let (builder, mut migrations) = builder.migrations();
    /// let owner = builder.join().await?;
    /// while let Some(mut migration) = migrations.next().await {
    ///     // Copy while the range is still served, then the rest of it once it is frozen.
    ///     copy_to(migration.out.url().as_str(), migration.out.offer()).await;
    ///     if migration.out.freeze().await.is_ok() {
    ///         let session = copy_to(migration.out.url().as_str(), migration.out.offer()).await;
    ///         migration.done(session);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn migrations(self) -> (OwnerBuilder<K>, Migrations) {
        let (source, migrations) = migrations::stream();
        (self.on_migrate_out(move |out| source.clone().offer(out)), migrations)
    }

    /// The Owner keeps its state in `map`, and moves it: `carry` brings bytes to the server at a url, which gives them to
    /// [`LeasedMap::handle`], and brings back the answer.
    #[must_use]
    pub fn state<N, V, F, R>(mut self, map: &LeasedMap<N, V, K>, carry: F) -> OwnerBuilder<K>
    where
        N: Place<K> + Eq + Hash + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
        F: Fn(String, Vec<u8>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Vec<u8>, BoxError>> + Send + 'static,
    {
        let (discarding, starting, moving) = (map.clone(), map.clone(), map.clone());
        self.discard_hooks.push(Box::new(move |range, source| discarding.discard_import(range, source)));
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
    pub fn heartbeat(mut self, limit: Duration) -> OwnerBuilder<K> {
        self.heartbeat = Some(limit);
        self
    }

    /// Asked a few times in every heartbeat's limit; `true` is a sign of life.
    #[must_use]
    pub fn probe<F, R>(mut self, probe: F) -> OwnerBuilder<K>
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = bool> + Send + 'static,
    {
        self.probe = Some(Arc::new(move || Box::pin(probe())));
        self
    }

    /// How long [`OwnerBuilder::join`] looks for a leader; 30 s unless set.
    #[must_use]
    pub fn join_timeout(mut self, timeout: Duration) -> OwnerBuilder<K> {
        self.join_timeout = timeout;
        self
    }

    /// While another process has the name, waits for it to be gone instead of failing, up to the join's timeout.
    #[must_use]
    pub fn wait_for_name(mut self) -> OwnerBuilder<K> {
        self.waits_for_name = true;
        self
    }

    /// Writes everything that the Owner's machine is fed to this file, for `centrifuge-sim replay FILE`, which runs it again
    /// step by step. The file has the Owner's seed in it: keep it as you keep a key. One file for each Owner.
    #[must_use]
    pub fn record(mut self, file: impl Into<PathBuf>) -> OwnerBuilder<K> {
        self.record = Some(file.into());
        self
    }

    /// Joins the pool. Leases come soon after: see [`Owner::changes`].
    pub async fn join(self) -> Result<Owner<K>, JoinError> {
        let managers = self.managers.read()?;
        let asked = managers::names(&managers);
        let mut config = self.config(managers)?;
        let credential = credential::draw().map_err(|error| JoinError::Randomness(error.to_string()))?;
        config.credential = Some(credential);
        let seed = crate::seed::os_seed().map_err(JoinError::Randomness)?;
        let recorder =
            self.record.as_deref().map(|file| Recorder::create(file, &config, seed)).transpose()?;
        let machine = OwnerMachine::new(config.clone(), Random::from_seed(seed));
        let (timeout, waits_for_name) = (self.join_timeout, self.waits_for_name);
        let dialer = self.managers.dialer()?;
        let owner = self.start(dialer.clone(), config, machine, recorder);
        let joining = owner.joined(waits_for_name);
        match tokio::time::timeout(timeout, joining).await {
            Ok(joined) => joined.map(|()| owner),
            Err(_) => Err(owner.not_joined_within(timeout, asked, managers::last_problem(&dialer))),
        }
    }

    fn config(&self, managers: Arc<[ManagerId]>) -> Result<OwnerConfig, JoinError> {
        let namespace = Namespace::new(&self.namespace)
            .map_err(|error| JoinError::Namespace(self.namespace.clone(), error))?;
        if self.url.is_empty() {
            return Err(JoinError::NoUrl);
        }
        if unprintable_in(&self.url).is_some() {
            return Err(JoinError::Url(self.url.clone()));
        }
        if self.moves_twice {
            return Err(JoinError::MovesTwice);
        }
        match self.heartbeat {
            Some(Duration::ZERO) => return Err(JoinError::ZeroHeartbeat),
            None if self.probe.is_some() => return Err(JoinError::ProbeWithoutHeartbeat),
            _ => {}
        }
        let name = self.name.as_deref().unwrap_or(&self.url);
        let name = OwnerName::new(name).map_err(|error| JoinError::Name(name.to_owned(), error))?;
        let dimension = self.load_dimension.as_deref();
        let load_dimension = dimension.map(|name| {
            LoadDimension::new(name).map_err(|error| JoinError::LoadDimension(name.to_owned(), error))
        });
        Ok(OwnerConfig {
            namespace,
            name,
            url: Url::from(self.url.as_str()),
            managers,
            takes_over_previous: self.takes_over_previous,
            weight: self.weight,
            load_dimension: load_dimension.transpose()?.unwrap_or_default(),
            migrates: self.migrate_out.is_some(),
            credential: None,
            expects: self.expects,
        })
    }

    fn start(
        self,
        dialer: Dialer,
        config: OwnerConfig,
        machine: OwnerMachine,
        recorder: Option<Recorder<OwnerMachine>>,
    ) -> Owner<K> {
        let (events, queue) = mpsc::channel(QUEUE);
        let hot = HotLeases::default();
        let meter = LoadMeter::new(Arc::clone(&hot.snapshot().table), clock::now());
        let shared = Arc::new(Shared {
            session: Mutex::new(machine.session()),
            hot,
            in_flight: Arc::new(InFlight::default()),
            imports: Imports::default(),
            discard_hooks: self.discard_hooks,
            changes: broadcast::channel(BACKLOG).0,
            status: watch::channel(Status::default()).0,
            meter: Mutex::new(meter),
            reported_at: AtomicU64::new(0),
            renewal: AtomicU64::new(0),
            load_per_check: u64::from(self.load_dimension.is_none()),
            alive_at: AtomicU64::new(clock::now().0),
            gives_up: AtomicBool::new(false),
            drain_waits: AtomicBool::new(false),
        });
        self.maps.into_iter().for_each(|start| start(shared.hot.clone()));
        let links = ManagerLinks::new(dialer, events.clone(), Arc::clone(&shared));
        let mut tasks = Vec::new();
        if let Some(on_change) = self.on_change {
            let changes = Changes::new(shared.changes.subscribe());
            tasks.push(spawn(call(on_change, changes)));
        }
        let host = OwnerHost::new(Arc::clone(&shared), links, events.clone(), self.migrate_out);
        let mut driver = Driver::new(machine, host, LONGEST_SLACK);
        if let Some(recorder) = recorder {
            driver = driver.with_tee(Box::new(recorder));
        }
        // The queue is empty: there is room.
        let _ = events.try_send(OwnerEvent::Start);
        tasks.push(spawn(async move {
            driver.run(queue).await;
        }));
        tasks.push(spawn(tell_load(Arc::clone(&shared), events.clone())));
        tasks.push(spawn(follow(self.managers, config.managers, events.clone())));
        if let Some(limit) = self.heartbeat {
            let watching = heartbeat::watch(Arc::clone(&shared), events.clone(), limit, self.probe);
            tasks.push(spawn(watching));
        }
        let OwnerConfig { namespace, name, expects, .. } = config;
        Owner::new(Arc::new(Inner { shared, events, tasks, namespace, name, expects }))
    }
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}

/// Upcalls have a task of their own, so that a slow one holds up nothing but the next.
async fn call(on_change: OnChange, mut changes: Changes) {
    while let Some(change) = changes.next().await {
        let is_last = matches!(change, Change::Left(LeftReason::Stopped));
        on_change(change).await;
        if is_last {
            return;
        }
    }
}

async fn tell_load(shared: Arc<Shared>, events: mpsc::Sender<OwnerEvent>) {
    loop {
        tokio::time::sleep(shared.until_glance().max(SHORTEST_MEASUREMENT)).await;
        let Some(measured) = shared.measure() else { continue };
        if events.send(OwnerEvent::Load(measured)).await.is_err() {
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
