//! Entries of ordered names, one after the other.

use std::hash::Hash;
use std::ops::RangeBounds;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::key_interval::Interval;

use super::{Entry, LeasedMap, Leases, OrderedName, Place, lock};
use crate::hot::{Lease, NotOwner};
use crate::keys::{Ordered, bytes_of};

/// Entries of an interval, in order, with the leases that they are true under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan<N, V> {
    /// The entries, by the order of their application keys.
    pub entries: Vec<(N, V)>,
    /// Where to go on, if the interval has more entries than were asked for.
    pub next: Option<Vec<u8>>,
    /// The leases on the interval, in key order, as far as they are on it.
    pub leases: Vec<Lease>,
}

/// An entry with its application key.
type Found<N, V> = (Vec<u8>, N, V);

impl<N: OrderedName + Eq + Hash + Clone, V: Clone> LeasedMap<N, V, Ordered> {
    /// The first `most` entries of an interval of application keys, in order. All of the interval must be owned by this server: who asks for
    /// more looks up which parts others own, as [`Router::visit`](crate::Router::visit) does.
    ///
    /// Each entry is as it was at some moment during the call; they are not all of one moment. [`LeasedMap::recheck_scan`] it before
    /// anything leaves the server.
    pub fn scan<B: AsRef<[u8]>>(
        &self,
        bounds: impl RangeBounds<B>,
        most: usize,
    ) -> Result<Scan<N, V>, NotOwner> {
        let leases = self.inner.leases()?;
        let prefix = leases.prefix().ok_or(NotOwner::NoLease)?;
        let bounds = (bytes_of(bounds.start_bound()), bytes_of(bounds.end_bound()));
        let interval = prefix.interval(bounds.0, bounds.1).map_err(|_| NotOwner::OutsidePrefix)?;
        let Some(interval) = interval else {
            return Ok(Scan { entries: Vec::new(), next: None, leases: Vec::new() });
        };
        let range = prefix.range_of(&interval).map_err(|_| NotOwner::OutsidePrefix)?;
        let held = leases_on(range, leases)?;
        self.install_imports(Some(range));
        let mut found = self.find_between(&interval, &held, most.saturating_add(1));
        found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        let next = found.get(most).map(|(place, ..)| place.clone());
        found.truncate(most);
        let entries = found.into_iter().map(|(_, name, value)| (name, value)).collect();
        let scan = Scan { entries, next, leases: held };
        if leases.prefix() != Some(prefix) {
            return Err(NotOwner::NoLease);
        }
        self.recheck_scan(&scan)?;
        Ok(scan)
    }

    /// Whether the outcome of a scan is still true: all of its keys were held without a gap since.
    pub fn recheck_scan<T>(&self, scan: &Scan<N, T>) -> Result<(), NotOwner> {
        let leases = self.inner.leases()?;
        let is_held = |lease: &Lease| is_held_since(lease, leases);
        if scan.leases.iter().all(is_held) { Ok(()) } else { Err(NotOwner::NoLease) }
    }

    /// The first entries of each shard.
    fn find_between(&self, interval: &Interval, held: &[Lease], most: usize) -> Vec<Found<N, V>> {
        let Ok(leases) = self.inner.leases() else { return Vec::new() };
        let now = leases.now();
        let is_valid = |key: Key, entry: &Entry<V>| {
            let lease = held.iter().find(|lease| lease.range.contains(key));
            lease.is_some_and(|lease| lease.is_continuous_since(entry.generation)) && entry.is_live(now)
        };
        let mut found = Vec::new();
        for shard in &self.inner.shards {
            let shard = lock(shard);
            let live = shard.between(interval).filter_map(|(place, name, entry)| {
                let key = name.place(leases).ok().filter(|key| is_valid(*key, entry));
                let value = entry.value.clone().filter(|_| key.is_some())?;
                Some((place.to_vec(), name.clone(), value))
            });
            found.extend(live.take(most));
        }
        found
    }
}

/// The leases that cover a range, all of it.
fn leases_on(range: KeyRange, leases: &dyn Leases) -> Result<Vec<Lease>, NotOwner> {
    let mut held = Vec::new();
    let mut next = Some(range.first());
    while let Some(key) = next.filter(|key| *key <= range.last()) {
        let lease = leases.check(key)?;
        let own = lease.range.intersection(range).ok_or(NotOwner::NoLease)?;
        held.push(Lease { range: own, ..lease });
        next = lease.range.last().next();
    }
    Ok(held)
}

/// Whether all keys of a lease have been held without a gap since. It may have lost a part of them and kept its number for the rest.
fn is_held_since(lease: &Lease, leases: &dyn Leases) -> bool {
    let mut next = Some(lease.range.first());
    while let Some(key) = next.filter(|key| *key <= lease.range.last()) {
        match leases.held(key).filter(|held| held.is_continuous_since(lease.generation)) {
            Some(held) => next = held.range.last().next(),
            None => return false,
        }
    }
    true
}
