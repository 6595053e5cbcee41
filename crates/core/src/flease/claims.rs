//! Claims: who in a process wants which cell.

use std::collections::BTreeMap;

use super::{Ballot, Cell, EndedReason, FleaseAction, FleaseEvent, FleaseMachine, Lease};
use crate::machine::{Machine, Output};
use crate::time::Instant;

/// Names one claim to a cell; no two of a process have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId(pub u64);

/// What can happen to the claims of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimEvent {
    /// It happens to the peer, whoever claims what.
    Peer(FleaseEvent),
    /// Somebody claims a cell. An earlier claim to it is over.
    Acquire(ClaimId, Cell),
    /// Somebody gives a claim up.
    Release(ClaimId, Cell),
    /// Answered by [`ClaimAction::Reached`] when all that was said before has taken effect.
    Mark(u64),
    /// Every claim is given up, and none is taken any more.
    Stop,
}

/// What a process's claims want done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimAction {
    /// What the peer wants done or known, whoever claims what.
    Peer(FleaseAction),
    /// The claim's cell is held, or held longer.
    Held {
        /// The claim.
        claim: ClaimId,
        /// The lease's epoch.
        epoch: Ballot,
        /// Until when, by the peer's clock.
        until: Instant,
    },
    /// Another one holds the claim's cell. The claim goes on waiting.
    HeldByOther {
        /// The claim.
        claim: ClaimId,
        /// The other's lease.
        lease: Lease,
    },
    /// Nothing more comes of a claim.
    Over(ClaimId, ClaimEnd),
    /// All that was said before the mark has taken effect.
    Reached(u64),
}

/// Why nothing more comes of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimEnd {
    /// It was given up, and others can know of that.
    Released,
    /// Its lease was not renewed in time.
    Expired,
    /// The peer's clock cannot be trusted.
    Clock,
    /// The peer is not one of the cell's members.
    NotAMember,
    /// The process gives everything up.
    Stopped,
}

/// A peer, and the claims of its process.
///
/// It promises that what the peer says of a cell is said to the one claim that the cell has at that moment, so that no claim takes
/// another's lease for its own; and that a claim whose lease was lost is over: who made it must know before it can want the cell
/// again, so that the peer does not go for it again.
#[derive(Clone, Debug)]
pub struct ClaimMachine {
    peer: FleaseMachine,
    claims: BTreeMap<Cell, ClaimId>,
    /// Those whose release is not known to all yet.
    releasing: BTreeMap<Cell, ClaimId>,
    is_stopped: bool,
}

/// One step on its way.
#[derive(Default)]
struct Step {
    now: Instant,
    actions: Vec<ClaimAction>,
    lost: Vec<Cell>,
    wake: Option<Instant>,
}

impl ClaimMachine {
    /// A process that claims nothing yet.
    #[must_use]
    pub fn new(peer: FleaseMachine) -> ClaimMachine {
        ClaimMachine { peer, claims: BTreeMap::new(), releasing: BTreeMap::new(), is_stopped: false }
    }

    /// The peer.
    #[must_use]
    pub fn peer(&self) -> &FleaseMachine {
        &self.peer
    }

