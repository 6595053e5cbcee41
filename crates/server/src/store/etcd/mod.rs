//! The store on etcd: a log under one prefix, and a leader whose key fences every write. `docs/adr/0010-etcd.md` has the
//! reasons.
//!
//! It runs on a thread of its own. Election, log and compaction go on beside each other there: a renewal waits for none
//! of the others.

mod client;
mod compact;
mod create;
mod election;
mod follow;
mod keys;
mod log;
mod options;
mod proto;
mod read;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc as sync_mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use centrifuge_core::id::Term;
use centrifuge_core::manager::{ElectionCommand, ElectionEvent, StoreCommand};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::{JoinHandle, JoinSet, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use client::Client;
use compact::Compaction;
use keys::Keys;
use log::{LogJob, Sizes};
use read::Unreadable;

use super::error::StoreError;
use super::{Answer, Answers, Candidate, Command, Contents, Job, Jobs, StoreFacts, StoreHandle};

pub use options::{DEFAULT_PREFIX, EtcdCredentials, EtcdOptions, EtcdTls, Secret};

/// How long etcd may take to answer for the first time.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// How long what was asked for may take when the store ends.
const LAST_WORK: Duration = Duration::from_secs(5);
/// The longest time for one try of a request.
const LONGEST_TRY: Duration = Duration::from_secs(1);
/// The shortest.
const SHORTEST_TRY: Duration = Duration::from_millis(250);
/// How often the same complaint is logged.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// A leadership that this process has won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leadership {
    term: Term,
    /// When the leader's key was written: every write compares it.
    revision: i64,
    lease: i64,
}

/// What the parts of a running store share. All of them are on one thread.
struct Shared {
    client: Client,
    keys: Keys,
    options: EtcdOptions,
    candidate: Candidate,
    /// This process, unlike any other, also of the same Manager.
    process: Vec<u8>,
    answers: Answers,
    leadership: Cell<Option<Leadership>>,
    /// A campaign that is not won yet.
    campaigning: Cell<Option<u64>>,
    campaign: RefCell<Option<JoinHandle<()>>>,
    /// Whether to try once more when the try that is under way has ended: the key has gone away meanwhile.
    try_again: Cell<bool>,
    /// The log may have grown.
    grown: Notify,
    /// Whether the log is followed: from the first campaign on, when its Manager is ready for it.
    following: Cell<bool>,
    /// Whether the log could be read so far. A Manager that cannot read it does not lead.
    readable: Cell<bool>,
    sizes: RefCell<Sizes>,
    latest_load: Cell<u64>,
    said_waiting: Cell<bool>,
    complained: RefCell<std::collections::BTreeMap<&'static str, Instant>>,
    facts: Arc<Mutex<StoreFacts>>,
    /// The lease of this Manager's own key.
    registered: Cell<Option<i64>>,
}

impl Shared {
    fn answer(&self, answer: Answer) {
        (self.answers)(answer);
    }

    /// Whether a try to lead is under way.
    fn is_campaigning(&self) -> bool {
        self.campaign.borrow().as_ref().is_some_and(|campaign| !campaign.is_finished())
    }

    /// Tries to lead, unless a try is under way: that one answers the latest request, and would never end if each new one broke it off.
    fn start_campaign(self: &Rc<Shared>) {
        if !self.is_campaigning() {
            self.campaign.replace(Some(spawn_local(Rc::clone(self).campaign())));
        }
    }

    /// Shows what etcd did not do, and logs it now and then.
    fn complain(&self, doing: &'static str, why: &Unreadable) {
        self.facts().problem = Some(format!("could not {doing}: {why}"));
        let mut complained = self.complained.borrow_mut();
        if complained.get(doing).is_some_and(|at| at.elapsed() < COMPLAIN_EVERY) {
            return;
        }
        complained.insert(doing, Instant::now());
        tracing::warn!(prefix = %self.options.prefix, %why, "etcd: could not {doing}; it is tried again");
    }

    /// Whole seconds, and not less than the time after which nobody takes us for the leader any more.
    fn lease_seconds(&self) -> i64 {
        let hold = self.candidate.leader_hold;
        let seconds = hold.as_secs() + u64::from(hold.subsec_nanos() > 0);
        i64::try_from(seconds).unwrap_or(i64::MAX).max(1)
    }

