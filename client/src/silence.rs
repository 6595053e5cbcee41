//! How long a Manager has let a client wait.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A Manager that says nothing for so long is asked again by another connection. Any Manager answers a request at once, if only that
/// it does not lead.
const TOO_LONG: Duration = Duration::from_secs(2);

/// Since when something asked has gone unanswered. Paces connections and nothing else: no lease is counted by it.
#[derive(Debug, Default)]
pub(crate) struct Silence(Mutex<Option<Instant>>);

impl Silence {
    /// Something was asked.
    pub(crate) fn asked(&self) {
        self.since().get_or_insert_with(Instant::now);
    }

    /// Something was heard.
    pub(crate) fn heard(&self) {
        *self.since() = None;
    }

    /// Whether nothing was heard for too long after something was asked.
    pub(crate) fn is_too_long(&self) -> bool {
        self.since().is_some_and(|since| since.elapsed() >= TOO_LONG)
    }

    fn since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
