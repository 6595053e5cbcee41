//! One step of a small world: what happens, and all that follows from it at once.

use std::collections::VecDeque;

use centrifuge_core::id::{Credential, Nonce, Term};
use centrifuge_core::manager::{ElectionEvent, ManagerEvent};
use centrifuge_core::owner::OwnerEvent;

use super::app::{Apps, Task};
use super::fates::Fates;
use super::network::Packet;
use super::nodes::{Input, ManagerNode, OwnerNode};
use super::print::Shared;
use super::properties::Breach;
use super::scenario::{Command, manager_id};
use super::stage::Stage;
use super::store::{Append, Election, Store};
use super::world::{Action, Kept, Slot, State};

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
            Action::Break(slot) => {
                spent.breaks += 1;
                self.break_stream(*slot);
            }
            Action::Keep(slot) => {
                spent.keeps += 1;
                self.keep(*slot);
            }
            Action::Restore(slot) => {
                spent.restores += 1;
                self.restore(*slot);
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

    /// A sentence is broken, unless one is already.
    pub(super) fn blame(&mut self, breach: Option<Breach>) {
        self.state.breach = self.state.breach.or(breach);
    }

    /// The process at a place is to be fed.
    pub(super) fn owner(&mut self, slot: usize, event: OwnerEvent) {
        self.queue.push_back(Event::Owner(slot, Input::Event(event)));
    }

    /// A Manager is to be fed.
    pub(super) fn manager(&mut self, manager: usize, event: ManagerEvent) {
        self.queue.push_back(Event::Manager(manager, Input::Event(event)));
    }

    /// Changes the applications.
    pub(super) fn change_apps<T>(&mut self, change: impl FnOnce(&mut Apps) -> T) -> T {
        let mut apps = self.state.apps.clone_inner();
        let result = change(&mut apps);
        self.state.apps = Shared::new(apps);
        result
    }

    /// Changes what the oracle knows of where state is, where that matters.
    pub(super) fn change_fates<T: Default>(&mut self, change: impl FnOnce(&mut Fates) -> T) -> T {
        if !self.stage.scenario.losses_need_causes {
            return T::default();
        }
        let mut fates = self.state.fates.clone_inner();
        let result = change(&mut fates);
        self.state.fates = Shared::new(fates);
        result
    }

    /// Changes the store.
    pub(super) fn change_store<T>(&mut self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.state.store.clone_inner();
        let result = change(&mut store);
        self.state.store = Shared::new(store);
        result
    }

    /// A Manager's campaign is won.
    pub(super) fn campaign(&mut self, manager: usize, request: u64) {
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
        self.change_apps(|apps| apps.forget(slot));
        self.change_fates(|fates| fates.end_all(slot));
        self.look(slot);
    }

    fn start(&mut self, slot: usize) {
        let life = self.state.owners[slot].life + 1;
        let node = OwnerNode::new(&self.stage.scenario, slot, life).share();
        self.state.owners[slot] = Slot { life, process: Some(node), kept: None };
        self.look(slot);
        self.owner(slot, OwnerEvent::Start);
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
        self.change_apps(|apps| {
            apps.forget(slot);
            apps.put_back(&kept.copies);
        });
        self.change_fates(|fates| fates.end_all(slot));
        let fresh = Nonce(u128::from(0xf0 + self.state.spent.restores));
        self.owner(slot, OwnerEvent::ClockJumped { fresh: Credential::unproven(fresh) });
    }
}
