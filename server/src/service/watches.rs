//! Which stream a Lookup watches by, so that the machine hears when it has gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use centrifuge_core::id::{Namespace, Nonce, Seq};
use centrifuge_core::manager::{ManagerEvent, Peer};
use centrifuge_core::message::LookupRequest;

use super::OpenStream;
use crate::inbox::Inbox;

/// The latest watch of each Lookup. A Lookup lets go of a stream with every poll: only the end of its latest is worth telling.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<HashMap<(Namespace, Nonce), (Seq, Peer)>>);

impl Watches {
    fn begin(&self, lookup: &(Namespace, Nonce), seq: Seq, peer: Peer) {
        let mut latest = self.lock();
        let known = latest.entry(lookup.clone()).or_insert((seq, peer));
        if known.0 < seq {
            *known = (seq, peer);
        }
    }

    /// Whether that was the Lookup's latest.
    fn end(&self, lookup: &(Namespace, Nonce), peer: Peer) -> bool {
        let mut latest = self.lock();
        let is_latest = latest.get(lookup).is_some_and(|(_, known)| *known == peer);
        if is_latest {
            latest.remove(lookup);
        }
        is_latest
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Namespace, Nonce), (Seq, Peer)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One watch. The machine hears when it ends, unless the Lookup has begun another.
pub(super) struct Watch {
    watches: Arc<Watches>,
    inbox: Inbox,
    peer: Peer,
    lookup: (Namespace, Nonce),
    /// Given back only when the machine has room to hear of the end: who opens and closes streams cannot pile ends up.
    room: Option<OpenStream>,
}

impl Watch {
    pub(super) fn new(
        watches: &Arc<Watches>,
        inbox: Inbox,
        peer: Peer,
        request: &LookupRequest,
        room: OpenStream,
    ) -> Watch {
        let lookup = (request.namespace.clone(), request.lookup);
        watches.begin(&lookup, request.seq, peer);
        Watch { watches: Arc::clone(watches), inbox, peer, lookup, room: Some(room) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.watches.end(&self.lookup, self.peer) {
            let (namespace, lookup) = self.lookup.clone();
            self.inbox
                .later(ManagerEvent::LookupGone { from: self.peer, namespace, lookup }, self.room.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_lookups_latest_watch_is_told() {
        let watches = Watches::default();
        let [chat, game] = ["chat", "game"].map(|name| (Namespace::new(name).expect("a label"), Nonce(1)));
        watches.begin(&chat, Seq(1), Peer(1));
        watches.begin(&chat, Seq(3), Peer(3));
        // Overtaken on its way.
        watches.begin(&chat, Seq(2), Peer(2));
        watches.begin(&game, Seq(1), Peer(4));
        assert!(!watches.end(&chat, Peer(1)));
        assert!(!watches.end(&chat, Peer(2)));
        assert!(!watches.end(&chat, Peer(4)), "nobody ends another's");
        assert!(watches.end(&chat, Peer(3)));
        assert!(!watches.end(&chat, Peer(3)));
        assert!(watches.end(&game, Peer(4)));
        assert!(watches.lock().is_empty());
    }
}
