//! The node of a Manager: drives its machine, and asks the store for it.

use centrifuge_core::election::ElectionRequest;
use centrifuge_core::id::{Index, ManagerId, Namespace, Nonce, Seq};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::manager::{
    ManagerAction, ManagerEvent, ManagerMachine, StoreCommand, StoreEvent, StreamId,
};
use centrifuge_core::message::LookupRequest;
use centrifuge_core::record::{Change, Record};

use super::election_node::ElectionPart;
use super::store::Append;
use super::{
    Body, Event, Fault, MILLISECOND, Moment, Node, Packet, SECOND, Seen, StoreAnswer, StoreRequest, Timer,
    World, peer_of,
};

/// A running Manager.
#[derive(Debug)]
pub(crate) struct ManagerProcess {
    pub(crate) machine: ManagerMachine,
    /// What it asked the store for and has no answer to.
    asked: Vec<(u64, Asked)>,
    /// Its part in the election, if it has no store.
    pub(crate) election: Option<ElectionPart>,
}

#[derive(Clone, Copy, Debug)]
enum Asked {
    Append(Index),
    Load(u64),
}

/// A Lookup's request and the way back that it came by.
#[derive(Clone, Debug)]
pub(crate) struct EndedWatch {
    from: StreamId,
    namespace: Namespace,
    lookup: Nonce,
}

/// How many watches end under a Manager's eyes, in a thousand.
const ENDING_WATCHES: u64 = 150;
/// More Lookups than a world has.
const MOST_LOOKUPS: u64 = 1 << 8;

/// Every request of a Lookup has a way back of its own.
fn way_back(lookup: usize, seq: Seq) -> StreamId {
    StreamId(seq.0.wrapping_mul(MOST_LOOKUPS) + lookup as u64)
}

fn lookup_at(StreamId(way): StreamId) -> usize {
    (way % MOST_LOOKUPS) as usize
}

impl World {
    pub(super) fn start_manager(&mut self, number: usize) {
        let config = self.plan.managers[number].config.clone();
        let machine = ManagerMachine::new(config, self.random());
        let election = self.election_part(number);
        self.managers[number].start(ManagerProcess { machine, asked: Vec::new(), election });
        self.feed_election(number, ElectionRequest::Start);
        self.feed_manager(number, ManagerEvent::Start);
    }

    pub(super) fn end_manager(&mut self, number: usize) {
        self.managers[number].end();
    }

    pub(super) fn deliver_to_manager(&mut self, number: usize, packet: Packet) {
        let event = match (packet.from, packet.body) {
            (Node::Owner(from), Body::OwnerToManager(message)) => {
                ManagerEvent::FromOwner { from: StreamId(from as u64), message }
            }
            (Node::Lookup(from), Body::LookupToManager(request)) => {
                self.plan_end_of_watch(number, from, &request);
                ManagerEvent::FromLookup { from: way_back(from, request.seq), request }
            }
            (Node::Manager(from), Body::Flease(packet)) => {
                let request = ElectionRequest::Receive { from: peer_of(from), packet };
                return self.feed_election(number, request);
            }
            _ => return,
        };
        self.feed_manager(number, event);
    }

    /// Some watches end, soon or when the Lookup has long asked again by another, whether the Lookup lives or not.
    fn plan_end_of_watch(&mut self, manager: usize, from: usize, request: &LookupRequest) {
        if self.faults_happen && self.rng.chance(ENDING_WATCHES) {
            let at = self.now.0 + self.rng.spread(MILLISECOND, 2 * 60 * SECOND);
            let watch = EndedWatch {
                from: way_back(from, request.seq),
                namespace: request.namespace.clone(),
                lookup: request.lookup,
            };
            let life = self.managers[manager].life;
            self.queue.push(at, Event::WatchEnds { manager, life, watch: Box::new(watch) });
        }
    }

    pub(super) fn notice_end(&mut self, manager: usize, life: u32, watch: EndedWatch) {
        if self.faults_happen && self.managers[manager].life == life {
            self.tally.count(Fault::WatchEnded);
            let EndedWatch { from, namespace, lookup } = watch;
            self.feed_manager(manager, ManagerEvent::LookupGone { from, namespace, lookup });
        }
    }

    /// Feeds an event to the process, or wakes it.
    pub(super) fn feed_manager(&mut self, number: usize, event: impl Into<Option<ManagerEvent>>) {
        let host = &mut self.managers[number];
        let Some(process) = &mut host.process else { return };
        let now = host.clock.read(self.now);
        let output = match event.into() {
            Some(event) => process.machine.on_event(now, event),
            None => process.machine.on_wake(now),
        };
        self.manager_stepped(number, output);
    }

    pub(super) fn manager_stepped(&mut self, number: usize, output: Output<ManagerAction>) {
        self.note_output(Node::Manager(number), &output);
        let host = &mut self.managers[number];
        let Some(process) = &host.process else { return };
        let (machine, actions) = (&process.machine, &*output.actions);
        self.witness.see(self.now, &Seen::ManagerStepped { node: number, machine, actions });
        if self.plan.diskless.is_some() {
            self.watch_leaders(number, &output.actions);
        }
        let host = &mut self.managers[number];
        if let Some(at) = host.alarm.set(output.wake, &host.clock, self.now) {
            self.plan_ring(Timer::Machine(Node::Manager(number)), at, false);
        }
        for action in output.actions {
            self.perform_for_manager(number, action);
        }
    }

