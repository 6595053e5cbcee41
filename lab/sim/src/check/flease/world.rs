//! A small world of Flease as a model: its states, what can happen in each, and what comes of it.

use std::sync::Arc;

use centrifuge_core::flease::{
    Ballot, Body, Cell, FleaseAction, FleaseEvent, FleaseMachine, Message, Packet, Round,
};
use centrifuge_core::injected_bug::{Bug, inject, injected};
use centrifuge_core::machine::Machine;
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;
use stateright::{Model, Property};

use crate::check::nodes::Process;
use crate::check::print::{Shared, print, print_without};
use crate::check::runner::{Path, SmallWorld};
use crate::check::scenario::Expect;
use crate::check::stage::{Memo, Outcome};

use super::story::story;
use super::{Scenario, cell, id};

/// One small world, and what its machines did before.
#[derive(Clone)]
pub(in crate::check) struct World {
    pub(super) scenario: Arc<Scenario>,
    pub(super) cell: Arc<Cell>,
    memo: Arc<Memo<FleaseMachine>>,
}

/// A process.
type Node = Process<FleaseMachine>;

/// A packet on its way. It says nothing about clocks, which are as they should be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::check) struct Sent {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) packet: Packet,
}

/// Everything that there is at one moment.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(in crate::check) struct State {
    /// The place of the present instant.
    pub(super) instant: usize,
    /// Whose clocks are ahead, one bit each.
    pub(super) ahead: u8,
    /// The processes, each with the number of its life.
    pub(super) peers: Vec<(u8, Shared<Node>)>,
    /// Who has been asked to hold the cell, one bit each.
    pub(super) wants: u8,
    /// Every packet ever sent that may still matter, in the order of their prints.
    pub(super) network: Vec<Shared<Sent>>,
    /// How many rounds were started, and how many processes have died.
    pub(super) rounds: u8,
    pub(super) crashes: u8,
    /// The highest epoch under which the cell was held, and the place of its holder.
    pub(super) highest: Option<(Ballot, usize)>,
    /// Whether it was held by two peers in turn.
    changed_hands: bool,
    /// The sentence that is broken, if one is: nothing happens after that.
    pub(super) breach: Option<&'static str>,
}

/// Something that can happen. Peers go by their places.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::check) enum Action {
    /// A packet arrives.
    Deliver(Shared<Sent>),
    /// A process that is due is woken.
    Wake(usize),
    /// Time passes to the next instant, at which these clocks are ahead.
    Advance(u8),
    /// An application wants the cell.
    Acquire(usize),
    /// An application gives it up.
    Release(usize),
    /// A process dies, and another one starts in its place.
    Restart(usize),
}

