//! Puts a Manager together, runs it in this process, and stops it cleanly.

mod serve;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_core::manager::{ManagerConfig, ManagerEvent, ManagerMachine, StoreEvent};
use centrifuge_core::random::Random;
use centrifuge_core::settings::Drift;
use centrifuge_net::clock::JumpWatch;
use centrifuge_net::driver::Driver;
use centrifuge_net::record::{RecordError, Recorder};
use centrifuge_net::tls::TlsError;
use centrifuge_net::warrants::WarrantKeys;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tonic::Status;
use tracing::{info, warn};

use crate::access::FileError;
use crate::access::watch::Watched;
use crate::config::{Config, Namespaces};
use crate::descriptors;
use crate::heavy;
use crate::host::ManagerHost;
use crate::inbox::{Inbox, Queues, inbox};
use crate::journal::{self, Names};
use crate::shared::Shared;
use crate::store::{
    Answer, Answers, Backend, Candidate, HISTORY, PeerKey, StoreError, StoreHandle, StoredBatch,
};
use crate::tls::ServerTls;
use crate::transport::Handshakes;
use crate::view::View;

/// How long resigning may take: a commit and a little.
const RESIGN_TIME: Duration = Duration::from_secs(5);
/// How long streams have to say that they end.
const CLOSE_TIME: Duration = Duration::from_secs(2);
/// How long a Manager rests before it tries again to open a store that is away.
const STORE_REST: Duration = Duration::from_secs(1);
/// How many connections may wait to be accepted; the system may allow fewer.
const BACKLOG: u32 = 4_096;