    fn facts(&self) -> MutexGuard<'_, StoreFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the store, or makes an empty one, and runs it on a thread of its own.
pub(super) fn open(
    options: &EtcdOptions,
    candidate: &Candidate,
    answers: Answers,
) -> Result<StoreHandle, StoreError> {
    let (jobs, received) = mpsc::unbounded_channel();
    let (opened, open) = sync_mpsc::channel();
    let facts = Arc::new(Mutex::new(StoreFacts::default()));
    let (options, candidate) = (options.clone(), candidate.clone());
    let shown = Arc::clone(&facts);
    let thread = thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || {
            let made = runtime().and_then(|runtime| {
                let shared = runtime.block_on(prepare(options, candidate, answers, shown))?;
                Ok((runtime, shared))
            });
            match made {
                Ok((runtime, shared)) => {
                    let _ = opened.send(Ok(()));
                    LocalSet::new().block_on(&runtime, run(Rc::new(shared), received));
                    runtime.shutdown_background();
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        })
        .map_err(|why| StoreError::Thread { why })?;
    open.recv().map_err(|_| StoreError::Stopped)??;
    Ok(StoreHandle { jobs: Arc::new(Jobs::Tasks(jobs)), thread, facts })
}

fn runtime() -> Result<Runtime, StoreError> {
    Builder::new_current_thread().enable_all().build().map_err(|why| StoreError::Thread { why })
}

async fn prepare(
    options: EtcdOptions,
    candidate: Candidate,
    answers: Answers,
    facts: Arc<Mutex<StoreFacts>>,
) -> Result<Shared, StoreError> {
    // Two tries fit between one renewal and the next; where every answer is slow, one does.
    let usual = (candidate.leader_hold / 8).clamp(SHORTEST_TRY, LONGEST_TRY);
    let client = Client::new(&options, usual, candidate.leader_hold / 4)?;
    let keys = Keys::new(&options.prefix);
    let until = Instant::now() + FIRST_ANSWER;
    while let Err(error) = create::ensure(&client, &keys, &options.prefix).await {
        if !matches!(error, StoreError::Etcd { .. }) || Instant::now() >= until {
            return Err(error);
        }
        sleep(SHORTEST_TRY).await;
    }
    tracing::info!(store = %options, "the store is open");
    Ok(Shared {
        client,
        keys,
        options,
        candidate,
        process: [random().to_be_bytes(), random().to_be_bytes()].concat(),
        answers,
        leadership: Cell::new(None),
        campaigning: Cell::new(None),
        campaign: RefCell::default(),
        try_again: Cell::new(false),
        grown: Notify::new(),
        following: Cell::new(false),
        readable: Cell::new(true),
        sizes: RefCell::default(),
        latest_load: Cell::new(0),
        said_waiting: Cell::new(false),
        complained: RefCell::default(),
        facts,
        registered: Cell::new(None),
    })
}

/// The ways to the parts that do one thing after the other.
struct Lanes {
    shared: Rc<Shared>,
    /// Leaderships that are being given up.
    resigning: RefCell<JoinSet<()>>,
    log: UnboundedSender<LogJob>,
    compactions: UnboundedSender<Compaction>,
}

/// Hands commands to their parts until the handle is gone.
async fn run(shared: Rc<Shared>, mut jobs: UnboundedReceiver<Job>) {
    let (log, log_jobs) = mpsc::unbounded_channel();
    let (compactions, compaction_jobs) = mpsc::unbounded_channel();
    let lanes = Lanes { shared: Rc::clone(&shared), resigning: RefCell::default(), log, compactions };
    let mut working = JoinSet::new();
    working.spawn_local(log::run(Rc::clone(&shared), log_jobs));
    working.spawn_local(compact::run(Rc::clone(&shared), compaction_jobs));
    let mut watching = JoinSet::new();
    watching.spawn_local(follow::run(Rc::clone(&shared)));
    watching.spawn_local(follow::register(Rc::clone(&shared)));
    while let Some(job) = jobs.recv().await {
        match job {
            Job::Command(command) => lanes.perform(command),
            Job::Recent { limit, reply } => drop(lanes.log.send(LogJob::Recent { limit, reply })),
            // Copies are read from etcd itself, not from this store.
            Job::Copy { .. } => {}
            Job::Crash => return,
        }
    }
    let Lanes { resigning, log, compactions, .. } = lanes;
    drop((log, compactions, watching));
    let mut resigning = resigning.into_inner();
    let work = async {
        while resigning.join_next().await.is_some() {}
        while working.join_next().await.is_some() {}
    };
    let _ = timeout(LAST_WORK, work).await;
    // Nobody acts for this Manager any more: others need not wait for its leases.
    let leases = [shared.leadership.take().map(|leadership| leadership.lease), shared.registered.take()];
    for lease in leases.into_iter().flatten() {
        let _ = timeout(LONGEST_TRY, shared.client.revoke(lease)).await;
    }
}

impl Lanes {
    /// Never waits. What must be seen by later commands is done before this returns.
    fn perform(&self, command: Command) {
        let shared = &self.shared;
        match command {
            Command::Election(ElectionCommand::Campaign { request }) => {
                // A Manager that campaigns does not lead. If the key is still ours, the key of a new term replaces it.
                shared.leadership.set(None);
                shared.campaigning.set(Some(request));
                shared.following.set(true);
                shared.grown.notify_one();
                shared.start_campaign();
            }
            Command::Election(ElectionCommand::Renew { request, term }) => match self.leading(term) {
                Some(leadership) => drop(spawn_local(Rc::clone(shared).renew(request, leadership))),
                None => shared.answer(Answer::Election(ElectionEvent::Lost { term })),
            },
            Command::Election(ElectionCommand::Resign { term }) => {
                if let Some(leadership) = self.leading(term) {
                    shared.leadership.set(None);
                    let mut resigning = self.resigning.borrow_mut();
                    while resigning.try_join_next().is_some() {}
                    resigning.spawn_local(Rc::clone(shared).resign(leadership));
                }
            }
            Command::Store(StoreCommand::Load { request }) => {
                shared.latest_load.set(request);
                self.log(LogJob::Load { request });
            }
            Command::Store(StoreCommand::Append { term, index, batch }) => {
                self.log(LogJob::Append { term, index, batch })
            }
            Command::Store(StoreCommand::Compact { index, group }) => {
                if let Some(leadership) = shared.leadership.get() {
                    self.log(LogJob::Adopt { index, group: Arc::clone(&group) });
                    // It ends after this does.
                    let _ = self.compactions.send(Compaction { leadership, index, group });
                }
            }
        }
    }

    fn leading(&self, term: Term) -> Option<Leadership> {
        self.shared.leadership.get().filter(|leadership| leadership.term == term)
    }

    fn log(&self, job: LogJob) {
        // It ends after this does.
        let _ = self.log.send(job);
    }
}

/// Reads everything in a store; one that a Manager leads only if `in_use` allows it.
pub(super) fn read(options: &EtcdOptions, in_use: bool) -> Result<Contents, StoreError> {
    alone(options, async |client| create::read(client, options, in_use).await)
}

/// Makes a store with these contents where there is none.
pub(super) fn create(options: &EtcdOptions, contents: &Contents) -> Result<(), StoreError> {
    alone(options, async |client| create::create(client, options, contents).await)
}

/// How a node of etcd is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Where it is.
    pub endpoint: String,
    /// What it says of itself, or why it says nothing.
    pub answer: Result<NodeFacts, String>,
}

/// What a node of etcd says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The version of etcd.
    pub version: String,
    /// The size of its file, with free pages.
    pub file_bytes: u64,
    /// What of it is in use.
    pub bytes_in_use: u64,
    /// What it complains of.
    pub errors: Vec<String>,
}

