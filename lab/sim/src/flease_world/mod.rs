//! The seeded world of Flease: real machines on peers whose clocks slew within epsilon, an unkind network, processes that
//! die and come back with nothing, and applications that want cells and give them up.
//!
//! First everything goes wrong that may, and no cell may have two holders. Then faults end, and every cell must be held.

pub(crate) mod clock;
pub(crate) mod faults;
mod network;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use centrifuge_core::flease::{
    Body, Cell, EndedReason, FleaseAction, FleaseConfig, FleaseEvent, FleaseMachine, HeldCell, Packet, PeerId,
};
use centrifuge_core::injected_bug::{Bug, inject};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;

use crate::invariants::at_most_one_holder::{self, Holding};
use crate::invariants::epochs_rise::EpochsRise;
use crate::invariants::free_cells_are_acquired::FreeCellsAreAcquired;
use crate::seen::{TrueTime, Violation};
use crate::trace::Trace;
use crate::world::queue::Queue;
use crate::world::rng::{Rng, mix};
use crate::world::{Failure, Options, Outcome};

use clock::SlewingClock;
use network::Network;
use plan::{MILLISECOND, Plan};

/// The most events that may happen at one instant before the machines are taken to spin.
const MOST_AT_ONCE: u32 = 10_000;

/// One world on its way through one seed.
pub struct FleaseWorld {
    seed: u64,
    plan: Plan,
    bug: Option<Bug>,
    now: TrueTime,
    queue: Queue<Event>,
    rng: Rng,
    network: Network,
    peers: Vec<Peer>,
    epochs: EpochsRise,
    acquired: FreeCellsAreAcquired,
    violation: Option<Violation>,
    tally: BTreeMap<&'static str, u64>,
    trace: Trace,
    faults_happen: bool,
    /// Who was paused in the middle of a round, until somebody else acquires a cell.
    struck: Option<usize>,
    events: u64,
    at_once: u32,
    digest: u64,
}

/// A place where processes run, with a clock that outlives them.
#[derive(Debug)]
struct Peer {
    clock: SlewingClock,
    /// Which process this is or was.
    life: u32,
    machine: Option<FleaseMachine>,
    /// When the process wants to be woken; another token makes earlier plans void.
    wake: Option<Instant>,
    token: u32,
    is_paused: bool,
    /// What arrived while the process was paused.
    waiting: Vec<Event>,
    /// Whether it stays dead when everything heals.
    stays_dead: bool,
}

/// Something that will happen. Peers go by their place, processes also by their life.
#[derive(Clone, Debug)]
enum Event {
    /// A packet arrives at whoever runs there then.
    Packet { from: usize, to: usize, packet: Packet },
    /// A process wanted to be woken.
    Wake { peer: usize, life: u32, token: u32 },
    /// An application changes its mind about a cell.
    Whim,
    /// A clock turns to another offset.
    Turn,
    /// The next fault is due.
    Fault,
    /// A dead peer starts a process.
    Start { peer: usize },
    /// A paused process goes on.
    Resume { peer: usize, life: u32 },
    /// A cut heals.
    Heal { cut: u32 },
    /// The network is as usual again.
    Calm,
    /// No fault happens any more.
    FaultsEnd,
    /// From now on every cell must be held, and stay so.
    Settled,
    /// The run is over.
    End,
}

