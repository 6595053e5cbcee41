//! The drivers: machines decide, these perform, one step at a time.

use std::sync::{Arc, PoisonError};

use centrifuge_core::id::{ManagerId, SessionId, Term};
use centrifuge_core::lookup::{LookupAction, LookupEvent};
use centrifuge_core::machine::Machine;
use centrifuge_core::manager::{ManagerAction, ManagerEvent, StreamId};
use centrifuge_core::owner::{OwnerAction, OwnerEvent};
use centrifuge_core::time::Instant;

use super::{LATENCY, MANAGER, Node, TestCluster, ToManager, Work};
use crate::hot::{LeaseTable, Validity};
use crate::keys::{KeyOrder, KeySpace};
use crate::lookup::Loss;
use crate::owner::ImportOffer;

/// A machine and when it wants to be woken.
pub(super) struct Running<M> {
    machine: M,
    wake: Option<Instant>,
}

impl<M: Machine> Running<M> {
    pub(super) fn new(machine: M) -> Running<M> {
        Running { machine, wake: None }
    }

    fn feed(&mut self, now: Instant, event: Option<M::Event>) -> Vec<M::Action> {
        let output = match event {
            Some(event) => self.machine.on_event(now, event),
            None => self.machine.on_wake(now),
        };
        self.wake = output.wake.filter(|wake| *wake != Instant::NEVER);
        output.actions
    }
}

impl<K: KeyOrder> TestCluster<K> {
    /// When the next thing happens.
    pub(super) fn next_step(&self) -> Option<Instant> {
        let queued = self.queue.keys().next().map(|(at, _)| *at);
        queued.into_iter().chain(self.wakes().map(|(at, _)| at)).min()
    }

    /// Who wants to be woken when, in a fixed order.
    fn wakes(&self) -> impl Iterator<Item = (Instant, Node)> {
        let manager = self.manager.iter().map(|running| (running.wake, Node::Manager));
        let owners = self.owners.iter().enumerate();
        let owners =
            owners.filter_map(|(number, node)| Some((node.running.as_ref()?.wake, Node::Owner(number))));
        let lookups = self.lookups.iter().enumerate();
        let lookups =
            lookups.filter_map(|(number, node)| Some((node.running.as_ref()?.wake, Node::Lookup(number))));
        manager.chain(owners).chain(lookups).filter_map(|(wake, node)| Some((wake?, node)))
    }

