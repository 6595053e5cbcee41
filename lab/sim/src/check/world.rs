//! A small world as a model: its states, what can happen in each, and what comes of it.

use centrifuge_core::injected_bug::inject;
use centrifuge_core::message::OwnerToManager;
use stateright::{Model, Property};

use super::app::{Apps, Copies, Task, TaskKind};
use super::explain;
use super::fates::Fates;
use super::lookups::Lookups;
use super::network::{Body, Network, Node, Packet};
use super::nodes::{ManagerNode, OwnerNode};
use super::prelude::play;
use super::print::Shared;
use super::properties::{Breach, Memory, sentences};
use super::runner::{Path, SmallWorld};
use super::scenario::{Boundary, Command, Expect, Scenario};
use super::stage::Stage;
use super::step::Step;
use super::store::{Election, Store};

/// One small world, with the state in which its exploration begins.
#[derive(Clone)]
pub(super) struct World {
    /// What is in it, and what its machines did before.
    pub(super) stage: Stage,
    /// The state after the prelude.
    pub(super) start: State,
    /// How the prelude got there.
    pub(super) prelude: Vec<(State, Option<Action>)>,
}

/// Everything that there is at one moment. Parts that seldom change are shared between states.
#[derive(Clone, PartialEq, Hash)]
pub(super) struct State {
    /// The place of the present instant among those of the boundary.
    pub(super) instant: usize,
    /// The Managers.
    pub(super) managers: Vec<Shared<ManagerNode>>,
    /// The places of Owner processes.
    pub(super) owners: Vec<Slot>,
    /// Every message ever sent: each may arrive, or arrive again, at any time.
    pub(super) network: Network,
    /// The store.
    pub(super) store: Shared<Store>,
    /// The election.
    pub(super) election: Election,
    /// The applications.
    pub(super) apps: Shared<Apps>,
    /// What the oracle remembers of who held what.
    pub(super) memory: Shared<Memory>,
    /// What the oracle remembers of where state is.
    pub(super) fates: Shared<Fates>,
    /// The Lookups, where there are any.
    pub(super) lookups: Shared<Lookups>,
    /// What has happened of that which the boundary counts.
    pub(super) spent: Spent,
    /// The sentence that is broken, if one is: nothing happens after that.
    pub(super) breach: Option<Breach>,
}

/// A place of Owner processes.
#[derive(Clone, PartialEq, Hash)]
pub(super) struct Slot {
    /// Which process this is or was; 0 if there was none yet.
    pub(super) life: u8,
    /// The process, if it lives.
    pub(super) process: Option<Shared<OwnerNode>>,
    /// An earlier state of the process, from which it may be restored.
    pub(super) kept: Option<Shared<Kept>>,
}

/// An earlier state of a process, with its application's copies.
#[derive(Clone, Hash)]
pub(super) struct Kept {
    /// The process.
    pub(super) process: Shared<OwnerNode>,
    /// The copies of its application.
    pub(super) copies: Copies,
}

/// What the boundary counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Spent {
    /// Hellos that arrived.
    pub(super) hellos: u8,
    /// Processes that died.
    pub(super) crashes: u8,
    /// Processes that were started.
    pub(super) starts: u8,
    /// New leaders.
    pub(super) elections: u8,
    /// Batches left in doubt.
    pub(super) doubts: u8,
    /// Writes served.
    pub(super) writes: u8,
    /// Transfers that failed.
    pub(super) failures: u8,
    /// Streams that broke.
    pub(super) breaks: u8,
    /// Processes that were kept, to be restored later.
    pub(super) keeps: u8,
    /// Processes that were restored.
    pub(super) restores: u8,
    /// Commands of the operator.
    pub(super) commands: usize,
    /// Wishes of applications, one bit each.
    pub(super) wishes: u8,
}

/// Something that can happen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// A message arrives.
    Deliver(Shared<Packet>),
    /// A machine that is due is woken.
    Wake(Node),
    /// Time passes to the next instant.
    Advance,
    /// The operator speaks.
    Operate(Command),
    /// An application tells its Owner something.
    Wish(usize),
    /// The store finishes a batch.
    Commit(usize),
    /// The store says that it does not know what became of a batch.
    Doubt(usize),
    /// A batch that was in doubt gets to the log after all.
    Arrive(usize),
    /// An application does its task.
    Work(Task),
    /// A transfer fails.
    Fail(Task),
    /// The application at a place serves a write of a watched key.
    Write(usize, usize),
    /// The process at a place dies.
    Crash(usize),
    /// A process starts at a place.
    Start(usize),
    /// The stream of the process at a place breaks.
    Break(usize),
    /// The state of the process at a place is kept.
    Keep(usize),
    /// The process at a place is restored from the state that was kept, and sees that its clock jumped.
    Restore(usize),
    /// A Manager wins an election; if it led before, it died and this is its next process.
    Elect(usize),
}

