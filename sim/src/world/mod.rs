//! The seeded world: real machines on nodes with clocks, an unkind network, a store that fails, and honest
//! applications; one queue of events in real time, and an oracle that sees every one of them.

mod ambush;
mod app;
mod dice;
mod drift;
mod faults;
mod heal;
mod host;
mod lookup_node;
mod manager_node;
mod network;
mod operations;
mod operators;
mod owner_node;
mod plan;
mod queue;
mod store;
mod tally;
mod witness;

use std::collections::BTreeMap;
use std::time::Duration;

use centrifuge_core::plant::{Plant, Plants};
use centrifuge_core::random::Random;

use crate::oracle::Oracle;
use crate::seen::{Node, Seen, TrueTime, Violation};
use crate::trace::Trace;

use ambush::Moment;
use dice::{Dice, mix};
use host::{Host, Ring};
use lookup_node::LookupProcess;
use manager_node::ManagerProcess;
use network::{Network, Packet};
use owner_node::OwnerProcess;
use plan::{Plan, SECOND};
use queue::{Event, Queue, Undo};
use store::Store;
use tally::{Fault, Tally};
use witness::Witness;

pub use drift::{DriftOutcome, drift_control};

/// What a run is asked for besides its seed.
#[derive(Debug, Default)]
pub struct Options {
    /// The fault planted in the machines, if one is.
    pub plant: Option<Plant>,
    /// Where the trace goes.
    pub trace: Trace,
}

/// What became of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The sentence that does not hold, if there is one.
    pub failure: Option<Failure>,
    /// How much time passed in the world.
    pub simulated: Duration,
    /// How many events happened.
    pub events: u64,
    /// How often each fault happened.
    pub faults: BTreeMap<&'static str, u64>,
    /// Stands for every event: two runs of a seed have the same.
    pub digest: u64,
    /// The lines that were kept, if they were.
    pub trace: Trace,
}

/// A violation and what explains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The violation.
    pub violation: Violation,
    /// What happened to the keys concerned.
    pub history: String,
}

/// The most events that may happen at one instant before the machines are taken to spin.
const MOST_AT_ONCE: u32 = 100_000;

/// One world on its way through one seed.
pub struct World {
    seed: u64,
    plan: Plan,
    plants: Plants,
    now: TrueTime,
    queue: Queue,
    dice: Dice,
    network: Network,
    store: Store,
    managers: Vec<Host<ManagerProcess>>,
    owners: Vec<Host<OwnerProcess>>,
    lookups: Vec<Host<LookupProcess>>,
    witness: Witness,
    tally: Tally,
    trace: Trace,
    /// Whether faults still happen.
    faults_happen: bool,
    /// What an armed fault waits for.
    ambush: Option<Moment>,
    /// Nodes that stay dead when everything heals.
    stay_dead: Vec<Node>,
    /// By namespace and probe key: whether it ever had state.
    known: Vec<Vec<bool>>,
    lineages: u64,
    requests: u64,
    events: u64,
    at_once: u32,
    digest: u64,
}

impl World {
    /// The world of a seed.
    #[must_use]
    pub fn new(seed: u64, options: Options) -> World {
        let mut dice = Dice::new(mix(seed));
        let plan = Plan::draw(&mut dice);
        World::from_plan(seed, plan, dice, options)
    }

    fn from_plan(seed: u64, plan: Plan, mut dice: Dice, options: Options) -> World {
        let probes = plan.namespaces.iter().map(|space| (space.name.clone(), space.keys.clone())).collect();
        let oracle = Oracle::new(probes, witness::limits(&plan));
        World {
            seed,
            plants: options.plant.map_or(Plants::NONE, Plants::only),
            now: TrueTime(0),
            queue: Queue::default(),
            network: Network::new(plan.layout(), plan.network, dice.fork()),
            store: Store::new(plan.store.clone(), plan.manager_ids.clone(), dice.fork()),
            managers: plan.managers.iter().map(|manager| Host::new(manager.clock)).collect(),
            owners: plan.owners.iter().map(|owner| Host::new(owner.clock)).collect(),
            lookups: plan.lookups.iter().map(|lookup| Host::new(lookup.clock)).collect(),
            witness: Witness::new(oracle),
            tally: Tally::default(),
            trace: options.trace,
            faults_happen: true,
            ambush: None,
            stay_dead: Vec::new(),
            known: plan.namespaces.iter().map(|space| vec![false; space.keys.len()]).collect(),
            lineages: 0,
            requests: 0,
            events: 0,
            at_once: 0,
            digest: seed,
            plan,
            dice,
        }
    }

