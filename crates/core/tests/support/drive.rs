//! The drivers: machines decide, these perform. Applications too, unless the test speaks for them.

use centrifuge_core::id::SessionId;
use centrifuge_core::lookup::{LookupAction, LookupEvent};
use centrifuge_core::manager::{ElectionCommand, ManagerAction, ManagerEvent, StoreCommand, StreamId};
use centrifuge_core::owner::{OwnerAction, OwnerEvent};

use super::{Cluster, Envelope, Event, Message, Node, Work, manager_id};

impl Cluster {
    pub(super) fn receive(&mut self, envelope: Envelope) {
        let Envelope { from, to, message, .. } = envelope.clone();
        if self.paused.contains(&to) {
            return self.held.push(envelope);
        }
        let event = match (message, from) {
            (Message::FromOwner(message), Node::Owner(number)) => {
                ManagerEvent::FromOwner { from: StreamId(number as u64), message }.into()
            }
            (Message::FromLookup(request), Node::Lookup(number)) => {
                ManagerEvent::FromLookup { from: StreamId(number as u64), request }.into()
            }
            (Message::ToOwner(message), Node::Manager(number)) => {
                OwnerEvent::FromManager { from: manager_id(number), message }.into()
            }
            (Message::ToLookup(message), Node::Manager(number)) => {
                LookupEvent::FromManager { from: manager_id(number), message }.into()
            }
            (Message::Request(request), Node::Manager(number)) => {
                let answer = self.store.answer(self.now, &manager_id(number), self.leader_hold, request);
                return answer.into_iter().for_each(|event| self.send(to, from, Message::Answer(event)));
            }
            (Message::Answer(event), _) => event.into(),
            (message, _) => panic!("{message:?} does not come from {from:?}"),
        };
        self.happen(to, event);
    }

    pub(super) fn happen(&mut self, node: Node, event: Event) {
        match (node, event) {
            (Node::Manager(number), Event::Manager(event)) => self.step_manager(number, Some(event)),
            (Node::Owner(number), Event::Owner(event)) => self.step_owner(number, Some(event)),
            (Node::Lookup(number), Event::Lookup(event)) => self.step_lookup(number, Some(event)),
            (node, event) => panic!("{event:?} does not happen to {node:?}"),
        }
    }

    pub(super) fn wake(&mut self, node: Node) {
        match node {
            Node::Manager(number) => self.step_manager(number, None),
            Node::Owner(number) => self.step_owner(number, None),
            Node::Lookup(number) => self.step_lookup(number, None),
            Node::Store | Node::Election => panic!("the store has no timers"),
        }
    }

    fn step_manager(&mut self, number: usize, event: Option<ManagerEvent>) {
        let Some(host) = self.managers.get_mut(number).filter(|host| host.alive) else { return };
        let from = Node::Manager(number);
        for action in host.step(self.now, event) {
            match action {
                ManagerAction::ToOwner { to: StreamId(to), message } => {
                    self.send(from, Node::Owner(to as usize), Message::ToOwner(message));
                }
                ManagerAction::ToLookup { to: StreamId(to), message } => {
                    self.send(from, Node::Lookup(to as usize), Message::ToLookup(message));
                }
                ManagerAction::Election(ElectionCommand::Campaign { .. })
                | ManagerAction::Election(ElectionCommand::Renew { .. })
                | ManagerAction::Election(ElectionCommand::Resign { .. }) => {
                    self.send(from, Node::Election, Message::Request(action));
                }
                ManagerAction::Store(StoreCommand::Load { .. })
                | ManagerAction::Store(StoreCommand::Append { .. }) => {
                    self.send(from, Node::Store, Message::Request(action));
                }
                other => self.noted.push((self.now, from, other)),
            }
        }
    }

    fn step_owner(&mut self, number: usize, event: Option<OwnerEvent>) {
        let Some(host) = self.owners.get_mut(number).filter(|host| host.alive) else { return };
        let from = Node::Owner(number);
        for action in host.step(self.now, event) {
            match action {
                OwnerAction::ToManager { to, message } => {
                    self.send(from, self.manager_named(&to), Message::FromOwner(message));
                }
                action => {
                    if self.by_hand.contains(&from) {
                        self.undone.push((from, action.clone()));
                    } else {
                        self.move_state(from, &action);
                    }
                    self.told.push((self.now, from, action));
                }
            }
        }
        // Time alone takes keys from Owners and gives them none: this is when two could come to hold one.
        if self.watched {
            assert_eq!(self.held_twice(), None, "at {} two Owners hold it", self.now);
        }
    }

    fn step_lookup(&mut self, number: usize, event: Option<LookupEvent>) {
        let Some(host) = self.lookups.get_mut(number).filter(|host| host.alive) else { return };
        let from = Node::Lookup(number);
        for action in host.step(self.now, event) {
            match action {
                LookupAction::ToManager { to, request } => {
                    self.send(from, self.manager_named(&to), Message::FromLookup(request));
                }
                other => self.raised.push((self.now, from, other)),
            }
        }
    }

    /// What an application does that copies at once: the destination has the copy before the source hears of it.
    pub(super) fn move_state(&mut self, source: Node, action: &OwnerAction) {
        match action {
            OwnerAction::StartTransfer { transfer, .. } => {
                self.soon(source, OwnerEvent::TransferReady(*transfer));
            }
            OwnerAction::Freeze { transfer, to: None, .. } => {
                self.soon(source, OwnerEvent::Quiesced(*transfer));
            }
            OwnerAction::Freeze { transfer, range, generation, to: Some(to) } => {
                let (transfer, to) = (*transfer, to.session);
                let Some(destination) = self.running(to) else {
                    return self.soon(source, OwnerEvent::TransferFailed(transfer));
                };
                let term = self.owner_machine(source).term();
                let (range, source_lease) = (*range, *generation);
                self.soon(destination, OwnerEvent::ImportReady { range, source: source_lease, term });
                self.soon(source, OwnerEvent::TransferDone { transfer, to });
            }
            _ => {}
        }
    }

    fn soon(&mut self, node: Node, event: OwnerEvent) {
        self.push(self.now, Work::Happens(node, event.into()));
    }

    fn running(&self, session: SessionId) -> Option<Node> {
        let is_it = |number: &usize| {
            let host = &self.owners[*number];
            host.alive && host.machine.session() == session
        };
        (0..self.owners.len()).find(is_it).map(Node::Owner)
    }
}
