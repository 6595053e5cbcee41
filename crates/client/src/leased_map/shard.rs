//! Some of the entries of a map: found by name and, where names have an order, in that order.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::Bound;

use centrifuge_core::key_interval::Interval;

use super::place::Place;
use super::{Entry, KeyOrder};

/// Entries by name.
pub(super) struct Shard<N, V, K> {
    entries: HashMap<N, Entry<V>>,
    /// The same names by their application keys; empty where they have no order.
    order: BTreeMap<Box<[u8]>, N>,
    keys: PhantomData<K>,
}

impl<N, V, K> Default for Shard<N, V, K> {
    fn default() -> Shard<N, V, K> {
        Shard { entries: HashMap::new(), order: BTreeMap::new(), keys: PhantomData }
    }
}

impl<N: Place<K> + Eq + Hash + Clone, V, K: KeyOrder> Shard<N, V, K> {
    pub(super) fn get(&self, name: &N) -> Option<&Entry<V>> {
        self.entries.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &N) -> Option<&mut Entry<V>> {
        self.entries.get_mut(name)
    }

    /// The entry of a name, which is made if there is none.
    pub(super) fn get_or_insert(&mut self, name: &N, make: impl FnOnce() -> Entry<V>) -> &mut Entry<V> {
        if !self.entries.contains_key(name) {
            self.insert(name.clone(), make());
        }
        self.entries.get_mut(name).expect("it was there or was just put there")
    }

    pub(super) fn insert(&mut self, name: N, entry: Entry<V>) {
        if let Some(order) = name.order() {
            self.order.insert(order, name.clone());
        }
        self.entries.insert(name, entry);
    }

    pub(super) fn remove(&mut self, name: &N) {
        if let Some(order) = name.order() {
            self.order.remove(&order);
        }
        self.entries.remove(name);
    }

    pub(super) fn retain(&mut self, mut stays: impl FnMut(&N, &Entry<V>) -> bool) {
        let order = &mut self.order;
        self.entries.retain(|name, entry| {
            let stays = stays(name, entry);
            if let Some(place) = name.order().filter(|_| !stays) {
                order.remove(&place);
            }
            stays
        });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&N, &Entry<V>)> {
        self.entries.iter()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Entry<V>> {
        self.entries.values()
    }

    /// The entries of an interval, in order.
    pub(super) fn between(&self, interval: &Interval) -> impl Iterator<Item = (&[u8], &N, &Entry<V>)> {
        let to = interval.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.order.range::<[u8], _>((Bound::Included(&*interval.from), to));
        names.filter_map(|(place, name)| Some((&**place, name, self.entries.get(name)?)))
    }
}
