//! What a sink knows of runs, and which it takes.

use std::collections::BTreeMap;

use centrifuge::fence::StaleLease;
use centrifuge::{Fence, Generation, Key};
use serde::{Deserialize, Serialize};

/// The most events that are remembered for readers.
const MAX_EVENTS: usize = 100_000;

/// All that the sink knows.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    fence: Fence,
    tasks: BTreeMap<String, Record>,
    pub(super) events: Vec<Event>,
}

/// What is known of a task.
#[derive(Debug, Default)]
struct Record {
    open: Option<Run>,
    finished: Option<Run>,
}

/// A run of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Which period it is for.
    pub period: u64,
    /// The lease that it is under.
    pub lease: u64,
}

/// Something that happened to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The task.
    pub task: String,
    /// The run.
    #[serde(flatten)]
    pub run: Run,
    /// Who says so.
    pub server: String,
    /// What happened.
    pub what: What,
}

/// What can happen to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// It has begun.
    Begun,
    /// It is done, and counts.
    Ended,
    /// It was open when a later one began, and never counts.
    Closed,
}

/// Why the sink does not take something.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error(transparent)]
    Stale(#[from] StaleLease),
    #[error("period {0} is done: wait for the next one")]
    IsDone(u64),
    #[error("this run is not open: a later one has closed it, or it never began. Begin again")]
    NotOpen,
}

impl Ledger {
    /// A run begins. That of an earlier lease, or of an earlier period, ends with it and does not count.
    pub(super) fn begin(&mut self, task: &str, run: Run, server: &str) -> Result<(), Refused> {
        self.fence.accept(Key::of(task.as_bytes()), Generation(run.lease))?;
        let record = self.tasks.entry(task.to_owned()).or_default();
        if let Some(finished) = record.finished.as_ref().filter(|finished| finished.period >= run.period) {
            return Err(Refused::IsDone(finished.period));
        }
        if record.open.as_ref() == Some(&run) {
            return Ok(());
        }
        // It comes late: the same owner has gone on to a later period.
        if record.open.as_ref().is_some_and(|open| open.lease == run.lease && open.period > run.period) {
            return Err(Refused::NotOpen);
        }
        if let Some(former) = record.open.replace(run.clone()) {
            self.note(task, former, server, What::Closed);
        }
        self.note(task, run, server, What::Begun);
        Ok(())
    }

    /// A run is done.
    pub(super) fn end(&mut self, task: &str, run: Run, server: &str) -> Result<(), Refused> {
        self.fence.accept(Key::of(task.as_bytes()), Generation(run.lease))?;
        let record = self.tasks.entry(task.to_owned()).or_default();
        if record.finished.as_ref() == Some(&run) {
            return Ok(());
        }
        if record.open.as_ref() != Some(&run) {
            return Err(Refused::NotOpen);
        }
        record.open = None;
        record.finished = Some(run.clone());
        self.note(task, run, server, What::Ended);
        Ok(())
    }

    fn note(&mut self, task: &str, run: Run, server: &str, what: What) {
        if self.events.len() < MAX_EVENTS {
            let (task, server) = (task.to_owned(), server.to_owned());
            self.events.push(Event { task, run, server, what });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(period: u64, lease: u64) -> Run {
        Run { period, lease }
    }

    fn whats(ledger: &Ledger) -> Vec<(u64, What)> {
        ledger.events.iter().map(|event| (event.run.lease, event.what)).collect()
    }

    #[test]
    fn a_period_is_done_once() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.begin("backup", run(7, 1), "a"), Ok(()));
        assert_eq!(ledger.end("backup", run(7, 1), "a"), Ok(()));
        assert_eq!(ledger.begin("backup", run(7, 2), "b"), Err(Refused::IsDone(7)));
        assert_eq!(ledger.begin("backup", run(6, 2), "b"), Err(Refused::IsDone(7)));
        assert_eq!(ledger.begin("backup", run(8, 2), "b"), Ok(()));
    }

    #[test]
    fn a_run_under_a_newer_lease_closes_the_old_one() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.begin("backup", run(7, 1), "a"), Ok(()));
        assert_eq!(ledger.begin("backup", run(7, 2), "b"), Ok(()));
        assert!(matches!(ledger.end("backup", run(7, 1), "a"), Err(Refused::Stale(_))));
        assert!(matches!(ledger.begin("backup", run(8, 1), "a"), Err(Refused::Stale(_))));
        assert_eq!(ledger.end("backup", run(7, 2), "b"), Ok(()));
        assert_eq!(whats(&ledger), [(1, What::Begun), (1, What::Closed), (2, What::Begun), (2, What::Ended)]);
    }

    #[test]
    fn what_is_said_again_changes_nothing() {
        let mut ledger = Ledger::default();
        for _ in 0..2 {
            assert_eq!(ledger.begin("backup", run(7, 1), "a"), Ok(()));
        }
        for _ in 0..2 {
            assert_eq!(ledger.end("backup", run(7, 1), "a"), Ok(()));
        }
        assert_eq!(whats(&ledger), [(1, What::Begun), (1, What::Ended)]);
    }

    #[test]
    fn nothing_ends_that_has_not_begun() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.end("backup", run(7, 1), "a"), Err(Refused::NotOpen));
        assert_eq!(ledger.begin("backup", run(7, 1), "a"), Ok(()));
        assert_eq!(ledger.end("backup", run(8, 1), "a"), Err(Refused::NotOpen));
        assert_eq!(ledger.end("report", run(7, 1), "a"), Err(Refused::NotOpen));
    }
}
