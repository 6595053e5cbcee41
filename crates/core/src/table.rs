//! The lease table of a namespace: who holds which keys, under which lease, and since when their state exists.

use std::collections::BTreeMap;

use crate::id::{Generation, SessionId, Url};
use crate::injected_bug::{Bug, injected};
use crate::key::{Key, KeyRange};
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;

/// What the table says of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// The session that holds it or is being granted it.
    pub owner: Option<SessionId>,
    /// The last lease granted on it; zero if there was none.
    pub generation: Generation,
    /// The lease at which its state last began empty.
    pub state_since: Generation,
    /// The lease under which the state that came along was held, if it came along.
    pub source: Option<Generation>,
    /// The Manager wants it back.
    pub recall: Option<Recall>,
    /// The number under which it and its neighbours are to be one lease. Its holder may have taken that number or not.
    pub merge: Option<Generation>,
    /// It has killed Owners, and is granted to nobody.
    #[cfg_attr(feature = "serde", serde(default))]
    pub quarantined: bool,
}

impl Entry {
    /// Whether its holder may hold it under this number.
    #[must_use]
    pub fn is_under(&self, generation: Generation) -> bool {
        self.numbers().have(generation)
    }

    /// Whether it can be granted: nobody has it, and it is not kept from everybody.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.owner.is_none() && (!self.quarantined || injected(Bug::QuarantinedGranted))
    }

    /// The numbers under which its holder may hold it.
    #[must_use]
    pub fn numbers(&self) -> LeaseNumbers {
        LeaseNumbers { generation: self.generation, merge: self.merge }
    }
}

/// The numbers under which a lease may be held: one, or two while it becomes one lease with its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseNumbers {
    /// The number that the table has.
    pub generation: Generation,
    /// The number that it gets once its holder has it.
    pub merge: Option<Generation>,
}

impl LeaseNumbers {
    /// Whether one of them is this one.
    #[must_use]
    pub fn have(self, generation: Generation) -> bool {
        self.generation == generation || self.merge == Some(generation)
    }
}

/// A recall in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Recall {
    /// The session that gets the state and then the lease; `None`: a plain recall.
    pub to: Option<SessionId>,
}

/// Every key's entry. Covers the key space with no hole and no overlap, always: there is no operation that could
/// make one. Knows each session's keys without a scan, and so those that can be granted and those that are wanted back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    entries: RangeMap<Entry>,
    /// The entries of each session once more, side by side: what is sent to a session is made of them alone.
    entries_of: BTreeMap<SessionId, RangeMap<Entry>>,
    unowned: RangeSet,
    recalled: RangeSet,
}

impl Default for Table {
    fn default() -> Self {
        let mut entries = RangeMap::new();
        entries.insert(KeyRange::ALL, Entry::default());
        Table { entries, entries_of: BTreeMap::new(), unowned: RangeSet::all(), recalled: RangeSet::new() }
    }
}

impl Table {
    /// The entry of a key, with the range that shares it.
    #[must_use]
    pub fn get(&self, key: Key) -> (KeyRange, &Entry) {
        self.entries.get(key).expect("the table covers every key")
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl Iterator<Item = (KeyRange, &Entry)> {
        self.entries.iter()
    }

    /// The entries that share a key with `range`, clipped to it.
    pub fn overlapping(&self, range: KeyRange) -> impl Iterator<Item = (KeyRange, &Entry)> {
        self.entries.overlapping(range)
    }

    /// The entries in pieces that have a value in `map` too, with that value, in key order.
    pub fn overlay<'a, T>(
        &'a self,
        map: &'a RangeMap<T>,
    ) -> impl Iterator<Item = (KeyRange, &'a Entry, &'a T)> + 'a {
        self.entries.overlay(map)
    }

    /// The entries that a session holds or is being granted, in key order.
    pub fn of_session(&self, session: SessionId) -> impl Iterator<Item = (KeyRange, &Entry)> {
        self.entries_of.get(&session).into_iter().flat_map(RangeMap::iter)
    }

    /// Those of a session's entries that have a key from `first` on, clipped to that, in key order.
    pub fn of_session_from(
        &self,
        session: SessionId,
        first: Key,
    ) -> impl Iterator<Item = (KeyRange, &Entry)> {
        let rest = KeyRange::new(first, Key::MAX).unwrap_or(KeyRange::ALL);
        self.entries_of.get(&session).into_iter().flat_map(move |entries| entries.overlapping(rest))
    }

    /// Whether a session holds, or is being granted, anything.
    #[must_use]
    pub fn has_any(&self, session: SessionId) -> bool {
        self.entries_of.contains_key(&session)
    }

    /// The entries that nobody has and that can be granted, in key order: those in quarantine are not among them.
    pub fn unowned(&self) -> impl Iterator<Item = (KeyRange, &Entry)> {
        self.unowned.iter().flat_map(|range| self.entries.overlapping(range))
    }

    /// The entries that are wanted back, in key order.
    pub fn recalled(&self) -> impl Iterator<Item = (KeyRange, &Entry)> {
        self.recalled.iter().flat_map(|range| self.entries.overlapping(range))
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// A table is never empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Replaces the entry of every key in `range`.
    pub fn set(&mut self, range: KeyRange, entry: Entry) {
        let previous: Vec<_> = self.entries.overlapping(range).map(|(part, old)| (part, *old)).collect();
        let has_same_owner = previous.iter().all(|(_, old)| old.owner == entry.owner);
        let has_recall = previous.iter().any(|(_, old)| old.recall.is_some());
        if !has_same_owner {
            self.change_owner(&previous, entry.owner);
        }
        if previous.iter().any(|(_, old)| old.is_free() != entry.is_free()) {
            match entry.is_free() {
                true => self.unowned.insert(range),
                false => self.unowned.remove(range),
            }
        }
        if let Some(owner) = entry.owner {
            self.entries_of.entry(owner).or_default().insert(range, entry);
        }
        match entry.recall {
            Some(_) => self.recalled.insert(range),
            None if has_recall => self.recalled.remove(range),
            None => {}
        }
        self.entries.insert(range, entry);
    }

    fn change_owner(&mut self, previous: &[(KeyRange, Entry)], owner: Option<SessionId>) {
        for (part, old) in previous {
            if let Some(old) = old.owner.filter(|old| owner != Some(*old)) {
                self.forget(old, *part);
            }
        }
    }

    fn forget(&mut self, owner: SessionId, part: KeyRange) {
        if let Some(entries) = self.entries_of.get_mut(&owner) {
            entries.remove(part);
            if entries.is_empty() {
                self.entries_of.remove(&owner);
            }
        }
    }
}

/// A table entry as Lookups see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PublishedEntry {
    /// The keys.
    pub range: KeyRange,
    /// The owner and where it is reached, if there is one.
    pub owner: Option<PublishedOwner>,
    /// The last lease granted on it.
    pub generation: Generation,
    /// The lease at which its state last began empty.
    pub state_since: Generation,
    /// Nobody owns it, and nobody will before an operator or time ends that: Owners that got it died.
    #[cfg_attr(feature = "serde", serde(default))]
    pub quarantined: bool,
}

impl PublishedEntry {
    /// Whether the two say the same of their keys.
    pub(crate) fn is_same_but_for_range(&self, other: &PublishedEntry) -> bool {
        self.generation == other.generation
            && self.state_since == other.state_since
            && self.owner == other.owner
            && self.quarantined == other.quarantined
    }
}

/// An owner as Lookups see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PublishedOwner {
    /// The process.
    pub session: SessionId,
    /// Where it is reached.
    pub url: Url,
}
