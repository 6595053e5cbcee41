//! A Manager without a store: its part in the election, and a store that confirms everything and forgets it.

use std::sync::Arc;

use centrifuge_core::election::{ElectionAction, ElectionConfig, ElectionRequest, FleaseElection};
use centrifuge_core::flease::{FleaseConfig, PeerId};
use centrifuge_core::id::{Generation, Index, ManagerId, Namespace};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::manager::{ManagerAction, ManagerEvent, RoleName, Skip, StoreCommand, StoreEvent};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::message::{ManagerToLookup, UpdateBody};
use centrifuge_core::record::{Batch, Change, Record};
use centrifuge_core::table::Entry;
use centrifuge_core::time::Instant;

use crate::flease_world::faults::offset;

use super::{
    Alarm, Body, Condition, DisklessPlan, Event, Fault, MILLISECOND, Moment, Node, Plan, Seen, StoreAnswer,
    Timer, World,
};

/// What a Manager's process has of the election.
#[derive(Debug)]
pub(crate) struct ElectionPart {
    pub(crate) machine: FleaseElection,
    pub(crate) alarm: Alarm,
    /// The namespaces whose tables its Manager learns.
    learning: Vec<Namespace>,
    /// When the latest confirmation arrives: they keep their order.
    confirmed: u64,
}

/// The peer that a Manager is.
pub(crate) fn peer_of(manager: usize) -> PeerId {
    PeerId(u16::try_from(manager + 1).expect("few Managers"))
}

fn manager_of(PeerId(peer): PeerId) -> usize {
    usize::from(peer) - 1
}

/// What the election of a Manager is told at its start.
pub(crate) fn election_config(flease: &FleaseConfig, ids: &[ManagerId], manager: usize) -> ElectionConfig {
    let managers = ids.iter().enumerate().map(|(number, id)| (peer_of(number), id.clone())).collect();
    ElectionConfig { flease: FleaseConfig { me: peer_of(manager), ..flease.clone() }, managers }
}

impl World {
    pub(super) fn election_part(&mut self, manager: usize) -> Option<ElectionPart> {
        let Plan { diskless, manager_ids, .. } = &self.plan;
        let config = election_config(&diskless.as_ref()?.flease, manager_ids, manager);
        let machine = FleaseElection::new(config, self.random());
        Some(ElectionPart { machine, alarm: Alarm::default(), learning: Vec::new(), confirmed: 0 })
    }

    pub(super) fn feed_election(&mut self, manager: usize, request: ElectionRequest) {
        self.step_election(manager, |machine, now| machine.on_event(now, request));
    }

    pub(super) fn step_election(
        &mut self,
        manager: usize,
        step: impl FnOnce(&mut FleaseElection, Instant) -> Output<ElectionAction>,
    ) {
        let Some(clock) = self.synchronised.get(manager) else { return };
        let Some(process) = &mut self.managers[manager].process else { return };
        let Some(part) = &mut process.election else { return };
        let output = step(&mut part.machine, clock.read(self.now));
        let due = output.wake.map_or(u64::MAX, |wake| clock.when(wake).0.max(self.now.0));
        let ring = part.alarm.set_due(output.wake, due);
        self.note_output(Node::Manager(manager), &output);
        if let Some(at) = ring {
            self.plan_ring(Timer::Election(manager), at, false);
        }
        for action in output.actions {
            self.perform_for_election(manager, action);
        }
    }

    fn perform_for_election(&mut self, manager: usize, action: ElectionAction) {
        match action {
            ElectionAction::Send { to, packet } => {
                self.send(Node::Manager(manager), Node::Manager(manager_of(to)), Body::Flease(packet));
            }
            ElectionAction::Answer(event) => {
                self.answer_within_process(manager, StoreAnswer::Election(event));
            }
            ElectionAction::ClockApart { .. } | ElectionAction::ClockAgrees => {
                let what = format!("manager {manager} doubts its clock, which is within epsilon");
                self.witness.accuse(self.now, "L3", what);
            }
        }
    }

