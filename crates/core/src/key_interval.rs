//! Intervals of ordered application keys, and the ranges of keys that they are.

use std::ops::Bound;

use crate::key::{Key, KeyRange};
use crate::namespace_kind::{KeyError, KeyPrefix};

/// The application keys from one on, up to but without another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    /// The first of them.
    pub from: Vec<u8>,
    /// The first that is not one of them; `None`: there is none, they go on to the end of the namespace.
    pub to: Option<Vec<u8>>,
}

impl Interval {
    /// Whether it has this application key, which is one of its namespace.
    #[must_use]
    pub fn contains(&self, application_key: &[u8]) -> bool {
        *self.from <= *application_key && self.to.as_deref().is_none_or(|to| application_key < to)
    }

    /// What it and another have in common; `None` if that is nothing.
    #[must_use]
    pub fn intersection(&self, other: &Interval) -> Option<Interval> {
        let from = self.from.clone().max(other.from.clone());
        let to = match (&self.to, &other.to) {
            (Some(one), Some(another)) => Some(one.min(another).clone()),
            (one, another) => one.clone().or_else(|| another.clone()),
        };
        let is_empty = to.as_ref().is_some_and(|to| *to <= from);
        (!is_empty).then_some(Interval { from, to })
    }
}

impl KeyPrefix {
    /// The application keys between two bounds; `None` if there are none. A bound that does not begin with the prefix is an
    /// error: it would make an interval of everything, or of nothing, by mistake.
    pub fn interval(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Option<Interval>, KeyError> {
        let checked = |bound: &[u8]| match bound.starts_with(self.as_bytes()) {
            true => Ok(bound.to_vec()),
            false => Err(KeyError { prefix: self.clone() }),
        };
        let from = match from {
            Bound::Included(from) => checked(from)?,
            Bound::Excluded(from) => after(checked(from)?),
            Bound::Unbounded => self.as_bytes().to_vec(),
        };
        let to = match to {
            Bound::Included(to) => Some(after(checked(to)?)),
            Bound::Excluded(to) => Some(checked(to)?),
            Bound::Unbounded => None,
        };
        let is_empty = to.as_ref().is_some_and(|to| *to <= from);
        Ok((!is_empty).then_some(Interval { from, to }))
    }

    /// The keys of the application keys of an interval of this prefix. Application keys outside of it may share the first and the last of
    /// them.
    pub fn range_of(&self, interval: &Interval) -> Result<KeyRange, KeyError> {
        let wrong = || KeyError { prefix: self.clone() };
        let first = Key::in_order(self.rest_of(&interval.from).ok_or_else(wrong)?);
        let last = match &interval.to {
            None => Key::MAX,
            Some(to) => last_before(self.rest_of(to).ok_or_else(wrong)?).ok_or_else(wrong)?,
        };
        KeyRange::new(first, last).ok_or_else(wrong)
    }

    /// The application keys that have keys of a range.
    #[must_use]
    pub fn interval_of(&self, range: KeyRange) -> Interval {
        let lowest = |key: Key| [self.as_bytes(), &lowest_of(key)].concat();
        Interval { from: lowest(range.first()), to: range.last().next().map(lowest) }
    }

    fn rest_of<'a>(&self, application_key: &'a [u8]) -> Option<&'a [u8]> {
        application_key.strip_prefix(self.as_bytes())
    }
}

/// The next application key in their order.
fn after(mut application_key: Vec<u8>) -> Vec<u8> {
    application_key.push(0);
    application_key
}

/// The lowest of all that have a key: those zeros that only fill it up are none of it.
fn lowest_of(key: Key) -> Vec<u8> {
    let bytes = key.0.to_be_bytes();
    let len = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes[..len].to_vec()
}

