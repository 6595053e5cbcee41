//! One step of a small world: what happens, what machines, stores and applications make of it, and all that follows at once.

use std::collections::VecDeque;
use std::sync::Arc;

use centrifuge_core::id::{Credential, ManagerId, Nonce, SessionId, Term};
use centrifuge_core::manager::{
    ElectionCommand, ElectionEvent, ManagerAction, ManagerEvent, StoreCommand, StoreEvent, StreamId,
};
use centrifuge_core::message::{LeaseOrder, ManagerToOwner, OwnerToManager};
use centrifuge_core::owner::{OwnerAction, OwnerEvent, TransferId};

use super::world::Kept;
use super::{
    Action, Append, Apps, Body, Breach, Command, Counted, Election, Fates, Input, Lookups, ManagerNode, Node,
    OwnerNode, PROBES, Packet, Shared, Slot, Stage, State, Store, Task, TaskKind, address, manager_id,
    namespace,
};

/// A step under way: the state so far, and what follows from it at once.
pub(super) struct Step<'a> {
    /// What does not change.
    pub(super) stage: &'a Stage,
    /// The state so far.
    pub(super) state: State,
    /// What follows at once.
    pub(super) queue: VecDeque<Event>,
    /// The message whose arrival this step is.
    pub(super) arrived: Option<Shared<Packet>>,
}

/// Something that follows at once.
pub(super) enum Event {
    /// The process at a place is fed.
    Owner(usize, Input<OwnerEvent>),
    /// A Manager is fed.
    Manager(usize, Input<ManagerEvent>),
    /// The store is given a batch.
    Append(Append),
    /// An application does its task.
    Work(Task),
}

