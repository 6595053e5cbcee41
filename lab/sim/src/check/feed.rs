//! Feeds the machines, and carries what they say.

use std::sync::Arc;

use centrifuge_core::id::{ManagerId, Term};
use centrifuge_core::manager::{
    ElectionCommand, ElectionEvent, ManagerAction, ManagerEvent, StoreCommand, StoreEvent, StreamId,
};
use centrifuge_core::message::{ManagerToOwner, OwnerToManager};
use centrifuge_core::owner::{OwnerAction, OwnerEvent};

use super::app::Apps;
use super::network::{Body, Node, Packet};
use super::nodes::Input;
use super::print::Shared;
use super::properties::Breach;
use super::scenario::manager_id;
use super::step::{Event, Step};
use super::store::Append;

impl Step<'_> {
    /// A message arrives.
    pub(super) fn deliver(&mut self, packet: &Shared<Packet>) {
        if matches!(packet.body, Body::ToManager(OwnerToManager::Hello(_))) {
            self.state.spent.hellos += 1;
        }
        if let (Node::Owner(slot), Body::Copied { transfer, .. }) = (packet.to, &packet.body) {
            self.change_apps(|apps| apps.stop_waiting(slot, *transfer));
        }
        if let (Node::Manager(manager), Body::ToManager(OwnerToManager::Report(report))) =
            (packet.to, &packet.body)
        {
            let now = self.stage.real_time(&self.state);
            self.change_fates(|fates| fates.hear(manager, report.session, now));
        }
        if self.stage.scenario.boundary.no_duplicates {
            self.state.network.take(packet);
        }
        self.arrived = Some(packet.clone());
        match packet.to {
            Node::Owner(slot) => self.queue.push_back(Event::Owner(slot, Input::Packet(packet.clone()))),
            Node::Manager(manager) => {
                self.queue.push_back(Event::Manager(manager, Input::Packet(packet.clone())));
            }
        }
    }

    /// A machine is woken.
    pub(super) fn wake(&mut self, node: Node) {
        self.queue.push_back(match node {
            Node::Owner(slot) => Event::Owner(slot, Input::Wake),
            Node::Manager(manager) => Event::Manager(manager, Input::Wake),
        });
    }

    /// Feeds the process at a place and does what it wants done.
    pub(super) fn feed_owner(&mut self, slot: usize, input: &Input<OwnerEvent>) {
        let Some(outcome) = self.stage.owner_outcome(&self.state, slot, input) else { return };
        let (node, actions) = &*outcome;
        let before = self.state.owners[slot].process.replace(node.clone());
        let from = before.map_or(Term::ZERO, |before| before.machine.term());
        let to = node.machine.term();
        self.blame((to < from).then_some(Breach::TermFell { slot, from, to }));
        for action in actions {
            match action {
                OwnerAction::ToManager { to, message } => self.send_to_manager(slot, to, message),
                OwnerAction::Granted(grants) => {
                    let session = node.machine.session();
                    let take_up =
                        |apps: &mut Apps| grants.iter().find_map(|grant| apps.take_up(slot, session, grant));
                    let breach = self.change_apps(take_up);
                    self.blame(breach);
                    self.change_fates(|fates| fates.take_up(slot, grants));
                }
                OwnerAction::Revoked(revoked) => {
                    let moved_to = input.confirmed_by();
                    self.change_fates(|fates| fates.revoke(slot, revoked, moved_to));
                }
                OwnerAction::Renumbered(renumbered) => {
                    self.change_apps(|apps| apps.renumber(renumbered));
                    self.change_fates(|fates| fates.renumber(slot, renumbered));
                    let mut memory = self.state.memory.clone_inner();
                    memory.renumber(slot, renumbered);
                    self.state.memory = Shared::new(memory);
                }
                action => self.tell_app(slot, action),
            }
        }
        self.look(slot);
    }

    fn send_to_manager(&mut self, slot: usize, to: &ManagerId, message: &OwnerToManager) {
        let named = |manager: &usize| manager_id(*manager) == *to;
        if let Some(manager) = (0..self.state.managers.len()).find(named) {
            let (from, to) = (Node::Owner(slot), Node::Manager(manager));
            self.state.network.send(Packet { from, to, body: Body::ToManager(message.clone()) });
        }
    }

    fn tell_app(&mut self, slot: usize, action: &OwnerAction) {
        self.change_apps(|apps| apps.hear(slot, action));
        if !self.stage.scenario.slow_apps {
            let tasks = self.state.apps.tasks.iter().filter(|task| task.slot == slot);
            self.queue.extend(tasks.cloned().map(Event::Work));
        }
    }

    /// The oracle looks at the process at a place.
    pub(super) fn look(&mut self, slot: usize) {
        let now = self.stage.owner_time(&self.state, slot);
        let process = self.state.owners[slot].process.as_ref().map(|node| (&**node, now));
        if self.state.memory.is_up_to_date(slot, process) {
            return;
        }
        let mut memory = self.state.memory.clone_inner();
        let breach = memory.look(slot, process).or_else(|| memory.two_owners());
        self.state.memory = Shared::new(memory);
        self.blame(breach);
    }

    /// Feeds a Manager and does what it wants done.
    pub(super) fn feed_manager(&mut self, manager: usize, input: &Input<ManagerEvent>) {
        let Some(outcome) = self.stage.manager_outcome(&self.state, manager, input) else { return };
        let (node, actions) = &*outcome;
        self.state.managers[manager] = node.clone();
        for action in actions {
            match action {
                ManagerAction::ToOwner { to, message } => self.send_to_owner(manager, *to, message),
                ManagerAction::Store(StoreCommand::Append { term, index, batch }) => {
                    self.send_to_store(Append {
                        manager,
                        term: *term,
                        index: *index,
                        batch: Arc::clone(batch),
                    });
                }
                ManagerAction::Store(StoreCommand::Load { request }) => {
                    let (index, group) = (self.state.store.index(), Arc::clone(&self.state.store.group));
                    let loaded = StoreEvent::Loaded { request: *request, index, group };
                    self.manager(manager, ManagerEvent::Store(loaded));
                }
                ManagerAction::Election(ElectionCommand::Campaign { request }) => {
                    self.campaign(manager, *request)
                }
                // A deposed leader is not told: it has to find out by its own clock.
                ManagerAction::Election(ElectionCommand::Renew { request, term })
                    if self.state.election.term == *term =>
                {
                    let renewed = ElectionEvent::Renewed { request: *request };
                    self.manager(manager, ManagerEvent::Election(renewed));
                }
                _ => {}
            }
        }
    }

    fn send_to_owner(&mut self, manager: usize, to: StreamId, message: &ManagerToOwner) {
        if let ManagerToOwner::Assign(assign) = message {
            let session = assign.session;
            let missing = assign.orders.iter().find(|order| !self.state.store.has_committed(session, order));
            self.blame(missing.map(|order| Breach::NotCommitted { session, generation: order.generation }));
            let (now, arrived) = (self.stage.real_time(&self.state), self.arrived.clone());
            let breach = self.change_fates(|fates| fates.offer(manager, now, assign, arrived.as_deref()));
            self.blame(breach);
        }
        let slot = usize::try_from(to.0).unwrap_or(usize::MAX);
        let (from, to) = (Node::Manager(manager), Node::Owner(slot));
        self.state.network.send(Packet { from, to, body: Body::ToOwner(message.clone()) });
    }

    /// What is told in the same breath as an append is judged before it.
    fn send_to_store(&mut self, append: Append) {
        if self.stage.scenario.slow_store {
            self.change_store(|store| store.pending.push(append));
        } else {
            self.queue.push_back(Event::Append(append));
        }
    }
}
