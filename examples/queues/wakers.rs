//! Wakes readers that wait.

use centrifuge::Key;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Enough that few readers wake for another's message.
const WAKERS: usize = 256;

/// Wakers that several queues share: whoever hears one looks for itself.
#[derive(Debug)]
pub(super) struct Wakers {
    wakers: Box<[Notify]>,
}

impl Wakers {
    pub(super) fn new() -> Wakers {
        Wakers { wakers: (0..WAKERS).map(|_| Notify::new()).collect() }
    }

    /// Hears everything that rings for a queue from now on: listen first, then look.
    pub(super) fn listen(&self, key: Key) -> Notified<'_> {
        self.waker(key).notified()
    }

    /// Something came into a queue.
    pub(super) fn wake(&self, key: Key) {
        self.waker(key).notify_waiters();
    }

    /// Something happened that may concern every queue.
    pub(super) fn wake_all(&self) {
        self.wakers.iter().for_each(Notify::notify_waiters);
    }

    fn waker(&self, key: Key) -> &Notify {
        &self.wakers[key.0 as usize % WAKERS]
    }
}
