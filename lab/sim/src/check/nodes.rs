//! The processes of a small world: the real machines, with when they want to be woken.

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::manager::{
    ElectionCommand, ManagerAction, ManagerEvent, ManagerMachine, StoreCommand, StreamId,
};
use centrifuge_core::owner::{OwnerAction, OwnerEvent, OwnerMachine};
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;

use super::memo::Memo;
use super::network::{Body, Node, Packet};
use super::print::{Shared, print, print_without};
use super::scenario::{PROBES, Scenario, manager_id};

/// What the Owners of a world did before.
pub(super) type OwnerMemo = Memo<OwnerNode, OwnerAction>;
/// What the Managers of a world did before.
pub(super) type ManagerMemo = Memo<ManagerNode, ManagerAction>;

/// What is fed to a machine.
#[derive(Clone, Debug)]
pub(super) enum Input<E> {
    /// A message arrives.
    Packet(Shared<Packet>),
    /// Its time has come.
    Wake,
    /// Something else happens.
    Event(E),
}

impl<E: std::hash::Hash> Input<E> {
    /// What tells it apart from all others.
    pub(super) fn print(&self) -> u64 {
        match self {
            Input::Packet(packet) => packet.print(),
            Input::Wake => 0,
            Input::Event(event) => print(event),
        }
    }
}

impl Input<OwnerEvent> {
    /// The session that says that it has all of a range's state, if one does.
    pub(super) fn confirmed_by(&self) -> Option<SessionId> {
        match self {
            Input::Event(OwnerEvent::TransferDone { to, .. }) => Some(*to),
            Input::Packet(packet) => match packet.body {
                Body::Copied { to, .. } => Some(to),
                _ => None,
            },
            _ => None,
        }
    }
}

/// An Owner process.
#[derive(Clone, Debug)]
pub(super) struct OwnerNode {
    /// The machine.
    pub(super) machine: OwnerMachine,
    /// When it wants to be woken, by its clock.
    pub(super) wake: Option<Instant>,
}

impl OwnerNode {
    /// The process of a life at a place, before it starts.
    pub(super) fn new(scenario: &Scenario, slot: usize, life: u8) -> OwnerNode {
        let random = Random::from_number(100 * (slot as u64 + 1) + u64::from(life));
        let machine = OwnerMachine::new(scenario.owner_config(slot), random);
        OwnerNode { machine, wake: None }
    }

    /// The node after an input, and what it wants done of that which matters here.
    pub(super) fn step(
        &self,
        now: Instant,
        input: &Input<OwnerEvent>,
    ) -> (Shared<OwnerNode>, Vec<OwnerAction>) {
        let mut machine = self.machine.clone();
        let Output { mut actions, wake } = match input {
            Input::Wake => machine.on_wake(now),
            Input::Event(event) => machine.on_event(now, event.clone()),
            Input::Packet(packet) => match self.event_of(packet) {
                Some(event) => machine.on_event(now, event),
                None => Output { actions: Vec::new(), wake: self.wake },
            },
        };
        actions.retain(matters_of_owner);
        (OwnerNode { machine, wake }.share(), actions)
    }

    fn event_of(&self, packet: &Packet) -> Option<OwnerEvent> {
        match (packet.from, &packet.body) {
            (Node::Manager(manager), Body::ToOwner(message)) => {
                Some(OwnerEvent::FromManager { from: manager_id(manager), message: message.clone() })
            }
            (_, Body::Copied { source, transfer, to }) if *source == self.machine.session() => {
                Some(OwnerEvent::TransferDone { transfer: *transfer, to: *to })
            }
            _ => None,
        }
    }

    /// The node with its print.
    pub(super) fn share(self) -> Shared<OwnerNode> {
        Shared::printed(print_without(&self.machine, self.machine.counters()), self)
    }

    /// The lease under which it holds a watched key, frozen or not.
    pub(super) fn holds(&self, now: Instant, probe: usize) -> Option<Generation> {
        let (_, lease) = self.machine.leases().get(PROBES[probe])?;
        (now < self.machine.expiry()).then_some(lease.generation)
    }
}

/// A Manager process.
#[derive(Clone, Debug)]
pub(super) struct ManagerNode {
    /// The machine.
    pub(super) machine: ManagerMachine,
    /// When it wants to be woken, by its clock.
    pub(super) wake: Option<Instant>,
}

impl ManagerNode {
    /// The process of a Manager that begins to campaign in a term's election.
    pub(super) fn new(scenario: &Scenario, manager: usize, term: u64) -> ManagerNode {
        let random = Random::from_number(10_000 * (manager as u64 + 1) + term);
        let machine = ManagerMachine::new(scenario.manager_config(manager), random);
        ManagerNode { machine, wake: None }
    }

    /// The node after an input, and what it wants done of that which matters here.
    pub(super) fn step(
        &self,
        now: Instant,
        input: &Input<ManagerEvent>,
    ) -> (Shared<ManagerNode>, Vec<ManagerAction>) {
        let mut machine = self.machine.clone();
        let Output { mut actions, wake } = match input {
            Input::Wake => machine.on_wake(now),
            Input::Event(event) => machine.on_event(now, event.clone()),
            Input::Packet(packet) => match event_of(packet) {
                Some(event) => machine.on_event(now, event),
                None => Output { actions: Vec::new(), wake: self.wake },
            },
        };
        actions.retain(matters_of_manager);
        (ManagerNode { machine, wake }.share(), actions)
    }

    /// The node with its print.
    pub(super) fn share(self) -> Shared<ManagerNode> {
        Shared::printed(print_without(&self.machine, self.machine.counters()), self)
    }
}

fn event_of(packet: &Packet) -> Option<ManagerEvent> {
    match (packet.from, &packet.body) {
        (Node::Owner(slot), Body::ToManager(message)) => {
            Some(ManagerEvent::FromOwner { from: StreamId(slot as u64), message: message.clone() })
        }
        _ => None,
    }
}

fn matters_of_owner(action: &OwnerAction) -> bool {
    matches!(
        action,
        OwnerAction::ToManager { .. }
            | OwnerAction::Granted(_)
            | OwnerAction::Revoked(_)
            | OwnerAction::Renumbered(_)
            | OwnerAction::StartTransfer { .. }
            | OwnerAction::Freeze { .. }
            | OwnerAction::StopTransfer(_)
            | OwnerAction::DiscardImport { .. }
    )
}

fn matters_of_manager(action: &ManagerAction) -> bool {
    matches!(
        action,
        ManagerAction::ToOwner { .. }
            | ManagerAction::Store(StoreCommand::Append { .. })
            | ManagerAction::Store(StoreCommand::Load { .. })
            | ManagerAction::Election(ElectionCommand::Campaign { .. })
            | ManagerAction::Election(ElectionCommand::Renew { .. })
    )
}
