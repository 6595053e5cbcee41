//! Keys and inclusive ranges of keys: the points and intervals that leases speak about.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

/// A point in a namespace's key space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Key(pub u64);

impl Key {
    /// The lowest key.
    pub const MIN: Key = Key(u64::MIN);
    /// The highest key.
    pub const MAX: Key = Key(u64::MAX);

    /// The key of an application's name for a thing: XXH3-64 with seed 0, the same in every language.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Key {
        Key(xxh3_64(bytes))
    }

    /// The key of an application key that keeps its place among others: its first eight bytes, big endian, with zeros in the place of those that
    /// it does not have.
    #[must_use]
    pub fn in_order(bytes: &[u8]) -> Key {
        let mut first = [0; 8];
        let len = bytes.len().min(first.len());
        first[..len].copy_from_slice(&bytes[..len]);
        Key(u64::from_be_bytes(first))
    }

    /// The key after this one, if there is one.
    #[must_use]
    pub fn next(self) -> Option<Key> {
        self.0.checked_add(1).map(Key)
    }

    /// The key before this one, if there is one.
    #[must_use]
    pub fn previous(self) -> Option<Key> {
        self.0.checked_sub(1).map(Key)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The keys `first..=last`. Never empty and never wrapping: the ring's seam is two ranges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "(Key, Key)", try_from = "(Key, Key)"))]
pub struct KeyRange {
    first: Key,
    last: Key,
}

impl KeyRange {
    /// Every key there is.
    pub const ALL: KeyRange = KeyRange { first: Key::MIN, last: Key::MAX };

    /// The range from `first` to `last`, both included; `None` if it would be empty.
    #[must_use]
    pub fn new(first: Key, last: Key) -> Option<KeyRange> {
        (first <= last).then_some(KeyRange { first, last })
    }

    /// The range of one key.
    #[must_use]
    pub fn one(key: Key) -> KeyRange {
        KeyRange { first: key, last: key }
    }

    /// The lowest key of the range.
    #[must_use]
    pub fn first(self) -> Key {
        self.first
    }

    /// The highest key of the range.
    #[must_use]
    pub fn last(self) -> Key {
        self.last
    }

    /// How many keys the range has; as `u128`, because the full range has one more than `u64` can say.
    #[must_use]
    pub fn key_count(self) -> u128 {
        u128::from(self.last.0 - self.first.0) + 1
    }

    /// Whether `key` lies in the range.
    #[must_use]
    pub fn contains(self, key: Key) -> bool {
        self.first <= key && key <= self.last
    }

    /// Whether every key of `other` lies in this range.
    #[must_use]
    pub fn contains_range(self, other: KeyRange) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether the two ranges share a key.
    #[must_use]
    pub fn overlaps(self, other: KeyRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The keys that both ranges have.
    #[must_use]
    pub fn intersection(self, other: KeyRange) -> Option<KeyRange> {
        KeyRange::new(self.first.max(other.first), self.last.min(other.last))
    }

    /// The parts of this range before and after `other`.
    #[must_use]
    pub fn difference(self, other: KeyRange) -> (Option<KeyRange>, Option<KeyRange>) {
        let before = other.first.previous().and_then(|last| KeyRange::new(self.first, self.last.min(last)));
        let after = other.last.next().and_then(|first| KeyRange::new(self.first.max(first), self.last));
        (before, after)
    }

    /// The range in two: the keys below `key` and the keys from `key` on. `None` if one part would be empty.
    #[must_use]
    pub fn split_at(self, key: Key) -> Option<(KeyRange, KeyRange)> {
        let below = KeyRange::new(self.first, key.previous()?)?;
        let rest = KeyRange::new(key, self.last)?;
        (self.contains(key)).then_some((below, rest))
    }

    /// Whether `next` begins with the key after this range's last.
    #[must_use]
    pub fn touches(self, next: KeyRange) -> bool {
        self.last.next() == Some(next.first)
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}
