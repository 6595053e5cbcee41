//! Deadlines by name, with the earliest at hand.

use std::collections::{BTreeMap, BTreeSet};

use crate::time::Instant;

/// A set of named deadlines. Setting one again replaces it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Timers<K: Ord + Clone> {
    by_name: BTreeMap<K, Instant>,
    by_time: BTreeSet<(Instant, K)>,
}

impl<K: Ord + Clone> Default for Timers<K> {
    fn default() -> Self {
        Timers { by_name: BTreeMap::new(), by_time: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Timers<K> {
    /// Sets or replaces the deadline of `name`.
    pub(crate) fn set(&mut self, name: K, at: Instant) {
        if let Some(old) = self.by_name.insert(name.clone(), at) {
            if old == at {
                return;
            }
            self.by_time.remove(&(old, name.clone()));
        }
        self.by_time.insert((at, name));
    }

    /// Sets the deadline of `name` unless it has one.
    pub(crate) fn set_if_absent(&mut self, name: K, at: Instant) {
        if !self.by_name.contains_key(&name) {
            self.set(name, at);
        }
    }

    /// Forgets the deadline of `name`.
    pub(crate) fn clear(&mut self, name: &K) {
        if let Some(old) = self.by_name.remove(name) {
            self.by_time.remove(&(old, name.clone()));
        }
    }

    /// The deadline of `name`.
    #[must_use]
    pub(crate) fn get(&self, name: &K) -> Option<Instant> {
        self.by_name.get(name).copied()
    }

    /// The earliest deadline.
    #[must_use]
    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// All deadlines, the earliest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Instant, &K)> {
        self.by_time.iter().map(|(at, name)| (*at, name))
    }

    /// Takes the earliest deadline that is not after `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<K> {
        let (at, _) = self.by_time.first()?;
        if *at > now {
            return None;
        }
        let (_, name) = self.by_time.pop_first()?;
        self.by_name.remove(&name);
        Some(name)
    }
}
