//! Performs what a peer's machine decides.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::flease::Ballot;
use centrifuge_core::time::Instant;
use centrifuge_net::driver::Host;
use centrifuge_net::flease::PeerSocket;

use super::change::Change;
use super::peer::{Peer, PeerAction};
use super::want::Want;
use super::{Shared, State};

/// The peer's host. Actions come in the order in which they must take effect: a lease ends here before others hear of it.
pub(super) struct PeerHost {
    shared: Arc<Shared>,
    socket: Arc<PeerSocket>,
    lease: Duration,
}

impl PeerHost {
    pub(super) fn new(shared: Arc<Shared>, socket: Arc<PeerSocket>, lease: Duration) -> PeerHost {
        PeerHost { shared, socket, lease }
    }

    fn hold(&self, want: &Want, epoch: Ballot, until: Instant) {
        let tally = if want.is_new(epoch) { &self.shared.acquired } else { &self.shared.renewed };
        want.hold(epoch, until, &self.shared.offset);
        // A lease counts from the start of its round.
        tally.add(self.shared.offset.now().since(until - self.lease));
    }
}

impl Host<Peer> for PeerHost {
    fn perform(&mut self, action: PeerAction) {
        match action {
            PeerAction::Send { to, packet } => self.socket.send(to, packet),
            PeerAction::Hold { want, epoch, until } => self.hold(&want, epoch, until),
            PeerAction::Other { want, lease } => want.is_held_by(lease),
            PeerAction::End { want, why } => want.end(why),
            PeerAction::Tell(change) => self.shared.tell(change),
            PeerAction::Apart(from) => {
                let from: Vec<u16> = from.iter().map(|peer| peer.0).collect();
                self.shared.status.send_modify(|status| {
                    status.takes_part_from = Instant::NEVER;
                    status.apart.clone_from(&from);
                });
                let agrees = from.is_empty();
                self.shared.tell(if agrees { Change::ClockAgrees } else { Change::ClockApart { from } });
            }
            PeerAction::Answer { look, found } => look.answer(found),
        }
    }

    fn stepped(&mut self, _: Instant, peer: &Peer) {
        self.shared.publish(peer.machine().counters());
        let (from, busy) = (peer.machine().takes_part_from(), peer.busy());
        self.shared.busy.send_if_modified(|shown| std::mem::replace(shown, busy) != busy);
        let is_new = |status: &mut State| std::mem::replace(&mut status.takes_part_from, from) != from;
        self.shared.status.send_if_modified(is_new);
    }
}

impl Drop for PeerHost {
    fn drop(&mut self) {
        self.shared.status.send_modify(|status| status.is_stopped = true);
        self.shared.tell(Change::Stopped);
    }
}
