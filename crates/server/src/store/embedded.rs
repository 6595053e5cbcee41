//! The embedded store: one file, one process, one thread. The process that has the file open leads.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager::{ElectionCommand, ElectionEvent, StoreCommand, StoreEvent};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::Batch;
use redb::{Database, ReadableDatabase};

use super::contents::Contents;
use super::disk::Disk;
use super::error::StoreError;
use super::tables::{self, Facts, Failure, Reach, Scanned, Write};
use super::{Answer, Answers, Command, Job, Jobs, StoreFacts, StoreHandle, StoredBatch};

/// How many commands may share a transaction.
const MAX_ROUND: usize = 1024;
/// How long a store rests after a failed write before it looks at its file again.
const RETRY: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 1000 });
/// A log longer than this is compacted when it is read, whether or not its leader lives to ask for it.
const LONG_LOG: u64 = 5_000;

/// Opens the store in `file`, which is made if it does not exist, and runs it on a thread of its own.
///
/// The file belongs to this process until the handle has ended. All of it is read and compared with its checksums
/// first, in a copy in memory; a file that is damaged, of another kind or of a later version is refused and not changed.
/// A file whose last process was killed is whole: every transaction was, and needs no repair.
pub fn open(file: &Path, answers: Answers) -> Result<StoreHandle, StoreError> {
    let disk = match Disk::open(file) {
        Err(StoreError::Missing { .. }) => create_empty(file)?,
        opened => opened?,
    };
    run(disk, answers)
}

/// Makes an empty store; if another process was quicker, that one's is opened.
fn create_empty(file: &Path) -> Result<Disk, StoreError> {
    let empty = Contents {
        term: Term::ZERO,
        not_before: None,
        index: Index::ZERO,
        group: ManagerState::default(),
        history: Vec::new(),
    };
    match create(file, &empty) {
        Err(StoreError::Exists { .. }) => Disk::open(file),
        created => created,
    }
}

/// Makes a store with these contents; a file that exists stays.
pub(super) fn create(file: &Path, contents: &Contents) -> Result<Disk, StoreError> {
    Disk::create(file, |database| tables::fill_new(database, contents, file))
}

/// Reads everything in a store's file that no process is using. The file is not changed.
pub(super) fn read(file: &Path) -> Result<Contents, StoreError> {
    let disk = Disk::open_to_read(file)?;
    guarded(file, || {
        let copy = disk.verified_copy()?;
        let (commits, contents) = tables::read_all(&copy, file)?;
        check_witness(&disk, commits)?;
        Ok(contents)
    })
}

pub(super) fn run(disk: Disk, answers: Answers) -> Result<StoreHandle, StoreError> {
    let facts = verify(&disk)?;
    let database = disk.database()?;
    let (jobs, received) = mpsc::channel();
    let shown = Arc::new(Mutex::new(StoreFacts::default()));
    let path = disk.path.clone();
    tracing::info!(file = %path.display(), index = facts.last, term = facts.term.0, "the store is open");
    let mut embedded = Embedded {
        disk,
        database: Some(database),
        facts,
        highest_term: facts.term,
        leading: None,
        answers,
        trouble: None,
        shown: Arc::clone(&shown),
        said_waiting: false,
    };
    let thread = thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || embedded.run(&received))
        .map_err(StoreError::io(&path, "start a thread for"))?;
    Ok(StoreHandle { jobs: Arc::new(Jobs::Thread(jobs)), thread, facts: shown })
}

/// Reads the whole file and compares every checksum, the database's and our own, without changing anything.
fn verify(disk: &Disk) -> Result<Facts, StoreError> {
    guarded(&disk.path, || {
        let copy = disk.verified_copy()?;
        let scanned = tables::scan(&copy, &disk.path, Reach::LogAndHistory, |_| {})?;
        check_witness(disk, scanned.facts.commits)?;
        Ok(scanned.facts)
    })
}

fn check_witness(disk: &Disk, commits: u64) -> Result<(), StoreError> {
    if commits < disk.witnessed()? {
        return Err(StoreError::damaged(&disk.path, "its latest transactions are gone"));
    }
    Ok(())
}

