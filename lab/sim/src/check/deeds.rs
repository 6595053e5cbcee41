//! What stores and applications do, in their own time or at once.

use centrifuge_core::id::{SessionId, Term};
use centrifuge_core::manager::{ManagerEvent, StoreEvent};
use centrifuge_core::owner::{OwnerEvent, TransferId};

use super::app::{Task, TaskKind};
use super::network::{Body, Node, Packet};
use super::print::Shared;
use super::scenario::{PROBES, address, namespace};
use super::step::Step;
use super::store::{Append, Store};

impl Step<'_> {
    /// The store takes or refuses a batch and says so.
    pub(super) fn append(&mut self, append: &Append) {
        let newest = self.state.election.term;
        let before = self.state.store.clone();
        let (event, breach) = self.change_store(|store| store.append(append, newest));
        self.blame(breach);
        self.judge_losses(&before, append);
        self.publish(&before, append);
        self.manager(append.manager, ManagerEvent::Store(event));
    }

    /// The store finishes a batch.
    pub(super) fn commit(&mut self, place: usize) {
        let append = self.change_store(|store| store.pending.remove(place));
        self.append(&append);
    }

    /// The store says that it does not know what became of a batch.
    pub(super) fn doubt(&mut self, place: usize) {
        let append = self.change_store(|store| store.pending.remove(place));
        let unknown = StoreEvent::Unknown { index: append.index };
        self.manager(append.manager, ManagerEvent::Store(unknown));
        self.change_store(|store| store.late.push(append));
    }

    /// A batch that was in doubt gets to the log, if it still may.
    pub(super) fn arrive(&mut self, place: usize) {
        let newest = self.state.election.term;
        let arrive = |store: &mut Store| {
            let append = store.late.remove(place);
            let (_, breach) = store.append(&append, newest);
            (append, breach)
        };
        let before = self.state.store.clone();
        let (append, breach) = self.change_store(arrive);
        self.blame(breach);
        self.judge_losses(&before, &append);
        self.publish(&before, &append);
    }

    /// Shows the Lookups a batch, if the store has just taken it.
    fn publish(&mut self, before: &Shared<Store>, append: &Append) {
        if !self.stage.scenario.lookups || before.index() == self.state.store.index() {
            return;
        }
        let store = self.state.store.clone();
        let Some(stored) = store.group.namespaces.get(&namespace()) else { return };
        let mut lookups = self.state.lookups.clone_inner();
        let breach = lookups.see(&append.batch, stored, &store.published);
        self.state.lookups = lookups.share();
        self.blame(breach);
    }

    /// An application does what it was asked to, if that has not become void.
    pub(super) fn work(&mut self, task: &Task) {
        if !self.change_apps(|apps| apps.tasks.remove(task)) {
            return;
        }
        let Task { slot, transfer, ref kind } = *task;
        match kind {
            TaskKind::Quiesce => self.owner(slot, OwnerEvent::Quiesced(transfer)),
            TaskKind::Copy => self.owner(slot, OwnerEvent::TransferReady(transfer)),
            TaskKind::Finish { range, generation, to } => {
                let place = (0..self.state.owners.len()).find(|slot| address(*slot) == *to);
                let there = place.and_then(|place| Some((place, self.state.owners[place].process.as_ref()?)));
                let Some((place, node)) = there else {
                    return self.owner(slot, OwnerEvent::TransferFailed(transfer));
                };
                let session = node.machine.session();
                self.change_apps(|apps| apps.copy(place, *range, *generation));
                let term =
                    self.state.owners[slot].process.as_ref().map_or(Term(0), |node| node.machine.term());
                self.owner(place, OwnerEvent::ImportReady { range: *range, source: *generation, term });
                self.confirm(slot, transfer, place, session);
            }
            TaskKind::Await => {}
        }
    }

    /// The destination tells the source that it has everything.
    fn confirm(&mut self, slot: usize, transfer: TransferId, place: usize, to: SessionId) {
        let Some(node) = &self.state.owners[slot].process else { return };
        if self.stage.scenario.slow_apps {
            let body = Body::Copied { source: node.machine.session(), transfer, to };
            self.state.network.send(Packet { from: Node::Owner(place), to: Node::Owner(slot), body });
            self.change_apps(|apps| apps.add(slot, transfer, TaskKind::Await));
        } else {
            self.owner(slot, OwnerEvent::TransferDone { transfer, to });
        }
    }

    /// A transfer fails.
    pub(super) fn fail(&mut self, task: &Task) {
        if self.change_apps(|apps| apps.tasks.remove(task)) {
            self.owner(task.slot, OwnerEvent::TransferFailed(task.transfer));
        }
    }

    /// The application at a place serves a write, if its Owner lets it.
    pub(super) fn write(&mut self, slot: usize, probe: usize) {
        let now = self.stage.owner_time(&self.state, slot);
        let process = self.state.owners[slot].process.as_ref();
        let lease = process.and_then(|node| node.machine.check_lease_now(now, PROBES[probe]).ok());
        if let Some(generation) = lease {
            self.change_apps(|apps| apps.write(probe, generation));
            self.state.spent.writes += 1;
        }
    }
}
