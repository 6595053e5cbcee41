//! Flease: exclusive leases among peers, with no central part and no disk.
//!
//! `register.rs` and `round.rs` are the round-based register (Flease Alg. 1), `get_lease.rs` is what is done with it
//! (Alg. 4), `clocks.rs` watches what all of it assumes, `claims.rs` knows who in a process wants which cell. `docs/adr/0013-flease.md` says where this departs from the paper.

mod claims;
mod clocks;
mod config;
mod event;
mod get_lease;
mod message;
mod register;
mod round;
mod seeker;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

pub use claims::{ClaimAction, ClaimEnd, ClaimEvent, ClaimId, ClaimMachine};
pub use config::*;
pub use event::*;
pub use message::*;
pub use register::Register;
pub use round::{Progress, Round};
pub use seeker::HeldCell;

use self::clocks::Clocks;
use self::seeker::{Aim, Seeker};
use crate::injected_bug::{Bug, injected};
use crate::machine::{Machine, Output};
use crate::random::Random;
use crate::time::Instant;

/// How many cells are looked at with every packet, whether they can be forgotten.
const SWEPT_PER_PACKET: usize = 2;

/// How many cells a peer keeps registers of for others. More are refused, which is as if the packet had been lost: a peer that
/// goes wild with names costs its cells their votes here, and nobody memory without end.
const MOST_REGISTERS: usize = 1 << 18;

/// The shortest wait: ballots of one peer must differ in time.
const TICK: Duration = Duration::from_nanos(1);

/// One peer.
///
/// It promises that, while no two peers' clocks differ by more than epsilon,
/// - no two of them hold a cell at one time, through crashes of any number of them and restarts without disk, and whatever
///   the network loses, repeats, delays and reorders (F1);
/// - the epoch under which a cell is held is higher with every acquisition, and stays while it is held without a gap;
/// - with a majority of a cell's members up and in reach of each other, a wanted cell is acquired (L3), and a holder
///   that wants to keep it does.
///
/// `now` is the synchronised clock, which other machines have no need of. The machine trusts no timer to end a lease:
/// `held` compares the clock. It takes no part in anything, its own vote included, before its recovery is over. It
/// never starts a round for a cell that it does not want, and none while it knows of a valid lease of another. Cells that
/// it does not want have no timer, and what it keeps of them goes away by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FleaseMachine {
    config: FleaseConfig,
    agreement: u64,
    me: Holder,
    random: Random,
    /// When recovery is over; never before the start, and while the clock is known to be apart.
    takes_part_from: Instant,
    clocks: Clocks,
    is_apart: bool,
    /// When to ask for the others' clocks; never while all is well.
    probe_at: Instant,
    cells: BTreeMap<Cell, CellState>,
    /// The next thing to do about each cell that is wanted.
    timers: Timers,
    /// The last cell that was looked at to be forgotten.
    swept: Option<Cell>,
    counters: FleaseCounters,
}

type Timers = crate::timers::Timers<Cell>;

/// All about one cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct CellState {
    register: Register,
    seeker: Option<Seeker>,
}

/// One step on its way: what it wants done, and what it says to whom.
struct Step {
    now: Instant,
    actions: Vec<FleaseAction>,
    outbox: BTreeMap<PeerId, Vec<Message>>,
    probes: bool,
}

impl Step {
    fn new(now: Instant) -> Step {
        Step { now, actions: Vec::new(), outbox: BTreeMap::new(), probes: false }
    }

    fn say(&mut self, to: PeerId, cell: &Cell, ballot: Ballot, body: Body) {
        self.outbox.entry(to).or_default().push(Message { cell: cell.clone(), ballot, body });
    }
}

impl FleaseMachine {
    /// A peer that takes no part before it is started and has recovered. `config` has been checked.
    #[must_use]
    pub fn new(config: FleaseConfig, mut random: Random) -> FleaseMachine {
        FleaseMachine {
            agreement: config.agreement(),
            me: Holder { peer: config.me, incarnation: random.nonce() },
            config,
            random,
            takes_part_from: Instant::NEVER,
            clocks: Clocks::default(),
            is_apart: false,
            probe_at: Instant::NEVER,
            cells: BTreeMap::new(),
            timers: Timers::default(),
            swept: None,
            counters: FleaseCounters::default(),
        }
    }

    /// The lease by which this very process holds a cell now.
    #[must_use]
    pub fn held(&self, cell: &Cell, now: Instant) -> Option<HeldCell> {
        self.cells.get(cell)?.seeker.as_ref()?.held.filter(|held| now < held.until)
    }

    /// The lease that this peer's own register has for a cell, if it is valid by this peer's clock. A hint: it need not
    /// have committed, and there may be a later one.
    #[must_use]
    pub fn known(&self, cell: &Cell, now: Instant) -> Option<Lease> {
        self.cells.get(cell)?.register.lease().filter(|lease| now < lease.until)
    }

    /// The round that is under way for a cell.
    #[must_use]
    pub fn round(&self, cell: &Cell) -> Option<&Round> {
        self.cells.get(cell)?.seeker.as_ref()?.round.as_ref()
    }

