//! The node of an Owner: drives its machine, and lets its application do what the machine wants.

use std::sync::Arc;

use centrifuge_core::id::{OwnerName, SessionId};
use centrifuge_core::key::Key;
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::message::{Destination, OwnerToManager, RefusedReason};
use centrifuge_core::owner::{OwnerAction, OwnerConfig, OwnerEvent, OwnerMachine, TransferId};

use super::app::{App, Transfer};
use super::{
    AppEvent, Body, Copy, CopyAnswer, Event, Fault, MILLISECOND, Moment, Node, Packet, SECOND, Seen, Timer,
    Undo, World,
};

/// A running Owner with its application.
#[derive(Debug)]
pub(crate) struct OwnerProcess {
    pub(crate) machine: OwnerMachine,
    pub(crate) app: App,
    /// It wants to go, and does so once it is empty.
    pub(crate) leaving: bool,
    /// The library did not want the copy that it was told of last.
    refuses_copy: bool,
}

impl World {
    pub(super) fn start_owner(&mut self, number: usize) {
        let takes_over = self.may_take_over(number) && self.rng.chance(self.plan.faults.takeovers);
        let plan = &self.plan.owners[number];
        let namespace = plan.namespace;
        let config = OwnerConfig {
            namespace: self.plan.namespaces[namespace].name.clone(),
            name: plan.name.clone(),
            url: plan.url.clone(),
            managers: Arc::clone(&self.plan.manager_ids),
            takes_over_previous: takes_over,
            weight: plan.weight,
            load_dimension: Default::default(),
            migrates: plan.migrates,
            credential: None,
            expects: self.plan.expected_by(number),
        };
        let machine = OwnerMachine::new(config, self.random());
        let session = machine.session();
        let app = App::new(session, self.plan.namespaces[namespace].keys.len());
        self.owners[number].start(OwnerProcess { machine, app, leaving: false, refuses_copy: false });
        self.show_start(number, session);
        self.feed_owner(number, OwnerEvent::Start);
    }

    fn show_start(&mut self, number: usize, session: SessionId) {
        let plan = &self.plan.owners[number];
        let (namespace, migrates) = (&self.plan.namespaces[plan.namespace].name, plan.migrates);
        let keys = self.plan.keys_of(number);
        let started = Seen::OwnerStarted { node: number, session, namespace, migrates, keys };
        self.witness.see(self.now, &started);
    }

    /// Whether it would be true to say that no other process of the name lives.
    fn may_take_over(&self, number: usize) -> bool {
        !self.owners_called(&self.plan.owners[number].name).any(|other| other != number)
    }

    /// The nodes on which a process of that name lives, be it paused.
    pub(super) fn owners_called<'a>(&'a self, name: &'a OwnerName) -> impl Iterator<Item = usize> + 'a {
        (0..self.owners.len())
            .filter(|other| self.plan.owners[*other].name == *name && self.owners[*other].process.is_some())
    }

    pub(super) fn end_owner(&mut self, number: usize) {
        if let Some(process) = self.owners[number].end() {
            let session = process.machine.session();
            self.witness.see(self.now, &Seen::OwnerEnded { node: number, session });
        }
    }

    pub(super) fn deliver_to_owner(&mut self, number: usize, packet: Packet) {
        if self.ambush.is_some() {
            self.watch_packet(number, &packet);
        }
        match (packet.from, packet.body) {
            (Node::Manager(from), Body::ManagerToOwner(message)) => {
                let from = self.plan.manager_ids[from].clone();
                self.feed_owner(number, OwnerEvent::FromManager { from, message });
            }
            (from, Body::Copy(copy)) => self.take_copy(number, from, &copy),
            (_, Body::CopyAnswer(answer)) => self.take_copy_answer(number, answer),
            _ => {}
        }
    }

    /// Feeds an event to the process, or wakes it.
    pub(super) fn feed_owner(&mut self, number: usize, event: impl Into<Option<OwnerEvent>>) {
        let host = &mut self.owners[number];
        let Some(process) = &mut host.process else { return };
        let now = host.clock.read(self.now);
        let output = match event.into() {
            Some(event) => process.machine.on_event(now, event),
            None => process.machine.on_wake(now),
        };
        self.owner_stepped(number, output);
    }

