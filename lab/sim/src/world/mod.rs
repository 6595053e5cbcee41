//! The seeded world: real machines on nodes with clocks, an unkind network, a store that fails, and honest
//! applications; one queue of events in real time, and an oracle that sees every one of them.

mod ambush;
mod app;
mod crowds;
mod cuts;
mod death;
mod diskless;
mod draw;
mod drift;
mod election_node;
mod faults;
mod host;
mod kinds;
mod lookup_node;
mod manager_node;
pub(crate) mod network;
mod operators;
mod owner_node;
mod plan;
pub(crate) mod queue;
mod rack;
pub(crate) mod rng;
mod store;
mod tally;
mod trim;
mod witness;

use std::collections::BTreeMap;
use std::time::Duration;

use centrifuge_core::id::Generation;
use centrifuge_core::injected_bug::{Bug, inject};
use centrifuge_core::key::Key;
use centrifuge_core::machine::Output;
use centrifuge_core::random::Random;

use crate::flease_world::clock::SlewingClock;
use crate::oracle::Oracle;
use crate::seen::{Node, Seen, TrueTime, Violation};
use crate::trace::Trace;

use ambush::Moment;
use app::{AppEvent, Copy, CopyAnswer};
use election_node::peer_of;
use faults::{is_lookup, is_owner};
use host::{Alarm, Condition, Host, Timer, with_host};
use lookup_node::LookupProcess;
use manager_node::ManagerProcess;
use network::{Body, Network, Packet, Places, Profile};
use owner_node::OwnerProcess;
use plan::{
    DisklessPlan, FaultPlan, MILLISECOND, ManagerPlan, NamespacePlan, Part, Plan, SECOND, StorePlan,
    convergence, longest_leader_hold,
};
use queue::{Event, Queue, Undo};
use rng::{Rng, mix};
use store::{Ailments, Store, StoreAnswer, StoreRequest};
use tally::{Fault, Tally};
use witness::Witness;

pub use drift::{DriftOutcome, drift_control};

/// What a run is asked for besides its seed.
#[derive(Debug, Default)]
pub struct Options {
    /// The bug injected in the machines, if one is.
    pub bug: Option<Bug>,
    /// Where the trace goes.
    pub trace: Trace,
    /// How large the world is.
    pub size: Size,
}

/// How large a world is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// As the seed draws it: a handful of Owners.
    #[default]
    Usual,
    /// 250 Owners, of which racks of 50 die at once (PRS §7.2).
    Rack,
    /// A handful of Owners, and Managers that have no store (ADR 15).
    Diskless,
    /// A handful of Owners, and load that Trim balances (ADR 23).
    Trim,
    /// A dozen Owners, and a key that kills whoever has it (ADR 24).
    Death,
}

/// What became of a run.
#[derive(Debug, Default)]
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
    /// How long each gap lasted in which a probe key had no owner, by cause.
    pub gaps: BTreeMap<&'static str, Vec<Duration>>,
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
    bug: Option<Bug>,
    now: TrueTime,
    queue: Queue<Event>,
    rng: Rng,
    network: Network,
    store: Store,
    /// By Manager that has no store: its synchronised clock.
    synchronised: Vec<SlewingClock>,
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
    /// Packets that arrived once and may do so again.
    kept: Vec<Packet>,
    /// When the leader last changed on purpose.
    leader_changed: u64,
    lineages: u64,
    /// By namespace and key: the highest number that a receiver of answers has seen.
    fences: BTreeMap<(usize, Key), Generation>,
    requests: u64,
    events: u64,
    at_once: u32,
    digest: u64,
}

impl World {
    /// The world of a seed.
    pub fn new(seed: u64, options: Options) -> World {
        let mut rng = Rng::new(mix(seed));
        let plan = match options.size {
            Size::Usual => {
                let mut plan = Plan::draw(&mut rng);
                plan.draw_death_beside(&mut Rng::new(mix(!seed)));
                plan
            }
            Size::Death => Plan::draw_death(&mut rng),
            Size::Rack => Plan::draw_rack(&mut rng),
            Size::Diskless => Plan::draw_diskless(&mut rng),
            Size::Trim => Plan::draw_trim(&mut rng),
        };
        World::from_plan(seed, plan, rng, options)
    }

