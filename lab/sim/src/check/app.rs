//! The applications of a small world: they end operations, copy state, and serve a few writes.

use std::collections::{BTreeMap, BTreeSet};

use centrifuge_core::id::{Generation, SessionId, Url};
use centrifuge_core::key::KeyRange;
use centrifuge_core::owner::{Grant, OwnerAction, Renumbered, TransferId};

use super::{Breach, PROBES};

/// What the applications have to do, and what their state is worth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Apps {
    /// What their Owners have asked of them.
    pub(super) tasks: BTreeSet<Task>,
    /// How many writes each probe's state has seen, by the lease under which it was held.
    writes: BTreeMap<(usize, Generation), u8>,
    /// By probe and lease: under which number a lease went on that became one with its neighbours.
    later: BTreeMap<(usize, Generation), Generation>,
    /// The copies that processes have.
    copies: Copies,
}

/// Copies of state: by place and probe, the lease of the source and the writes that are in it.
pub(super) type Copies = BTreeMap<(usize, usize), (Generation, u8)>;

/// Something that an application does in its own time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Task {
    /// The place of the application.
    pub(super) slot: usize,
    /// The transfer.
    pub(super) transfer: TransferId,
    /// What is to be done.
    pub(super) kind: TaskKind,
}

/// What an application does for a transfer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum TaskKind {
    /// Let the operations in flight end.
    Quiesce,
    /// Copy state while serving it.
    Copy,
    /// Send the rest of the state of a frozen range.
    Finish {
        /// The range.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
        /// Where the state goes.
        to: Url,
    },
    /// Wait for the word that all of it arrived, or give up.
    Await,
}

impl Apps {
    /// Takes what an Owner asks of its application.
    pub(super) fn hear(&mut self, slot: usize, action: &OwnerAction) {
        match action {
            OwnerAction::StartTransfer { transfer, .. } => self.add(slot, *transfer, TaskKind::Copy),
            OwnerAction::Freeze { transfer, to: None, .. } => self.add(slot, *transfer, TaskKind::Quiesce),
            OwnerAction::Freeze { transfer, range, generation, to: Some(to) } => {
                let kind = TaskKind::Finish { range: *range, generation: *generation, to: to.url.clone() };
                self.add(slot, *transfer, kind);
            }
            OwnerAction::StopTransfer(stopped) => {
                self.tasks.retain(|task| task.slot != slot || task.transfer != *stopped);
            }
            OwnerAction::DiscardImport { range } => {
                self.copies.retain(|(place, probe), _| *place != slot || !range.contains(PROBES[*probe]));
            }
            _ => {}
        }
    }

    /// The word arrived, or cannot be waited for.
    pub(super) fn stop_waiting(&mut self, slot: usize, transfer: TransferId) {
        self.tasks.remove(&Task { slot, transfer, kind: TaskKind::Await });
    }

    /// There is something to do for a transfer; it replaces what there was.
    pub(super) fn add(&mut self, slot: usize, transfer: TransferId, kind: TaskKind) {
        self.tasks.retain(|task| task.slot != slot || task.transfer != transfer);
        self.tasks.insert(Task { slot, transfer, kind });
    }

    /// The process at a place is gone, and all that its application knew.
    pub(super) fn forget(&mut self, slot: usize) {
        self.tasks.retain(|task| task.slot != slot);
        self.copies.retain(|(place, _), _| *place != slot);
    }

    /// The copies that the process at a place has.
    pub(super) fn copies_at(&self, slot: usize) -> Copies {
        let there = self.copies.iter().filter(|((place, _), _)| *place == slot);
        there.map(|(place, copy)| (*place, *copy)).collect()
    }

    /// A process has copies that it had before.
    pub(super) fn put_back(&mut self, copies: &Copies) {
        self.copies.extend(copies);
    }

    /// A write is served.
    pub(super) fn write(&mut self, probe: usize, generation: Generation) {
        *self.writes.entry((probe, generation)).or_default() += 1;
    }

    /// Leases go on under other numbers, and so does what was written under them.
    pub(super) fn renumber(&mut self, renumbered: &[Renumbered]) {
        for Renumbered { range, from, to } in renumbered {
            for (probe, _) in probes_in(*range) {
                self.later.insert((probe, *from), *to);
                if let Some(writes) = self.writes.remove(&(probe, *from)) {
                    self.writes.insert((probe, *to), writes);
                }
            }
        }
    }

    /// The process at a place gets all of a range's state.
    pub(super) fn copy(&mut self, to: usize, range: KeyRange, source: Generation) {
        for (probe, _) in probes_in(range) {
            let writes = self.writes_under(probe, source);
            self.copies.insert((to, probe), (source, writes));
        }
    }

    /// A process takes up a grant: the state that should come with it must be there, to the last write.
    pub(super) fn take_up(&mut self, slot: usize, session: SessionId, grant: &Grant) -> Option<Breach> {
        let generation = grant.generation;
        for (probe, _) in probes_in(grant.range) {
            let copy = self.copies.remove(&(slot, probe));
            let Some(source) = grant.source else { continue };
            let writes = self.writes_under(probe, source);
            if copy != Some((source, writes)) {
                let lacks = format!("with the state of lease {source}, which it lacks");
                return Some(Breach("S4", format!("{session} takes up lease {generation} {lacks}")));
            }
            if writes > 0 {
                self.writes.insert((probe, generation), writes);
            }
        }
        // State that begins empty is younger than every lease under which there was any.
        let knows = |(probe, lease): &(usize, Generation)| {
            let is_older = *lease < generation && *lease >= grant.state_since;
            is_older && grant.range.contains(PROBES[*probe])
        };
        let began_empty = grant.source.is_none();
        (began_empty && self.writes.keys().any(knows)).then(|| {
            let claims = format!("but it claims state since {}", grant.state_since);
            Breach("S4", format!("{session} takes up lease {generation} empty, {claims}"))
        })
    }

    /// The writes that the state has seen that was held under this number, also since it has another.
    fn writes_under(&self, probe: usize, mut generation: Generation) -> u8 {
        while let Some(later) = self.later.get(&(probe, generation)) {
            generation = *later;
        }
        self.writes.get(&(probe, generation)).copied().unwrap_or_default()
    }
}

/// The watched keys of a range, with their places among the watched keys.
pub(super) fn probes_in(range: KeyRange) -> impl Iterator<Item = (usize, centrifuge_core::key::Key)> {
    PROBES.into_iter().enumerate().filter(move |(_, key)| range.contains(*key))
}
