//! The product's partitioners at work: the real Manager and real Owners in virtual time. Owners renew and report their load, ranges
//! are recalled and migrate, which takes time and sometimes fails, and what a crashed Owner had waits for its hold.

mod nodes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Index, ManagerId, Namespace, Nonce, SessionId, Term};
use centrifuge_core::key::KeyRange;
use centrifuge_core::load::{LoadMeasurement, LoadPolicyKind, RangeLoad};
use centrifuge_core::machine::Machine;
use centrifuge_core::manager::{
    ElectionCommand, ElectionEvent, ManagerAction, ManagerConfig, ManagerEvent, ManagerMachine, StoreCommand,
    StoreEvent, StreamId,
};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::message::{Destination, ManagerToOwner};
use centrifuge_core::namespace_kind::NamespaceKind;
use centrifuge_core::owner::{OwnerAction, OwnerEvent, TransferId};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::random::Random;
use centrifuge_core::record::{Batch, Change, Reason, Record};
use centrifuge_core::settings::Settings;
use centrifuge_core::time::Instant;

use super::environment::{Environment, Incident};
use super::metrics::Table;
use super::observation::{self, Counted};
use super::ordered::ApplicationKeys;
use super::{Contender, REPORT_INTERVAL, SECOND};
use crate::world::queue::Queue;
use crate::world::rng::{Rng, mix};
use nodes::{OwnerNode, Timer};

const MILLISECOND: u64 = SECOND / 1_000;
/// How long a message takes, and an answer of the store.
const LATENCY: u64 = 2 * MILLISECOND;
/// The first Owners arrive within this time.
const ARRIVALS: u64 = 5 * SECOND;
/// How long a migration copies, at least and at most.
const COPYING: (u64, u64) = (SECOND, 15 * SECOND);
/// How long the last part of a migration takes, while the range is frozen.
const LAST_COPY: u64 = 200 * MILLISECOND;
/// An Owner counts anew from when so much of the report interval is over.
const MEASURE_AFTER: u64 = REPORT_INTERVAL - SECOND;
/// How often an Owner looks whether its load has shifted.
const GLANCE_INTERVAL: u64 = REPORT_INTERVAL / 6;
/// How often an Owner reports at once between two reports that are due.
const MAX_URGENT_REPORTS: u32 = 2;
/// Load is told in requests per this many seconds.
const PER_SECONDS: u128 = 1_000;

/// How the product is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineOptions {
    pub(super) partitioner: PartitionerKind,
    pub(super) load_policy: LoadPolicyKind,
    /// How many migrations in a thousand fail.
    pub(super) failing_migrations: u64,
    /// Say what is decided.
    pub(super) explains: bool,
    /// How much Trim may move, in percent of the usual.
    pub(super) churn_budget: u32,
}

/// The Manager, the Owners and what is on its way between them.
pub(super) struct Machines {
    options: MachineOptions,
    namespace: Namespace,
    manager_id: ManagerId,
    manager: ManagerMachine,
    manager_timer: Timer,
    /// What the Manager finds in its store.
    stored: Arc<ManagerState>,
    /// By number; `None`: not there, or gone.
    owners: Vec<Option<OwnerNode>>,
    by_session: BTreeMap<SessionId, usize>,
    queue: Queue<Event>,
    rng: Rng,
    now: u64,
}

/// Something that will happen.
#[derive(Clone, Debug)]
enum Event {
    /// Feed the Manager.
    Manager(ManagerEvent),
    ManagerWake(u64),
    /// Feed an Owner.
    Owner(usize, OwnerEvent),
    OwnerWake(usize, u64),
    OwnerStarts(usize),
    /// An Owner looks whether its load has shifted.
    OwnerGlances(usize),
    /// The last part of a copy reaches its destination.
    LastCopy {
        from: usize,
        to: SessionId,
        transfer: TransferId,
        range: KeyRange,
        source: Generation,
    },
    /// The time asked for is reached.
    Pause,
}

