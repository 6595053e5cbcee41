//! Performs what a peer's machine decides.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::flease::{Ballot, ClaimAction, ClaimEnd, ClaimMachine, FleaseAction, PeerId};
use centrifuge_core::time::Instant;
use centrifuge_net::driver::Host;
use centrifuge_net::flease::PeerSocket;

use super::change::Change;
use super::want::Want;
use super::{PeerState, Shared};

/// The peer's host. Actions come in the order in which they must take effect: a lease ends here before others hear of it.
pub(super) struct PeerHost {
    shared: Arc<Shared>,
    socket: Arc<PeerSocket>,
    lease: Duration,
    /// The questions that are reached by the step under way.
    reached: Vec<u64>,
}

impl PeerHost {
    pub(super) fn new(shared: Arc<Shared>, socket: Arc<PeerSocket>, lease: Duration) -> PeerHost {
        PeerHost { shared, socket, lease, reached: Vec::new() }
    }

    fn hold(&self, want: &Want, epoch: Ballot, until: Instant) {
        let is_new = want.is_new(epoch);
        if is_new {
            self.shared.tell(Change::acquired(want.cell(), epoch));
        }
        want.hold(epoch, until, &self.shared.offset);
        // A lease counts from the start of its round.
        let tally = if is_new { &self.shared.acquired } else { &self.shared.renewed };
        tally.add(self.shared.offset.now().since(until - self.lease));
    }

    fn perform_for_peer(&self, action: FleaseAction) {
        match action {
            FleaseAction::Send { to, packet } => self.socket.send(to, packet),
            FleaseAction::Ended { cell, epoch, why } => self.shared.tell(Change::ended(&cell, epoch, why)),
            FleaseAction::HeldByOther { cell, lease } => {
                self.shared.tell(Change::held_by_other(&cell, lease));
            }
            FleaseAction::ClockApart { from } => self.clock_is_apart(&from),
            FleaseAction::ClockAgrees => self.clock_is_apart(&[]),
            // Said to the claims.
            FleaseAction::Held { .. } | FleaseAction::Released(_) | FleaseAction::NotAMember(_) => {}
        }
    }

    /// From none: it agrees.
    fn clock_is_apart(&self, from: &[PeerId]) {
        let from: Vec<u16> = from.iter().map(|peer| peer.0).collect();
        self.shared.status.send_modify(|status| {
            status.takes_part_from = Instant::NEVER;
            status.apart.clone_from(&from);
        });
        let agrees = from.is_empty();
        self.shared.tell(if agrees { Change::ClockAgrees } else { Change::ClockApart { from } });
    }
}

impl Host<ClaimMachine> for PeerHost {
    fn perform(&mut self, action: ClaimAction) {
        let waiting = &self.shared.waiting;
        match action {
            ClaimAction::Peer(action) => self.perform_for_peer(action),
            ClaimAction::Held { claim, epoch, until } => {
                if let Some(want) = waiting.want(claim) {
                    self.hold(&want, epoch, until);
                }
            }
            ClaimAction::HeldByOther { claim, lease } => {
                if let Some(want) = waiting.want(claim) {
                    want.is_held_by(lease);
                }
            }
            ClaimAction::Over(claim, end) => waiting.end(claim, end),
            ClaimAction::Reached(mark) => self.reached.push(mark),
        }
    }

    fn stepped(&mut self, now: Instant, machine: &ClaimMachine) {
        let peer = machine.peer();
        self.reached.drain(..).for_each(|mark| self.shared.waiting.answer(mark, peer, now));
        self.shared.publish(peer.counters());
        let (from, busy) = (peer.takes_part_from(), machine.busy());
        self.shared.busy.send_if_modified(|shown| std::mem::replace(shown, busy) != busy);
        let is_new = |status: &mut PeerState| std::mem::replace(&mut status.takes_part_from, from) != from;
        self.shared.status.send_if_modified(is_new);
    }
}

impl Drop for PeerHost {
    /// Whatever ended the driver, nobody renews any more.
    fn drop(&mut self) {
        self.shared.waiting.end_all(ClaimEnd::Stopped);
        self.shared.status.send_modify(|status| status.is_stopped = true);
        self.shared.tell(Change::Stopped);
    }
}
