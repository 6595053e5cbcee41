//! Wakes readers that wait.

use centrifuge::Key;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Enough that few readers wake for another's message.
const BELLS: usize = 256;

/// Bells that several queues share: whoever hears one looks for itself.
#[derive(Debug)]
pub(super) struct Bells {
    bells: Box<[Notify]>,
}

impl Bells {
    pub(super) fn new() -> Bells {
        Bells { bells: (0..BELLS).map(|_| Notify::new()).collect() }
    }

    /// Hears everything that rings for a queue from now on: listen first, then look.
    pub(super) fn listen(&self, key: Key) -> Notified<'_> {
        self.bell(key).notified()
    }

    /// Something came into a queue.
    pub(super) fn ring(&self, key: Key) {
        self.bell(key).notify_waiters();
    }

    /// Something happened that may concern every queue.
    pub(super) fn ring_all(&self) {
        self.bells.iter().for_each(Notify::notify_waiters);
    }

    fn bell(&self, key: Key) -> &Notify {
        &self.bells[key.0 as usize % BELLS]
    }
}
