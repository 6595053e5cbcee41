//! A few peers of Flease on a network that does what a test says.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::time::Duration;

use centrifuge_core::flease::{
    Ballot, Cell, FleaseAction, FleaseConfig, FleaseEvent, FleaseMachine, HeldCell, Packet, PeerId,
};
use centrifuge_core::machine::{Machine, Output};
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;

/// When the tests begin: every peer has recovered long before.
pub(crate) const BEGIN: Instant = Instant(1_000_000_000_000);

pub(crate) const LEASE: Duration = Duration::from_secs(10);
pub(crate) const EPSILON: Duration = Duration::from_millis(500);
pub(crate) const ROUND: Duration = Duration::from_secs(2);

/// A packet on its way.
#[derive(Clone, Debug)]
pub(crate) struct Flying {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) packet: Packet,
}

/// Peers, by their places from 0; the peer at place 0 is p1.
pub(crate) struct Peers {
    pub(crate) machines: Vec<FleaseMachine>,
    wakes: Vec<Option<Instant>>,
    /// By how much each clock is ahead of the slowest.
    pub(crate) ahead: Vec<Duration>,
    pub(crate) now: Instant,
    /// What was sent and has not arrived.
    pub(crate) flying: Vec<Flying>,
    /// What peers wanted done beside sending, in order.
    pub(crate) done: Vec<(usize, FleaseAction)>,
    lives: u64,
}

pub(crate) fn cell(name: &str) -> Cell {
    Cell::new(name).expect("a name")
}

pub(crate) fn config(place: usize, peers: usize) -> FleaseConfig {
    let id = |place: usize| PeerId(u16::try_from(place + 1).expect("few peers"));
    FleaseConfig::new(id(place), (0..peers).map(id)).with_times(LEASE, EPSILON, ROUND)
}

impl Peers {
    /// Peers that have recovered, with equal clocks.
    pub(crate) fn new(count: usize) -> Peers {
        let machine = |place: usize| {
            let mut machine = FleaseMachine::new(config(place, count), Random::from_number(place as u64));
            machine.on_event(Instant::ZERO, FleaseEvent::Start);
            machine
        };
        Peers {
            machines: (0..count).map(machine).collect(),
            wakes: vec![None; count],
            ahead: vec![Duration::ZERO; count],
            now: BEGIN,
            flying: Vec::new(),
            done: Vec::new(),
            lives: count as u64,
        }
    }

    /// What a peer's clock shows.
    pub(crate) fn clock(&self, place: usize) -> Instant {
        self.now + self.ahead[place]
    }

    /// Feeds an event to a peer.
    pub(crate) fn event(&mut self, place: usize, event: FleaseEvent) {
        let output = self.machines[place].on_event(self.now + self.ahead[place], event);
        self.take(place, output);
    }

    /// Wakes a peer, due or not.
    pub(crate) fn wake(&mut self, place: usize) {
        let output = self.machines[place].on_wake(self.now + self.ahead[place]);
        self.take(place, output);
    }

    /// When a peer wants to be woken.
    pub(crate) fn next_wake(&self, place: usize) -> Option<Instant> {
        self.wakes[place]
    }

    fn take(&mut self, from: usize, output: Output<FleaseAction>) {
        self.wakes[from] = output.wake;
        for action in output.actions {
            match action {
                FleaseAction::Send { to, packet } => {
                    self.flying.push(Flying { from, to: usize::from(to.0) - 1, packet });
                }
                action => self.done.push((from, action)),
            }
        }
    }

    pub(crate) fn acquire(&mut self, place: usize, cell: &Cell) {
        self.event(place, FleaseEvent::Acquire(cell.clone()));
    }

    pub(crate) fn release(&mut self, place: usize, cell: &Cell) {
        self.event(place, FleaseEvent::Release(cell.clone()));
    }

    /// A new process, which remembers nothing, in the place of a peer's.
    pub(crate) fn restart(&mut self, place: usize) {
        self.restart_among(place, self.machines.len());
    }

    /// The same, with a list of the first so many peers.
    pub(crate) fn restart_among(&mut self, place: usize, peers: usize) {
        self.lives += 1;
        let config = config(place, peers);
        self.machines[place] = FleaseMachine::new(config, Random::from_number(self.lives));
        self.wakes[place] = None;
        self.event(place, FleaseEvent::Start);
    }

    /// One packet arrives.
    pub(crate) fn arrive(&mut self, flying: Flying) {
        let from = PeerId(u16::try_from(flying.from + 1).expect("few peers"));
        self.event(flying.to, FleaseEvent::Receive { from, packet: flying.packet });
    }

    /// Everything arrives that is on its way, and what is sent because of it, at one instant.
    pub(crate) fn deliver(&mut self) {
        self.deliver_among(|_| true);
    }

    /// The same among some peers; the rest is lost.
    pub(crate) fn deliver_among(&mut self, is_up: impl Fn(usize) -> bool) {
        while !self.flying.is_empty() {
            for flying in std::mem::take(&mut self.flying) {
                if is_up(flying.from) && is_up(flying.to) {
                    self.arrive(flying);
                }
            }
        }
    }

    /// Time passes; peers are woken when they want to, and everything is delivered at once.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.pass_among(time, |_| true);
    }

    /// The same among some peers: the others stand still, and what they say or are told is lost.
    pub(crate) fn pass_among(&mut self, time: Duration, is_up: impl Fn(usize) -> bool) {
        let end = self.now + time;
        loop {
            let due = |place: usize| Some((self.wakes[place]? - self.ahead[place], place));
            let next = (0..self.machines.len()).filter(|place| is_up(*place)).filter_map(due).min();
            let Some((at, place)) = next.filter(|(at, _)| *at <= end) else { break };
            self.now = self.now.max(at);
            self.wake(place);
            self.deliver_among(&is_up);
        }
        self.now = end;
    }

    pub(crate) fn held(&self, place: usize, cell: &Cell) -> Option<HeldCell> {
        self.machines[place].held(cell, self.clock(place))
    }

    pub(crate) fn epoch(&self, place: usize, cell: &Cell) -> Option<Ballot> {
        self.held(place, cell).map(|held| held.epoch)
    }

    /// The places of all who hold a cell.
    pub(crate) fn holders(&self, cell: &Cell) -> Vec<usize> {
        (0..self.machines.len()).filter(|place| self.held(*place, cell).is_some()).collect()
    }
}
