//! The processes of a small world: the real machines, with when they want to be woken.

use std::hash::Hash;

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::manager::{
    ElectionCommand, ManagerAction, ManagerEvent, ManagerMachine, StoreCommand, StreamId,
};
use centrifuge_core::owner::{OwnerAction, OwnerEvent, OwnerMachine};
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;

use super::{Body, Node, PROBES, Packet, Scenario, Shared, manager_id, print, print_without};

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

impl<E: Hash> Input<E> {
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

/// A machine that small worlds run.
pub(super) trait Checked: Machine<Event: Clone> + Clone + Hash {
    /// What an arriving message is for it, if it is anything.
    fn event_of(&self, packet: &Packet) -> Option<Self::Event>;

    /// Whether what it wants done matters here.
    fn matters(action: &Self::Action) -> bool;

    /// What tells it apart from all others that behave otherwise: all but its counters.
    fn print(&self) -> u64;
}

/// A process.
#[derive(Clone, Debug)]
pub(super) struct Process<M> {
    /// The machine.
    pub(super) machine: M,
    /// When it wants to be woken, by its clock.
    pub(super) wake: Option<Instant>,
}

/// An Owner process.
pub(super) type OwnerNode = Process<OwnerMachine>;
/// A Manager process.
pub(super) type ManagerNode = Process<ManagerMachine>;

impl<M: Checked> Process<M> {
    /// The process after an input, and what it wants done of that which matters here.
    pub(super) fn step(&self, now: Instant, input: &Input<M::Event>) -> (Shared<Process<M>>, Vec<M::Action>) {
        let mut machine = self.machine.clone();
        let Output { mut actions, wake } = match input {
            Input::Wake => machine.on_wake(now),
            Input::Event(event) => machine.on_event(now, event.clone()),
            Input::Packet(packet) => match self.machine.event_of(packet) {
                Some(event) => machine.on_event(now, event),
                None => Output { actions: Vec::new(), wake: self.wake },
            },
        };
        actions.retain(M::matters);
        (Process { machine, wake }.share(), actions)
    }

    /// The process with its print.
    pub(super) fn share(self) -> Shared<Process<M>> {
        Shared::printed(self.machine.print(), self)
    }
}

impl OwnerNode {
    /// The process of a life at a place, before it starts.
    pub(super) fn new(scenario: &Scenario, slot: usize, life: u8) -> OwnerNode {
        let random = Random::from_number(100 * (slot as u64 + 1) + u64::from(life));
        Process { machine: OwnerMachine::new(scenario.owner_config(slot), random), wake: None }
    }

    /// The lease under which it holds a watched key, frozen or not.
    pub(super) fn holds(&self, now: Instant, probe: usize) -> Option<Generation> {
        let (_, lease) = self.machine.leases().get(PROBES[probe])?;
        (now < self.machine.expiry()).then_some(lease.generation)
    }
}

impl Checked for OwnerMachine {
    fn event_of(&self, packet: &Packet) -> Option<OwnerEvent> {
        match (packet.from, &packet.body) {
            (Node::Manager(manager), Body::ToOwner(message)) => {
                Some(OwnerEvent::FromManager { from: manager_id(manager), message: message.clone() })
            }
            (_, Body::Copied { source, transfer, to }) if *source == self.session() => {
                Some(OwnerEvent::TransferDone { transfer: *transfer, to: *to })
            }
            _ => None,
        }
    }

    fn matters(action: &OwnerAction) -> bool {
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

    fn print(&self) -> u64 {
        print_without(self, self.counters())
    }
}

impl ManagerNode {
    /// The process of a Manager that begins to campaign in a term's election.
    pub(super) fn new(scenario: &Scenario, manager: usize, term: u64) -> ManagerNode {
        let random = Random::from_number(10_000 * (manager as u64 + 1) + term);
        Process { machine: ManagerMachine::new(scenario.manager_config(manager), random), wake: None }
    }
}

impl Checked for ManagerMachine {
    fn event_of(&self, packet: &Packet) -> Option<ManagerEvent> {
        match (packet.from, &packet.body) {
            (Node::Owner(slot), Body::ToManager(message)) => {
                Some(ManagerEvent::FromOwner { from: StreamId(slot as u64), message: message.clone() })
            }
            _ => None,
        }
    }

    fn matters(action: &ManagerAction) -> bool {
        matches!(
            action,
            ManagerAction::ToOwner { .. }
                | ManagerAction::Store(StoreCommand::Append { .. } | StoreCommand::Load { .. })
                | ManagerAction::Election(ElectionCommand::Campaign { .. } | ElectionCommand::Renew { .. })
        )
    }

    fn print(&self) -> u64 {
        print_without(self, self.counters())
    }
}