impl<'a> Step<'a> {
    /// A step from a state.
    pub(super) fn new(stage: &'a Stage, state: State) -> Step<'a> {
        Step { stage, state, queue: VecDeque::new(), arrived: None }
    }

    /// Does one action.
    pub(super) fn take(&mut self, action: &Action) {
        let spent = &mut self.state.spent;
        // A write counts only if it is served.
        if let Some(counted) = action.counted().filter(|counted| *counted != Counted::Writes) {
            spent.counts.add(counted);
        }
        match action {
            Action::Deliver(packet) => self.deliver(packet),
            Action::Wake(node) => self.wake(*node),
            Action::Advance => {
                self.state.instant += 1;
                (0..self.state.owners.len()).for_each(|slot| self.look(slot));
            }
            Action::Operate(command) => {
                spent.commands += 1;
                self.operate(command.clone());
            }
            Action::Wish(place) => {
                spent.wishes |= 1 << place;
                let (slot, event) = self.stage.scenario.wishes[*place].clone();
                self.owner(slot, event);
            }
            Action::Commit(place) => self.commit(*place),
            Action::Doubt(place) => self.doubt(*place),
            Action::Arrive(place) => self.arrive(*place),
            Action::Work(task) => self.queue.push_back(Event::Work(task.clone())),
            Action::Fail(task) => self.fail(task),
            Action::Write(slot, probe) => self.write(*slot, *probe),
            Action::Crash(slot) => self.crash(*slot),
            Action::Start(slot) => self.start(*slot),
            Action::Break(slot) => self.break_stream(*slot),
            Action::Keep(slot) => self.keep(*slot),
            Action::Restore(slot) => {
                spent.restores += 1;
                self.restore(*slot);
            }
            Action::Elect(manager) => self.elect(*manager),
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

    /// A sentence is broken, unless one is already.
    pub(super) fn blame(&mut self, breach: Option<Breach>) {
        if self.state.breach.is_none() {
            self.state.breach = breach.map(Shared::new);
        }
    }

    /// The process at a place is to be fed.
    fn owner(&mut self, slot: usize, event: OwnerEvent) {
        self.queue.push_back(Event::Owner(slot, Input::Event(event)));
    }

    /// A Manager is to be fed.
    fn manager(&mut self, manager: usize, event: ManagerEvent) {
        self.queue.push_back(Event::Manager(manager, Input::Event(event)));
    }

    /// Changes what the oracle knows of where state is, where that matters.
    pub(super) fn change_fates<T: Default>(&mut self, change: impl FnOnce(&mut Fates) -> T) -> T {
        if !self.stage.scenario.losses_need_causes {
            return T::default();
        }
        self.state.fates.change(change)
    }

    /// A Manager's campaign is won.
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

    fn operate(&mut self, command: Command) {
        let Some(leader) = self.state.election.leader else { return };
        match command {
            Command::Admin(command) => self.manager(leader, ManagerEvent::Admin { request: 0, command }),
            Command::Resign => self.manager(leader, ManagerEvent::Resign),
        }
    }

    fn crash(&mut self, slot: usize) {
        self.state.owners[slot].process = None;
        self.state.owners[slot].kept = None;
        self.state.apps.change(|apps| apps.forget(slot));
        self.change_fates(|fates| fates.end_all(slot));
        self.look(slot);
    }

    fn start(&mut self, slot: usize) {
        let life = self.state.owners[slot].life + 1;
        let node = OwnerNode::new(&self.stage.scenario, slot, life).share();
        self.state.owners[slot] = Slot { life, process: Some(node), kept: None };
        self.look(slot);
        self.owner(slot, OwnerEvent::Start);
        let loads = self.stage.scenario.loads.iter().find(|(place, _)| *place == slot);
        if let Some((_, loads)) = loads {
            self.owner(slot, OwnerEvent::Load(loads.clone().into()));
        }
    }

    /// The process sees that its stream broke, whichever Manager it goes to.
    fn break_stream(&mut self, slot: usize) {
        for manager in 0..self.state.managers.len() {
            self.owner(slot, OwnerEvent::Disconnected(manager_id(manager)));
        }
    }

    fn keep(&mut self, slot: usize) {
        let Some(process) = self.state.owners[slot].process.clone() else { return };
        let copies = self.state.apps.copies_at(slot);
        self.state.owners[slot].kept = Some(Shared::new(Kept { process, copies }));
    }

    /// The process goes on from the state that was kept, and sees at once that its clock jumped.
    fn restore(&mut self, slot: usize) {
        let Some(kept) = self.state.owners[slot].kept.take() else { return };
        self.state.owners[slot].process = Some(kept.process.clone());
        self.state.apps.change(|apps| {
            apps.forget(slot);
            apps.put_back(&kept.copies);
        });
        self.change_fates(|fates| fates.end_all(slot));
        let fresh = Nonce(u128::from(0xf0 + self.state.spent.restores));
        self.owner(slot, OwnerEvent::ClockJumped { fresh: Credential::unproven(fresh) });
    }
}

impl Step<'_> {
    /// A message arrives.
    fn deliver(&mut self, packet: &Shared<Packet>) {
        if let (Node::Owner(slot), Body::Copied { transfer, .. }) = (packet.to, &packet.body) {
            self.state.apps.change(|apps| apps.stop_waiting(slot, *transfer));
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
    fn wake(&mut self, node: Node) {
        self.queue.push_back(match node {
            Node::Owner(slot) => Event::Owner(slot, Input::Wake),
            Node::Manager(manager) => Event::Manager(manager, Input::Wake),
        });
    }

    /// Feeds the process at a place and does what it wants done.
    fn feed_owner(&mut self, slot: usize, input: &Input<OwnerEvent>) {
        let Some(outcome) = self.stage.owner_outcome(&self.state, slot, input) else { return };
        let (node, actions) = &*outcome;
        let before = self.state.owners[slot].process.replace(node.clone());
        let from = before.map_or(Term::ZERO, |before| before.machine.term());
        let to = node.machine.term();
        let fell = (to < from).then(|| {
            let what = format!("the process at {} went from term {from} back to term {to}", address(slot));
            Breach("S5", what)
        });
        self.blame(fell);
        for action in actions {
            match action {
                OwnerAction::ToManager { to, message } => self.send_to_manager(slot, to, message),
                OwnerAction::Granted(grants) => {
                    let session = node.machine.session();
                    let take_up =
                        |apps: &mut Apps| grants.iter().find_map(|grant| apps.take_up(slot, session, grant));
                    let breach = self.state.apps.change(take_up);
                    self.blame(breach);
                    self.change_fates(|fates| fates.take_up(slot, grants));
                }
                OwnerAction::Revoked(revoked) => {
                    let moved_to = input.confirmed_by();
                    self.change_fates(|fates| fates.revoke(slot, revoked, moved_to));
                }
                OwnerAction::Renumbered(renumbered) => {
                    self.state.apps.change(|apps| apps.renumber(renumbered));
                    self.change_fates(|fates| fates.renumber(slot, renumbered));
                    self.state.memory.change(|memory| memory.renumber(slot, renumbered));
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
        self.state.apps.change(|apps| apps.hear(slot, action));
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
        let breach =
            self.state.memory.change(|memory| memory.look(slot, process).or_else(|| memory.two_owners()));
        self.blame(breach);
    }

    /// Feeds a Manager and does what it wants done.
    fn feed_manager(&mut self, manager: usize, input: &Input<ManagerEvent>) {
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
            let breach = missing.map(|LeaseOrder { generation, .. }| {
                Breach("S6", format!("{session} is told of lease {generation}, which is not committed"))
            });
            self.blame(breach);
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
            self.state.store.change(|store| store.pending.push(append));
        } else {
            self.queue.push_back(Event::Append(append));
        }
    }

    /// The store takes or refuses a batch and says so.
    fn append(&mut self, append: &Append) {
        let event = self.put(append);
        self.manager(append.manager, ManagerEvent::Store(event));
    }

    /// The store takes or refuses a batch.
    fn put(&mut self, append: &Append) -> StoreEvent {
        let newest = self.state.election.term;
        let before = self.state.store.clone();
        let (event, breach) = self.state.store.change(|store| store.append(append, newest));
        self.blame(breach);
        self.judge_losses(&before, append);
        self.publish(&before, append);
        event
    }

    /// The store finishes a batch.
    fn commit(&mut self, place: usize) {
        let append = self.state.store.change(|store| store.pending.remove(place));
        self.append(&append);
    }

    /// The store says that it does not know what became of a batch.
    fn doubt(&mut self, place: usize) {
        let append = self.state.store.change(|store| store.pending.remove(place));
        let unknown = StoreEvent::Unknown { index: append.index };
        self.manager(append.manager, ManagerEvent::Store(unknown));
        self.state.store.change(|store| store.late.push(append));
    }

    /// A batch that was in doubt gets to the log, if it still may.
    fn arrive(&mut self, place: usize) {
        let append = self.state.store.change(|store| store.late.remove(place));
        self.put(&append);
    }

    /// Shows the Lookups a batch, if the store has just taken it.
    fn publish(&mut self, before: &Shared<Store>, append: &Append) {
        if !self.stage.scenario.lookups || before.index() == self.state.store.index() {
            return;
        }
        let store = self.state.store.clone();
        let Some(stored) = store.group.namespaces.get(&namespace()) else { return };
        let mut lookups = Lookups::clone(&self.state.lookups);
        let breach = lookups.see(&append.batch, stored, &store.published);
        self.state.lookups = lookups.share();
        self.blame(breach);
    }

    /// An application does what it was asked to, if that has not become void.
    fn work(&mut self, task: &Task) {
        if !self.state.apps.change(|apps| apps.tasks.remove(task)) {
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
                self.state.apps.change(|apps| apps.copy(place, *range, *generation));
                let term =
                    self.state.owners[slot].process.as_ref().map_or(Term(0), |node| node.machine.term());
                self.owner(place, OwnerEvent::ImportReady { range: *range, source: *generation, term });
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
            self.state.apps.change(|apps| apps.add(slot, transfer, TaskKind::Await));
        } else {
            self.owner(slot, OwnerEvent::TransferDone { transfer, to });
        }
    }

    /// A transfer fails.
    fn fail(&mut self, task: &Task) {
        if self.state.apps.change(|apps| apps.tasks.remove(task)) {
            self.owner(task.slot, OwnerEvent::TransferFailed(task.transfer));
        }
    }

    /// The application at a place serves a write, if its Owner lets it.
    fn write(&mut self, slot: usize, probe: usize) {
        let now = self.stage.owner_time(&self.state, slot);
        let process = self.state.owners[slot].process.as_ref();
        let lease = process.and_then(|node| node.machine.check_lease_now(now, PROBES[probe]).ok());
        if let Some(generation) = lease {
            self.state.apps.change(|apps| apps.write(probe, generation));
            self.state.spent.counts.add(Counted::Writes);
        }
    }
}