    pub(super) fn owner_stepped(&mut self, number: usize, output: Output<OwnerAction>) {
        self.note_output(Node::Owner(number), &output);
        if self.owners[number].process.is_none() {
            return;
        }
        for action in &output.actions {
            if let OwnerAction::SessionChanged(session) = action {
                self.change_session(number, *session);
            }
        }
        let host = &mut self.owners[number];
        let Some(process) = &host.process else { return };
        let (machine, clock, actions) = (&process.machine, &host.clock, &*output.actions);
        self.witness.see(self.now, &Seen::OwnerStepped { node: number, machine, clock, actions });
        let life = host.life;
        if let Some(at) = host.alarm.set(output.wake, &host.clock, self.now) {
            self.plan_ring(Timer::Machine(Node::Owner(number)), at, false);
        }
        for action in output.actions {
            if self.owners[number].life == life && self.owners[number].process.is_some() {
                self.perform_for_owner(number, action);
            }
        }
    }

    fn perform_for_owner(&mut self, number: usize, action: OwnerAction) {
        match action {
            OwnerAction::ToManager { to, message } => {
                if let Some(to) = self.manager_called(&to) {
                    self.send_to_manager(number, to, message);
                }
            }
            OwnerAction::Granted(grants)
                if self.dies_at_once(number, grants.iter().map(|grant| grant.range)) =>
            {
                self.die_of_key(number);
            }
            OwnerAction::Granted(grants) => self.with_app(number, |app, keys| {
                grants.iter().for_each(|grant| app.granted(keys, grant));
            }),
            OwnerAction::DiscardImport { range } => {
                self.with_app(number, |app, keys| app.discard(keys, range));
            }
            OwnerAction::ImportRefused { range, source } => {
                self.with_app(number, |app, keys| app.refuse(keys, range, source));
                if let Some(process) = &mut self.owners[number].process {
                    process.refuses_copy = true;
                }
            }
            OwnerAction::StartTransfer { transfer: id, range, generation, to, term } => {
                let Some(to) = self.destination(&to) else { return };
                let transfer = Transfer { id, range, generation, term, to, last: false, confirmed: false };
                self.begin_transfer(number, transfer);
            }
            OwnerAction::Freeze { transfer: id, range, generation, to: Some(to) } => {
                let Some(to) = self.destination(&to) else { return };
                let term = self.with_app(number, |app, _| app.transfer(id).map(|begun| begun.term));
                let term = term.unwrap_or_default();
                let transfer = Transfer { id, range, generation, term, to, last: true, confirmed: false };
                self.begin_transfer(number, transfer);
            }
            OwnerAction::Freeze { transfer, range, to: None, .. } => {
                let at = self.now.0 + self.app_time();
                let at = self.with_app(number, |app, keys| app.quiet_from(keys, range, at));
                self.plan_unless_hung(number, at, AppEvent::Quiesced { transfer, range });
            }
            OwnerAction::StopTransfer(transfer) => self.with_app(number, |app, _| app.forget(transfer)),
            OwnerAction::Drained => self.leave_soon(number),
            OwnerAction::Left => self.restart_owner(number),
            OwnerAction::JoinRefused(RefusedReason::Evicted) => self.restart_owner(number),
            OwnerAction::JoinRefused(why) if why.is_final() => self.try_again(number),
            OwnerAction::Revoked(_)
            | OwnerAction::Renumbered(_)
            | OwnerAction::ImportNoted { .. }
            | OwnerAction::Undrained
            | OwnerAction::SessionChanged(_)
            | OwnerAction::JoinRefused(_)
            | OwnerAction::Joined => {}
        }
    }

    /// The oracle takes a process that goes on as another session for one that ended and another that began.
    fn change_session(&mut self, number: usize, session: SessionId) {
        let earlier = self.with_app(number, |app, _| std::mem::replace(&mut app.session, session));
        self.witness.see(self.now, &Seen::OwnerEnded { node: number, session: earlier });
        self.show_start(number, session);
    }

