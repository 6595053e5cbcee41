//! Which keys callers ask for: all alike, or a few of them most of the time.

use std::sync::atomic::{AtomicBool, Ordering};

/// Shared by all callers, so that the story can turn it.
#[derive(Debug, Default)]
pub(super) struct Skew {
    is_on: AtomicBool,
}

impl Skew {
    pub(super) fn set(&self, is_on: bool) {
        self.is_on.store(is_on, Ordering::Relaxed);
    }

    /// The place of the key for a turn: one after the other, or three in four times one of the first few.
    pub(super) fn pick(&self, turn: usize, keys: usize) -> usize {
        let few = keys.div_ceil(20);
        if self.is_on.load(Ordering::Relaxed) && !turn.is_multiple_of(4) { turn % few } else { turn % keys }
    }
}
