//! What machines did before: a machine does the same with the same event at the same instant, so it is asked once.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use centrifuge_core::time::Instant;

use super::print::{Shared, mix};

/// What came of an event: nothing, or another state of the node and what it wants done.
pub(super) type Outcome<N, A> = Option<Arc<(Shared<N>, Vec<A>)>>;

/// The outcomes of one kind of machine, for all threads.
pub(super) struct Memo<N, A> {
    shards: Vec<Mutex<Known<N, A>>>,
}

type Known<N, A> = HashMap<u64, Outcome<N, A>, BuildHasherDefault<Printed>>;

const SHARDS: usize = 64;

impl<N, A> Default for Memo<N, A> {
    fn default() -> Self {
        Memo { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl<N, A> Memo<N, A> {
    /// What comes of an event, by its print, for a node at an instant; computed if it is not known.
    pub(super) fn outcome(
        &self,
        node: &Shared<N>,
        now: Instant,
        event: u64,
        compute: impl FnOnce() -> (Shared<N>, Vec<A>),
    ) -> Outcome<N, A> {
        let key = mix(&[node.print(), now.0, event]);
        let shard = &self.shards[key as usize % SHARDS];
        if let Some(known) = shard.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let (after, actions) = compute();
        let changed = after != *node || !actions.is_empty();
        let outcome = changed.then(|| Arc::new((after, actions)));
        shard.lock().unwrap_or_else(PoisonError::into_inner).insert(key, outcome.clone());
        outcome
    }
}

/// The hasher of keys that are prints already.
#[derive(Default)]
struct Printed(u64);

impl Hasher for Printed {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are prints");
    }

    fn write_u64(&mut self, print: u64) {
        self.0 = print;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
