//! The recent changes of a table, for Lookups that ask from a position.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Lsn, Nonce};
use crate::message::{Position, UpdateBody};
use crate::table::PublishedEntry;
use crate::time::Instant;

/// The changes of the last minutes (Centrifuge §2.1.2: five). Kept in memory: a new leader starts an empty one at the
/// stored position, and Lookups that are further behind get a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChangeLog {
    log: Nonce,
    end: Lsn,
    changes: VecDeque<Logged>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Logged {
    at: Instant,
    entries: Arc<[PublishedEntry]>,
}

impl ChangeLog {
    /// An empty log at a position.
    #[must_use]
    pub fn new(log: Nonce, end: Lsn) -> ChangeLog {
        ChangeLog { log, end, changes: VecDeque::new() }
    }

    /// Which log this is.
    #[must_use]
    pub fn id(&self) -> Nonce {
        self.log
    }

    /// The position of the latest change.
    #[must_use]
    pub fn end(&self) -> Lsn {
        self.end
    }

    /// How many changes it reaches back.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether it reaches back not at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How old the oldest change is that it reaches back to.
    #[must_use]
    pub fn span(&self, now: Instant) -> Duration {
        self.changes.front().map_or(Duration::ZERO, |change| now.since(change.at))
    }

    /// Adds the next change, which moves the table to `lsn` and has at least one entry, and forgets what is older than
    /// `span`.
    pub fn push(&mut self, now: Instant, lsn: Lsn, entries: Arc<[PublishedEntry]>, span: Duration) {
        debug_assert_eq!(self.end.next(), Some(lsn));
        debug_assert!(!entries.is_empty(), "Lookups refuse changes that change nothing");
        self.end = lsn;
        self.changes.push_back(Logged { at: now, entries });
        self.truncate(now, span);
    }

    /// Forgets what is older than `span`.
    pub fn truncate(&mut self, now: Instant, span: Duration) {
        while self.changes.front().is_some_and(|change| now.since(change.at) > span) {
            self.changes.pop_front();
        }
    }

    /// What brings a Lookup at `position` to the log's end: nothing, the changes, or a snapshot if the log does not
    /// reach back, is another, or is longer than the snapshot (Centrifuge §2.2.1).
    #[must_use]
    pub fn answer(
        &self,
        position: Option<Position>,
        table_len: usize,
        snapshot: impl FnOnce() -> Arc<[PublishedEntry]>,
    ) -> UpdateBody {
        let changes = position.filter(|p| p.log == self.log).and_then(|p| self.after(p.lsn));
        match (changes, position) {
            (Some(parts), Some(_)) if parts.is_empty() => UpdateBody::Heartbeat { lsn: self.end },
            (Some(parts), Some(p)) if parts.iter().map(|part| part.len()).sum::<usize>() <= table_len => {
                let entries = match parts.as_slice() {
                    [only] => Arc::clone(only),
                    several => several.iter().flat_map(|part| part.iter().cloned()).collect(),
                };
                UpdateBody::Changes { from: p.lsn, to: self.end, entries }
            }
            _ => UpdateBody::Snapshot { lsn: self.end, entries: snapshot() },
        }
    }

    /// The changes after `lsn`, if the log reaches back that far and `lsn` is not from the future.
    fn after(&self, lsn: Lsn) -> Option<Vec<Arc<[PublishedEntry]>>> {
        let behind = usize::try_from(self.end.0.checked_sub(lsn.0)?).ok()?;
        let skip = self.changes.len().checked_sub(behind)?;
        Some(self.changes.iter().skip(skip).map(|change| Arc::clone(&change.entries)).collect())
    }
}
