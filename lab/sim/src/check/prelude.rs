//! What happens, undisturbed, before a world is explored.

use std::collections::VecDeque;

use centrifuge_core::manager::AdminCommand;

use super::app::TaskKind;
use super::fates::Fates;
use super::lookups::Lookups;
use super::network::{Network, Packet};
use super::nodes::ManagerNode;
use super::print::Shared;
use super::properties::Memory;
use super::scenario::{Command, Prelude, Scenario, namespace};
use super::stage::Stage;
use super::step::Step;
use super::store::{Election, Store};
use super::world::{Action, Slot, Spent, State};

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
    play.act(Action::Operate(Command::Admin(AdminCommand::Create { namespace: namespace(), settings })));
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