/// Asks every node how it is. Waits for them.
pub fn nodes(options: &EtcdOptions) -> Result<Vec<NodeStatus>, StoreError> {
    let bytes = |size: i64| u64::try_from(size).unwrap_or(0);
    let of = |status: proto::rpc::StatusResponse| NodeFacts {
        version: status.version,
        file_bytes: bytes(status.db_size),
        bytes_in_use: bytes(status.db_size_in_use),
        errors: status.errors,
    };
    let answers = alone(options, async |client| Ok(client.status().await))?;
    let answers = answers.into_iter();
    Ok(answers
        .map(|(endpoint, answer)| NodeStatus {
            endpoint,
            answer: answer.map(of).map_err(|why| why.to_string()),
        })
        .collect())
}

/// Uses a client for one thing, on a thread that may wait.
fn alone<T: Send>(
    options: &EtcdOptions,
    work: impl AsyncFnOnce(&Client) -> Result<T, StoreError> + Send,
) -> Result<T, StoreError> {
    // A thread of its own: the caller's may belong to another runtime.
    let worked = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let runtime = runtime()?;
            runtime.block_on(async {
                let client = Client::new(options, LONGEST_TRY * 5, LONGEST_TRY * 5)?;
                work(&client).await
            })
        });
        worker.join()
    });
    worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Random bits of the operating system.
fn random() -> u64 {
    getrandom::u64().expect("the operating system has random bytes")
}
