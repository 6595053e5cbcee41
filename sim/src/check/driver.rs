//! One step of a small world: feeds the machines, and does what they want done.

use std::collections::VecDeque;
use std::sync::Arc;

use centrifuge_core::id::{ManagerId, SessionId, Term};
use centrifuge_core::manager::{AdminCommand, ElectionEvent, ManagerAction, ManagerEvent, Peer, StoreEvent};
use centrifuge_core::message::{ManagerToOwner, OwnerToManager};
use centrifuge_core::owner::{OwnerAction, OwnerEvent, TransferId};
use centrifuge_core::time::Instant;

use super::app::{Apps, Task, TaskKind};
use super::memo::Outcome;
use super::nodes::{Input, ManagerMemo, ManagerNode, OwnerMemo, OwnerNode};
use super::print::Shared;
use super::properties::{Breach, Memory};
use super::scenario::{Command, PROBES, Prelude, Scenario, address, manager_id, namespace};
use super::store::{Append, Election, Store};
use super::world::{Action, Body, Network, Node, Packet, Slot, Spent, State};

/// After how many messages a prelude is over, come what may.
const PATIENCE: usize = 100;

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

/// A step under way: the state so far, and what follows from it at once.
pub(super) struct Step<'a> {
    stage: &'a Stage,
    state: State,
    queue: VecDeque<Event>,
}

/// Something that happens at once.
enum Event {
    Owner(usize, Input<OwnerEvent>),
    Manager(usize, Input<ManagerEvent>),
    Append(Append),
    Work(Task),
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

    fn owner_time(&self, state: &State, slot: usize) -> Instant {
        self.scenario.owners[slot].clock.read(self.real_time(state))
    }

    /// What a Manager's clock shows.
    pub(super) fn manager_time(&self, state: &State, manager: usize) -> Instant {
        self.scenario.managers[manager].clock.read(self.real_time(state))
    }

    fn owner_outcome(
        &self,
        state: &State,
        slot: usize,
        input: &Input<OwnerEvent>,
    ) -> Outcome<OwnerNode, OwnerAction> {
        let node = state.owners[slot].process.as_ref()?;
        let now = self.owner_time(state, slot);
        self.owners.outcome(node, now, input.print(), || node.step(now, input))
    }