    fn send_to_manager(&mut self, number: usize, to: usize, message: OwnerToManager) {
        let (from, to) = (Node::Owner(number), Node::Manager(to));
        self.watch_report(number, &message);
        if self.faults_happen && self.rng.chance(self.plan.misaddressed) {
            self.tally.count(Fault::Misaddressed);
            let other = 1 - self.plan.owners[number].namespace;
            let mut message = message.clone();
            match &mut message {
                OwnerToManager::Hello(hello) => {
                    hello.namespace = self.plan.namespaces[other].name.clone();
                    // Refused for what it is built for, it would stop for good.
                    hello.expects = self.plan.namespaces[other].kind().expected();
                }
                OwnerToManager::Report(report) => {
                    report.namespace = self.plan.namespaces[other].name.clone();
                    // The codes of its warrants are not right for that namespace.
                    report.held.iter_mut().for_each(|held| held.warrant = None);
                    report.released.iter_mut().for_each(|gone| gone.warrant = None);
                }
            }
            self.send(from, to, Body::OwnerToManager(message));
        }
        self.send(from, to, Body::OwnerToManager(message));
    }

    fn with_app<T>(&mut self, number: usize, act: impl FnOnce(&mut App, &[Key]) -> T) -> T {
        let keys = self.plan.keys_of(number);
        let process = self.owners[number].process.as_mut().expect("only a running process acts");
        act(&mut process.app, keys)
    }

    /// The node that a destination names. Whoever runs there now gets the copy, and says who it is.
    fn destination(&self, to: &Destination) -> Option<usize> {
        self.plan.owners.iter().position(|owner| owner.url == to.url)
    }

    fn app_time(&mut self) -> u64 {
        self.rng.spread(MILLISECOND, self.plan.apps.longest)
    }

    fn begin_transfer(&mut self, number: usize, transfer: Transfer) {
        let at = self.now.0 + self.app_time();
        let at = self.with_app(number, |app, keys| {
            app.forget(transfer.id);
            app.transfers.push(transfer);
            if transfer.last { app.quiet_from(keys, transfer.range, at) } else { at }
        });
        let event = AppEvent::SendCopy { transfer: transfer.id, last: transfer.last, attempt: 1 };
        if !self.plan_unless_hung(number, at, event) {
            self.show_trouble(number, &transfer);
        }
    }

    /// Plans what an application does next; false if it never will.
    fn plan_unless_hung(&mut self, number: usize, at: u64, event: AppEvent) -> bool {
        let hangs = self.faults_happen && self.rng.chance(self.plan.apps.hangs);
        if hangs {
            self.tally.count(Fault::Hang);
        } else {
            self.plan_for_app(number, at, event);
        }
        !hangs
    }

    fn show_trouble(&mut self, number: usize, transfer: &Transfer) {
        let Some(process) = &self.owners[number].process else { return };
        let (session, range, generation) = (process.machine.session(), transfer.range, transfer.generation);
        self.witness.see(self.now, &Seen::TransferTroubled { session, range, generation });
    }

    pub(super) fn plan_for_app(&mut self, number: usize, at: u64, event: AppEvent) {
        let life = self.owners[number].life;
        self.queue.push(at, Event::App { owner: number, life, event });
    }

    pub(super) fn application(&mut self, number: usize, life: u32, event: AppEvent) {
        if self.owners[number].life != life || self.owners[number].process.is_none() {
            return;
        }
        match event {
            AppEvent::EndOperation { probe, generation } => self.end_operation(number, probe, generation),
            AppEvent::SendCopy { transfer, last, attempt } => self.send_copy(number, transfer, last, attempt),
            AppEvent::Quiesced { transfer, range } => {
                if self.with_app(number, |app, keys| app.is_busy(keys, range)) {
                    return self.plan_for_app(number, self.now.0 + 50 * MILLISECOND, event);
                }
                self.feed_owner(number, OwnerEvent::Quiesced(transfer));
            }
        }
    }