    /// How many cells are wanted, held or being released.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.claims.len() + self.releasing.len()
    }

    fn on_acquire(&mut self, step: &mut Step, claim: ClaimId, cell: Cell) {
        if self.is_stopped {
            return step.over(claim, ClaimEnd::Stopped);
        }
        // The cell is not given back to others: this process goes on with it, as somebody else.
        if let Some(earlier) = self.releasing.remove(&cell) {
            step.over(earlier, ClaimEnd::Released);
        }
        if let Some(earlier) = self.claims.insert(cell.clone(), claim) {
            step.over(earlier, ClaimEnd::Released);
            self.feed(step, FleaseEvent::Release(cell.clone()));
        }
        self.feed(step, FleaseEvent::Acquire(cell));
    }

    fn on_release(&mut self, step: &mut Step, claim: ClaimId, cell: Cell) {
        if self.claims.get(&cell) == Some(&claim) {
            self.give_back(step, cell);
        } else if self.releasing.get(&cell) != Some(&claim) {
            step.over(claim, ClaimEnd::Released);
        }
    }

    fn on_stop(&mut self, step: &mut Step) {
        self.is_stopped = true;
        for (cell, claim) in self.claims.clone() {
            // Nobody relies on it before others are told that it is free.
            step.over(claim, ClaimEnd::Stopped);
            self.give_back(step, cell);
        }
    }

    fn give_back(&mut self, step: &mut Step, cell: Cell) {
        if let Some(claim) = self.claims.remove(&cell) {
            self.releasing.insert(cell.clone(), claim);
            self.feed(step, FleaseEvent::Release(cell));
        }
    }

    fn feed(&mut self, step: &mut Step, event: FleaseEvent) {
        let output = self.peer.on_event(step.now, event);
        self.take(step, output);
    }

    fn take(&mut self, step: &mut Step, output: Output<FleaseAction>) {
        step.wake = output.wake;
        output.actions.into_iter().for_each(|action| self.translate(step, action));
    }

    fn translate(&mut self, step: &mut Step, action: FleaseAction) {
        match action {
            FleaseAction::Held { cell, epoch, until } => {
                let held = |claim: &ClaimId| ClaimAction::Held { claim: *claim, epoch, until };
                step.actions.extend(self.claims.get(&cell).map(held));
            }
            FleaseAction::HeldByOther { ref cell, lease } => {
                let held = |claim: &ClaimId| ClaimAction::HeldByOther { claim: *claim, lease };
                let held = self.claims.get(cell).map(held);
                step.actions.push(ClaimAction::Peer(action));
                step.actions.extend(held);
            }
            FleaseAction::Ended { ref cell, why, .. } => {
                let cell = cell.clone();
                step.actions.push(ClaimAction::Peer(action));
                match why {
                    EndedReason::Released => {}
                    EndedReason::Expired => self.lose(step, cell, ClaimEnd::Expired),
                    EndedReason::Clock => self.lose(step, cell, ClaimEnd::Clock),
                }
            }
            FleaseAction::Released(cell) => {
                if let Some(claim) = self.releasing.remove(&cell) {
                    step.over(claim, ClaimEnd::Released);
                }
            }
            FleaseAction::NotAMember(cell) => {
                if let Some(claim) = self.claims.remove(&cell) {
                    step.over(claim, ClaimEnd::NotAMember);
                }
            }
            FleaseAction::Send { .. } | FleaseAction::ClockApart { .. } | FleaseAction::ClockAgrees => {
                step.actions.push(ClaimAction::Peer(action));
            }
        }
    }

    fn lose(&mut self, step: &mut Step, cell: Cell, end: ClaimEnd) {
        if let Some(claim) = self.claims.remove(&cell) {
            step.over(claim, end);
            step.lost.push(cell);
        }
    }

    /// Lets the peer forget what was lost, once it has said all about it.
    fn finish(&mut self, mut step: Step) -> Output<ClaimAction> {
        while let Some(cell) = step.lost.pop() {
            if !self.claims.contains_key(&cell) {
                self.feed(&mut step, FleaseEvent::Release(cell));
            }
        }
        Output { actions: step.actions, wake: step.wake }
    }
}

impl Step {
    fn over(&mut self, claim: ClaimId, end: ClaimEnd) {
        self.actions.push(ClaimAction::Over(claim, end));
    }
}

impl Machine for ClaimMachine {
    type Event = ClaimEvent;
    type Action = ClaimAction;