    fn manager_outcome(
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

impl<'a> Step<'a> {
    /// A step from a state.
    pub(super) fn new(stage: &'a Stage, state: State) -> Step<'a> {
        Step { stage, state, queue: VecDeque::new() }
    }

    /// The state in which the exploration begins.
    pub(super) fn opening(stage: &Stage) -> State {
        let scenario = &stage.scenario;
        let mut step = Step::new(stage, blank(scenario));
        step.elect(0);
        step.work_off();
        let settings = scenario.settings.clone().into();
        step.operate(&Command::Admin(AdminCommand::Create { namespace: namespace(), settings }));
        step.settle();
        for prelude in &scenario.prelude {
            match prelude {
                Prelude::Start(slot) => step.start(*slot),
                Prelude::Crash(slot) => step.crash(*slot),
                Prelude::Operate(command) => step.operate(command),
            }
            step.settle();
        }
        step.state.spent = Spent::default();
        step.finish()
    }

    /// Lets every message arrive once, in the order of sending, until no new one is sent.
    ///
    /// Gives up after a while: a planted fault may never come to rest.
    fn settle(&mut self) {
        let mut known = self.state.network.clone();
        let mut on_the_way: VecDeque<Shared<Packet>> = VecDeque::new();
        for _ in 0..PATIENCE {
            self.work_off();
            on_the_way.extend(self.state.network.iter().filter(|packet| !known.has(packet)).cloned());
            known = self.state.network.clone();
            let Some(next) = on_the_way.pop_front() else { return };
            self.deliver(&next);
        }
    }

    /// Lets whoever is due, the store and the applications finish.
    fn work_off(&mut self) {
        self.run();
        let due: Vec<Node> = self.stage.due(&self.state).collect();
        for node in due {
            self.wake(node);
            self.run();
        }
        while !self.state.store.pending.is_empty() {
            self.commit(0);
            self.run();
        }
        let waits = |task: &&Task| task.kind != TaskKind::Await;
        while let Some(task) = self.state.apps.tasks.iter().find(waits).cloned() {
            self.queue.push_back(Event::Work(task));
            self.run();
        }
    }

    /// Does one action.
    pub(super) fn take(&mut self, action: &Action) {
        let spent = &mut self.state.spent;
        match action {
            Action::Deliver(packet) => self.deliver(packet),
            Action::Wake(node) => self.wake(*node),
            Action::Advance => {
                self.state.instant += 1;
                (0..self.state.owners.len()).for_each(|slot| self.look(slot));
            }
            Action::Operate => {
                let command = &self.stage.scenario.commands[spent.commands];
                spent.commands += 1;
                self.operate(command);
            }
            Action::Wish(place) => {
                spent.wishes |= 1 << place;
                let (slot, event) = self.stage.scenario.wishes[*place].clone();
                self.owner(slot, event);
            }
            Action::Commit(place) => self.commit(*place),
            Action::Doubt(place) => {
                spent.doubts += 1;
                self.doubt(*place);
            }
            Action::Arrive(place) => self.arrive(*place),
            Action::Work(task) => self.queue.push_back(Event::Work(task.clone())),
            Action::Fail(task) => {
                spent.failures += 1;
                self.fail(task);
            }
            Action::Write(slot, probe) => self.write(*slot, *probe),
            Action::Crash(slot) => {
                spent.crashes += 1;
                self.crash(*slot);
            }
            Action::Start(slot) => {
                spent.starts += 1;
                self.start(*slot);
            }
            Action::Elect(manager) => {
                spent.elections += 1;
                self.elect(*manager);
            }
        }
        self.run();
    }

    /// The state after the step.
    pub(super) fn finish(self) -> State {
        self.state
    }

    fn run(&mut self) {
        while let Some(event) = self.queue.pop_front() {
            match event {
                Event::Owner(slot, input) => self.feed_owner(slot, &input),
                Event::Manager(manager, input) => self.feed_manager(manager, &input),
                Event::Append(append) => self.append(&append),
                Event::Work(task) => self.work(&task),
            }
        }
    }

    fn blame(&mut self, breach: Option<Breach>) {
        self.state.breach = self.state.breach.or(breach);
    }

    fn owner(&mut self, slot: usize, event: OwnerEvent) {
        self.queue.push_back(Event::Owner(slot, Input::Event(event)));
    }

    fn manager(&mut self, manager: usize, event: ManagerEvent) {
        self.queue.push_back(Event::Manager(manager, Input::Event(event)));
    }

    fn change_apps<T>(&mut self, change: impl FnOnce(&mut Apps) -> T) -> T {
        let mut apps = self.state.apps.clone_inner();
        let result = change(&mut apps);
        self.state.apps = Shared::new(apps);
        result
    }

    fn change_store<T>(&mut self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.state.store.clone_inner();
        let result = change(&mut store);
        self.state.store = Shared::new(store);
        result
    }

    fn deliver(&mut self, packet: &Shared<Packet>) {
        if matches!(packet.body, Body::ToManager(OwnerToManager::Hello(_))) {
            self.state.spent.hellos += 1;
        }
        if let (Node::Owner(slot), Body::Copied { transfer, .. }) = (packet.to, &packet.body) {
            self.change_apps(|apps| apps.stop_waiting(slot, *transfer));
        }
        match packet.to {
            Node::Owner(slot) => self.queue.push_back(Event::Owner(slot, Input::Packet(packet.clone()))),
            Node::Manager(manager) => {
                self.queue.push_back(Event::Manager(manager, Input::Packet(packet.clone())));
            }
        }
    }

    fn wake(&mut self, node: Node) {
        self.queue.push_back(match node {
            Node::Owner(slot) => Event::Owner(slot, Input::Wake),
            Node::Manager(manager) => Event::Manager(manager, Input::Wake),
        });
    }

    fn feed_owner(&mut self, slot: usize, input: &Input<OwnerEvent>) {
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
                    let take_up = |apps: &mut Apps| grants.iter().find_map(|grant| apps.take_up(slot, session, grant));
                    let breach = self.change_apps(take_up);
                    self.blame(breach);
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
    fn look(&mut self, slot: usize) {
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

    fn feed_manager(&mut self, manager: usize, input: &Input<ManagerEvent>) {
        let Some(outcome) = self.stage.manager_outcome(&self.state, manager, input) else { return };
        let (node, actions) = &*outcome;
        self.state.managers[manager] = node.clone();
        for action in actions {
            match action {
                ManagerAction::ToOwner { to, message } => self.send_to_owner(manager, *to, message),
                ManagerAction::Append { term, index, batch } => {
                    self.send_to_store(Append { manager, term: *term, index: *index, batch: Arc::clone(batch) });
                }
                ManagerAction::Load { request } => {
                    let (index, group) = (self.state.store.index(), Arc::clone(&self.state.store.group));
                    let loaded = StoreEvent::Loaded { request: *request, index, group };
                    self.manager(manager, ManagerEvent::Store(loaded));
                }
                ManagerAction::Campaign { request } => self.campaign(manager, *request),
                // A deposed leader is not told: it has to find out by its own clock.
                ManagerAction::RenewLeadership { request, term } if self.state.election.term == *term => {
                    let renewed = ElectionEvent::Renewed { request: *request };
                    self.manager(manager, ManagerEvent::Election(renewed));
                }
                _ => {}
            }
        }
    }

    fn send_to_owner(&mut self, manager: usize, to: Peer, message: &ManagerToOwner) {
        if let ManagerToOwner::Assign(assign) = message {
            let session = assign.session;
            let missing = assign.orders.iter().find(|order| !self.state.store.has_committed(session, order));
            self.blame(missing.map(|order| Breach::NotCommitted { session, generation: order.generation }));
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

    fn campaign(&mut self, manager: usize, request: u64) {
        let term = Term(self.state.election.term.0 + 1);
        self.state.election = Election { term, leader: Some(manager) };
        self.manager(manager, ManagerEvent::Election(ElectionEvent::Won { request, term }));
    }

    /// A Manager campaigns, wins and reads what is stored, all at once.
    fn elect(&mut self, manager: usize) {
        let node = ManagerNode::new(&self.stage.scenario, manager, self.state.election.term.0 + 1);
        self.state.managers[manager] = node.share();
        self.manager(manager, ManagerEvent::Start);
    }

    fn operate(&mut self, command: &Command) {
        let Some(leader) = self.state.election.leader else { return };
        match command.clone() {
            Command::Admin(command) => self.manager(leader, ManagerEvent::Admin { request: 0, command }),
            Command::Resign => self.manager(leader, ManagerEvent::Resign),
        }
    }

    fn append(&mut self, append: &Append) {
        let (newest, plants) = (self.state.election.term, self.stage.scenario.plants);
        let (event, breach) = self.change_store(|store| store.append(append, newest, plants));
        self.blame(breach);
        self.manager(append.manager, ManagerEvent::Store(event));
    }

    fn commit(&mut self, place: usize) {
        let append = self.change_store(|store| store.pending.remove(place));
        self.append(&append);
    }

    fn doubt(&mut self, place: usize) {
        let append = self.change_store(|store| store.pending.remove(place));
        let unknown = StoreEvent::Unknown { index: append.index };
        self.manager(append.manager, ManagerEvent::Store(unknown));
        self.change_store(|store| store.late.push(append));
    }

    fn arrive(&mut self, place: usize) {
        let (newest, plants) = (self.state.election.term, self.stage.scenario.plants);
        let arrive = |store: &mut Store| {
            let append = store.late.remove(place);
            store.append(&append, newest, plants)
        };
        let (_, breach) = self.change_store(arrive);
        self.blame(breach);
    }

    /// An application does what it was asked to, if that has not become void.
    fn work(&mut self, task: &Task) {
        if !self.change_apps(|apps| apps.tasks.remove(task)) {
            return;
        }
        let Task { slot, transfer, ref kind } = *task;
        match kind {
            TaskKind::Quiesce => self.owner(slot, OwnerEvent::Quiesced(transfer)),
            TaskKind::Copy => self.owner(slot, OwnerEvent::TransferReady(transfer)),
            TaskKind::Finish { range, generation, to } => {
                let place = (0..self.state.owners.len()).find(|slot| address(*slot) == *to);
                let there = place.and_then(|place| Some((place, self.state.owners[place].process.as_ref()?)));
                let Some((place, node)) = there else {
                    return self.owner(slot, OwnerEvent::TransferFailed(transfer));
                };
                let session = node.machine.session();
                self.change_apps(|apps| apps.copy(place, *range, *generation));
                self.owner(place, OwnerEvent::ImportReady { range: *range, source: *generation });
                self.confirm(slot, transfer, place, session);
            }
            TaskKind::Await => {}
        }
    }

    /// The destination tells the source that it has everything.
    fn confirm(&mut self, slot: usize, transfer: TransferId, place: usize, to: SessionId) {
        let Some(node) = &self.state.owners[slot].process else { return };
        if self.stage.scenario.slow_apps {
            let body = Body::Copied { source: node.machine.session(), transfer, to };
            self.state.network.send(Packet { from: Node::Owner(place), to: Node::Owner(slot), body });
            self.change_apps(|apps| apps.add(slot, transfer, TaskKind::Await));
        } else {
            self.owner(slot, OwnerEvent::TransferDone { transfer, to });
        }
    }

    fn fail(&mut self, task: &Task) {
        if self.change_apps(|apps| apps.tasks.remove(task)) {
            self.owner(task.slot, OwnerEvent::TransferFailed(task.transfer));
        }
    }

    fn write(&mut self, slot: usize, probe: usize) {
        let now = self.stage.owner_time(&self.state, slot);
        let process = self.state.owners[slot].process.as_ref();
        let lease = process.and_then(|node| node.machine.check_lease_now(now, PROBES[probe]).ok());
        if let Some(generation) = lease {
            self.change_apps(|apps| apps.write(probe, generation));
            self.state.spent.writes += 1;
        }
    }

    fn crash(&mut self, slot: usize) {
        self.state.owners[slot].process = None;
        self.change_apps(|apps| apps.forget(slot));
        self.look(slot);
    }

    fn start(&mut self, slot: usize) {
        let life = self.state.owners[slot].life + 1;
        let node = OwnerNode::new(&self.stage.scenario, slot, life).share();
        self.state.owners[slot] = Slot { life, process: Some(node) };
        self.look(slot);
        self.owner(slot, OwnerEvent::Start);
    }
}

fn blank(scenario: &Scenario) -> State {
    let manager = |manager| ManagerNode::new(scenario, manager, 0).share();
    State {
        instant: 0,
        managers: (0..scenario.managers.len()).map(manager).collect(),
        owners: scenario.owners.iter().map(|_| Slot { life: 0, process: None }).collect(),
        network: Network::default(),
        store: Shared::new(Store::default()),
        election: Election::default(),
        apps: Shared::new(Default::default()),
        memory: Shared::new(Memory::default()),
        spent: Spent::default(),
        breach: None,
    }
}