impl FleaseWorld {
    /// The world of a seed.
    pub fn new(seed: u64, options: Options) -> FleaseWorld {
        let mut rng = Rng::new(mix(seed));
        let plan = Plan::draw(&mut rng);
        let half = plan::nanos(plan.config.epsilon) / 2;
        let peer = |rng: &mut Rng| Peer {
            clock: SlewingClock::steady(faults::offset(rng, half)),
            life: 0,
            machine: None,
            wake: None,
            token: 0,
            is_paused: false,
            waiting: Vec::new(),
            stays_dead: false,
        };
        FleaseWorld {
            seed,
            bug: options.bug,
            now: TrueTime(0),
            queue: Queue::default(),
            network: Network::new(plan.network, rng.fork()),
            peers: plan.config.peers.iter().map(|_| peer(&mut rng)).collect(),
            epochs: EpochsRise::default(),
            acquired: FreeCellsAreAcquired::default(),
            violation: None,
            tally: BTreeMap::new(),
            trace: options.trace,
            faults_happen: true,
            struck: None,
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
        while self.violation.is_none() {
            let (at, event) = self.queue.pop().expect("the end is planned");
            self.pass_time(at);
            self.trace.line(at, format_args!("{event:?}"));
            if matches!(event, Event::End) {
                break;
            }
            self.happen(event);
        }
        self.conclude()
    }

    fn begin(&mut self) {
        self.trace.line(self.now, format_args!("{:#?}", self.plan));
        for peer in 0..self.peers.len() {
            let at = self.rng.below(100 * MILLISECOND);
            self.queue.push(at, Event::Start { peer });
        }
        let Plan { faults_end, settled, end, fault_every, .. } = self.plan;
        let whole = plan::nanos(self.plan.config.recovery);
        self.queue.push(0, Event::Turn);
        self.queue.push(whole / 2, Event::Whim);
        self.queue.push(whole + self.rng.below(fault_every), Event::Fault);
        self.queue.push(whole + faults_end, Event::FaultsEnd);
        self.queue.push(whole + settled, Event::Settled);
        self.queue.push(whole + end, Event::End);
    }

    fn pass_time(&mut self, at: TrueTime) {
        self.events += 1;
        self.at_once = if at == self.now { self.at_once + 1 } else { 0 };
        assert!(self.at_once < MOST_AT_ONCE, "the machines spin at {at} in seed {}", self.seed);
        self.now = at;
        self.digest = mix(self.digest.rotate_left(7) ^ at.0);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Packet { to: peer, .. } | Event::Wake { peer, .. } if self.peers[peer].is_paused => {
                self.peers[peer].waiting.push(event);
            }
            Event::Packet { from, to, packet } => {
                let from = self.plan.config.peers[from];
                self.step(to, Some(FleaseEvent::Receive { from, packet }));
            }
            Event::Wake { peer, life, token } => self.ring(peer, life, token),
            Event::Whim => self.whim(),
            Event::Turn => self.turn(),
            Event::Fault => self.fault(),
            Event::Start { peer } => self.start(peer),
            Event::Resume { peer, life } => self.resume(peer, life),
            Event::Heal { cut } => self.network.heal(cut),
            Event::Calm => self.network.calm(),
            Event::FaultsEnd => self.end_faults(),
            Event::Settled => self.settle(),
            Event::End => unreachable!("the run is over then"),
        }
    }

    /// Starts a process at a place where none runs. What its application wants it says at once.
    fn start(&mut self, peer: usize) {
        if self.peers[peer].machine.is_some() || self.peers[peer].stays_dead {
            return;
        }
        let config = FleaseConfig { me: self.plan.config.peers[peer], ..self.plan.config.clone() };
        let random = Random::from_number(self.rng.next());
        self.peers[peer].machine = Some(FleaseMachine::new(config, random));
        self.peers[peer].life += 1;
        self.peers[peer].is_paused = false;
        self.step(peer, Some(FleaseEvent::Start));
        for cell in self.cells_of(peer) {
            if !self.faults_happen || self.rng.chance(700) {
                self.step(peer, Some(FleaseEvent::Acquire(cell)));
            }
        }
    }

    /// The cells that a peer has a vote on.
    fn cells_of(&self, peer: usize) -> Vec<Cell> {
        let votes = |cell: &&Cell| self.plan.config.members(cell).contains(&self.id(peer));
        self.plan.cells.iter().filter(votes).cloned().collect()
    }

    fn id(&self, peer: usize) -> PeerId {
        self.plan.config.peers[peer]
    }

    /// Wakes a process whose time has come by its own clock, which may have turned since that was planned.
    fn ring(&mut self, peer: usize, life: u32, token: u32) {
        let place = &self.peers[peer];
        if (place.life, place.token) != (life, token) || place.machine.is_none() {
            return;
        }
        let Some(wake) = place.wake else { return };
        if place.clock.read(self.now) < wake {
            return self.plan_wake(peer);
        }
        self.step(peer, None);
    }

    fn plan_wake(&mut self, peer: usize) {
        let place = &mut self.peers[peer];
        place.token += 1;
        let Some(wake) = place.wake else { return };
        let at = place.clock.when(wake).0.max(self.now.0);
        let is_late = self.faults_happen && self.rng.chance(20);
        let late = if is_late { self.rng.below(plan::nanos(self.plan.config.lease) / 4) } else { 0 };
        let (life, token) = (place.life, place.token);
        self.queue.push(at + late, Event::Wake { peer, life, token });
    }