    /// A message between the parts of a process takes some time, and now and then a long one.
    fn hand_over_time(&mut self) -> u64 {
        let (hiccups, longest) = self.plan.diskless.as_ref().map_or((0, 0), |diskless| diskless.hiccups);
        if self.faults_happen && self.rng.chance(hiccups) {
            return self.rng.spread(MILLISECOND, longest);
        }
        self.rng.below(MILLISECOND)
    }

    fn answer_within_process(&mut self, manager: usize, answer: StoreAnswer) {
        let (at, life) = (self.now.0 + self.hand_over_time(), self.managers[manager].life);
        self.queue.push(at, Event::StoreAnswer { manager, life, answer });
    }

    fn ask_election(&mut self, manager: usize, request: ElectionRequest) {
        let (at, life) = (self.now.0 + self.hand_over_time(), self.managers[manager].life);
        self.queue.push(at, Event::ElectionRequest { manager, life, request });
    }

    pub(super) fn reach_election(&mut self, manager: usize, life: u32, request: ElectionRequest) {
        if self.managers[manager].life == life {
            self.feed_election(manager, request);
        }
    }

    /// What a Manager asks of the election and of the store that there is not.
    pub(super) fn perform_without_store(&mut self, manager: usize, action: ManagerAction) {
        match action {
            ManagerAction::Election(command) => {
                self.ask_election(manager, ElectionRequest::Command(command));
            }
            ManagerAction::Store(StoreCommand::Load { request }) => {
                let (index, group) = (Index::ZERO, Arc::new(ManagerState::default()));
                self.confirm(manager, StoreEvent::Loaded { request, index, group }, None);
            }
            ManagerAction::Store(StoreCommand::Append { index, batch, .. }) => {
                self.confirm(manager, StoreEvent::Appended { index }, Some((index, batch)));
            }
            _ => {}
        }
    }

    fn confirm(&mut self, manager: usize, event: StoreEvent, batch: Option<(Index, Arc<Batch>)>) {
        let at = self.now.0 + self.hand_over_time();
        let life = self.managers[manager].life;
        let process = self.managers[manager].process.as_mut();
        let Some(part) = process.and_then(|process| process.election.as_mut()) else { return };
        part.confirmed = part.confirmed.max(at);
        let answer = StoreAnswer::Confirmed { event, batch };
        self.queue.push(part.confirmed, Event::StoreAnswer { manager, life, answer });
    }

    /// A batch is part of what a leader says from when it hears that it is, unless it does not lead any more.
    pub(super) fn hear_confirmation(
        &mut self,
        manager: usize,
        event: StoreEvent,
        batch: Option<(Index, Arc<Batch>)>,
    ) {
        let host = &mut self.managers[manager];
        let Some(process) = &mut host.process else { return };
        let output = process.machine.on_event(host.clock.read(self.now), ManagerEvent::Store(event));
        let leads = process.machine.group().is_some();
        if let Some((index, batch)) = batch.filter(|_| leads) {
            self.witness.see(self.now, &Seen::Committed { index, batch: &batch, by: manager });
            let claims = batch.records.iter().filter(|record| is_claim(record)).count();
            (0..claims).for_each(|_| self.tally.count(Fault::Claim));
            let moves = batch.records.windows(2).filter(|pair| is_move(&pair[0], &pair[1])).count();
            (0..moves).for_each(|_| self.tally.count(Fault::MoveLearned));
            self.spring(Moment::Commit, Node::Manager(manager));
        }
        self.manager_stepped(manager, output);
    }