impl Machines {
    pub(super) fn new(options: MachineOptions, environment: &Environment) -> Machines {
        let mut rng = Rng::new(mix(environment.seed));
        let manager_id = ManagerId::from("manager");
        let arrival_pause = Duration::from_secs(5);
        let config = ManagerConfig { arrival_pause, ..ManagerConfig::new(manager_id.clone()) };
        let manager = ManagerMachine::new(config, Random::from_number(rng.next()));
        let namespace = Namespace::new("load").expect("a plain name");
        let mut machines = Machines {
            options,
            stored: Arc::new(stored(&namespace, options, environment.application_keys.kind())),
            namespace,
            manager_id,
            manager,
            manager_timer: Timer::default(),
            owners: Vec::new(),
            by_session: BTreeMap::new(),
            queue: Queue::default(),
            rng,
            now: 0,
        };
        machines.queue.push(0, Event::Manager(ManagerEvent::Start));
        for number in 0..environment.members.len() {
            let at = machines.rng.below(ARRIVALS);
            machines.queue.push(at, Event::OwnerStarts(number));
        }
        machines
    }

    fn happen(&mut self, event: Event, environment: &Environment) {
        match event {
            Event::Manager(event) => self.feed_manager(Some(event)),
            Event::ManagerWake(token) if self.manager_timer.rings(token) => self.feed_manager(None),
            Event::Owner(number, event) => {
                self.feed_owner(number, Some(event), environment);
            }
            Event::OwnerWake(number, token) => {
                let node = self.owners[number].as_mut();
                if node.is_some_and(|node| node.timer.rings(token)) {
                    self.feed_owner(number, None, environment);
                }
            }
            Event::OwnerStarts(number) => self.start_owner(number, environment),
            Event::OwnerGlances(number) => self.glance(number, environment),
            Event::LastCopy { from, to, transfer, range, source } => {
                self.end_copy((from, transfer), to, (range, source), environment);
            }
            Event::ManagerWake(_) | Event::Pause => {}
        }
    }

    fn feed_manager(&mut self, event: Option<ManagerEvent>) {
        let now = Instant(self.now);
        let output = match event {
            Some(event) => self.manager.on_event(now, event),
            None => self.manager.on_wake(now),
        };
        if let Some((at, token)) = self.manager_timer.set(output.wake, self.now) {
            self.queue.push(at, Event::ManagerWake(token));
        }
        for action in output.actions {
            self.perform_for_manager(action);
        }
    }

    fn perform_for_manager(&mut self, action: ManagerAction) {
        let event = match action {
            ManagerAction::ToOwner { to: StreamId(to), message } => return self.tell_owner(to, message),
            ManagerAction::Trimmed(news) if self.options.explains => {
                return eprintln!("{} s: {:?}, skips {:?}", self.now / SECOND, news.moves, news.skipped);
            }
            ManagerAction::Skip(why) if self.options.explains => {
                return eprintln!("{} s: {why:?}", self.now / SECOND);
            }
            ManagerAction::Committed { batch, .. } if self.options.explains => {
                return explain(self.now, &batch);
            }
            ManagerAction::Election(ElectionCommand::Campaign { request }) => {
                ManagerEvent::Election(ElectionEvent::Won { request, term: Term(2) })
            }
            ManagerAction::Election(ElectionCommand::Renew { request, .. }) => {
                ManagerEvent::Election(ElectionEvent::Renewed { request })
            }
            ManagerAction::Store(StoreCommand::Load { request }) => {
                let group = Arc::clone(&self.stored);
                ManagerEvent::Store(StoreEvent::Loaded { request, index: Index(1), group })
            }
            ManagerAction::Store(StoreCommand::Append { index, .. }) => {
                ManagerEvent::Store(StoreEvent::Appended { index })
            }
            _ => return,
        };
        self.queue.push(self.now + LATENCY, Event::Manager(event));
    }

    fn tell_owner(&mut self, to: u64, message: ManagerToOwner) {
        let event = OwnerEvent::FromManager { from: self.manager_id.clone(), message };
        self.queue.push(self.now + LATENCY, Event::Owner(to as usize, event));
    }

    fn start_owner(&mut self, number: usize, environment: &Environment) {
        let member = &environment.members[number];
        let random = Random::from_number(self.rng.next());
        let expects = environment.application_keys.kind().expected();
        let config = OwnerNode::config(member, &self.namespace, &self.manager_id, expects);
        let node = OwnerNode::new(config, random, self.now);
        self.by_session.insert(node.machine.session(), number);
        if self.owners.len() <= number {
            self.owners.resize_with(number + 1, || None);
        }
        self.owners[number] = Some(node);
        self.feed_owner(number, Some(OwnerEvent::Start), environment);
        self.queue.push(self.now + GLANCE_INTERVAL, Event::OwnerGlances(number));
    }