    /// Runs until the end or the first violation.
    #[must_use]
    pub fn run(mut self) -> Outcome {
        self.begin();
        while !self.witness.has_seen_enough() {
            let (at, event) = self.queue.pop().expect("the end is planned");
            self.pass_time(at);
            if self.trace.is_on() {
                self.describe(&event);
            }
            self.digest(event.code());
            match event {
                Event::End => {
                    self.witness.see(self.now, &Seen::Ended);
                    break;
                }
                event => self.happen(event),
            }
        }
        self.conclude()
    }

    fn begin(&mut self) {
        if self.trace.is_on() {
            self.trace.line(self.now, format_args!("{:#?}", self.plan));
        }
        for number in 0..self.managers.len() {
            self.plan_start(Node::Manager(number), 2 * SECOND);
        }
        for number in 0..self.owners.len() {
            if self.plan.owners[number].part == plan::Part::Regular {
                self.plan_start(Node::Owner(number), 10 * SECOND);
            }
        }
        for number in 0..self.lookups.len() {
            self.plan_start(Node::Lookup(number), 10 * SECOND);
        }
        for namespace in 0..self.plan.namespaces.len() {
            self.queue.push(20 * SECOND, Event::Operation { namespace });
            if self.plan.apps.loads {
                self.queue.push(40 * SECOND, Event::MeasureLoad { namespace });
            }
        }
        self.queue.push(SECOND, Event::Tend);
        self.queue.push(15 * SECOND, Event::WakeEarly);
        self.queue.push(self.plan.faults.first, Event::NextFault);
        self.queue.push(self.plan.safety, Event::FaultsEnd);
        self.queue.push(self.plan.safety + self.plan.convergence, Event::End);
    }

    fn plan_start(&mut self, node: Node, within: u64) {
        let at = self.now.0 + self.dice.below(within);
        self.queue.push(at, Event::Undo(Undo::Start { node }));
    }

    fn pass_time(&mut self, at: TrueTime) {
        self.events += 1;
        self.at_once = if at == self.now { self.at_once + 1 } else { 0 };
        assert!(self.at_once < MOST_AT_ONCE, "the machines spin at {at} in seed {}", self.seed);
        self.now = at;
    }

    fn happen(&mut self, event: Event) {
        if let Some(node) = event.receiver()
            && self.stands_still(node)
        {
            return self.keep(node, event);
        }
        match event {
            Event::Packet(packet) => self.deliver(*packet),
            Event::Wake { node, token, late } => self.ring(node, token, late),
            Event::StoreRequest { manager, life, request } => self.reach_store(manager, life, request),
            Event::StoreAnswer { manager, life, answer } => self.hear_store(manager, life, answer),
            Event::StoreTimeout { manager, life, number } => self.give_up_on_store(manager, life, number),
            Event::App { owner, life, event } => self.application(owner, life, event),
            Event::Operation { namespace } => self.operation(namespace),
            Event::MeasureLoad { namespace } => self.measure_load(namespace),
            Event::WakeEarly => self.wake_somebody_early(),
            Event::NextFault => self.next_fault(),
            Event::Undo(undo) => self.undo(undo),
            Event::Tend => self.tend(),
            Event::FaultsEnd => self.end_faults(),
            Event::End => unreachable!("the end is not for any node"),
        }
    }

    fn deliver(&mut self, packet: Packet) {
        // After the faults have ended no straggler of theirs disturbs what must converge.
        if !self.faults_happen
            && self.now.0 > self.plan.safety + 5 * SECOND
            && packet.sent.0 < self.plan.safety
        {
            return;
        }
        match packet.to {
            Node::Manager(number) => self.deliver_to_manager(number, packet),
            Node::Owner(number) => self.deliver_to_owner(number, packet),
            Node::Lookup(number) => self.deliver_to_lookup(number, packet),
        }
    }

    fn send(&mut self, from: Node, to: Node, body: network::Body) {
        let packet = Packet { from, to, sent: self.now, body };
        self.network.send(packet, &mut self.queue, &mut self.tally);
    }

    /// A node's timer rings: perhaps too early, perhaps late, because no machine may trust it.
    fn ring(&mut self, node: Node, token: u32, late: bool) {
        let (now, stands_still) = (self.now, self.stands_still(node));
        let ring = self.with_alarm(node, |alarm| alarm.ring(token, now));
        match ring {
            Ring::Stale => {}
            Ring::Again(at) => self.plan_ring(node, at, false),
            // It is found overdue when the process goes on.
            Ring::Due if stands_still => {}
            Ring::Due if !late && self.is_late() => {
                let at = now.0 + self.dice.spread(1_000, self.plan.late_wakes.1);
                self.with_alarm(node, |alarm| alarm.plan_at(at));
                self.plan_ring(node, at, true);
            }
            Ring::Due => self.wake(node),
        }
    }

    fn is_late(&mut self) -> bool {
        let late = self.faults_happen && self.dice.chance(self.plan.late_wakes.0);
        if late {
            self.tally.count(Fault::LateWake);
        }
        late
    }