    /// Some synchronised clocks turn towards other offsets within half of epsilon.
    pub(super) fn turn_clocks(&mut self) {
        let Some(DisklessPlan { flease, slowness, turn_every, .. }) = self.plan.diskless.clone() else {
            return;
        };
        let half = u64::try_from(flease.epsilon.as_nanos()).expect("epsilon is short") / 2;
        let all = self.rng.chance(300);
        let one = self.rng.below(self.synchronised.len() as u64) as usize;
        for manager in (0..self.synchronised.len()).filter(|manager| all || *manager == one) {
            self.tally.count(Fault::ClockTurned);
            let target = offset(&mut self.rng, half);
            let clock = &mut self.synchronised[manager];
            clock.slew(self.now, target, slowness);
            let (clock, now) = (*clock, self.now);
            let moved = self.with_alarm(Timer::Election(manager), |alarm| {
                let wanted = alarm.wanted();
                alarm.set_due(wanted, wanted.map_or(u64::MAX, |wake| clock.when(wake).0.max(now.0)))
            });
            if let Some(at) = moved.flatten() {
                self.plan_ring(Timer::Election(manager), at, false);
            }
        }
        let next = self.now.0 + self.rng.between(1, 2 * turn_every);
        self.queue.push(next, Event::Turn);
    }

    /// At most one Manager acts as leader at any time, each by its own clock. One that is suspended acts for nobody, and
    /// steps down when it goes on.
    pub(super) fn watch_leaders(&mut self, manager: usize, actions: &[ManagerAction]) {
        self.tally_learning(manager);
        for action in actions {
            match action {
                ManagerAction::RoleChanged(RoleName::Leader { .. }) => {
                    self.tally.count(Fault::Term);
                    self.spring(Moment::Lead, Node::Manager(manager));
                }
                ManagerAction::Skip(Skip::Claim { .. }) => self.tally.count(Fault::ClaimRefused),
                ManagerAction::ToLookup { message: ManagerToLookup::Update(update), .. }
                    if matches!(update.body, UpdateBody::Unchanged { .. }) =>
                {
                    self.tally.count(Fault::Unchanged);
                }
                _ => {}
            }
        }
        let leaders: Vec<usize> =
            (0..self.managers.len()).filter(|number| self.acts_as_leader(*number)).collect();
        if leaders.len() > 1 && leaders.contains(&manager) {
            let what = format!("managers {leaders:?} act as leaders at one time");
            self.witness.accuse(self.now, "S5", what);
        }
    }

    fn acts_as_leader(&self, manager: usize) -> bool {
        let host = &self.managers[manager];
        let is_suspended = matches!(host.condition, Condition::Suspended { .. });
        let leads =
            host.process.as_ref().and_then(|process| process.machine.leading(host.clock.read(self.now)));
        !is_suspended && leads.is_some()
    }

    /// Counts how tables came to be learned: by claims if every key has an earlier leader's lease, else by the hold.
    fn tally_learning(&mut self, manager: usize) {
        let host = &mut self.managers[manager];
        let now = host.clock.read(self.now);
        let Some(process) = &mut host.process else { return };
        let Some(part) = &mut process.election else { return };
        let overview = process.machine.overview(now);
        let learns = |name: &Namespace| overview.get(name).is_some_and(|space| space.rebuilding.is_some());
        let before = std::mem::take(&mut part.learning);
        part.learning = overview.keys().filter(|name| learns(name)).cloned().collect();
        let (Some(group), RoleName::Leader { term }) = (process.machine.group(), process.machine.role())
        else {
            return;
        };
        for name in before.iter().filter(|name| !learns(name)) {
            let claimed =
                |entry: &Entry| entry.owner.is_some() && Some(entry.generation) < Generation::before(term);
            let stored = group.namespaces.get(name);
            let by_claims = stored.is_some_and(|stored| stored.table.iter().all(|(_, entry)| claimed(entry)));
            self.tally.count(if by_claims { Fault::RebuiltByClaims } else { Fault::RebuiltByHold });
        }
    }
}

/// Whether a lease of an earlier leader went on as the one that follows its state.
fn is_move(record: &Record, next: &Record) -> bool {
    let (Record::Namespace { change, .. }, Record::Namespace { change: next, .. }) = (record, next) else {
        return false;
    };
    match (change, next) {
        (Change::Claimed { range, generation, .. }, Change::Granted { range: same, source, .. }) => {
            range == same && *source == Some(*generation)
        }
        _ => false,
    }
}

fn is_claim(record: &Record) -> bool {
    matches!(record, Record::Namespace { change: Change::Claimed { .. }, .. })
}