/// The highest key of what comes before; `None` if nothing does.
fn last_before(rest: &[u8]) -> Option<Key> {
    let key = Key::in_order(rest);
    if *rest > *lowest_of(key) { Some(key) } else { key.previous() }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn prefix() -> KeyPrefix {
        KeyPrefix::new(b"user/").expect("short")
    }

    fn named(rest: &[u8]) -> Vec<u8> {
        [b"user/", rest].concat()
    }

    fn between(from: &[u8], to: &[u8]) -> Option<Interval> {
        let (from, to) = (named(from), named(to));
        prefix().interval(Bound::Included(&from), Bound::Excluded(&to)).expect("they have the prefix")
    }

    fn range_between(from: &[u8], to: &[u8]) -> Option<KeyRange> {
        between(from, to).map(|interval| prefix().range_of(&interval).expect("it has the prefix"))
    }

    /// Names of few letters, so that many share their first bytes and some are zeros.
    fn rest() -> impl Strategy<Value = Vec<u8>> {
        vec(prop::sample::select(vec![0_u8, 1, b'a', 255]), 0..11)
    }

    #[test]
    fn an_interval_ends_before_the_key_of_its_end() {
        let a = Key(0x61 << 56);
        let b = Key(0x62 << 56);
        assert_eq!(range_between(b"a", b"b"), KeyRange::new(a, Key(b.0 - 1)));
        assert_eq!(range_between(b"a", b"a\0"), Some(KeyRange::one(a)), "`a` itself has that key");
        assert_eq!(range_between(b"", b"a"), KeyRange::new(Key::MIN, Key(a.0 - 1)));
        let eight = Key(u64::from_be_bytes(*b"abcdefgh"));
        assert_eq!(range_between(b"abcdefgh1", b"abcdefgh2"), Some(KeyRange::one(eight)), "they share a key");
        assert_eq!(between(b"b", b"a"), None);
        assert_eq!(between(b"a", b"a"), None);
    }

    #[test]
    fn an_interval_without_bounds_is_the_whole_namespace() {
        let all = prefix().interval(Bound::Unbounded, Bound::Unbounded).expect("no bound is wrong");
        let all = all.expect("it is not empty");
        assert_eq!(all, Interval { from: b"user/".to_vec(), to: None });
        assert_eq!(prefix().range_of(&all), Ok(KeyRange::ALL));
        assert_eq!(prefix().interval_of(KeyRange::ALL), all);
    }

    #[test]
    fn a_bound_without_the_prefix_is_an_error() {
        let wrong = Err(KeyError { prefix: prefix() });
        assert_eq!(prefix().interval(Bound::Included(b"a"), Bound::Unbounded), wrong);
        assert_eq!(prefix().interval(Bound::Unbounded, Bound::Excluded(b"z")), wrong);
        let foreign = Interval { from: b"account/a".to_vec(), to: None };
        assert!(prefix().range_of(&foreign).is_err());
    }

    proptest! {
        #[test]
        fn a_name_is_in_an_interval_only_if_its_key_is_in_the_range(from in rest(), to in rest(), name in rest()) {
            if let Some(interval) = between(&from, &to) {
                let range = prefix().range_of(&interval).expect("it has the prefix");
                let is_meant = interval.contains(&named(&name));
                prop_assert!(!is_meant || range.contains(Key::in_order(&name)));
            }
        }

        #[test]
        fn the_names_of_a_range_are_exactly_those_with_keys_in_it(first in rest(), last in rest(), name in rest()) {
            let (first, last) = (Key::in_order(&first), Key::in_order(&last));
            let range = KeyRange::new(first.min(last), first.max(last)).expect("in order");
            let interval = prefix().interval_of(range);
            prop_assert_eq!(interval.contains(&named(&name)), range.contains(Key::in_order(&name)));
            prop_assert_eq!(prefix().range_of(&interval), Ok(range));
        }

        #[test]
        fn ranges_that_cut_the_key_space_cut_every_interval(from in rest(), to in rest(), at in rest(), name in rest()) {
            let cut = KeyRange::ALL.split_at(Key::in_order(&at));
            if let (Some(interval), Some((below, rest))) = (between(&from, &to), cut) {
                let has = |part: KeyRange| {
                    let part = interval.intersection(&prefix().interval_of(part));
                    part.is_some_and(|part| part.contains(&named(&name)))
                };
                prop_assert_eq!(interval.contains(&named(&name)), has(below) ^ has(rest));
            }
        }
    }
}