    fn from_plan(seed: u64, plan: Plan, mut rng: Rng, options: Options) -> World {
        let probes = plan.namespaces.iter().map(|space| (space.name.clone(), space.keys.clone())).collect();
        let oracle = Oracle::new(probes, witness::limits(&plan));
        let network = Network::new(plan.layout(), plan.network, rng.fork());
        let store = Store::new(plan.store.clone(), plan.manager_ids.clone(), rng.fork());
        World {
            seed,
            bug: options.bug,
            now: TrueTime(0),
            queue: Queue::default(),
            network: match &plan.diskless {
                Some(diskless) => network.with_peers(diskless.network),
                None => network,
            },
            store,
            synchronised: match plan.diskless {
                Some(_) => vec![SlewingClock::steady(0); plan.managers.len()],
                None => Vec::new(),
            },
            managers: plan.managers.iter().map(|manager| Host::new(manager.clock)).collect(),
            owners: plan.owners.iter().map(|owner| Host::new(owner.clock)).collect(),
            lookups: plan.lookups.iter().map(|lookup| Host::new(lookup.clock)).collect(),
            witness: Witness::new(oracle),
            tally: Tally::default(),
            trace: options.trace,
            faults_happen: true,
            ambush: None,
            stay_dead: Vec::new(),
            kept: Vec::new(),
            leader_changed: 0,
            lineages: 0,
            fences: BTreeMap::new(),
            requests: 0,
            events: 0,
            at_once: 0,
            digest: seed,
            plan,
            rng,
        }
    }

    /// Runs until the end or the first violation.
    pub fn run(mut self) -> Outcome {
        let _bug = inject(self.bug);
        self.begin();
        while !self.witness.has_seen_enough() {
            let (at, event) = self.queue.pop().expect("the end is planned");
            self.pass_time(at);
            self.describe(&event);
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
        self.trace.line(self.now, format_args!("{:#?}", self.plan));
        for number in 0..self.managers.len() {
            self.plan_start(Node::Manager(number), 2 * SECOND);
        }
        for number in 0..self.owners.len() {
            if matches!(self.plan.owners[number].part, plan::Part::Regular | plan::Part::Misfit) {
                self.plan_start(Node::Owner(number), 10 * SECOND);
            }
        }
        for number in 0..self.lookups.len() {
            self.plan_start(Node::Lookup(number), 10 * SECOND);
        }
        for namespace in 0..self.plan.namespaces.len() {
            self.queue.push(20 * SECOND, Event::Operation { namespace });
            if self.plan.apps.loads || self.plan.load.is_some() {
                self.queue.push(40 * SECOND, Event::MeasureLoad { namespace });
            }
        }
        if self.plan.diskless.is_some() {
            self.queue.push(0, Event::Turn);
        }
        self.begin_death();
        self.queue.push(SECOND, Event::Tend);
        self.queue.push(15 * SECOND, Event::WakeEarly);
        self.queue.push(self.plan.faults.first, Event::NextFault);
        self.queue.push(self.plan.safety, Event::FaultsEnd);
        self.queue.push(self.plan.safety + self.plan.convergence, Event::End);
    }

    fn plan_start(&mut self, node: Node, within: u64) {
        let at = self.now.0 + self.rng.below(within);
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
            Event::Wake { node, token, late } => self.ring(Timer::Machine(node), token, late),
            Event::StoreRequest { manager, life, request } => self.reach_store(manager, life, request),
            Event::StoreAnswer { manager, life, answer } => self.hear_store(manager, life, answer),
            Event::StoreTimeout { manager, life, number } => self.give_up_on_store(manager, life, number),
            Event::ElectionRequest { manager, life, request } => self.reach_election(manager, life, request),
            Event::ElectionWake { manager, life, token, late } => {
                if self.managers[manager].life == life {
                    self.ring(Timer::Election(manager), token, late);
                }
            }
            Event::Turn => self.turn_clocks(),
            Event::WatchEnds { manager, life, watch } => self.notice_end(manager, life, *watch),
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
        // Packets about who leads are many, and would leave no room for others.
        let kept = if matches!(packet.body, network::Body::Flease(_)) {
            self.plan.kept / 10
        } else {
            self.plan.kept
        };
        if self.faults_happen && self.rng.chance(kept) {
            self.keep_for_replay(&packet);
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

    /// A generator for one process: no two lives share theirs.
    fn random(&mut self) -> Random {
        Random::from_number(self.rng.next())
    }

    /// Adds something to what stands for the whole run.
    fn digest(&mut self, what: u64) {
        self.digest = mix(self.digest.rotate_left(7) ^ self.now.0 ^ what.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    /// Adds what a machine answered, and writes it down.
    fn note_output<A: std::fmt::Debug>(&mut self, node: Node, output: &Output<A>) {
        let wake = output.wake.map_or(0, |wake| wake.0);
        self.digest(wake ^ (output.actions.len() as u64) << 56);
        for action in &output.actions {
            self.trace.line(self.now, format_args!("    {node:?} {action:?}"));
        }
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

    fn conclude(self) -> Outcome {
        Outcome {
            seed: self.seed,
            gaps: self.witness.gaps(),
            failure: self.witness.failure(),
            simulated: Duration::from_nanos(self.now.0),
            events: self.events,
            faults: self.tally.by_name(),
            digest: self.digest,
            trace: self.trace,
        }
    }
}
