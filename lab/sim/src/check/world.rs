//! A small world as a model: its states, what can happen in each, what comes of it, and what happens, undisturbed, before it is
//! explored.

use std::collections::VecDeque;

use centrifuge_core::injected_bug::inject;
use centrifuge_core::manager::AdminCommand;
use centrifuge_core::message::OwnerToManager;
use stateright::{Model, Property};

use super::app::Copies;
use super::properties::sentences;
use super::runner::{Path, SmallWorld};
use super::scenario::{Boundary, Counts, Prelude};
use super::{
    Apps, Body, Breach, Command, Counted, Election, Expect, Fates, Lookups, ManagerNode, Memory, Network,
    Node, OwnerNode, Packet, Scenario, Shared, Stage, Step, Store, Task, TaskKind, explain, namespace,
};

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
    pub(super) breach: Option<Shared<Breach>>,
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

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Spent {
    /// What the boundary counts.
    pub(super) counts: Counts,
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

impl Action {
    /// As what it is counted, if it is.
    pub(super) fn counted(&self) -> Option<Counted> {
        match self {
            Action::Deliver(packet) => {
                let is_hello = matches!(packet.body, Body::ToManager(OwnerToManager::Hello(_)));
                is_hello.then_some(Counted::Hellos)
            }
            Action::Doubt(_) => Some(Counted::Doubts),
            Action::Fail(_) => Some(Counted::Failures),
            Action::Write(..) => Some(Counted::Writes),
            Action::Crash(_) => Some(Counted::Crashes),
            Action::Start(_) => Some(Counted::Starts),
            Action::Break(_) => Some(Counted::Breaks),
            Action::Keep(_) => Some(Counted::Restores),
            Action::Elect(_) => Some(Counted::Elections),
            _ => None,
        }
    }
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

    /// Whether something may happen as often as it would have then.
    fn allows(&self, state: &State, action: &Action) -> bool {
        let most = &self.boundary().most;
        action.counted().is_none_or(|counted| state.spent.counts.of(counted) < most.of(counted))
    }

    fn deliveries<'a>(&self, state: &'a State) -> impl Iterator<Item = Action> + 'a {
        let arrives = move |packet: &&Shared<Packet>| match packet.to {
            Node::Owner(slot) => state.owners[slot].process.is_some(),
            Node::Manager(_) => true,
        };
        state.network.iter().filter(arrives).cloned().map(Action::Deliver)
    }

    fn store_actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..state.store.pending.len()).map(Action::Commit));
        actions.extend((0..state.store.pending.len()).map(Action::Doubt));
        actions.extend((0..state.store.late.len()).map(Action::Arrive));
    }

    fn app_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for task in &state.apps.tasks {
            if task.kind != TaskKind::Await {
                actions.push(Action::Work(task.clone()));
            }
            if task.kind != TaskKind::Quiesce {
                actions.push(Action::Fail(task.clone()));
            }
        }
        for (place, (slot, _)) in self.stage.scenario.wishes.iter().enumerate() {
            if state.spent.wishes & (1 << place) == 0 && state.owners[*slot].process.is_some() {
                actions.push(Action::Wish(place));
            }
        }
        actions.extend((0..state.owners.len()).map(|slot| Action::Write(slot, 1)));
    }

    fn faults(&self, state: &State, actions: &mut Vec<Action>) {
        for (place, slot) in state.owners.iter().enumerate() {
            if slot.process.is_none() {
                actions.push(Action::Start(place));
                continue;
            }
            actions.extend([Action::Crash(place), Action::Break(place), Action::Keep(place)]);
            actions.extend(slot.kept.is_some().then_some(Action::Restore(place)));
        }
        let only = state.managers.len() == 1;
        let candidates =
            (0..state.managers.len()).filter(|manager| only || state.election.leader != Some(*manager));
        actions.extend(candidates.map(Action::Elect));
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
        actions.retain(|action| self.allows(state, action));
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
        let milestones = self.stage.scenario.milestones.iter();
        properties.extend(milestones.map(|(name, condition)| Property::sometimes(name, *condition)));
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
        state.breach.as_ref().map(|breach| breach.0)
    }

    fn prelude(&self) -> Path<World> {
        self.prelude.clone()
    }

    fn story(&self, path: &Path<World>) -> String {
        explain::story(self, path)
    }
}

/// After how many steps a prelude is over, come what may: an injected bug may never come to rest.
const PATIENCE: usize = 300;

/// Plays the prelude: every message arrives once, in the order of sending, and everybody is prompt. Ends with the first
/// sentence that is broken. Returns the steps and the state they lead to.
pub(super) fn play(stage: &Stage) -> (Vec<(State, Option<Action>)>, State) {
    let scenario = &stage.scenario;
    let mut play = Play { stage, steps: Vec::new(), state: blank(scenario), on_the_way: VecDeque::new() };
    play.act(Action::Elect(0));
    play.settle();
    let settings = scenario.settings.clone().into();
    play.act(Action::Operate(Command::Admin(AdminCommand::Create {
        kind: Default::default(),
        namespace: namespace(),
        settings,
    })));
    play.settle();
    for prelude in &scenario.prelude {
        play.act(match prelude {
            Prelude::Start(slot) => Action::Start(*slot),
            Prelude::Crash(slot) => Action::Crash(*slot),
            Prelude::Operate(command) => Action::Operate(command.clone()),
        });
        play.settle();
    }
    play.state.spent = Spent::default();
    play.steps.push((play.state.clone(), None));
    (play.steps, play.state)
}

struct Play<'a> {
    stage: &'a Stage,
    steps: Vec<(State, Option<Action>)>,
    state: State,
    on_the_way: VecDeque<Shared<Packet>>,
}

impl Play<'_> {
    fn act(&mut self, action: Action) {
        if self.state.breach.is_some() || self.steps.len() >= PATIENCE {
            return;
        }
        let mut step = Step::new(self.stage, self.state.clone());
        step.take(&action);
        let after = step.finish();
        let new = after.network.iter().filter(|packet| !self.state.network.has(packet));
        self.on_the_way.extend(new.cloned());
        let before = std::mem::replace(&mut self.state, after);
        self.steps.push((before, Some(action)));
    }

    /// Lets everything happen that is due or on its way.
    fn settle(&mut self) {
        while let Some(action) = self.next() {
            let steps = self.steps.len();
            self.act(action);
            if self.steps.len() == steps {
                return;
            }
        }
    }

    fn next(&mut self) -> Option<Action> {
        if !self.state.store.pending.is_empty() {
            return Some(Action::Commit(0));
        }
        if let Some(node) = self.stage.due(&self.state).next() {
            return Some(Action::Wake(node));
        }
        if let Some(task) = self.state.apps.tasks.iter().find(|task| task.kind != TaskKind::Await) {
            return Some(Action::Work(task.clone()));
        }
        self.on_the_way.pop_front().map(Action::Deliver)
    }
}

fn blank(scenario: &Scenario) -> State {
    let manager = |manager| ManagerNode::new(scenario, manager, 0).share();
    State {
        instant: 0,
        managers: (0..scenario.managers.len()).map(manager).collect(),
        owners: scenario.owners.iter().map(|_| Slot { life: 0, process: None, kept: None }).collect(),
        network: Network::default(),
        store: Shared::new(Store::default()),
        election: Election::default(),
        apps: Shared::new(Default::default()),
        memory: Shared::new(Memory::default()),
        fates: Shared::new(Fates::default()),
        lookups: Lookups::default().share(),
        spent: Spent::default(),
        breach: None,
    }
}
