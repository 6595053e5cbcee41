//! Operations in flight: which keys they are on, and when a range has none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use centrifuge_core::key::{Key, KeyRange};
use tokio::sync::Notify;

/// Enough that threads seldom meet at one.
const SHARDS: usize = 64;

/// How many operations are in flight on each key.
///
/// Whoever begins an operation enters it first and asks for the lease then. Whoever freezes a range publishes that
/// first and looks for operations then. So one of the two always sees the other.
#[derive(Debug)]
pub(crate) struct InFlight {
    shards: Box<[Mutex<BTreeMap<Key, usize>>]>,
    /// How many wait for a range to become quiet.
    waiting: AtomicUsize,
    ended: Notify,
}

impl Default for InFlight {
    fn default() -> InFlight {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        InFlight { shards, waiting: AtomicUsize::new(0), ended: Notify::new() }
    }
}

impl InFlight {
    /// An operation on `key` begins.
    pub(crate) fn enter(&self, key: Key) {
        *self.shard(key).entry(key).or_default() += 1;
    }

    /// An operation on `key` has ended.
    pub(crate) fn exit(&self, key: Key) {
        {
            let mut shard = self.shard(key);
            if let Some(count) = shard.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    shard.remove(&key);
                }
            }
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.ended.notify_waiters();
        }
    }

    /// Whether no operation on `range` is in flight.
    pub(crate) fn is_quiet(&self, range: KeyRange) -> bool {
        let is_quiet = |shard: &Mutex<BTreeMap<Key, usize>>| {
            lock(shard).range(range.first()..=range.last()).next().is_none()
        };
        self.shards.iter().all(is_quiet)
    }

    /// Waits until no operation on `range` is in flight.
    pub(crate) async fn quiet(&self, range: KeyRange) {
        let _waiting = Waiting::new(&self.waiting);
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if self.is_quiet(range) {
                return;
            }
            ended.await;
        }
    }

    /// Neighbouring keys lie apart: low bits of a hash are as good as any.
    fn shard(&self, key: Key) -> MutexGuard<'_, BTreeMap<Key, usize>> {
        lock(&self.shards[key.0 as usize % SHARDS])
    }
}

fn lock(shard: &Mutex<BTreeMap<Key, usize>>) -> MutexGuard<'_, BTreeMap<Key, usize>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Waiting<'a> {
        count.fetch_add(1, Ordering::SeqCst);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn range(first: u64, last: u64) -> KeyRange {
        KeyRange::new(Key(first), Key(last)).expect("in order")
    }

    #[test]
    fn a_range_is_quiet_when_its_own_operations_have_ended() {
        let in_flight = InFlight::default();
        in_flight.enter(Key(5));
        in_flight.enter(Key(5));
        in_flight.enter(Key(100));
        assert!(in_flight.is_quiet(range(6, 99)));
        in_flight.exit(Key(5));
        assert!(!in_flight.is_quiet(range(0, 9)));
        in_flight.exit(Key(5));
        assert!(in_flight.is_quiet(range(0, 9)));
        assert!(!in_flight.is_quiet(KeyRange::ALL));
    }

    #[tokio::test]
    async fn waiting_ends_with_the_last_operation() {
        let in_flight = Arc::new(InFlight::default());
        in_flight.enter(Key(1));
        in_flight.enter(Key(2));
        let waiting = tokio::spawn({
            let in_flight = Arc::clone(&in_flight);
            async move { in_flight.quiet(range(0, 9)).await }
        });
        tokio::task::yield_now().await;
        in_flight.exit(Key(1));
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        in_flight.exit(Key(2));
        waiting.await.expect("no panic");
    }
}