    fn plan_ring(&mut self, node: Node, at: u64, late: bool) {
        let token = self.with_alarm(node, |alarm| alarm.token());
        self.queue.push(at, Event::Wake { node, token, late });
    }

    fn wake(&mut self, node: Node) {
        self.with_alarm(node, host::Alarm::clear);
        match node {
            Node::Manager(number) => self.wake_manager(number),
            Node::Owner(number) => self.wake_owner(number),
            Node::Lookup(number) => self.wake_lookup(number),
        }
    }

    /// A wake that comes before its time must change nothing.
    fn wake_somebody_early(&mut self) {
        let next = self.now.0 + self.dice.between(5 * SECOND, 30 * SECOND);
        self.queue.push(next, Event::WakeEarly);
        let nodes = self.running_nodes();
        if nodes.is_empty() {
            return;
        }
        let node = self.dice.pick(&nodes);
        let wanted = self.with_alarm(node, |alarm| alarm.wanted());
        if wanted.is_some_and(|wanted| self.read_clock(node) < wanted) {
            self.tally.count(Fault::EarlyWake);
            self.wake_early(node, wanted);
        }
    }

    fn with_alarm<T>(&mut self, node: Node, act: impl FnOnce(&mut host::Alarm) -> T) -> T {
        act(match node {
            Node::Manager(number) => &mut self.managers[number].alarm,
            Node::Owner(number) => &mut self.owners[number].alarm,
            Node::Lookup(number) => &mut self.lookups[number].alarm,
        })
    }

    fn read_clock(&self, node: Node) -> centrifuge_core::time::Instant {
        let clock = match node {
            Node::Manager(number) => &self.managers[number].clock,
            Node::Owner(number) => &self.owners[number].clock,
            Node::Lookup(number) => &self.lookups[number].clock,
        };
        clock.read(self.now)
    }

    fn stands_still(&self, node: Node) -> bool {
        match node {
            Node::Manager(number) => self.managers[number].stands_still(),
            Node::Owner(number) => self.owners[number].stands_still(),
            Node::Lookup(number) => self.lookups[number].stands_still(),
        }
    }

    fn is_running(&self, node: Node) -> bool {
        match node {
            Node::Manager(number) => self.managers[number].is_running(),
            Node::Owner(number) => self.owners[number].is_running(),
            Node::Lookup(number) => self.lookups[number].is_running(),
        }
    }

    fn life(&self, node: Node) -> u32 {
        match node {
            Node::Manager(number) => self.managers[number].life,
            Node::Owner(number) => self.owners[number].life,
            Node::Lookup(number) => self.lookups[number].life,
        }
    }

    fn keep(&mut self, node: Node, event: Event) {
        match node {
            Node::Manager(number) => self.managers[number].keep(event),
            Node::Owner(number) => self.owners[number].keep(event),
            Node::Lookup(number) => self.lookups[number].keep(event),
        }
    }

    fn nodes(&self) -> impl Iterator<Item = Node> + use<> {
        let (managers, owners, lookups) = (self.managers.len(), self.owners.len(), self.lookups.len());
        let managers = (0..managers).map(Node::Manager);
        managers.chain((0..owners).map(Node::Owner)).chain((0..lookups).map(Node::Lookup))
    }

    fn running_nodes(&self) -> Vec<Node> {
        self.nodes().filter(|node| self.is_running(*node)).collect()
    }

    /// A generator for one process: no two lives share theirs.
    fn random(&mut self) -> Random {
        Random::from_number(self.dice.next())
    }

    /// Adds something to what stands for the whole run.
    fn digest(&mut self, what: u64) {
        self.digest = mix(self.digest.rotate_left(7) ^ self.now.0 ^ what.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// Adds what a machine answered.
    fn digest_output<A>(&mut self, output: &centrifuge_core::machine::Output<A>) {
        let wake = output.wake.map_or(0, |wake| wake.0);
        self.digest(wake ^ (output.actions.len() as u64) << 56);
    }

    fn describe(&mut self, event: &Event) {
        match event {
            Event::Packet(packet) => {
                let Packet { from, to, body, .. } = &**packet;
                self.trace.line(self.now, format_args!("{from:?} -> {to:?}: {body:?}"));
            }
            event => self.trace.line(self.now, format_args!("{event:?}")),
        }
    }

    fn describe_actions<A: std::fmt::Debug>(&mut self, node: Node, actions: &[A]) {
        for action in actions {
            self.trace.line(self.now, format_args!("    {node:?} {action:?}"));
        }
    }

    fn conclude(self) -> Outcome {
        Outcome {
            seed: self.seed,
            failure: self.witness.failure(),
            simulated: Duration::from_nanos(self.now.0),
            events: self.events,
            faults: self.tally.by_name(),
            digest: self.digest,
            trace: self.trace,
        }
    }
}