    fn perform_for_manager(&mut self, number: usize, action: ManagerAction) {
        let here = Node::Manager(number);
        match action {
            ManagerAction::ToOwner { to: StreamId(to), message } => {
                self.send(here, Node::Owner(to as usize), Body::ManagerToOwner(message));
            }
            ManagerAction::ToLookup { to, message } => {
                self.send(here, Node::Lookup(lookup_at(to)), Body::ManagerToLookup(message));
            }
            action if self.plan.diskless.is_some() => self.perform_without_store(number, action),
            ManagerAction::Election(command) => self.ask_store(number, StoreRequest::Election(command)),
            ManagerAction::Store(StoreCommand::Load { request }) => {
                let asked = self.expect_answer(number, Asked::Load(request));
                self.ask_store(number, StoreRequest::Load { number: asked, request });
            }
            ManagerAction::Store(StoreCommand::Append { term, index, batch }) => {
                let asked = self.expect_answer(number, Asked::Append(index));
                let append = Append { term, index, batch };
                self.ask_store(number, StoreRequest::Append { number: asked, append });
            }
            ManagerAction::Store(StoreCommand::Compact { index, group }) => {
                if !self.store.agrees(index, &group) {
                    let what = format!("manager {number} compacts the log to what it does not add up to");
                    self.witness.accuse(self.now, "S6", what);
                }
            }
            ManagerAction::Committed { .. }
            | ManagerAction::AdminReply { .. }
            | ManagerAction::RoleChanged(_)
            | ManagerAction::Skip(_)
            | ManagerAction::Trimmed(_) => {}
        }
    }

    /// Remembers that the store was asked, and how long the driver waits.
    fn expect_answer(&mut self, manager: usize, asked: Asked) -> u64 {
        self.requests += 1;
        let number = self.requests;
        let host = &mut self.managers[manager];
        let life = host.life;
        if let Some(process) = &mut host.process {
            process.asked.push((number, asked));
        }
        let timeout = self.rng.between(2 * SECOND, 6 * SECOND);
        self.queue.push(self.now.0 + timeout, Event::StoreTimeout { manager, life, number });
        number
    }

    fn ask_store(&mut self, manager: usize, request: StoreRequest) {
        if self.network.is_cut(manager, self.network.layout.store()) {
            return;
        }
        let at = self.now.0 + self.store.delay(self.now);
        let life = self.managers[manager].life;
        self.queue.push(at, Event::StoreRequest { manager, life, request });
    }

    /// A request reaches the store, whatever has become of its sender.
    pub(super) fn reach_store(&mut self, manager: usize, life: u32, request: StoreRequest) {
        let handled = self.store.handle(self.now, manager, request);
        if let Some((index, batch)) = handled.committed {
            self.witness.see(self.now, &Seen::Committed { index, batch: &batch, by: manager });
            let quarantines = batch.records.iter().filter(|record| is_quarantine(record)).count();
            (0..quarantines).for_each(|_| self.tally.count(Fault::Quarantined));
            self.spring(Moment::Commit, Node::Manager(manager));
            if batch.term < self.store.term() {
                let (of, begun) = (batch.term, self.store.term());
                let batch = format!("the batch of manager {manager} and term {of} at {index}");
                let what = format!("{batch} is durable, but term {begun} has begun");
                self.witness.accuse(self.now, "S5", what);
            }
        }
        if let Some((delay, append)) = handled.later {
            let request = StoreRequest::LateAppend(append);
            self.queue.push(self.now.0 + delay, Event::StoreRequest { manager, life, request });
        }
        if let Some(answer) = handled.answer
            && !self.network.is_cut(self.network.layout.store(), manager)
        {
            let at = self.now.0 + self.store.delay(self.now);
            self.queue.push(at, Event::StoreAnswer { manager, life, answer });
        }
    }

    pub(super) fn hear_store(&mut self, manager: usize, life: u32, answer: StoreAnswer) {
        match answer {
            StoreAnswer::Election(event) if self.managers[manager].life == life => {
                self.feed_manager(manager, ManagerEvent::Election(event));
            }
            StoreAnswer::Store { number, event } if self.stop_waiting(manager, life, number).is_some() => {
                self.feed_manager(manager, ManagerEvent::Store(event));
            }
            StoreAnswer::Confirmed { event, batch } if self.managers[manager].life == life => {
                self.hear_confirmation(manager, event, batch);
            }
            _ => {}
        }
    }

    /// The driver does not know what became of an append, and knows that a load brought nothing.
    pub(super) fn give_up_on_store(&mut self, manager: usize, life: u32, number: u64) {
        let event = match self.stop_waiting(manager, life, number) {
            Some(Asked::Append(index)) => StoreEvent::Unknown { index },
            Some(Asked::Load(request)) => StoreEvent::LoadFailed { request },
            None => return,
        };
        self.feed_manager(manager, ManagerEvent::Store(event));
    }

    /// The request of that number, if the same process still waits for it.
    fn stop_waiting(&mut self, manager: usize, life: u32, number: u64) -> Option<Asked> {
        let host = &mut self.managers[manager];
        let asked = &mut host.process.as_mut().filter(|_| host.life == life)?.asked;
        let at = asked.iter().position(|(waiting, _)| *waiting == number)?;
        Some(asked.remove(at).1)
    }

    pub(super) fn manager_called(&self, id: &ManagerId) -> Option<usize> {
        self.plan.manager_ids.iter().position(|known| known == id)
    }

    /// The Manager that takes itself for the leader; of several the first.
    pub(super) fn leader(&self) -> Option<usize> {
        self.managers.iter().position(|host| {
            let leads =
                |process: &ManagerProcess| process.machine.leading(host.clock.read(self.now)).is_some();
            host.is_running() && host.process.as_ref().is_some_and(leads)
        })
    }
}

fn is_quarantine(record: &Record) -> bool {
    matches!(record, Record::Namespace { change: Change::Quarantined { .. }, .. })
}
