//! Performs what a peer's machine decides.

use std::sync::Arc;

use centrifuge_core::time::Instant;
use centrifuge_net::driver::Host;
use centrifuge_net::flease::PeerSocket;

use super::Shared;
use super::change::Change;
use super::peer::{Peer, PeerAction};

/// The peer's host. Actions come in the order in which they must take effect: a lease ends here before others hear of it.
pub(super) struct PeerHost {
    shared: Arc<Shared>,
    socket: Arc<PeerSocket>,
}

impl PeerHost {
    pub(super) fn new(shared: Arc<Shared>, socket: Arc<PeerSocket>) -> PeerHost {
        PeerHost { shared, socket }
    }
}

impl Host<Peer> for PeerHost {
    fn perform(&mut self, action: PeerAction) {
        match action {
            PeerAction::Send { to, packet } => self.socket.send(to, packet),
            PeerAction::Hold { want, epoch, until } => want.hold(epoch, until, &self.shared.offset),
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
        self.shared.status.send_if_modified(|status| {
            let is_new = (status.takes_part_from, status.busy) != (from, busy);
            (status.takes_part_from, status.busy) = (from, busy);
            is_new
        });
    }
}

impl Drop for PeerHost {
    fn drop(&mut self) {
        self.shared.status.send_modify(|status| status.is_stopped = true);
        self.shared.tell(Change::Stopped);
    }
}