impl State {
    /// The Owner processes that live.
    pub(super) fn processes(&self) -> impl Iterator<Item = &Shared<OwnerNode>> {
        self.owners.iter().filter_map(|slot| slot.process.as_ref())
    }
}

impl World {
    /// The world of a scenario.
    pub(super) fn new(scenario: Scenario) -> World {
        let stage = Stage::new(scenario);
        let (prelude, start) = play(&stage);
        World { stage, start, prelude }
    }

    fn boundary(&self) -> &Boundary {
        &self.stage.scenario.boundary
    }

    fn deliveries<'a>(&self, state: &'a State) -> impl Iterator<Item = Action> + 'a {
        let more_hellos = state.spent.hellos < self.boundary().hellos;
        let arrives = move |packet: &&Shared<Packet>| match (packet.to, &packet.body) {
            (_, Body::ToManager(OwnerToManager::Hello(_))) => more_hellos,
            (Node::Owner(slot), _) => state.owners[slot].process.is_some(),
            _ => true,
        };
        state.network.iter().filter(arrives).cloned().map(Action::Deliver)
    }

    fn store_actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..state.store.pending.len()).map(Action::Commit));
        if state.spent.doubts < self.boundary().doubts {
            actions.extend((0..state.store.pending.len()).map(Action::Doubt));
        }
        actions.extend((0..state.store.late.len()).map(Action::Arrive));
    }

    fn app_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let boundary = self.boundary();
        for task in &state.apps.tasks {
            if task.kind != TaskKind::Await {
                actions.push(Action::Work(task.clone()));
            }
            if state.spent.failures < boundary.failures && task.kind != TaskKind::Quiesce {
                actions.push(Action::Fail(task.clone()));
            }
        }
        for (place, (slot, _)) in self.stage.scenario.wishes.iter().enumerate() {
            if state.spent.wishes & (1 << place) == 0 && state.owners[*slot].process.is_some() {
                actions.push(Action::Wish(place));
            }
        }
        if state.spent.writes < boundary.writes {
            let places = 0..state.owners.len();
            actions.extend(places.map(|slot| Action::Write(slot, 1)));
        }
    }

    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        let (boundary, spent) = (self.boundary(), state.spent);
        for (place, slot) in state.owners.iter().enumerate() {
            if slot.process.is_some() && spent.crashes < boundary.crashes {
                actions.push(Action::Crash(place));
            }
            if slot.process.is_none() && spent.starts < boundary.starts {
                actions.push(Action::Start(place));
            }
            if slot.process.is_some() && spent.breaks < boundary.breaks {
                actions.push(Action::Break(place));
            }
            if slot.process.is_some() && spent.keeps < boundary.restores {
                actions.push(Action::Keep(place));
            }
            if slot.process.is_some() && slot.kept.is_some() {
                actions.push(Action::Restore(place));
            }
        }
        if spent.elections < boundary.elections {
            let only = state.managers.len() == 1;
            let candidates =
                (0..state.managers.len()).filter(|manager| only || state.election.leader != Some(*manager));
            actions.extend(candidates.map(Action::Elect));
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start.clone()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.breach.is_some() {
            return;
        }
        actions.extend(self.deliveries(state));
        actions.extend(self.stage.due(state).map(Action::Wake));
        let command = self.stage.scenario.commands.get(state.spent.commands);
        actions.extend(command.cloned().map(Action::Operate));
        self.store_actions(state, actions);
        self.app_actions(state, actions);
        self.faults(state, actions);
        if state.instant + 1 < self.boundary().instants.len() {
            actions.push(Action::Advance);
        }
    }

    /// What does not change anything, such as a duplicate that is recognised, does not count as a step.
    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let _bug = inject(self.stage.scenario.bug);
        if let Action::Deliver(packet) = &action
            && self.stage.is_idle(state, packet)
        {
            return None;
        }
        let mut step = Step::new(&self.stage, state.clone());
        step.take(&action);
        let next = step.finish();
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<World>> {
        let mut properties = sentences();
        properties.extend(self.stage.scenario.milestones.iter().map(|milestone| milestone.property()));
        properties
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.network.sent() <= self.start.network.sent() + self.boundary().messages
    }
}

impl SmallWorld for World {
    fn about(&self) -> (&'static str, &'static str, Expect) {
        (self.stage.scenario.name, self.stage.scenario.covers, self.stage.scenario.expect)
    }

    fn broken(state: &State) -> Option<&'static str> {
        state.breach.map(Breach::sentence)
    }

    fn prelude(&self) -> Path<World> {
        self.prelude.clone()
    }

    fn story(&self, path: &Path<World>) -> String {
        explain::story(self, path)
    }
}
