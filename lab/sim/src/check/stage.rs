//! What does not change while a world is explored: what is in it, its clocks, and what its machines did before. A machine does the
//! same with the same event at the same instant, so it is asked once.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use centrifuge_core::machine::Machine;
use centrifuge_core::manager::{ManagerEvent, ManagerMachine};
use centrifuge_core::owner::{OwnerEvent, OwnerMachine};
use centrifuge_core::time::Instant;

use crate::seen::TrueTime;

use super::nodes::Process;
use super::{Input, Node, Packet, Scenario, Shared, State, mix};

/// What is fixed while a world is explored.
#[derive(Clone)]
pub(super) struct Stage {
    /// What is in the world and where it ends.
    pub(super) scenario: Arc<Scenario>,
    /// What its Owners did before.
    pub(super) owners: Arc<Memo<OwnerMachine>>,
    /// What its Managers did before.
    pub(super) managers: Arc<Memo<ManagerMachine>>,
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
        self.scenario.owners[slot].clock.read(TrueTime(self.real_time(state) * 1_000_000))
    }

    /// What a Manager's clock shows.
    pub(super) fn manager_time(&self, state: &State, manager: usize) -> Instant {
        self.scenario.managers[manager].clock.read(TrueTime(self.real_time(state) * 1_000_000))
    }

    /// What comes of an input to the process at a place.
    pub(super) fn owner_outcome(
        &self,
        state: &State,
        slot: usize,
        input: &Input<OwnerEvent>,
    ) -> Outcome<OwnerMachine> {
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
    ) -> Outcome<ManagerMachine> {
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

/// What came of an event: nothing, or another state of the node and what it wants done.
pub(super) type Outcome<M> = Option<Arc<(Shared<Process<M>>, Vec<<M as Machine>::Action>)>>;

/// The outcomes of one kind of machine, for all threads.
pub(super) struct Memo<M: Machine> {
    shards: Vec<Mutex<Known<M>>>,
}

type Known<M> = HashMap<u64, Outcome<M>, BuildHasherDefault<Printed>>;

const SHARDS: usize = 64;

impl<M: Machine> Default for Memo<M> {
    fn default() -> Self {
        Memo { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl<M: Machine> Memo<M> {
    /// What comes of an event, by its print, for a node at an instant; computed if it is not known.
    pub(super) fn outcome(
        &self,
        node: &Shared<Process<M>>,
        now: Instant,
        event: u64,
        compute: impl FnOnce() -> (Shared<Process<M>>, Vec<M::Action>),
    ) -> Outcome<M> {
        let key = mix(&[node.print(), now.0, event]);
        let shard = &self.shards[key as usize % SHARDS];
        if let Some(known) = shard.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let (after, actions) = compute();
        let changed = after != *node || !actions.is_empty();
        let outcome = changed.then(|| Arc::new((after, actions)));
        shard.lock().unwrap_or_else(PoisonError::into_inner).insert(key, outcome.clone());
        outcome
    }
}

/// The hasher of keys that are prints already.
#[derive(Default)]
struct Printed(u64);

impl Hasher for Printed {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are prints");
    }

    fn write_u64(&mut self, print: u64) {
        self.0 = print;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
