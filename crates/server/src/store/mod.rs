//! The store as its driver sees it: commands, answers, and the handle of the backend that keeps the log.
//!
//! A backend runs beside the driver, never in it. The driver sends [`Command`]s and does not wait; the backend answers,
//! in its own time, with the events that the machine knows.

pub mod backend;
pub mod backup;
mod contents;
mod decode;
mod disk;
mod embedded;
mod encode;
mod error;
pub mod etcd;
mod none;
mod seal;
mod tables;

use std::fmt;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use centrifuge_core::id::{Index, ManagerId, Term};
use centrifuge_core::manager::{ElectionCommand, ElectionEvent, StoreCommand, StoreEvent};
use centrifuge_core::record::Batch;
use tokio::sync::mpsc::UnboundedSender;

pub use backend::Backend;
pub use contents::Contents;
pub use decode::{decode_batch, decode_group};
pub use embedded::open;
pub use encode::{encode_batch, encode_group};
pub use error::{DecodeError, StoreError};
pub use etcd::EtcdOptions;
pub use none::{PeerKey, PeerOptions};
pub use seal::{FORMAT, Kind, OLDEST, READABLE_FROM, seal, unseal};

/// How many batches are kept as history behind the last one.
pub const HISTORY: u64 = 10_000;

/// What a Manager's driver asks of a store.
#[derive(Clone, Debug)]
pub enum Command {
    /// Of the election.
    Election(ElectionCommand),
    /// Of the log.
    Store(StoreCommand),
}

impl From<ElectionCommand> for Command {
    fn from(command: ElectionCommand) -> Command {
        Command::Election(command)
    }
}

impl From<StoreCommand> for Command {
    fn from(command: StoreCommand) -> Command {
        Command::Store(command)
    }
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a campaign or a renewal.
    Election(ElectionEvent),
    /// To a load or an append.
    Store(StoreEvent),
    /// Unasked: another leader committed this batch. Batches come in order; one may come twice.
    Followed(Box<StoredBatch>),
}

/// Takes a store's answers. It is called on the store's own thread and must not wait.
pub type Answers = Box<dyn Fn(Answer) + Send>;

/// A batch of the past, for people who want to know what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    /// Its place in the log.
    pub index: Index,
    /// When it was written, by the writer's wall clock.
    pub written_at: SystemTime,
    /// What was written.
    pub batch: Batch,
}

/// Who would lead, and for how long nobody may take its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The address that clients dial, which is the Manager's name.
    pub manager: ManagerId,
    /// How long everybody waits until a leader's lease is surely over.
    pub leader_hold: Duration,
}

/// What a store knows beside its log.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StoreFacts {
    /// The Managers that run on this store, by the addresses that clients dial; empty if it serves one alone.
    pub managers: Vec<String>,
    /// The highest term that is known.
    pub term: Term,
    /// What did not work lately; `None` once something works again.
    pub problem: Option<String>,
}

/// What is sent to a backend's thread.
enum Job {
    Command(Command),
    Recent {
        limit: usize,
        reply: mpsc::Sender<Result<Vec<StoredBatch>, StoreError>>,
    },
    /// Everything that the store contains, as of now.
    Copy {
        reply: mpsc::Sender<Result<Contents, StoreError>>,
    },
    /// End at once, as a process that is killed.
    Crash,
}

/// The way to a backend's thread: one that waits in turn, or one that does many things beside each other.
enum Jobs {
    Thread(mpsc::Sender<Job>),
    Tasks(UnboundedSender<Job>),
}

impl Jobs {
    /// Never waits; false if the backend has ended.
    fn send(&self, job: Job) -> bool {
        match self {
            Jobs::Thread(jobs) => jobs.send(job).is_ok(),
            Jobs::Tasks(jobs) => jobs.send(job).is_ok(),
        }
    }
}

/// A running store.
///
/// Dropping it ends the store as soon as what was sent to it is done; [`StoreHandle::join`] also waits for that.
pub struct StoreHandle {
    jobs: Arc<Jobs>,
    thread: JoinHandle<()>,
    facts: Arc<Mutex<StoreFacts>>,
}

impl StoreHandle {
    /// Hands a command to the store. Never waits. Later commands see what earlier ones did, but a renewal does not wait
    /// for an append.
    pub fn send(&self, command: impl Into<Command>) {
        // A store whose thread is gone answers nothing, as one behind a broken network: the machine's timers see to it.
        self.jobs.send(Job::Command(command.into()));
    }

    /// The latest batches, the oldest of them first. Waits for the store: call it where waiting is allowed.
    pub fn recent(&self, limit: usize) -> Result<Vec<StoredBatch>, StoreError> {
        let (reply, answer) = mpsc::channel();
        if !self.jobs.send(Job::Recent { limit, reply }) {
            return Err(StoreError::Stopped);
        }
        answer.recv().map_err(|_| StoreError::Stopped)?
    }

    /// A way to copy the store while it runs. It does not keep the store running.
    #[must_use]
    pub fn copier(&self, backend: &Backend) -> StoreCopier {
        StoreCopier { backend: backend.clone(), jobs: Arc::downgrade(&self.jobs) }
    }

    /// Where to look for what the store knows beside its log. It stays up to date while the store runs.
    #[must_use]
    pub fn facts(&self) -> Arc<Mutex<StoreFacts>> {
        Arc::clone(&self.facts)
    }

    /// Whether the store still takes commands. It always does, unless a defect ended its thread: then nothing is
    /// answered any more, and the process should end.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends the store after what was sent to it is done, as far as that is possible in a few seconds, and waits for that.
    /// A leadership that is not given up yet is.
    pub fn join(self) {
        drop(self.jobs);
        if self.thread.join().is_err() {
            tracing::error!("the store's thread had panicked");
        }
    }

    /// Ends the store at once and gives nothing up, as if its process were killed, and waits for that.
    pub fn crash(self) {
        self.jobs.send(Job::Crash);
        self.join();
    }
}

/// Copies a store that is in use.
pub struct StoreCopier {
    backend: Backend,
    jobs: Weak<Jobs>,
}

impl StoreCopier {
    /// Whether there is anything to copy, no matter which Manager leads.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.backend {
            Backend::None(_) => Err(StoreError::NoStore),
            Backend::File(_) | Backend::Etcd(_) => Ok(()),
        }
    }

    /// Everything that the store contains, as of one moment. Waits for it, while the store goes on: call it where waiting is allowed.
    pub fn copy(&self) -> Result<Contents, StoreError> {
        let Backend::File(_) = &self.backend else { return self.backend.copy() };
        let (reply, answer) = mpsc::channel();
        let sent = self.jobs.upgrade().is_some_and(|jobs| jobs.send(Job::Copy { reply }));
        if !sent {
            return Err(StoreError::Stopped);
        }
        answer.recv().map_err(|_| StoreError::Stopped)?
    }
}

impl fmt::Debug for StoreCopier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreCopier").field("backend", &self.backend).finish_non_exhaustive()
    }
}