/// Something that must happen in some state of a world, in words and as a condition.
pub(super) type Milestone = (&'static str, fn(&World, &State) -> bool);

/// A peer holds the cell.
pub(super) const HELD: Milestone = ("a peer holds the cell", |_, state| state.highest.is_some());
/// One peer holds it after another did.
pub(super) const HELD_BY_ANOTHER: Milestone =
    ("the cell is held by one peer after another", |_, state| state.changed_hands);
/// A process that started after a crash takes part.
pub(super) const RECOVERED: Milestone = ("a restarted process takes part", |world, state| {
    let takes_part = |(peer, (life, node)): (usize, &(u8, Shared<Node>))| {
        *life > 0 && node.machine.takes_part(world.clock(state, peer))
    };
    state.peers.iter().enumerate().any(takes_part)
});

impl World {
    /// The world of a scenario.
    pub(in crate::check) fn new(scenario: Scenario) -> World {
        World { scenario: Arc::new(scenario), cell: cell(), memo: Arc::default() }
    }

    /// What the clock at a place shows.
    pub(super) fn clock(&self, state: &State, peer: usize) -> Instant {
        self.scenario.clock(state.instant, state.ahead & 1 << peer != 0)
    }

    /// The epoch under which the process at a place holds the cell by its own clock.
    pub(super) fn held(&self, state: &State, peer: usize) -> Option<Ballot> {
        let held = state.peers[peer].1.machine.held(&self.cell, self.clock(state, peer));
        held.map(|held| held.epoch)
    }

    fn node(&self, peer: usize, life: u8, now: Instant) -> Shared<Node> {
        let random = Random::from_number(peer as u64 * 256 + u64::from(life));
        let mut machine = FleaseMachine::new(self.scenario.config(peer), random);
        let output = machine.on_event(now, FleaseEvent::Start);
        share(Process { machine, wake: output.wake })
    }

    fn feed(
        &self,
        state: &State,
        peer: usize,
        print: u64,
        event: impl FnOnce() -> Option<FleaseEvent>,
    ) -> Outcome<FleaseMachine> {
        let (node, now) = (&state.peers[peer].1, self.clock(state, peer));
        self.memo.outcome(node, now, print, || {
            let mut machine = node.machine.clone();
            let output = match event() {
                Some(event) => machine.on_event(now, event),
                None => machine.on_wake(now),
            };
            (share(Process { machine, wake: output.wake }), output.actions)
        })
    }

    fn outcome(&self, state: &State, action: &Action) -> Option<(usize, Outcome<FleaseMachine>)> {
        let (peer, print, event) = match action {
            Action::Deliver(sent) => {
                let event = || FleaseEvent::Receive { from: id(sent.from), packet: sent.packet.clone() };
                return Some((sent.to, self.feed(state, sent.to, sent.print(), || Some(event()))));
            }
            Action::Wake(peer) => (*peer, 1, None),
            Action::Acquire(peer) => (*peer, 2, Some(FleaseEvent::Acquire(Cell::clone(&self.cell)))),
            Action::Release(peer) => (*peer, 3, Some(FleaseEvent::Release(Cell::clone(&self.cell)))),
            Action::Advance(_) | Action::Restart(_) => return None,
        };
        Some((peer, self.feed(state, peer, print, || event)))
    }

    /// Drops what can never matter again, so that states which only differ in that are one: replies to a round that is
    /// over, for no other has its ballot, and requests too old for their receiver, whose clock does not go back.
    fn tidy(&self, state: &mut State) {
        let mut network = std::mem::take(&mut state.network);
        network
            .retain(|sent| sent.packet.messages.iter().any(|message| self.matters(state, sent.to, message)));
        state.network = network;
    }

    fn matters(&self, state: &State, to: usize, message: &Message) -> bool {
        let round = state.peers[to].1.machine.round(&self.cell);
        let round = round.filter(|round| round.ballot() == message.ballot);
        match message.body {
            Body::Read | Body::Write(_) => {
                let oldest = self.scenario.config(to).oldest();
                self.clock(state, to) <= message.ballot.time + oldest || injected(Bug::FleaseExpiryAtWrite)
            }
            Body::ReadAck { .. } => round.is_some_and(Round::is_reading),
            Body::WriteAck | Body::Nack { .. } => round.is_some(),
        }
    }

    /// Looks at who holds the cell, after something happened.
    fn judge(&self, before: &State, after: &mut State) {
        let mut holders = 0;
        for peer in 0..after.peers.len() {
            let Some(epoch) = self.held(after, peer) else { continue };
            holders += 1;
            let same_life = before.peers[peer].0 == after.peers[peer].0;
            let held_before =
                before.peers[peer].1.machine.held(&self.cell, self.clock(after, peer)).map(|held| held.epoch);
            if same_life && held_before == Some(epoch) {
                continue;
            }
            match after.highest {
                Some((highest, _)) if epoch <= highest && self.scenario.watches_epochs() => {
                    after.breach = Some("F2");
                }
                Some((_, holder)) => after.changed_hands |= holder != peer,
                None => {}
            }
            after.highest = after.highest.max(Some((epoch, peer)));
        }
        if holders > 1 {
            after.breach = Some("F1");
        }
    }

    fn advances(&self, state: &State) -> impl Iterator<Item = Action> {
        let next = state.instant + 1;
        let is_last = next == self.scenario.instants.len();
        let choices = if is_last { Vec::new() } else { self.scenario.choices(next) };
        let now: Vec<Instant> = (0..state.peers.len()).map(|peer| self.clock(state, peer)).collect();
        let scenario = Arc::clone(&self.scenario);
        let goes_on = move |ahead: &u8| {
            let shows = |peer: usize| scenario.clock(next, ahead & 1 << peer != 0);
            now.iter().enumerate().all(|(peer, now)| *now <= shows(peer))
        };
        choices.into_iter().filter(goes_on).map(Action::Advance)
    }
}

/// Counters do not tell processes apart.
fn share(node: Node) -> Shared<Node> {
    let machine = print_without(&node.machine, node.machine.counters());
    Shared::printed(print(&(machine, node.wake)), node)
}

fn begins_round(action: &FleaseAction) -> bool {
    let FleaseAction::Send { packet, .. } = action else { return false };
    packet.messages.iter().any(|message| message.body == Body::Read)
}

/// A refusal says which ballot was in the way, so that its receiver knows when to try again. Here it tries at any time.
fn without_reason(message: Message) -> Message {
    match message.body {
        Body::Nack { .. } => Message { body: Body::Nack { promised: message.ballot }, ..message },
        _ => message,
    }
}

impl State {
    fn send(&mut self, from: usize, actions: &[FleaseAction]) {
        for action in actions {
            let FleaseAction::Send { to, packet } = action else { continue };
            let messages = packet.messages.iter().cloned().map(without_reason).collect();
            let packet = Packet { sent: Instant::ZERO, echo: Instant::ZERO, messages, ..packet.clone() };
            let sent = Shared::new(Sent { from, to: usize::from(to.0) - 1, packet });
            if let Err(place) = self.network.binary_search_by_key(&sent.print(), Shared::print) {
                self.network.insert(place, sent);
            }
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    /// Everybody has recovered from an earlier life, with the clocks anywhere.
    fn init_states(&self) -> Vec<State> {
        let peers = usize::from(self.scenario.peers);
        let long_ago = Instant::ZERO;
        let nodes = (0..peers).map(|peer| (0, self.node(peer, 0, long_ago)));
        let start = State {
            instant: 0,
            ahead: 0,
            peers: nodes.collect(),
            wants: 0,
            network: Vec::new(),
            rounds: 0,
            crashes: 0,
            highest: None,
            changed_hands: false,
            breach: None,
        };
        self.scenario.choices(0).into_iter().map(|ahead| State { ahead, ..start.clone() }).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.breach.is_some() {
            return;
        }
        actions.extend(state.network.iter().cloned().map(Action::Deliver));
        for (peer, (_, node)) in state.peers.iter().enumerate() {
            if node.wake.is_some_and(|wake| wake <= self.clock(state, peer)) {
                actions.push(Action::Wake(peer));
            }
            if state.crashes < self.scenario.crashes {
                actions.push(Action::Restart(peer));
            }
        }
        for peer in self.scenario.wanting {
            if state.wants & 1 << peer == 0 {
                actions.push(Action::Acquire(*peer));
            } else if self.scenario.releases {
                actions.push(Action::Release(*peer));
            }
        }
        actions.extend(self.advances(state));
    }

    /// What does not change anything does not count as a step.
    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let _bug = inject(self.scenario.bug);
        let mut next = state.clone();
        match action {
            Action::Advance(ahead) => (next.instant, next.ahead) = (state.instant + 1, ahead),
            Action::Restart(peer) => {
                let life = state.peers[peer].0 + 1;
                next.peers[peer] = (life, self.node(peer, life, self.clock(state, peer)));
                next.wants &= !(1 << peer);
                next.crashes += 1;
            }
            Action::Acquire(peer) => next.wants |= 1 << peer,
            Action::Release(peer) => next.wants &= !(1 << peer),
            Action::Deliver(_) | Action::Wake(_) => {}
        }
        if let Some((peer, outcome)) = self.outcome(state, &action) {
            match outcome {
                Some(outcome) => {
                    next.peers[peer].1 = outcome.0.clone();
                    next.rounds += u8::from(outcome.1.iter().any(begins_round));
                    next.send(peer, &outcome.1);
                }
                None if matches!(action, Action::Deliver(_)) => return None,
                None => {}
            }
        }
        self.tidy(&mut next);
        self.judge(state, &mut next);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<World>> {
        let mut properties = vec![
            Property::always("F1", |_, state: &State| state.breach != Some("F1")),
            Property::always("F2", |_, state: &State| state.breach != Some("F2")),
        ];
        let milestones = self.scenario.milestones.iter();
        properties.extend(milestones.map(|(name, condition)| Property::sometimes(name, *condition)));
        properties
    }

    fn within_boundary(&self, state: &State) -> bool {
        usize::from(state.rounds) <= self.scenario.rounds
    }
}

impl SmallWorld for World {
    fn about(&self) -> (&'static str, &'static str, Expect) {
        (self.scenario.name, self.scenario.covers, self.scenario.expect)
    }

    fn broken(state: &State) -> Option<&'static str> {
        state.breach
    }

    fn prelude(&self) -> Path<World> {
        Vec::new()
    }

    fn story(&self, path: &Path<World>) -> String {
        story(self, path)
    }
}