    /// The leases that this peer's own registers have and that are valid by this peer's clock. Hints, as from `known`.
    pub fn known_cells(&self, now: Instant) -> impl Iterator<Item = (&Cell, Lease)> {
        let valid = move |lease: &Lease| now < lease.until;
        self.cells.iter().filter_map(move |(cell, state)| Some((cell, state.register.lease().filter(valid)?)))
    }

    /// Whether recovery is over.
    #[must_use]
    pub fn takes_part(&self, now: Instant) -> bool {
        self.takes_part_from <= now
    }

    /// When recovery is over, as far as that is known.
    #[must_use]
    pub fn takes_part_from(&self) -> Instant {
        self.takes_part_from
    }

    /// Who this process is as a holder.
    #[must_use]
    pub fn holder(&self) -> Holder {
        self.me
    }

    /// How many cells it keeps something of.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// What it has met so far.
    #[must_use]
    pub fn counters(&self) -> &FleaseCounters {
        &self.counters
    }

    /// When it wants `on_wake` next.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let probe = Some(self.probe_at).filter(|at| *at != Instant::NEVER);
        self.timers.next().into_iter().chain(probe).min()
    }

    /// How old a round may become. The injected bug lets rounds live for ages, or nobody would see its effect.
    fn longest_round(&self) -> Duration {
        let ages = if injected(Bug::FleaseExpiryAtWrite) { 4 } else { 0 };
        self.config.round + self.config.recovery * ages
    }

    /// How old the round of a request may be: it may take its time, and come from a clock that is behind.
    fn oldest(&self) -> Duration {
        self.longest_round() + self.config.epsilon
    }

    fn recovery(&self) -> Duration {
        if injected(Bug::FleaseShortRecovery) { self.config.lease } else { self.config.recovery }
    }

    /// A random wait within the contention window, which doubles with each failure up to an eighth of the lease.
    fn delay(&mut self, failures: u32) -> Duration {
        let longest = self.config.window * (1 << failures.min(8));
        self.random.between(Duration::ZERO, longest.min(self.config.lease / 8))
    }

    fn on_start(&mut self, now: Instant) {
        if self.takes_part_from == Instant::NEVER && !self.is_apart {
            self.recover(now);
        }
    }

    fn recover(&mut self, now: Instant) {
        self.takes_part_from = now + self.recovery();
        self.postpone_all();
    }

    /// Lets every seeker wait until this peer takes part.
    fn postpone_all(&mut self) {
        for cell in self.cells.keys().cloned().collect::<Vec<_>>() {
            let next = self.takes_part_from + self.delay(0);
            if let Some(seeker) = self.seeker(&cell) {
                seeker.go_on_at(next);
            }
            self.arm(&cell);
        }
    }

    fn on_acquire(&mut self, step: &mut Step, cell: Cell) {
        if !self.config.takes_part(&cell) {
            step.actions.push(FleaseAction::NotAMember(cell));
            return;
        }
        let first = self.first_round(step.now);
        let state = self.cells.entry(cell.clone()).or_default();
        match &mut state.seeker {
            Some(seeker) if seeker.aim == Aim::Hold => return,
            Some(seeker) => (seeker.aim, seeker.next) = (Aim::Hold, first),
            None => state.seeker = Some(Seeker::new(first)),
        }
        self.tick(step, &cell);
    }

    /// The injected bug lets a recovering peer propose, and vote for itself.
    fn first_round(&mut self, now: Instant) -> Instant {
        if self.may_propose(now) { now } else { self.takes_part_from + self.delay(0) }
    }

    fn may_propose(&self, now: Instant) -> bool {
        self.takes_part(now) || injected(Bug::FleaseOwnVoteInRecovery)
    }

    fn on_release(&mut self, step: &mut Step, cell: &Cell) {
        self.end(step, cell, EndedReason::Released);
        let Some(seeker) = self.seeker(cell) else {
            return step.actions.push(FleaseAction::Released(cell.clone()));
        };
        seeker.aim = Aim::Release;
        seeker.go_on_at(step.now);
        self.tick(step, cell);
    }

    /// The clock cannot be trusted: nothing is held, promised or known, as after a restart.
    fn on_untrusted_clock(&mut self, step: &mut Step) {
        for cell in self.cells.keys().cloned().collect::<Vec<_>>() {
            self.end(step, &cell, EndedReason::Clock);
            let Some(state) = self.cells.get_mut(&cell) else { continue };
            state.register = Register::default();
            if state.seeker.take_if(|seeker| seeker.aim == Aim::Release).is_some() {
                step.actions.push(FleaseAction::Released(cell));
            }
        }
        if self.takes_part_from != Instant::NEVER {
            self.recover(step.now);
        }
    }

    fn on_packet(&mut self, step: &mut Step, from: PeerId, packet: Packet) {
        let is_other = from != self.config.me && self.config.peers.binary_search(&from).is_ok();
        if !is_other || packet.agreement != self.agreement {
            self.counters.disagreeing += 1;
            return;
        }
        let readings = (packet.sent, packet.echo);
        let (epsilon, round) = (self.config.epsilon, self.config.round);
        let is_apart = self.clocks.on_packet(step.now, from, readings, epsilon, round);
        self.judge_clock(step);
        // An answer to an answer would be answered for ever.
        if packet.probe || is_apart && !packet.messages.is_empty() {
            step.outbox.entry(from).or_default();
        }
        if is_apart {
            self.counters.apart += 1;
            // One that is known to be apart asks anyway.
            if !packet.messages.is_empty() && !self.is_apart {
                self.ask_clocks(step);
            }
            return;
        }
        if !self.may_propose(step.now) {
            self.counters.recovering += 1;
            return;
        }
        for message in packet.messages {
            self.on_message(step, from, message);
        }
        self.sweep(step.now);
    }

    fn on_message(&mut self, step: &mut Step, from: PeerId, message: Message) {
        let Message { cell, ballot, body } = message;
        let is_request = matches!(body, Body::Read | Body::Write(_));
        let proposer = if is_request { from } else { self.config.me };
        let is_ours = self.config.takes_part(&cell) && self.config.members(&cell).contains(&from);
        if !is_ours || ballot.peer != proposer || !self.is_possible(ballot, body) {
            self.counters.malformed += 1;
            return;
        }
        if is_request {
            self.on_request(step, from, &cell, ballot, body);
        } else {
            self.expire(step, &cell);
            self.on_reply(step, &cell, from, ballot, body);
            self.arm(&cell);
        }
    }

    /// No round writes a lease that is longer than one that it acquires itself.
    fn is_possible(&self, ballot: Ballot, body: Body) -> bool {
        let Body::Write(Some(lease)) = body else { return true };
        let is_short = lease.until <= ballot.time + self.config.lease;
        lease.epoch <= ballot && (is_short || injected(Bug::FleaseExpiryAtWrite))
    }

    fn on_request(&mut self, step: &mut Step, from: PeerId, cell: &Cell, ballot: Ballot, body: Body) {
        if !self.takes_part(step.now) {
            self.counters.recovering += 1;
            return;
        }
        if ballot.time + self.oldest() < step.now {
            self.counters.stale += 1;
            return;
        }
        if step.now + self.config.epsilon < ballot.time {
            self.counters.ahead += 1;
            return;
        }
        if self.cells.len() >= MOST_REGISTERS && !self.cells.contains_key(cell) {
            self.counters.full += 1;
            return;
        }
        let register = &mut self.cells.entry(cell.clone()).or_default().register;
        let reply = get_lease::reply(register, ballot, body);
        step.say(from, cell, ballot, reply);
        if (body, reply) == (Body::Write(None), Body::WriteAck) {
            self.on_release_noticed(step, cell);
        }
    }

    /// Looks at a few cells in turn, and forgets those of which nothing matters any more.
    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEPT_PER_PACKET {
            let after = self.swept.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let Some((cell, state)) = self.cells.range((after, Bound::Unbounded)).next() else {
                self.swept = None;
                return;
            };
            let (oldest, epsilon) = (self.oldest(), self.config.epsilon);
            let is_over = state.seeker.is_none() && state.register.is_forgettable(now, oldest, epsilon);
            let cell = cell.clone();
            if is_over {
                self.cells.remove(&cell);
                self.counters.forgotten += 1;
            }
            self.swept = Some(cell);
        }
    }

    /// Everything that the step says to one peer goes in one packet.
    fn finish(&mut self, step: Step) -> Output<FleaseAction> {
        let mut actions = step.actions;
        for (to, messages) in step.outbox {
            self.counters.packets += 1;
            self.counters.messages += messages.len() as u64;
            let echo = self.clocks.reading(to);
            let (agreement, sent, probe) = (self.agreement, step.now, step.probes);
            actions
                .push(FleaseAction::Send { to, packet: Packet { agreement, sent, echo, probe, messages } });
        }
        Output { actions, wake: self.next_wake() }
    }
}

impl Machine for FleaseMachine {
    type Event = FleaseEvent;
    type Action = FleaseAction;

    fn on_event(&mut self, now: Instant, event: FleaseEvent) -> Output<FleaseAction> {
        let mut step = Step::new(now);
        match event {
            FleaseEvent::Start => self.on_start(now),
            FleaseEvent::Acquire(cell) => self.on_acquire(&mut step, cell),
            FleaseEvent::Release(cell) => self.on_release(&mut step, &cell),
            FleaseEvent::Renew(cell) => self.on_renew(&mut step, &cell),
            FleaseEvent::Receive { from, packet } => self.on_packet(&mut step, from, packet),
            FleaseEvent::ClockJumped => self.on_untrusted_clock(&mut step),
        }
        self.finish(step)
    }

    fn on_wake(&mut self, now: Instant) -> Output<FleaseAction> {
        let mut step = Step::new(now);
        while let Some(cell) = self.timers.pop_due(now) {
            self.tick(&mut step, &cell);
        }
        if self.probe_at <= now {
            self.probe(&mut step);
        }
        self.finish(step)
    }
}
