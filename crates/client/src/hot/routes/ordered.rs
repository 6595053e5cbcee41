//! Routes of ordered keys: by a key that knows its prefix, and by intervals.

use std::ops::RangeBounds;
use std::rc::Rc;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::Row;

use super::{HotRoutes, LOCAL, NoOwner, Route, RouteTable};
use crate::keys::{Interval, KeyError, KeyPrefix, KeySpace, NoKey, OrderedKey};

/// A part of an interval of ordered keys that has one owner, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The application keys.
    pub interval: Interval,
    /// Their keys. Those of the first and the last may also be the keys of neighbours outside of the interval.
    pub range: KeyRange,
    /// Where their owner is, or why they have none.
    pub owner: Result<Route, NoOwner>,
}

impl HotRoutes {
    /// Replaces the table by these rows, whose keys are ordered.
    pub(crate) fn publish_ordered<'a>(
        &self,
        rows: impl IntoIterator<Item = (KeyRange, &'a Row)>,
        space: Option<KeySpace>,
    ) {
        self.published.publish(RouteTable { space, ..RouteTable::new(rows) });
    }

    /// Where requests for an ordered key should go.
    #[inline(always)]
    pub(crate) fn lookup_ordered(&self, key: OrderedKey) -> Result<Route, NoOwner> {
        if let Ok(local) = LOCAL.try_with(Rc::clone) {
            let mut local = local.borrow_mut();
            let table = local.view(&self.published);
            if let Some(route) = table.find(key.key()).filter(|_| table.has(key)) {
                return Ok(route);
            }
        }
        self.lookup_ordered_slowly(key)
    }

    #[cold]
    fn lookup_ordered_slowly(&self, key: OrderedKey) -> Result<Route, NoOwner> {
        let table = self.published.get();
        if table.is_known && !table.has(key) {
            return Err(NoOwner::Replaced);
        }
        table.find_any(key.key())
    }

    /// The key of an application key, where keys are ordered.
    pub(crate) fn key_of(&self, application_key: &[u8]) -> Result<OrderedKey, NoKey> {
        if let Ok(local) = LOCAL.try_with(Rc::clone)
            && let Some(space) = &local.borrow_mut().view(&self.published).space
        {
            return Ok(space.key_of(application_key)?);
        }
        self.with_space(|_, space| space.key_of(application_key))
    }

    /// What lies between bounds: the ranges in key order, each with the application keys that it has of the interval, and its route.
    pub(crate) fn scan<B: AsRef<[u8]>>(&self, bounds: &impl RangeBounds<B>) -> Result<Vec<Slice>, NoKey> {
        self.with_space(|table, space| {
            let Some((interval, range)) = space.between(bounds)? else { return Ok(Vec::new()) };
            let slice = |(range, owner): (KeyRange, Result<Route, NoOwner>)| {
                let interval = interval.intersection(&space.prefix().interval_of(range))?;
                Some(Slice { interval, range, owner })
            };
            Ok(table.between(range).into_iter().filter_map(slice).collect())
        })
    }

    /// The first key of what lies between bounds, and the interval; `None` if nothing does.
    pub(crate) fn first_between<B: AsRef<[u8]>>(
        &self,
        bounds: &impl RangeBounds<B>,
    ) -> Result<Option<(Interval, OrderedKey)>, NoKey> {
        self.with_space(|_, space| {
            let found = space.between(bounds)?;
            Ok(found.map(|(interval, range)| (interval, space.first_of(range))))
        })
    }

    /// The prefix of ordered keys, once it is known.
    pub(crate) fn prefix(&self) -> Option<KeyPrefix> {
        self.published.get().space.as_ref().map(|space| space.prefix().clone())
    }

    fn with_space<R>(
        &self,
        read: impl FnOnce(&RouteTable, &KeySpace) -> Result<R, KeyError>,
    ) -> Result<R, NoKey> {
        let table = self.published.get();
        let space = table.space.as_ref().ok_or(NoKey::Unknown)?;
        Ok(read(&table, space)?)
    }
}

impl RouteTable {
    /// Whether it is a table of the keys that this one is of.
    #[inline(always)]
    fn has(&self, key: OrderedKey) -> bool {
        self.space.as_ref().is_some_and(|space| space.has(key))
    }

    /// The route of a key, or why it has none.
    fn find_any(&self, key: Key) -> Result<Route, NoOwner> {
        self.find(key).or_else(|| self.find_counted(key)).ok_or_else(|| self.nobody(key))
    }

    /// The ranges that share a key with this one, cut to it, each with its route.
    fn between(&self, range: KeyRange) -> Vec<(KeyRange, Result<Route, NoOwner>)> {
        let runs = self.index.find(range.first())..=self.index.find(range.last());
        let part = |run: usize| {
            let part = self.index.range(run).intersection(range)?;
            Some((part, self.find_any(part.first())))
        };
        runs.filter_map(part).collect()
    }
}
