//! The store and the election of a small world, and every lease that was ever committed.

use std::sync::Arc;

use centrifuge_core::id::{Generation, Index, SessionId, Term};
use centrifuge_core::injected_bug::{Bug, injected};
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::StoreEvent;
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::message::LeaseOrder;
use centrifuge_core::record::{Batch, Change, Record};
use centrifuge_core::table::{Entry, PublishedEntry};

use super::{Breach, namespace};

/// The log, what it adds up to, and what is on its way there.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Store {
    log: Vec<Arc<Batch>>,
    /// What the log adds up to, for those who apply it as the Managers do.
    pub(super) group: Arc<ManagerState>,
    leases: Vec<Lease>,
    /// What the latest batch changed of what Lookups see.
    pub(super) published: Vec<PublishedEntry>,
    /// Batches that the store works on; their senders wait.
    pub(super) pending: Vec<Append>,
    /// Batches that the store left in doubt and that may still get to the log.
    pub(super) late: Vec<Append>,
}

/// A lease as it was committed.
#[derive(Clone, Copy, Debug, Hash)]
struct Lease {
    range: KeyRange,
    generation: Generation,
    session: SessionId,
    state_since: Generation,
}

/// A batch on its way to the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Append {
    /// The Manager that sent it.
    pub(super) manager: usize,
    /// The term under which it may be put there.
    pub(super) term: Term,
    /// Where it should be.
    pub(super) index: Index,
    /// What it is.
    pub(super) batch: Arc<Batch>,
}

impl Store {
    /// The index of the last batch.
    pub(super) fn index(&self) -> Index {
        Index(self.log.len() as u64)
    }

    /// Puts a batch into the log if its place and its term allow it; `newest` is the latest term there is.
    pub(super) fn append(&mut self, append: &Append, newest: Term) -> (StoreEvent, Option<Breach>) {
        let Append { index, batch, .. } = append;
        let index = *index;
        let place = usize::try_from(index.0).unwrap_or(usize::MAX).wrapping_sub(1);
        if self.log.get(place).is_some_and(|there| there == batch) {
            return (StoreEvent::Appended { index }, None);
        }
        let is_fenced = append.term < newest && !injected(Bug::UnfencedCommit);
        if is_fenced || place < self.log.len() {
            return (StoreEvent::Fenced { index }, None);
        }
        if place > self.log.len() {
            return (StoreEvent::NotAppended { index }, None);
        }
        let breach = if batch.term < newest {
            let what = format!("a batch of term {} is committed though term {newest} has begun", batch.term);
            Some(Breach("S5", what))
        } else {
            batch.records.iter().find_map(|record| self.used_before(record))
        };
        self.put(batch);
        (StoreEvent::Appended { index }, breach)
    }

    fn put(&mut self, batch: &Arc<Batch>) {
        self.log.push(Arc::clone(batch));
        let group = Arc::make_mut(&mut self.group);
        self.published = group.apply(batch).remove(&namespace()).unwrap_or_default();
        let Some(stored) = group.namespaces.get(&namespace()) else { return };
        for (range, generation) in batch.records.iter().filter_map(number) {
            let parts = stored.table.overlapping(range);
            let lease = |(range, entry): (KeyRange, &Entry)| {
                Some(Lease { range, generation, session: entry.owner?, state_since: entry.state_since })
            };
            self.leases.extend(parts.filter_map(lease));
        }
    }

    /// Whether the log has a change of a kind, in a term above one.
    pub(super) fn has_change_after(&self, term: Term, is_one: impl Fn(&Change) -> bool) -> bool {
        let later = self.log.iter().filter(|batch| batch.term > term);
        later.flat_map(|batch| &batch.records).any(|record| match record {
            Record::Namespace { change, .. } => is_one(change),
            _ => false,
        })
    }

    /// Says what is wrong with a grant whose generation is not new.
    fn used_before(&self, record: &Record) -> Option<Breach> {
        let (range, generation) = number(record)?;
        let clashes = |lease: &&Lease| {
            lease.generation == generation || (lease.generation > generation && lease.range.overlaps(range))
        };
        let before = self.leases.iter().find(clashes)?;
        Some(Breach("S2", format!("lease {generation} is granted after lease {}", before.generation)))
    }

    /// Whether an order names a lease that was committed as the order says, under both of its numbers if it has two.
    pub(super) fn has_committed(&self, session: SessionId, order: &LeaseOrder) -> bool {
        let mut numbers = [Some(order.generation), order.merge].into_iter().flatten();
        numbers.all(|generation| self.has_committed_under(session, order, generation))
    }

    fn has_committed_under(&self, session: SessionId, order: &LeaseOrder, generation: Generation) -> bool {
        let mut missing = centrifuge_core::range_set::RangeSet::from_ranges([order.range]);
        for lease in &self.leases {
            let same = lease.generation == generation
                && lease.session == session
                && lease.state_since == order.state_since;
            if same {
                missing.remove(lease.range);
            }
        }
        missing.is_empty()
    }
}

/// The number that a record gives to keys, if it gives one: to a lease, or to several that become one.
fn number(record: &Record) -> Option<(KeyRange, Generation)> {
    match record {
        Record::Namespace {
            change: Change::Granted { range, generation, .. } | Change::MergeBegun { range, generation },
            ..
        } => Some((*range, *generation)),
        _ => None,
    }
}

/// Who leads, as the election sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Election {
    /// The latest term.
    pub(super) term: Term,
    /// Who has it.
    pub(super) leader: Option<usize>,
}
