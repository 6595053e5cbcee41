//! The receiver's side of lease numbers.

use std::sync::{Mutex, PoisonError};

use centrifuge_core::id::Generation;
use centrifuge_core::key::Key;
use serde::{Deserialize, Serialize};

/// Refuses what a former owner of a key still had on its way: a message counts only if its lease is not lower than any
/// seen for that key. Keeps one number for every key it has accepted a message for.
///
/// A lease may go on under a higher number. What its owner still had on its way under the lower one is then refused like that of
/// a former owner: an owner whose message is refused checks its lease again, and sends again under the number it has now.
///
/// It can be written and read with serde: a fence that is a part of the state moves with it, so that what was refused at one
/// server is refused at the next.
///
/// ```
/// use centrifuge::{Fence, Generation, Key};
///
/// let fence = Fence::new();
/// let room = Key::of(b"room-7");
/// assert!(fence.accept(room, Generation(4)).is_ok());
/// assert!(fence.accept(room, Generation(5)).is_ok());
/// // The owner of lease 4 was paused, and does not know yet that it is no owner any more.
/// assert!(fence.accept(room, Generation(4)).is_err());
/// ```
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence {
    inner: Mutex<centrifuge_core::fence::Fence>,
}

/// A message of a lease that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "lease {generation} on key {key} is over: drop the message; its sender checks its lease and sends again if it has one"
)]
pub struct StaleLease {
    /// The key.
    pub key: Key,
    /// The lease that the message came under.
    pub generation: Generation,
}

impl Clone for Fence {
    fn clone(&self) -> Fence {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Fence { inner: Mutex::new(inner) }
    }
}

impl Fence {
    /// A fence that has seen nothing, and so refuses nothing yet.
    #[must_use]
    pub fn new() -> Fence {
        Fence::default()
    }

    /// Whether a message about `key`, sent under the lease `generation`, may be processed.
    pub fn accept(&self, key: Key, generation: Generation) -> Result<(), StaleLease> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.accept(key, generation) { Ok(()) } else { Err(StaleLease { key, generation }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_that_moved_refuses_what_it_refused() {
        let fence = Fence::new();
        let key = Key(u64::MAX);
        fence.accept(key, Generation(7)).expect("the first it sees");
        let written = serde_json::to_string(&fence).expect("written");
        let moved: Fence = serde_json::from_str(&written).expect("read");
        assert!(moved.accept(key, Generation(6)).is_err(), "{written}");
        assert!(moved.accept(key, Generation(7)).is_ok());
    }
}