    fn on_event(&mut self, now: Instant, event: ClaimEvent) -> Output<ClaimAction> {
        let mut step = Step { now, ..Step::default() };
        if !matches!(event, ClaimEvent::Peer(_)) {
            // A wake that comes early changes nothing, and says when to wake next.
            let output = self.peer.on_wake(now);
            self.take(&mut step, output);
        }
        match event {
            ClaimEvent::Peer(event) => self.feed(&mut step, event),
            ClaimEvent::Acquire(claim, cell) => self.on_acquire(&mut step, claim, cell),
            ClaimEvent::Release(claim, cell) => self.on_release(&mut step, claim, cell),
            ClaimEvent::Mark(mark) => step.actions.push(ClaimAction::Reached(mark)),
            ClaimEvent::Stop => self.on_stop(&mut step),
        }
        self.finish(step)
    }

    fn on_wake(&mut self, now: Instant) -> Output<ClaimAction> {
        let mut step = Step { now, ..Step::default() };
        let output = self.peer.on_wake(now);
        self.take(&mut step, output);
        self.finish(step)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::flease::{FleaseConfig, PeerId};
    use crate::random::Random;

    const HOUR: Duration = Duration::from_secs(3_600);

    /// A peer that is its own majority, an hour after its start.
    fn recovered() -> (ClaimMachine, Instant) {
        let config = FleaseConfig::new(PeerId(1), [PeerId(1)]);
        let mut machine = ClaimMachine::new(FleaseMachine::new(config, Random::from_number(1)));
        machine.on_event(Instant::ZERO, ClaimEvent::Peer(FleaseEvent::Start));
        (machine, Instant::ZERO + HOUR)
    }

    fn cell() -> Cell {
        Cell::new("cell").expect("a name")
    }

    fn held(output: &Output<ClaimAction>) -> Vec<ClaimId> {
        let claim = |action: &ClaimAction| match action {
            ClaimAction::Held { claim, .. } => Some(*claim),
            _ => None,
        };
        output.actions.iter().filter_map(claim).collect()
    }

    #[test]
    fn a_claim_takes_no_lease_of_an_earlier_one() {
        let (mut machine, now) = recovered();
        let first = machine.on_event(now, ClaimEvent::Acquire(ClaimId(1), cell()));
        assert_eq!(held(&first), [ClaimId(1)]);
        let second = machine.on_event(now, ClaimEvent::Acquire(ClaimId(2), cell()));
        assert_eq!(second.actions[0], ClaimAction::Over(ClaimId(1), ClaimEnd::Released));
        let later = machine.on_wake(now + Duration::from_secs(1));
        assert_eq!([held(&second), held(&later)].concat(), [ClaimId(2)]);
        assert_eq!(machine.busy(), 1);
    }

    #[test]
    fn a_claim_whose_lease_was_lost_is_over() {
        let (mut machine, now) = recovered();
        machine.on_event(now, ClaimEvent::Acquire(ClaimId(1), cell()));
        let lost = machine.on_event(now, ClaimEvent::Peer(FleaseEvent::ClockJumped));
        assert!(lost.actions.contains(&ClaimAction::Over(ClaimId(1), ClaimEnd::Clock)), "{lost:?}");
        assert_eq!(machine.busy(), 0);
        let later = machine.on_wake(now + HOUR);
        assert_eq!(held(&later), [], "nobody wants it");
    }

    #[test]
    fn nothing_is_claimed_after_a_stop() {
        let (mut machine, now) = recovered();
        machine.on_event(now, ClaimEvent::Acquire(ClaimId(1), cell()));
        let stopped = machine.on_event(now, ClaimEvent::Stop);
        assert_eq!(stopped.actions[0], ClaimAction::Over(ClaimId(1), ClaimEnd::Stopped));
        let refused = machine.on_event(now, ClaimEvent::Acquire(ClaimId(2), cell()));
        assert!(refused.actions.contains(&ClaimAction::Over(ClaimId(2), ClaimEnd::Stopped)));
        let given_up = machine.on_event(now, ClaimEvent::Release(ClaimId(2), cell()));
        assert!(given_up.actions.contains(&ClaimAction::Over(ClaimId(2), ClaimEnd::Released)));
    }
}
