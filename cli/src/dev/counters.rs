//! The state of a server: counters by key, each with the lease under which it was written.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use centrifuge::{Generation, Key, KeyRange, Lease};
use serde::{Deserialize, Serialize};

/// Counters in the order of their keys. State of an earlier lease is not state: whoever wrote it may have been
/// followed by others since.
#[derive(Debug, Default)]
pub(super) struct Counters {
    by_key: Mutex<BTreeMap<Key, Counter>>,
}

/// One counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counter {
    key: u64,
    value: u64,
    #[serde(skip)]
    lease: Generation,
}

impl Counters {
    /// Adds one to what is left of a counter under `lease`, and gives its new value.
    pub(super) fn add(&self, key: Key, lease: &Lease) -> u64 {
        let mut counters = self.lock();
        let kept = counters
            .get(&key)
            .filter(|counter| counter.lease == lease.generation || Some(counter.lease) == lease.source);
        let value = kept.map_or(0, |counter| counter.value) + 1;
        counters.insert(key, Counter { key: key.0, value, lease: lease.generation });
        value
    }

    /// The counters of a range that are state under a lease, to be sent elsewhere.
    pub(super) fn of(&self, range: KeyRange, lease: &Lease) -> Vec<Counter> {
        let counters = self.lock();
        let there = counters.range(range.first()..=range.last()).map(|(_, counter)| counter);
        there.filter(|c| c.lease == lease.generation || Some(c.lease) == lease.source).cloned().collect()
    }

    /// Takes in counters that another server had under `source`.
    pub(super) fn take(&self, range: KeyRange, arrived: Vec<Counter>, source: Generation) {
        let mut counters = self.lock();
        counters.retain(|key, _| !range.contains(*key));
        let within = arrived.into_iter().filter(|counter| range.contains(Key(counter.key)));
        counters.extend(within.map(|counter| (Key(counter.key), Counter { lease: source, ..counter })));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Counter>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(generation: u64, source: Option<u64>) -> Lease {
        Lease {
            range: KeyRange::ALL,
            generation: Generation(generation),
            state_since: Generation(1),
            source: source.map(Generation),
        }
    }

    #[test]
    fn state_counts_under_its_own_lease_alone() {
        let counters = Counters::default();
        assert_eq!([counters.add(Key(1), &lease(5, None)), counters.add(Key(1), &lease(5, None))], [1, 2]);
        assert_eq!(counters.add(Key(1), &lease(9, None)), 1);
    }

    #[test]
    fn state_that_came_along_counts_under_the_lease_that_follows() {
        let (here, there) = (Counters::default(), Counters::default());
        here.add(Key(1), &lease(5, None));
        there.add(Key(1), &lease(2, None));
        there.take(KeyRange::ALL, here.of(KeyRange::ALL, &lease(5, None)), Generation(5));
        assert_eq!(there.add(Key(1), &lease(6, Some(5))), 2);
        assert_eq!(there.add(Key(1), &lease(6, Some(5))), 3);
    }
}