    /// Lets one thing happen that is due: what is queued comes first.
    pub(super) fn step(&mut self) {
        if self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= self.now) {
            if let Some((_, work)) = self.queue.pop_first() {
                self.happen(work);
            }
            return;
        }
        let due = self.wakes().find(|(at, _)| *at <= self.now).map(|(_, node)| node);
        match due {
            Some(Node::Manager) => self.step_manager(None),
            Some(Node::Owner(number)) => self.step_owner(number, None),
            Some(Node::Lookup(number)) => self.step_lookup(number, None),
            None => {}
        }
    }

    fn happen(&mut self, work: Work) {
        let from = || ManagerId::from(MANAGER);
        match work {
            Work::ToManager(node, message) => {
                let event = match (node, message) {
                    (Node::Owner(number), ToManager::Owner(message)) => {
                        ManagerEvent::FromOwner { from: StreamId(number as u64 * 2), message }
                    }
                    (Node::Lookup(number), ToManager::Lookup(request)) => {
                        ManagerEvent::FromLookup { from: StreamId(number as u64 * 2 + 1), request }
                    }
                    _ => return,
                };
                self.step_manager(Some(event));
            }
            Work::ToOwner(number, message) => {
                self.step_owner(number, Some(OwnerEvent::FromManager { from: from(), message }));
            }
            Work::ToLookup(number, message) => {
                self.step_lookup(number, Some(LookupEvent::FromManager { from: from(), message }));
            }
            Work::AtManager(event) => self.step_manager(Some(event)),
            Work::AtOwner(number, event) => self.step_owner(number, Some(event)),
            Work::AtLookup(number, event) => self.step_lookup(number, Some(event)),
        }
    }

    /// A message leaves a node, and arrives unless the node is cut off.
    fn send(&mut self, node: Node, work: Work) {
        if !self.cut.contains(&node) {
            self.later(LATENCY, work);
        }
    }

    fn step_manager(&mut self, event: Option<ManagerEvent>) {
        let Some(running) = &mut self.manager else { return };
        for action in running.feed(self.now, event) {
            match action {
                ManagerAction::ToOwner { to: StreamId(peer), message } => {
                    let number = (peer / 2) as usize;
                    self.send(Node::Owner(number), Work::ToOwner(number, message));
                }
                ManagerAction::ToLookup { to: StreamId(peer), message } => {
                    let number = (peer / 2) as usize;
                    self.send(Node::Lookup(number), Work::ToLookup(number, message));
                }
                ManagerAction::AdminReply { request, result } => {
                    self.replies.insert(request, result);
                }
                other => {
                    if let Some(answer) = self.store.answer(self.now, other) {
                        self.soon(Work::AtManager(answer));
                    }
                }
            }
        }
    }

    /// What readers see changes before anyone else hears of it, as in a real Owner.
    fn step_owner(&mut self, number: usize, event: Option<OwnerEvent>) {
        let node = &mut self.owners[number];
        let Some(running) = &mut node.running else { return };
        let actions = running.feed(self.now, event);
        node.book.note(&actions);
        node.book.update(&running.machine);
        let expiry = running.machine.expiry();
        let table = LeaseTable::new(&node.book.leases()).with_space(KeySpace::of(running.machine.kind()));
        let table = Arc::new(table);
        node.hot.publish(table, Validity { expiry, offset: 0, slack: 0 });
        let session = running.machine.session();
        for action in actions {
            self.act_for_owner(number, session, action);
        }
    }

    fn act_for_owner(&mut self, number: usize, session: SessionId, action: OwnerAction) {
        let tell = |event| Work::AtOwner(number, event);
        match action {
            OwnerAction::ToManager { message, .. } => {
                let node = Node::Owner(number);
                self.send(node, Work::ToManager(node, ToManager::Owner(message)));
            }
            OwnerAction::StartTransfer { transfer, .. } => {
                self.soon(tell(OwnerEvent::TransferReady(transfer)));
            }
            OwnerAction::Freeze { transfer, to: None, .. } => self.soon(tell(OwnerEvent::Quiesced(transfer))),
            OwnerAction::Freeze { transfer, range, generation, to: Some(to) } => {
                let term = self.owners[number].running.as_ref().map_or(Term(0), |owner| owner.machine.term());
                let offer = ImportOffer { range, source: generation, from: session, transfer, term };
                let event = match self.copy(number, to.session, offer) {
                    Some(()) => OwnerEvent::TransferDone { transfer, to: to.session },
                    None => OwnerEvent::TransferFailed(transfer),
                };
                self.soon(tell(event));
            }
            OwnerAction::DiscardImport { range } => {
                if let Some(state) = &self.owners[number].state {
                    state.discard(range);
                }
            }
            OwnerAction::Left => self.owners[number].running = None,
            _ => {}
        }
    }

    /// Carries the state of a frozen range to another Owner; `None` if it does not arrive.
    fn copy(&mut self, from: usize, to: SessionId, offer: ImportOffer) -> Option<()> {
        let is_it = |node: &super::OwnerNode| {
            node.running.as_ref().is_some_and(|running| running.machine.session() == to)
        };
        let destination = self.owners.iter().position(is_it)?;
        if [from, destination].iter().any(|number| self.cut.contains(&Node::Owner(*number))) {
            return None;
        }
        let bytes = self.owners[from].state.as_ref()?.export(offer).ok()?;
        let offer = self.owners[destination].state.as_ref()?.import(&bytes).ok()?;
        let ImportOffer { range, source, term, .. } = offer;
        self.soon(Work::AtOwner(destination, OwnerEvent::ImportReady { range, source, term }));
        Some(())
    }

    fn step_lookup(&mut self, number: usize, event: Option<LookupEvent>) {
        let node = &mut self.lookups[number];
        let Some(running) = &mut node.running else { return };
        let actions = running.feed(self.now, event);
        let is_new = |action: &LookupAction| matches!(action, LookupAction::TableChanged(_));
        if actions.iter().any(is_new)
            && let Some(table) = running.machine.table()
        {
            node.hot.publish_ordered(table.iter(), KeySpace::of(running.machine.kind()));
        }
        for action in actions {
            match action {
                LookupAction::ToManager { request, .. } => {
                    let node = Node::Lookup(number);
                    self.send(node, Work::ToManager(node, ToManager::Lookup(request)));
                }
                LookupAction::Loss { keys, why } => {
                    let losses = &self.lookups[number].losses;
                    let mut losses = losses.lock().unwrap_or_else(PoisonError::into_inner);
                    losses.push(Loss { keys, why });
                }
                _ => {}
            }
        }
    }
}
