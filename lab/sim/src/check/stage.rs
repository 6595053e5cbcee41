//! What does not change while a world is explored: what is in it, its clocks, and what its machines did before.

use std::sync::Arc;

use centrifuge_core::manager::{ManagerAction, ManagerEvent};
use centrifuge_core::owner::{OwnerAction, OwnerEvent};
use centrifuge_core::time::Instant;

use super::memo::Outcome;
use super::network::{Node, Packet};
use super::nodes::{Input, ManagerMemo, ManagerNode, OwnerMemo, OwnerNode};
use super::print::Shared;
use super::scenario::Scenario;
use super::world::State;

/// What is fixed while a world is explored.
#[derive(Clone)]
pub(super) struct Stage {
    /// What is in the world and where it ends.
    pub(super) scenario: Arc<Scenario>,
    /// What its Owners did before.
    pub(super) owners: Arc<OwnerMemo>,
    /// What its Managers did before.
    pub(super) managers: Arc<ManagerMemo>,
}

impl Stage {
    /// The stage of a scenario, on which nothing has happened.
    pub(super) fn new(scenario: Scenario) -> Stage {
        let scenario = Arc::new(scenario);
        Stage { scenario, owners: Arc::default(), managers: Arc::default() }
    }

    /// The present instant of real time, in milliseconds.
    pub(super) fn real_time(&self, state: &State) -> u64 {
        self.scenario.boundary.instants[state.instant]
    }

    /// What the clock at a place shows.
    pub(super) fn owner_time(&self, state: &State, slot: usize) -> Instant {
        self.scenario.owners[slot].clock.read(self.real_time(state))
    }

    /// What a Manager's clock shows.
    pub(super) fn manager_time(&self, state: &State, manager: usize) -> Instant {
        self.scenario.managers[manager].clock.read(self.real_time(state))
    }

    /// What comes of an input to the process at a place.
    pub(super) fn owner_outcome(
        &self,
        state: &State,
        slot: usize,
        input: &Input<OwnerEvent>,
    ) -> Outcome<OwnerNode, OwnerAction> {
        let node = state.owners[slot].process.as_ref()?;
        let now = self.owner_time(state, slot);
        self.owners.outcome(node, now, input.print(), || node.step(now, input))
    }

    /// What comes of an input to a Manager.
    pub(super) fn manager_outcome(
        &self,
        state: &State,
        manager: usize,
        input: &Input<ManagerEvent>,
    ) -> Outcome<ManagerNode, ManagerAction> {
        let node = &state.managers[manager];
        let now = self.manager_time(state, manager);
        self.managers.outcome(node, now, input.print(), || node.step(now, input))
    }

    /// The machines that want to be woken by now.
    pub(super) fn due<'a>(&'a self, state: &'a State) -> impl Iterator<Item = Node> + 'a {
        let is_due = |wake: Option<Instant>, now: Instant| wake.is_some_and(|at| at <= now);
        let managers = state.managers.iter().enumerate();
        let managers = managers.filter(move |(place, node)| {
            !self.scenario.managers[*place].starved && is_due(node.wake, self.manager_time(state, *place))
        });
        let owners = state.owners.iter().enumerate();
        let owners = owners.filter(move |(place, slot)| {
            let wake = slot.process.as_ref().and_then(|node| node.wake);
            is_due(wake, self.owner_time(state, *place))
        });
        managers.map(|(place, _)| Node::Manager(place)).chain(owners.map(|(place, _)| Node::Owner(place)))
    }

    /// Whether the arrival of a message would change nothing.
    pub(super) fn is_idle(&self, state: &State, packet: &Shared<Packet>) -> bool {
        match packet.to {
            Node::Owner(slot) => self.owner_outcome(state, slot, &Input::Packet(packet.clone())).is_none(),
            Node::Manager(manager) => {
                self.manager_outcome(state, manager, &Input::Packet(packet.clone())).is_none()
            }
        }
    }
}
