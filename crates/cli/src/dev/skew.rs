//! Which keys callers ask for: all alike, or those of one server most of the time.

use std::sync::{Mutex, PoisonError};

use centrifuge::{Key, Lookup};

/// Shared by all callers, so that the story can turn it.
#[derive(Debug, Default)]
pub(super) struct Skew {
    /// The server whose keys are asked for most.
    url: Mutex<Option<String>>,
}

impl Skew {
    /// Asks mostly for what this server owns; `None`: for all keys alike.
    pub(super) fn set(&self, url: Option<String>) {
        *self.url.lock().unwrap_or_else(PoisonError::into_inner) = url;
    }

    /// The key for a turn: one after the other, but nine in ten times only such that the server owns.
    pub(super) fn pick<'a>(&self, turn: usize, keys: &'a [String], lookup: &Lookup) -> &'a str {
        let usual = &keys[turn % keys.len()];
        if turn.is_multiple_of(10) {
            return usual;
        }
        let url = self.url.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(url) = url.as_deref() else { return usual };
        let is_there =
            |key: &String| lookup.lookup(Key::of(key.as_bytes())).is_ok_and(|route| route.url() == url);
        let after = (1..=keys.len()).map(|step| &keys[(turn + step) % keys.len()]);
        after.into_iter().find(|key| is_there(key)).unwrap_or(usual)
    }
}
