//! How long a Manager has let a client wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A Manager that was heard before and then says nothing for so long is asked again by another connection. Any Manager answers a
/// request at once, if only that it does not lead.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Since when a Manager has answered nothing. Paces connections and nothing else: no lease is counted by it.
#[derive(Debug, Default)]
pub(crate) struct StallDetector(Mutex<Stall>);

#[derive(Debug, Default)]
struct Stall {
    /// When the oldest question was asked that nothing was heard after.
    since: Option<Instant>,
    /// Something was heard by the connection that there is.
    was_heard: bool,
}

impl StallDetector {
    /// Something is asked. True if the Manager has been silent for too long: then the connection is to be given up for another. One by
    /// which nothing was heard yet is not: a Manager that cannot answer as many as want to connect would only get more to do.
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.state();
        let now = Instant::now();
        let since = *state.since.get_or_insert(now);
        let gives_up = state.was_heard && now.duration_since(since) >= STALL_TIMEOUT;
        if gives_up {
            *state = Stall { since: Some(now), was_heard: false };
        }
        gives_up
    }

    /// Something was heard.
    pub(crate) fn heard(&self) {
        *self.state() = Stall { since: None, was_heard: true };
    }

    fn state(&self) -> MutexGuard<'_, Stall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
