//! Which stream a Lookup watches by, so that the machine hears when it has gone.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use centrifuge_core::id::{Namespace, Nonce, Seq};
use centrifuge_core::manager::{ManagerEvent, StreamId};
use centrifuge_core::message::LookupRequest;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::OpenStream;
use crate::inbox::Inbox;
use crate::view::RoleView;

/// The latest watch of each Lookup. A Lookup lets go of a stream with every poll: only the end of its latest is worth telling.
#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<HashMap<(Namespace, Nonce), (Seq, StreamId)>>);

impl Watches {
    /// Gives the stream that was the Lookup's latest until now, if it was.
    fn begin(&self, lookup: &(Namespace, Nonce), seq: Seq, peer: StreamId) -> Option<StreamId> {
        let mut latest = self.lock();
        match latest.entry(lookup.clone()) {
            Entry::Vacant(none) => {
                none.insert((seq, peer));
                None
            }
            Entry::Occupied(mut known) if known.get().0 < seq => Some(known.insert((seq, peer)).1),
            Entry::Occupied(_) => None,
        }
    }

    fn is_latest(&self, lookup: &(Namespace, Nonce), peer: StreamId) -> bool {
        self.lock().get(lookup).is_some_and(|(_, known)| *known == peer)
    }

    /// Whether that was the Lookup's latest.
    fn end(&self, lookup: &(Namespace, Nonce), peer: StreamId) -> bool {
        let mut latest = self.lock();
        let is_latest = latest.get(lookup).is_some_and(|(_, known)| *known == peer);
        if is_latest {
            latest.remove(lookup);
        }
        is_latest
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Namespace, Nonce), (Seq, StreamId)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One watch. The machine hears when it ends, unless the Lookup has begun another.
pub(super) struct Watch {
    watches: Arc<Watches>,
    inbox: Inbox,
    peer: StreamId,
    lookup: (Namespace, Nonce),
    /// Given back only when the machine has room to hear of the end: who opens and closes streams cannot pile ends up.
    room: Option<OpenStream>,
    /// The Lookup's stream before this one.
    earlier: Option<StreamId>,
    /// Waits until this Manager leads, if it does not.
    unheard: Option<AbortHandle>,
}

impl Watch {
    pub(super) fn new(
        watches: &Arc<Watches>,
        inbox: Inbox,
        peer: StreamId,
        request: &LookupRequest,
        room: OpenStream,
    ) -> Watch {
        let lookup = (request.namespace.clone(), request.lookup);
        let earlier = watches.begin(&lookup, request.seq, peer);
        Watch { watches: Arc::clone(watches), inbox, peer, lookup, room: Some(room), earlier, unheard: None }
    }

    /// The stream that this one replaces, if it is still open.
    pub(super) fn earlier(&self) -> Option<StreamId> {
        self.earlier
    }

    /// The request came while this Manager did not lead. If it comes to lead while the Lookup still asks by it, it hears the request
    /// once more, as if the network had been slow: a Lookup that looks for a leader need not ask again.
    pub(super) fn hear_again(&mut self, mut roles: watch::Receiver<RoleView>, request: LookupRequest) {
        let (watches, inbox) = (Arc::clone(&self.watches), self.inbox.clone());
        let (lookup, from) = (self.lookup.clone(), self.peer);
        let waits = tokio::spawn(async move {
            let leads = roles.wait_for(RoleView::is_leading).await.is_ok();
            if leads && watches.is_latest(&lookup, from) {
                // A Manager that stops takes no more messages, and ends the stream with that status.
                let _ = inbox.request(ManagerEvent::FromLookup { from, request }).await;
            }
        });
        self.unheard = Some(waits.abort_handle());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.unheard.take().inspect(AbortHandle::abort);
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
        assert_eq!(watches.begin(&chat, Seq(1), StreamId(1)), None);
        assert_eq!(watches.begin(&chat, Seq(3), StreamId(3)), Some(StreamId(1)));
        // Overtaken on its way.
        assert_eq!(watches.begin(&chat, Seq(2), StreamId(2)), None);
        assert_eq!(watches.begin(&game, Seq(1), StreamId(4)), None);
        assert!(!watches.end(&chat, StreamId(1)));
        assert!(!watches.end(&chat, StreamId(2)));
        assert!(!watches.end(&chat, StreamId(4)), "nobody ends another's");
        assert!(watches.end(&chat, StreamId(3)));
        assert!(!watches.end(&chat, StreamId(3)));
        assert!(watches.end(&game, StreamId(4)));
        assert!(watches.lock().is_empty());
    }
}