    fn glance(&mut self, number: usize, environment: &Environment) {
        let now = self.now;
        let Some(node) = self.owners[number].as_mut() else { return };
        // What was just measured cannot have shifted yet.
        let due = node.measured_at + GLANCE_INTERVAL;
        let next = if due > now { due } else { now + GLANCE_INTERVAL };
        self.queue.push(next, Event::OwnerGlances(number));
        if due > now {
            return;
        }
        count(node, now, environment);
        let elapsed = Duration::from_nanos(now - node.measured_at);
        if node.urgent_left > 0 && node.measured.is_outdated_by(&node.counters.counts(), elapsed) {
            node.urgent_left -= 1;
            let measured = measure(node, now, true, environment);
            self.feed_owner(number, Some(OwnerEvent::Load(measured)), environment);
        }
    }

    /// Feeds an event to an Owner, or wakes it, after what it counted if that is due; says whether it took a copy in.
    fn feed_owner(&mut self, number: usize, event: Option<OwnerEvent>, environment: &Environment) -> bool {
        let now = self.now;
        let Some(node) = self.owners.get_mut(number).and_then(Option::as_mut) else { return false };
        if now >= node.measured_at + MEASURE_AFTER {
            count(node, now, environment);
            node.urgent_left = MAX_URGENT_REPORTS;
            let measured = measure(node, now, false, environment);
            let output = node.machine.on_event(Instant(now), OwnerEvent::Load(measured));
            debug_assert!(output.actions.iter().all(|action| matches!(action, OwnerAction::Revoked(_))));
        }
        let output = match event {
            Some(event) => node.machine.on_event(Instant(now), event),
            None => node.machine.on_wake(Instant(now)),
        };
        if let Some((at, token)) = node.timer.set(output.wake, now) {
            self.queue.push(at, Event::OwnerWake(number, token));
        }
        let mut took_copy = false;
        for action in output.actions {
            took_copy |= matches!(action, OwnerAction::ImportNoted { .. });
            self.perform_for_owner(number, action);
        }
        took_copy
    }

    fn perform_for_owner(&mut self, number: usize, action: OwnerAction) {
        match action {
            OwnerAction::ToManager { message, .. } => {
                let event = ManagerEvent::FromOwner { from: StreamId(number as u64), message };
                self.queue.push(self.now + LATENCY, Event::Manager(event));
            }
            OwnerAction::StartTransfer { transfer, term, .. } => {
                let fails = self.rng.chance(self.options.failing_migrations);
                let event = if fails {
                    OwnerEvent::TransferFailed(transfer)
                } else {
                    OwnerEvent::TransferReady(transfer)
                };
                let at = self.now + self.rng.between(COPYING.0, COPYING.1);
                self.queue.push(at, Event::Owner(number, event));
                self.with_node(number, |node| node.terms.insert(transfer, term));
            }
            OwnerAction::Freeze { transfer, range, generation, to } => {
                self.freeze(number, transfer, (range, generation), to);
            }
            OwnerAction::Granted(grants) => {
                let now = self.now;
                let note = |node: &mut OwnerNode| {
                    grants.iter().for_each(|grant| node.held.insert(grant.range, now));
                };
                self.with_node(number, note);
            }
            OwnerAction::Revoked(gone) => {
                self.with_node(number, |node| gone.iter().for_each(|lease| node.held.remove(lease.range)));
            }
            OwnerAction::StopTransfer(transfer) => self.with_node(number, |node| {
                node.terms.remove(&transfer);
            }),
            OwnerAction::Drained => {
                self.queue.push(self.now + SECOND, Event::Owner(number, OwnerEvent::Leave));
            }
            OwnerAction::Left => self.owners[number] = None,
            _ => {}
        }
    }

    fn with_node<T>(&mut self, number: usize, act: impl FnOnce(&mut OwnerNode) -> T) {
        if let Some(node) = &mut self.owners[number] {
            act(node);
        }
    }

    fn freeze(
        &mut self,
        number: usize,
        transfer: TransferId,
        (range, source): (KeyRange, Generation),
        to: Option<Destination>,
    ) {
        let event = match to {
            Some(to) => Event::LastCopy { from: number, to: to.session, transfer, range, source },
            None => Event::Owner(number, OwnerEvent::Quiesced(transfer)),
        };
        self.queue.push(self.now + LAST_COPY, event);
    }