/// Why a Manager does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("{setting}: cannot listen on {address}: {why}; is another Manager running there?")]
    Listen {
        /// The setting.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        why: io::Error,
    },
    /// The store cannot be opened.
    #[error("store: {0}")]
    Store(#[from] StoreError),
    /// What the configuration says of Managers without a store cannot be.
    #[error("{0}")]
    Diskless(String),
    /// A file of TLS cannot be used.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// Handshakes have no thread.
    #[error("tls: the system starts no thread for handshakes: {0}")]
    Handshakes(io::Error),
    /// The policy, or the keys of tokens, cannot be used.
    #[error("{0}")]
    Access(#[from] FileError),
    /// The recording cannot begin.
    #[error("record: {0}")]
    Record(#[from] RecordError),
    /// The operating system gives no randomness.
    #[error("the operating system gives no randomness: {0}")]
    Randomness(getrandom::Error),
    /// The schemas for reflection are broken: a bug.
    #[error("reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// Where Managers come from.
#[derive(Debug)]
pub struct Manager;

/// A Manager that runs in this process. Dropping it stops it without resigning, as a crash would.
#[derive(Debug)]
pub struct RunningManager {
    grpc_addr: SocketAddr,
    http_addr: SocketAddr,
    shared: Arc<Shared>,
    inbox: Inbox,
    stop: watch::Sender<bool>,
    /// Whether it ends as if it were killed.
    crashes: Arc<AtomicBool>,
    /// The driver first, then the servers.
    tasks: Vec<JoinHandle<()>>,
}

impl Manager {
    /// Starts a Manager on a store; it serves at once and leads as soon as it can.
    pub async fn start(config: Config, store: Backend) -> Result<RunningManager, StartError> {
        descriptors::raise_limit(config.limits.max_connections);
        let (grpc, grpc_addr) = listen("grpc_listen", config.grpc_listen)?;
        let (http, http_addr) = listen("http_listen", config.http_listen)?;
        let store = at_home(store, grpc_addr);
        check_diskless(&config, &store)?;
        let key = peer_key(&store);
        let warrants = key.map(|key| WarrantKeys::new(key.ring().clone()));
        let tls = secure(&config)?;
        let name = name(&config, &store, grpc_addr);
        let shared = Arc::new(Shared::new(name, config.limits.clone(), warrants, tls));
        let watched = Watched::open(&config, key.and_then(PeerKey::watched), Arc::clone(&shared))?;
        let (inbox, queues) = inbox();
        let candidate = Candidate {
            manager: ManagerId::from(shared.manager.as_str()),
            leader_hold: config.leader_hold(),
        };
        let diskless = matches!(store, Backend::None(_)).then(|| Arc::new(config.namespaces.clone()));
        let store = open(store, candidate, &shared, &inbox).await?;
        let driver = driver(&config, diskless, &shared, store)?;
        let (stop, stopped) = watch::channel(false);
        let grpc = serve::grpc(grpc, Arc::clone(&shared), inbox.clone(), stopped.clone())?;
        let http = serve::http(http, Arc::clone(&shared), stopped.clone());
        let crashes = Arc::new(AtomicBool::new(false));
        let watching = tokio::spawn(watched.run(stopped.clone()));
        let driving = drive(driver, queues, stopped, Arc::clone(&crashes));
        let tasks = vec![heavy::on_its_own_thread(driving), tokio::spawn(grpc), tokio::spawn(http), watching];
        inbox.answer(ManagerEvent::Start);
        info!(manager = %shared.manager, %grpc_addr, %http_addr, "the Manager serves");
        Ok(RunningManager { grpc_addr, http_addr, shared, inbox, stop, crashes, tasks })
    }
}

impl RunningManager {
    /// Where gRPC is served.
    #[must_use]
    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc_addr
    }

    /// Where HTTP is served.
    #[must_use]
    pub fn http_addr(&self) -> SocketAddr {
        self.http_addr
    }

    /// The address that clients dial, which is the Manager's name.
    #[must_use]
    pub fn id(&self) -> ManagerId {
        ManagerId::from(self.shared.manager.as_str())
    }

    /// What readers may see of it.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.shared.view
    }

    /// Waits until it leads.
    pub async fn leads(&self) {
        // The view lives as long as this does, so that its sender is never gone.
        let _ = self.shared.view.roles().wait_for(|role| role.is_leading()).await;
    }

    /// Stops cleanly: resigns, so that the next leader need not wait, then ends the streams, and gives the store back.
    pub async fn shutdown(mut self) {
        let mut roles = self.shared.view.roles();
        if roles.borrow_and_update().is_leading() {
            self.inbox.answer(ManagerEvent::Resign);
            let resigned = roles.wait_for(|role| !role.is_leading());
            if tokio::time::timeout(RESIGN_TIME, resigned).await.is_err() {
                warn!("the store did not commit the resignation in time: the next leader will wait");
            }
        }
        self.close().await;
        info!(manager = %self.shared.manager, "the Manager has stopped");
    }

    /// Stops at once and does not resign, as a crash would, and waits until the store is free again.
    pub async fn crash(mut self) {
        self.crashes.store(true, Ordering::Relaxed);
        self.close().await;
    }

    async fn close(&mut self) {
        self.stop.send_replace(true);
        let status = Status::unavailable("the Manager stops: ask another, or this one again later");
        self.shared.owners.end_all(&status);
        self.shared.lookups.end_all(&status);
        self.shared.replies.abandon();
        for task in self.tasks.drain(..).enumerate() {
            finish(task).await;
        }
    }
}

impl Drop for RunningManager {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Waits for the driver, whose store must be whole, as long as it takes; for a server only a little.
async fn finish((place, mut task): (usize, JoinHandle<()>)) {
    let ended =
        if place == 0 { Ok((&mut task).await) } else { tokio::time::timeout(CLOSE_TIME, &mut task).await };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => warn!(%error, "a part of the Manager did not end well"),
        Err(_) => task.abort(),
    }
}

/// Binds with room for all clients of a pool that come at once, when the Manager they knew is gone.
fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn listen(setting: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |why| StartError::Listen { setting, address, why };
    let listener = bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// What connections are inside of, if not in the clear.
fn secure(config: &Config) -> Result<Option<(ServerTls, Handshakes)>, StartError> {
    let Some(files) = config.tls.clone() else { return Ok(None) };
    let tls = ServerTls::open(files)?;
    Ok(Some((tls, Handshakes::start().map_err(StartError::Handshakes)?)))
}

/// Managers without a store hear each other where they serve clients, unless something else is set.
fn at_home(mut store: Backend, grpc_addr: SocketAddr) -> Backend {
    if let Backend::None(options) = &mut store {
        options.listen.get_or_insert(grpc_addr);
    }
    store
}

/// The Manager's name: what clients dial. Without a store the others know it, too.
fn name(config: &Config, store: &Backend, grpc_addr: SocketAddr) -> String {
    match store {
        Backend::None(options) => options.own_address().to_owned(),
        _ => config.advertise.clone().unwrap_or_else(|| grpc_addr.to_string()),
    }
}

/// What Managers without a store share.
fn peer_key(store: &Backend) -> Option<&PeerKey> {
    match store {
        Backend::None(options) => Some(&options.key),
        _ => None,
    }
}

/// A leader lease that outlasts Flease's would let two lead.
fn check_diskless(config: &Config, store: &Backend) -> Result<(), StartError> {
    let Backend::None(options) = store else { return Ok(()) };
    let longest = options.election().leader_lease(Drift::default());
    if config.leader_lease > longest {
        let words = format!(
            "leader_lease: {:?} is longer than {longest:?}, which flease_lease allows",
            config.leader_lease
        );
        return Err(StartError::Diskless(words));
    }
    Ok(())
}

/// Opens the store. Waits for a remote store that does not answer, so that a Manager can be started during its outage.
async fn open(
    backend: Backend,
    candidate: Candidate,
    shared: &Arc<Shared>,
    inbox: &Inbox,
) -> Result<StoreHandle, StartError> {
    loop {
        match try_open(backend.clone(), candidate.clone(), shared, inbox).await {
            Err(StartError::Store(why @ StoreError::Etcd { .. })) => {
                warn!(%why, "the Manager waits for its store")
            }
            opened => return opened,
        }
        tokio::time::sleep(STORE_REST).await;
    }
}

/// Opens the store, which may take a while, and reads what was decided lately.
async fn try_open(
    backend: Backend,
    candidate: Candidate,
    shared: &Arc<Shared>,
    inbox: &Inbox,
) -> Result<StoreHandle, StartError> {
    let names = Arc::new(Mutex::new(Names::new()));
    let answers = answers(Arc::clone(shared), inbox.clone(), Arc::clone(&names));
    let shared = Arc::clone(shared);
    let opened = spawn_blocking(move || {
        let store = backend.open(&candidate, answers)?;
        shared.view.attach_store(&backend, store.facts());
        let copier = Arc::new(store.copier(&backend));
        *shared.copier.lock().unwrap_or_else(PoisonError::into_inner) = Some(copier);
        for stored in store.recent(usize::try_from(HISTORY).unwrap_or(usize::MAX))? {
            remember(&shared, &names, &stored);
        }
        Ok(store)
    });
    match opened.await {
        Ok(opened) => opened.map_err(StartError::Store),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Adds a batch of the past, or of another leader, to the history. A session's name is kept while it lives.
fn remember(shared: &Shared, names: &Mutex<Names>, stored: &StoredBatch) {
    let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
    journal::learn_names(&mut names, &stored.batch, None);
    shared.history.push(stored.written_at, stored.index, &stored.batch, &names);
    journal::forget_names(&mut names, &stored.batch);
}

/// Takes the store's answers to the machine, and notes whether they are good.
fn answers(shared: Arc<Shared>, inbox: Inbox, names: Arc<Mutex<Names>>) -> Answers {
    Box::new(move |answer| match answer {
        Answer::Election(event) => inbox.answer(ManagerEvent::Election(event)),
        Answer::Store(event) => {
            note_health(&shared, &event);
            inbox.answer(ManagerEvent::Store(event));
        }
        Answer::Followed(stored) => remember(&shared, &names, &stored),
    })
}

fn note_health(shared: &Shared, event: &StoreEvent) {
    let (kind, problem) = match event {
        StoreEvent::Loaded { .. } | StoreEvent::Appended { .. } => return shared.view.show_store(None),
        StoreEvent::Fenced { .. } => ("fenced", None),
        StoreEvent::LoadFailed { .. } => ("load-failed", Some("it could not be read")),
        StoreEvent::NotAppended { .. } => ("not-appended", Some("a write failed and is tried again")),
        StoreEvent::Unknown { .. } => {
            ("unknown", Some("the outcome of a write is not known, and it is tried again"))
        }
    };
    shared.metrics.store_failures.with([kind]).inc();
    shared.view.show_store(problem);
    if let Some(suppressed) = shared.quiet.admit(kind) {
        warn!(kind, suppressed, "the store did not do what it was asked");
    }
}

/// How long no Owner arrives before the first assignment of a pool that starts.
const ARRIVAL_PAUSE: Duration = Duration::from_millis(250);

/// The machine with its host, not fed yet.
fn driver(
    config: &Config,
    diskless: Option<Arc<Namespaces>>,
    shared: &Arc<Shared>,
    store: StoreHandle,
) -> Result<Driver<ManagerMachine, ManagerHost>, StartError> {
    let id = ManagerId::from(shared.manager.as_str());
    let machine_config = ManagerConfig {
        leader_lease: config.leader_lease,
        leader_hold: config.leader_hold(),
        campaign_interval: config.campaign_interval,
        compact_every: config.compact_every,
        max_namespaces: Some(config.limits.max_namespaces),
        arrival_pause: ARRIVAL_PAUSE,
        diskless,
        ..ManagerConfig::new(id.clone())
    };
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(StartError::Randomness)?;
    let recorder = match &config.record {
        Some(path) => Some(Recorder::<ManagerMachine>::create(path, &machine_config, seed)?),
        None => None,
    };
    // A leader that was paused for longer would lead longer than others wait for it.
    let jumps = JumpWatch::new(Drift::default().pause_for(config.leader_lease), config.leader_hold());
    let machine = ManagerMachine::new(machine_config, Random::from_seed(seed));
    let driver = Driver::with_clock(machine, ManagerHost::new(id, Arc::clone(shared), store), jumps);
    Ok(match recorder {
        Some(recorder) => driver.with_tee(Box::new(recorder)),
        None => driver,
    })
}

/// Runs the machine until told to stop, and then ends its store.
async fn drive(
    driver: Driver<ManagerMachine, ManagerHost>,
    queues: Queues,
    mut stopped: watch::Receiver<bool>,
    crashes: Arc<AtomicBool>,
) {
    // Room for one: what waits, waits in the queues, where reports come first.
    let (to_driver, events) = mpsc::channel(1);
    let feed = async {
        tokio::select! {
            () = queues.feed(to_driver) => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    };
    let ((_, host), ()) = tokio::join!(driver.run(events), feed);
    let end = move || match crashes.load(Ordering::Relaxed) {
        true => host.into_store().crash(),
        false => host.into_store().join(),
    };
    if spawn_blocking(end).await.is_err() {
        warn!("the store did not end well");
    }
}
