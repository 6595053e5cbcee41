//! Which keys have lost their state, by what the application was told and what the table says now.

use super::Row;
use crate::id::Generation;
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::time::Instant;

/// What the application knows of every key, which is not always what the table says: a loss waits for the key's next
/// owner, or for the end of a delay, before it is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Losses {
    told: RangeMap<Told>,
    /// No delay ends before this.
    deadline: Instant,
}

/// What the application knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Told {
    /// The application counts on state of this lease: state that began later is a loss it has yet to be told.
    known: Generation,
    /// The key has no owner.
    vacant: Option<Vacant>,
}

/// A key without an owner, whose state is therefore gone: a clean migration goes from owner to owner in one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Vacant {
    /// Its last lease.
    generation: Generation,
    /// When the loss is told if no owner comes; `None`: nothing is left to tell.
    due: Option<Instant>,
}

/// How a row came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    OneChange,
    SeveralChanges,
    Snapshot,
}

/// How rows that come together are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge {
    pub(super) source: Source,
    /// When the loss of a key that has no owner now is told.
    pub(super) due: Instant,
}

impl Default for Losses {
    fn default() -> Losses {
        Losses { told: RangeMap::new(), deadline: Instant::NEVER }
    }
}

impl Losses {
    /// What is known of the keys of a namespace that has replaced another: whatever state they have is not what the application counts on.
    pub(super) fn of_replaced() -> Losses {
        let mut told = RangeMap::new();
        told.insert(KeyRange::ALL, Told { known: Generation::ZERO, vacant: None });
        Losses { told, deadline: Instant::NEVER }
    }

    /// Takes in what the table says of a range now, and adds to `lost` the keys whose loss is to be told at once.
    pub(super) fn see(&mut self, range: KeyRange, row: &Row, judge: Judge, lost: &mut RangeSet) {
        let unseen: Vec<KeyRange> = self.told.gaps(range).collect();
        let deadline = &mut self.deadline;
        self.told.update(range, |piece, told| {
            if judge.is_told_now(told, row) {
                lost.insert(piece);
            }
            let after = judge.after(told, row);
            *deadline = after.due().map_or(*deadline, |due| due.min(*deadline));
            Some(after)
        });
        for piece in unseen {
            self.told.insert(piece, Told::first(row));
        }
    }

    /// The keys that have been without an owner for too long. Each is told once.
    pub(super) fn overdue(&mut self, now: Instant) -> RangeSet {
        if now < self.deadline {
            return RangeSet::new();
        }
        let is_over = |told: &Told| told.due().is_some_and(|due| due <= now);
        let keys: RangeSet =
            self.told.iter().filter(|(_, told)| is_over(told)).map(|(range, _)| range).collect();
        for range in keys.iter() {
            self.told.update(range, |_, told| Some(told.without_due()));
        }
        self.deadline = self.told.values().filter_map(Told::due).min().unwrap_or(Instant::NEVER);
        keys
    }

    /// A time before which no delay ends.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The keys whose loss waits for an owner or the end of the delay.
    pub(super) fn pending(&self) -> RangeSet {
        self.told.iter().filter(|(_, told)| told.due().is_some()).map(|(range, _)| range).collect()
    }
}

impl Told {
    /// Of a key that was never heard of there is nothing to lose.
    fn first(row: &Row) -> Told {
        let vacant = Vacant { generation: row.generation, due: None };
        Told { known: row.generation, vacant: row.owner.is_none().then_some(vacant) }
    }

    fn due(&self) -> Option<Instant> {
        self.vacant?.due
    }

    fn without_due(self) -> Told {
        Told { vacant: self.vacant.map(|vacant| Vacant { due: None, ..vacant }), ..self }
    }

    /// Whether the state that the application knew of is gone. Generations that went backwards are those of another
    /// life of the namespace: nothing of the earlier one is left.
    fn is_lost_by(&self, row: &Row) -> bool {
        row.state_since > self.known || row.generation < self.known
    }
}

impl Judge {
    /// Whether a loss is told now: once there is an owner to publish to.
    fn is_told_now(self, told: &Told, row: &Row) -> bool {
        if injected(Bug::SnapshotHidesLoss) && self.source == Source::Snapshot {
            return false;
        }
        if injected(Bug::CatchingUpHidesLoss) && self.source == Source::SeveralChanges {
            return false;
        }
        row.owner.is_some() && told.is_lost_by(row)
    }

    /// What the application knows of a key after the table said `row`.
    fn after(self, told: &Told, row: &Row) -> Told {
        if row.owner.is_some() || injected(Bug::UnownedAdvancesKnown) {
            return Told { known: row.generation, vacant: None };
        }
        let known = if told.is_lost_by(row) { told.known } else { row.generation };
        let due = match told.vacant {
            // A loss that waits already is not put off by another.
            Some(Vacant { due: Some(due), .. }) => Some(due),
            Some(vacant) if vacant.generation == row.generation => None,
            // It had an owner until now, or had one and lost it unseen.
            _ => Some(self.due),
        };
        Told { known, vacant: Some(Vacant { generation: row.generation, due }) }
    }
}