    /// The destination takes the copy, or does not, and the source hears of it.
    fn end_copy(
        &mut self,
        (from, transfer): (usize, TransferId),
        to: SessionId,
        (range, source): (KeyRange, Generation),
        environment: &Environment,
    ) {
        let node = self.owners[from].as_mut();
        let Some(term) = node.and_then(|node| node.terms.remove(&transfer)) else { return };
        let event = OwnerEvent::ImportReady { range, source, term };
        let destination = self.by_session.get(&to).copied();
        let took = destination.is_some_and(|number| self.feed_owner(number, Some(event), environment));
        let answer = if took {
            OwnerEvent::TransferDone { transfer, to }
        } else {
            OwnerEvent::TransferFailed(transfer)
        };
        self.queue.push(self.now + LATENCY, Event::Owner(from, answer));
    }
}

impl Contender for Machines {
    fn advance(&mut self, now: u64, incidents: &[Incident], environment: &Environment) {
        self.queue.push(now, Event::Pause);
        while let Some((at, event)) = self.queue.pop() {
            self.now = at.0;
            if matches!(event, Event::Pause) {
                break;
            }
            self.happen(event, environment);
        }
        for incident in incidents {
            match incident {
                Incident::LoadChanged => {}
                Incident::Crashed(number) => self.owners[*number] = None,
                Incident::Joined(number) => self.queue.push(now, Event::OwnerStarts(*number)),
                Incident::Draining(number) => {
                    self.queue.push(now, Event::Owner(*number, OwnerEvent::Drain));
                }
            }
        }
    }

    fn table(&self) -> Table {
        let Some(stored) = self.manager.group().and_then(|group| group.namespaces.get(&self.namespace))
        else {
            return vec![(KeyRange::ALL, None)];
        };
        let holder = |owner: Option<SessionId>| self.by_session.get(&owner?).copied();
        stored.table.iter().map(|(range, entry)| (range, holder(entry.owner))).collect()
    }
}

/// What the Manager finds: a namespace with these settings, in which nobody has anything.
fn stored(namespace: &Namespace, options: MachineOptions, kind: NamespaceKind) -> ManagerState {
    let settings = Settings {
        partitioner: options.partitioner,
        load_policy: options.load_policy,
        churn_budget: options.churn_budget,
        ..Settings::default()
    };
    let change =
        Change::Created { kind, settings: Arc::new(settings), log: Nonce(7), floor: Generation::ZERO };
    let record = Record::Namespace { namespace: namespace.clone(), change, reason: Reason::Joined };
    let mut group = ManagerState::default();
    group.apply(&Batch { term: Term(1), records: vec![record] });
    group
}

/// An Owner counts up to now.
fn count(node: &mut OwnerNode, now: u64, environment: &Environment) {
    let since = node.counted_at;
    node.counted_at = now;
    let from = |range: KeyRange| node.held.get(range.first()).map_or(now, |(_, at)| (*at).max(since));
    let ranges: Vec<(KeyRange, u64)> =
        node.machine.leases().iter().map(|(range, _)| (range, from(range))).collect();
    node.counters.count(&environment.history, environment.seed, &ranges, now);
}

/// What an Owner counted since it last told.
fn measure(node: &mut OwnerNode, now: u64, is_urgent: bool, environment: &Environment) -> LoadMeasurement {
    let elapsed = now - std::mem::replace(&mut node.measured_at, now);
    let mut counted = node.counters.take();
    if environment.application_keys != ApplicationKeys::Hashed {
        observation::note_quantiles(&mut counted, &environment.history, mix(environment.seed ^ now));
    }
    let loads = counted.into_iter().map(|counted| range_load(counted, elapsed)).collect();
    node.measured = LoadMeasurement { loads, span: Duration::from_nanos(elapsed), is_urgent };
    node.measured.clone()
}

/// What an Owner reports of a range. The only place that knows how heavy keys are told.
fn range_load(counted: Counted, elapsed: u64) -> RangeLoad {
    let rate = |count: u64| {
        let rate = u128::from(count) * PER_SECONDS * u128::from(SECOND) / u128::from(elapsed.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    let mut heavy: Vec<_> = counted.heavy.iter().map(|(key, count)| (*key, rate(*count))).collect();
    heavy.sort_unstable();
    RangeLoad { range: counted.range, load: rate(counted.count), heavy, quantiles: counted.quantiles }
}

/// Says which ranges begin to move, and which arrive.
fn explain(now: u64, batch: &Batch) {
    for record in &batch.records {
        let Record::Namespace { change, reason, .. } = record else { continue };
        if matches!(change, Change::Recalled { .. } | Change::Granted { .. }) {
            eprintln!("{} ms: {change:?} {reason:?}", now / MILLISECOND);
        }
    }
}