    fn send_copy(&mut self, number: usize, id: TransferId, last: bool, attempt: u32) {
        let again = |attempt| AppEvent::SendCopy { transfer: id, last, attempt };
        let waiting = |transfer: &&mut Transfer| transfer.last == last && !transfer.confirmed;
        let keys = self.plan.keys_of(number);
        let host = &mut self.owners[number];
        let now = host.clock.read(self.now);
        let process = host.process.as_mut().expect("only a running process acts");
        let is_current = |key, lease| process.machine.check_lease_continuous(now, key, lease);
        let found = process.app.transfer(id).filter(waiting).map(|transfer| *transfer).map(|transfer| {
            let busy = last && process.app.is_busy(keys, transfer.range);
            (transfer, (!busy).then(|| process.app.copy(keys, &transfer, is_current)))
        });
        match found {
            None => {}
            Some((transfer, _)) if attempt > self.plan.apps.attempts || self.cannot_send() => {
                self.show_trouble(number, &transfer);
                self.with_app(number, |app, _| app.forget(id));
                self.feed_owner(number, OwnerEvent::TransferFailed(id));
            }
            Some((_, None)) => self.plan_for_app(number, self.now.0 + 50 * MILLISECOND, again(attempt)),
            Some((transfer, Some(copy))) => {
                self.send(Node::Owner(number), Node::Owner(transfer.to), Body::Copy(copy));
                let retry = self.now.0 + self.rng.between(SECOND, 5 * SECOND);
                self.plan_for_app(number, retry, again(attempt + 1));
            }
        }
    }

    fn cannot_send(&mut self) -> bool {
        self.faults_happen && self.rng.chance(self.plan.apps.fails)
    }

    /// Takes state in, tells the library, and only then the sender.
    fn take_copy(&mut self, number: usize, from: Node, copy: &Copy) {
        let Some(process) = &mut self.owners[number].process else { return };
        let by = process.machine.session();
        if !process.app.import(copy) {
            return;
        }
        process.refuses_copy = false;
        if copy.last {
            let event = OwnerEvent::ImportReady { range: copy.range, source: copy.source, term: copy.term };
            self.feed_owner(number, event);
            let kept = |process: &OwnerProcess| {
                process.machine.session() == by && process.app.has_import(copy) && !process.refuses_copy
            };
            if !self.owners[number].process.as_ref().is_some_and(kept) {
                return;
            }
            self.spring(Moment::Import, Node::Owner(number));
        }
        let answer = CopyAnswer { by, to: copy.from, transfer: copy.transfer, last: copy.last };
        self.send(Node::Owner(number), from, Body::CopyAnswer(answer));
    }

    fn take_copy_answer(&mut self, number: usize, answer: CopyAnswer) {
        let Some(process) = &mut self.owners[number].process else { return };
        if process.machine.session() != answer.to {
            return;
        }
        let Some(transfer) = process.app.transfer(answer.transfer) else { return };
        if transfer.last != answer.last || transfer.confirmed {
            return;
        }
        transfer.confirmed = true;
        let event = if answer.last {
            process.app.forget(answer.transfer);
            OwnerEvent::TransferDone { transfer: answer.transfer, to: answer.by }
        } else {
            OwnerEvent::TransferReady(answer.transfer)
        };
        self.feed_owner(number, event);
    }

    /// An application that asked to be emptied, and is, leaves.
    fn leave_soon(&mut self, number: usize) {
        let life = self.owners[number].life;
        let at = self.now.0 + self.rng.below(SECOND);
        self.queue.push(at, Event::Undo(Undo::Leave { owner: number, life }));
    }

    /// The process ends by itself, and a new one takes its place.
    /// Somebody does not believe that an Owner is built for another kind of namespace, and starts it again after a while.
    fn try_again(&mut self, number: usize) {
        let node = Node::Owner(number);
        let at = self.now.0 + self.rng.between(20 * SECOND, 60 * SECOND);
        self.queue.push(
            self.now.0,
            Event::Undo(Undo::Kill { node, life: self.owners[number].life, restart: false }),
        );
        self.queue.push(at, Event::Undo(Undo::Start { node }));
    }

    fn restart_owner(&mut self, number: usize) {
        let exit = Undo::Exit { owner: number, life: self.owners[number].life };
        self.queue.push(self.now.0, Event::Undo(exit));
    }
}