    /// Feeds an event, or a wake, to a process, and judges what it believes afterwards.
    fn step(&mut self, peer: usize, event: Option<FleaseEvent>) {
        let local = self.peers[peer].clock.read(self.now);
        let cells = self.plan.cells.clone();
        let Some(machine) = &mut self.peers[peer].machine else { return };
        let before: Vec<Option<HeldCell>> = cells.iter().map(|cell| machine.held(cell, local)).collect();
        let output = match event {
            Some(event) => machine.on_event(local, event),
            None => machine.on_wake(local),
        };
        let after: Vec<Option<HeldCell>> = cells.iter().map(|cell| machine.held(cell, local)).collect();
        self.digest = mix(self.digest ^ output.wake.map_or(0, |wake| wake.0) ^ output.actions.len() as u64);
        for ((cell, before), after) in cells.iter().zip(before).zip(after) {
            if let Some(held) = after.filter(|_| before != after) {
                self.judge(peer, cell, before, held);
            }
        }
        self.perform(peer, output);
    }

    /// Somebody holds a cell, or holds it for longer: everybody else must not.
    fn judge(&mut self, peer: usize, cell: &Cell, before: Option<HeldCell>, held: HeldCell) {
        let life = self.peers[peer].life;
        let holding = Holding { peer, life, epoch: held.epoch };
        let before = before.map(|before| before.epoch);
        let rises = self.epochs.see(self.now, cell, before, holding);
        let alone = at_most_one_holder::judge(self.now, cell, &self.holders(cell));
        self.violation = self.violation.take().or(alone.err()).or(rises.err());
        let is_new = before != Some(held.epoch);
        self.count(if is_new { "acquired" } else { "renewed" });
        if is_new {
            self.perhaps_ambush(peer);
            self.finish_strike(peer);
        }
    }

    /// All who hold a cell now, each by its own clock; also those who are paused, for they do not know it.
    fn holders(&self, cell: &Cell) -> Vec<Holding> {
        let holds = |(peer, place): (usize, &Peer)| {
            let held = place.machine.as_ref()?.held(cell, place.clock.read(self.now))?;
            Some(Holding { peer, life: place.life, epoch: held.epoch })
        };
        self.peers.iter().enumerate().filter_map(holds).collect()
    }

    fn perform(&mut self, peer: usize, output: Output<FleaseAction>) {
        for action in output.actions {
            self.trace.line(self.now, format_args!("    {peer} {action:?}"));
            match action {
                FleaseAction::Send { to, packet } => {
                    if packet.messages.iter().any(|message| message.body == Body::Read) {
                        self.perhaps_strike_mid_round(peer);
                    }
                    let to = self.plan.config.peers.binary_search(&to).expect("it is a peer");
                    self.network.send(self.now, (peer, to), packet, &mut self.queue, &mut self.tally);
                }
                FleaseAction::Ended { cell, why: EndedReason::Expired, .. } => {
                    let verdict = self.acquired.lost(self.now, &cell, peer);
                    self.violation = self.violation.take().or(verdict.err());
                    self.count("expired");
                }
                FleaseAction::ClockApart { .. } => {
                    let what = format!("peer {peer} takes its clock for apart, which is within epsilon");
                    self.violation.get_or_insert(Violation::new("L3", self.now, what));
                }
                _ => {}
            }
        }
        self.peers[peer].wake = output.wake;
        self.plan_wake(peer);
    }

    fn settle(&mut self) {
        let is_held = |cell: &&Cell| !self.holders(cell).is_empty();
        let held: BTreeSet<Cell> = self.plan.cells.iter().filter(is_held).cloned().collect();
        let verdict = self.acquired.settle(self.now, &self.plan.cells, &held);
        self.violation = self.violation.take().or(verdict.err());
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    fn conclude(self) -> Outcome {
        let failure = self.violation.map(|violation| Failure { violation, history: String::new() });
        Outcome {
            seed: self.seed,
            failure,
            simulated: Duration::from_nanos(self.now.0),
            events: self.events,
            faults: self.tally,
            digest: self.digest,
            trace: self.trace,
            ..Outcome::default()
        }
    }
}