/// Reads a copy in memory. There the disk cannot fail: whatever the database cannot do, up to a panic over bytes that
/// it never wrote, is damage.
fn guarded<T>(file: &Path, read: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Err(_) => Err(StoreError::damaged(file, "the database cannot make sense of it")),
        Ok(Err(StoreError::Database { source, .. })) => Err(StoreError::damaged(file, source)),
        Ok(result) => result,
    }
}

/// The store's thread.
struct Embedded {
    disk: Disk,
    /// `None` after a failed write, until the file has been looked at again.
    database: Option<Database>,
    facts: Facts,
    /// The highest term that was ever tried: one whose write failed is not used again.
    highest_term: Term,
    leading: Option<Term>,
    answers: Answers,
    trouble: Option<Trouble>,
    /// The current problem, for status and health.
    shown: Arc<Mutex<StoreFacts>>,
    said_waiting: bool,
}

struct Trouble {
    what: String,
    retry_at: Instant,
}

/// What a round of commands comes to: written in one transaction, answered after it.
struct Round {
    facts: Facts,
    leading: Option<Term>,
    writes: Vec<Write>,
    answers: Vec<Answer>,
}

impl Embedded {
    fn run(&mut self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let others = jobs.try_iter().take(MAX_ROUND - 1);
            let all: Vec<Job> = std::iter::once(first).chain(others).collect();
            self.perform(all);
        }
        self.database = None;
        if let Err(error) = self.disk.sync() {
            tracing::warn!(file = %self.disk.path.display(), %error, "the store's file could not be synced at its end");
        }
    }

    fn perform(&mut self, jobs: Vec<Job>) {
        self.reopen_if_due();
        let mut round = self.round();
        for job in jobs {
            match job {
                Job::Recent { limit, reply } => {
                    self.finish(&mut round);
                    // The asking side may be gone.
                    let _ = reply.send(self.recent(limit));
                }
                Job::Copy { reply } => {
                    self.finish(&mut round);
                    self.copy(reply);
                }
                // The file is given back with the thread: there is nothing else to give up.
                Job::Crash => {}
                Job::Command(Command::Election(ElectionCommand::Campaign { request })) => {
                    self.campaign(request, &mut round)
                }
                Job::Command(Command::Election(ElectionCommand::Renew { request, term })) => {
                    let renewed = round.leading == Some(term);
                    round.answers.push(Answer::Election(match renewed {
                        true => ElectionEvent::Renewed { request },
                        false => ElectionEvent::Lost { term },
                    }));
                }
                Job::Command(Command::Election(ElectionCommand::Resign { term })) => {
                    round.leading = round.leading.filter(|leading| *leading != term);
                }
                Job::Command(Command::Store(StoreCommand::Load { request })) => {
                    self.finish(&mut round);
                    self.load(request, &mut round);
                }
                Job::Command(Command::Store(StoreCommand::Append { term, index, batch })) => {
                    self.append(term, index, batch, &mut round);
                }
                Job::Command(Command::Store(StoreCommand::Compact { index, group })) => {
                    if self.is_open() && round.facts.snapshot < index.0 && index.0 <= round.facts.last {
                        round.compact(index.0, group);
                    }
                }
            }
        }
        self.finish(&mut round);
    }

    fn round(&self) -> Round {
        Round { facts: self.facts, leading: self.leading, writes: Vec::new(), answers: Vec::new() }
    }

    /// The process that has the file wins, unless the store was restored and earlier leases may still run.
    fn campaign(&mut self, request: u64, round: &mut Round) {
        let term = self.highest_term.max(round.facts.term).next();
        let Some(term) = term.filter(|_| self.is_open() && !self.must_wait(&round.facts)) else {
            round.answers.push(Answer::Election(ElectionEvent::LedBy { request, leader: None }));
            return;
        };
        self.highest_term = term;
        round.facts.term = term;
        round.facts.not_before = None;
        round.leading = Some(term);
        round.answers.push(Answer::Election(ElectionEvent::Won { request, term }));
    }

    fn must_wait(&mut self, facts: &Facts) -> bool {
        let left = facts.not_before.and_then(|until| until.duration_since(SystemTime::now()).ok());
        if let Some(left) = left
            && !self.said_waiting
        {
            self.said_waiting = true;
            tracing::warn!(
                file = %self.disk.path.display(),
                seconds = left.as_secs(),
                "the store was restored: leases granted after the backup may still run, and nobody leads before \
                 they have ended"
            );
        }
        left.is_some()
    }

    fn append(&mut self, term: Term, index: Index, batch: Arc<Batch>, round: &mut Round) {
        if !self.is_open() {
            round.answers.push(Answer::Store(StoreEvent::Unknown { index }));
        } else if index.0 <= round.facts.last {
            self.finish(round);
            let event = self.repeated(index, &batch);
            round.answers.push(Answer::Store(event));
        } else if round.leading == Some(term) && round.facts.last.checked_add(1) == Some(index.0) {
            round.facts.last = index.0;
            round.writes.push(Write::Batch { index: index.0, written_at: SystemTime::now(), batch });
            round.answers.push(Answer::Store(StoreEvent::Appended { index }));
        } else {
            round.answers.push(Answer::Store(StoreEvent::Fenced { index }));
        }
    }

    /// The index is taken: by this very batch, or by another.
    fn repeated(&self, index: Index, batch: &Batch) -> StoreEvent {
        let there = self.with_database(|database, file| tables::read_batch(database, file, index.0));
        match there {
            Ok(Some(there)) if there.batch == *batch => StoreEvent::Appended { index },
            Ok(_) if index.0 <= self.facts.last => StoreEvent::Fenced { index },
            Ok(_) => StoreEvent::NotAppended { index },
            Err(error) => {
                tracing::error!(%error, %index, "the store cannot tell whether a batch is there");
                StoreEvent::Unknown { index }
            }
        }
    }

    fn load(&self, request: u64, round: &mut Round) {
        let loaded = self.with_database(|database, file| tables::scan(database, file, Reach::Log, |_| {}));
        match loaded {
            Ok(Scanned { facts, group }) => {
                let (index, group) = (Index(facts.last), Arc::new(group));
                if facts.last - facts.snapshot > LONG_LOG {
                    round.compact(facts.last, Arc::clone(&group));
                }
                round.answers.push(Answer::Store(StoreEvent::Loaded { request, index, group }));
            }
            Err(error) => {
                tracing::error!(%error, "the store cannot be read");
                round.answers.push(Answer::Store(StoreEvent::LoadFailed { request }));
            }
        }
    }

    fn recent(&self, limit: usize) -> Result<Vec<StoredBatch>, StoreError> {
        self.with_database(|database, file| tables::read_recent(database, file, limit))
    }

    /// Reads everything as it is now, on another thread: commits and renewals go on meanwhile.
    fn copy(&self, reply: mpsc::Sender<Result<Contents, StoreError>>) {
        let begun = self.with_database(|database, file| {
            database.begin_read().map_err(|error| StoreError::redb(file, error))
        });
        let transaction = match begun {
            Ok(transaction) => transaction,
            // The asking side may be gone.
            Err(error) => return drop(reply.send(Err(error))),
        };
        let file = self.disk.path.clone();
        let read =
            move || drop(reply.send(tables::read_all_in(&transaction, &file).map(|(_, contents)| contents)));
        // Without a thread there is no answer, which the asking side takes for the store's end.
        if let Err(error) = thread::Builder::new().name("backup".to_owned()).spawn(read) {
            tracing::error!(%error, "no thread for a backup");
        }
    }

    fn with_database<T>(
        &self,
        read: impl FnOnce(&Database, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &self.database {
            Some(database) => read(database, &self.disk.path),
            None => {
                let what = self.trouble.as_ref().map_or(String::new(), |trouble| trouble.what.clone());
                Err(StoreError::Broken { file: self.disk.path.clone(), what })
            }
        }
    }

    /// Writes what the round wants written, waits until it is on the disk, and only then answers.
    fn finish(&mut self, round: &mut Round) {
        let mut done = std::mem::replace(round, self.round());
        if done.writes.is_empty() && done.facts == self.facts {
            self.leading = done.leading;
        } else {
            done.facts.commits = self.facts.commits + 1;
            match self.write(&done) {
                Ok(()) => self.written(&done),
                Err(failure) => self.not_written(&mut done, failure),
            }
        }
        done.answers.into_iter().for_each(&self.answers);
        *round = self.round();
    }

    fn write(&self, round: &Round) -> Result<(), Failure> {
        match &self.database {
            Some(database) => tables::write(database, &round.facts, &round.writes),
            None => Err(Failure::Nothing(redb::Error::DatabaseClosed)),
        }
    }

    fn written(&mut self, round: &Round) {
        self.facts = round.facts;
        self.leading = round.leading;
        self.show(None);
        if let Err(error) = self.disk.witness(self.facts.commits) {
            tracing::warn!(file = %self.disk.path.display(), %error, "the store's count of transactions lags");
        }
    }

    /// Nobody hears of success. What was not written may be tried again; what may have been written is settled when
    /// the file has been looked at again and the same batch comes back.
    fn not_written(&mut self, round: &mut Round, failure: Failure) {
        let (error, surely_not) = match failure {
            Failure::Nothing(error) => (error, true),
            Failure::Unknown(error) => (error, false),
        };
        tracing::error!(
            file = %self.disk.path.display(),
            %error,
            "a write to the store failed: check the disk and its free space; the store tries again by itself"
        );
        self.database = None;
        self.in_trouble(&error);
        // A term that may not be on the disk is not led; the next campaign takes a higher one.
        self.leading = round.leading.filter(|term| self.leading == Some(*term));
        for answer in &mut round.answers {
            match answer {
                Answer::Store(StoreEvent::Appended { index } | StoreEvent::Fenced { index }) => {
                    let index = *index;
                    *answer = Answer::Store(match surely_not {
                        true => StoreEvent::NotAppended { index },
                        false => StoreEvent::Unknown { index },
                    });
                }
                Answer::Election(ElectionEvent::Won { request, .. }) => {
                    *answer = Answer::Election(ElectionEvent::LedBy { request: *request, leader: None });
                }
                _ => {}
            }
        }
    }

    /// Rests for a while, and shows why.
    fn in_trouble(&mut self, error: &(dyn std::error::Error + 'static)) {
        let file = self.disk.path.display();
        let problem = match is_full(error) {
            true => {
                format!("no room is left on the disk of {file}: make room; nothing is committed until then")
            }
            false => {
                format!("{file} cannot be written ({error}): check its disk; nothing is committed until then")
            }
        };
        self.show(Some(problem));
        self.trouble = Some(Trouble { what: error.to_string(), retry_at: Instant::now() + RETRY });
    }

    fn show(&self, problem: Option<String>) {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).problem = problem;
    }

    /// Whether the database can be used.
    fn is_open(&self) -> bool {
        self.database.is_some()
    }

    /// After a failed write the store tries, now and then, to get its database back.
    fn reopen_if_due(&mut self) {
        let due = self.trouble.as_ref().is_some_and(|trouble| trouble.retry_at <= Instant::now());
        if !due {
            return;
        }
        match self.reopen() {
            Ok(()) => tracing::info!(file = %self.disk.path.display(), "the store is usable again"),
            Err(error) => {
                tracing::error!(%error, "the store is not usable yet");
                self.in_trouble(&error);
            }
        }
    }

    /// Makes sure that what can be read is on the disk, and looks at all of it as at the first opening.
    fn reopen(&mut self) -> Result<(), StoreError> {
        self.disk.rewrite().map_err(StoreError::io(&self.disk.path, "write"))?;
        self.facts = verify(&self.disk)?;
        self.database = Some(self.disk.database()?);
        self.trouble = None;
        Ok(())
    }
}

/// Whether an error, or what it came from, is that there is no room.
fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_full =
        |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let mut next = Some(error);
    while let Some(error) = next {
        let io = match error.downcast_ref::<redb::Error>() {
            Some(redb::Error::Io(io)) => Some(io),
            _ => match error.downcast_ref::<StoreError>() {
                Some(StoreError::Io { source, .. } | StoreError::Database { source, .. }) => Some(source),
                _ => error.downcast_ref::<io::Error>(),
            },
        };
        if io.is_some_and(is_full) {
            return true;
        }
        next = error.source();
    }
    false
}

impl Round {
    /// The snapshot replaces the log up to its index.
    fn compact(&mut self, index: u64, group: Arc<ManagerState>) {
        self.facts.snapshot = index;
        self.writes.push(Write::Snapshot { index, group });
    }
}

#[cfg(test)]
mod tests;
