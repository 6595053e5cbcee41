//! Hashed and ordered keys as types: a key of one kind cannot be asked for in a namespace of the other.
//!
//! A key by a hash is no key among ordered ones, and this does not compile:
//!
//! ```compile_fail,E0308
//! # fn example(lookup: &centrifuge::Lookup<centrifuge::Ordered>) {
//! let route = lookup.lookup(centrifuge::Key::of(b"user/17"));
//! # }
//! ```
//!
//! Nor does an Owner of ordered keys keep its state in a map of hashed ones:
//!
//! ```compile_fail,E0308
//! # async fn post(url: String, bytes: Vec<u8>) -> Result<Vec<u8>, centrifuge::owner::BoxError> { unimplemented!() }
//! # fn example(managers: centrifuge::Managers) {
//! let users: centrifuge::LeasedMap<String, u32> = centrifuge::LeasedMap::new();
//! let owner = centrifuge::Owner::ordered(managers, "users").state(&users, post);
//! # }
//! ```
//!
//! Nor has a Lookup of hashed keys anything to scan:
//!
//! ```compile_fail,E0599
//! # fn example(lookup: &centrifuge::Lookup) {
//! let slices = lookup.scan("user/a".."user/b");
//! # }
//! ```

use std::fmt;
use std::ops::{Bound, RangeBounds};

use centrifuge_core::id::Generation;
use centrifuge_core::key::{Key, KeyRange};
pub use centrifuge_core::key_interval::Interval;
pub use centrifuge_core::namespace_kind::{KeyError, KeyKind, KeyPrefix, KeyPrefixError, Mode};
use centrifuge_core::namespace_kind::{Keys, NamespaceKind};

use crate::hot::{HotLeases, HotRoutes, Lease, NoOwner, NotOwner, Route};

/// Keys by a hash of the application key: [`Key::of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hashed {}

/// Keys by the order of the application keys: `key_of` of the Owner or the Lookup, which knows the prefix of the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ordered {}

/// How the application keys of a namespace become keys: [`Hashed`] or [`Ordered`].
pub trait KeyOrder: sealed::KeyOrder {
    /// A key as checks and lookups take it.
    type Key: Copy + fmt::Debug + Send + Sync + 'static;

    #[doc(hidden)]
    const KIND: KeyKind;

    #[doc(hidden)]
    fn point(key: Self::Key) -> Key;

    #[doc(hidden)]
    fn check(hot: &HotLeases, key: Self::Key) -> Result<Generation, NotOwner>;

    #[doc(hidden)]
    fn lease(hot: &HotLeases, key: Self::Key) -> Result<Lease, NotOwner>;

    #[doc(hidden)]
    fn route(hot: &HotRoutes, key: Self::Key) -> Result<Route, NoOwner>;
}

mod sealed {
    /// There are two ways to make keys.
    pub trait KeyOrder: Copy + std::fmt::Debug + Send + Sync + 'static {}
    impl KeyOrder for super::Hashed {}
    impl KeyOrder for super::Ordered {}
}

impl KeyOrder for Hashed {
    type Key = Key;

    const KIND: KeyKind = KeyKind::Hashed;

    #[inline(always)]
    fn point(key: Key) -> Key {
        key
    }

    #[inline(always)]
    fn check(hot: &HotLeases, key: Key) -> Result<Generation, NotOwner> {
        hot.check_lease_now(key)
    }

    fn lease(hot: &HotLeases, key: Key) -> Result<Lease, NotOwner> {
        hot.lease(key)
    }

    #[inline(always)]
    fn route(hot: &HotRoutes, key: Key) -> Result<Route, NoOwner> {
        hot.lookup(key)
    }
}

impl KeyOrder for Ordered {
    type Key = OrderedKey;

    const KIND: KeyKind = KeyKind::Ordered;

    #[inline(always)]
    fn point(key: OrderedKey) -> Key {
        key.key
    }

    #[inline(always)]
    fn check(hot: &HotLeases, key: OrderedKey) -> Result<Generation, NotOwner> {
        hot.check_ordered(key)
    }

    fn lease(hot: &HotLeases, key: OrderedKey) -> Result<Lease, NotOwner> {
        hot.lease_ordered(key)
    }

    #[inline(always)]
    fn route(hot: &HotRoutes, key: OrderedKey) -> Result<Route, NoOwner> {
        hot.lookup_ordered(key)
    }
}

/// The key of an application key in a namespace with ordered keys.
///
/// It remembers the prefix that it was made with. If another namespace takes the place of that one, with another prefix, the key means
/// nothing in it: no check and no lookup finds it there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderedKey {
    key: Key,
    space: u64,
}

impl OrderedKey {
    /// Its place, as ranges, losses and changes speak of it.
    #[must_use]
    pub fn key(self) -> Key {
        self.key
    }
}

impl fmt::Debug for OrderedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.key, f)
    }
}

/// Why an application key has no key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NoKey {
    /// It does not begin with the prefix of the namespace.
    #[error(transparent)]
    Outside(#[from] KeyError),
    /// No Manager has said yet what the prefix is.
    #[error(
        "no Manager has said yet what the keys of this namespace begin with: wait until it is joined or connected"
    )]
    Unknown,
}

/// The ordered keys of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct KeySpace {
    prefix: KeyPrefix,
    /// Names the prefix in keys.
    id: u64,
}

impl KeySpace {
    /// The keys of a namespace, if they are known and ordered.
    pub(crate) fn of(kind: Option<&NamespaceKind>) -> Option<KeySpace> {
        let prefix = kind?.keys.prefix()?.clone();
        let id = Key::of(prefix.as_bytes()).0;
        Some(KeySpace { prefix, id })
    }

    #[inline(always)]
    pub(crate) fn has(&self, key: OrderedKey) -> bool {
        self.id == key.space
    }

    pub(crate) fn prefix(&self) -> &KeyPrefix {
        &self.prefix
    }

    pub(crate) fn key_of(&self, application_key: &[u8]) -> Result<OrderedKey, KeyError> {
        match application_key.strip_prefix(self.prefix.as_bytes()) {
            Some(rest) => Ok(OrderedKey { key: Key::in_order(rest), space: self.id }),
            None => Err(KeyError { prefix: self.prefix.clone() }),
        }
    }

    /// The interval that bounds describe, and its keys; `None` if it is empty.
    pub(crate) fn between<B: AsRef<[u8]>>(
        &self,
        bounds: &impl RangeBounds<B>,
    ) -> Result<Option<(Interval, KeyRange)>, KeyError> {
        let interval = self.prefix.interval(bytes_of(bounds.start_bound()), bytes_of(bounds.end_bound()))?;
        interval.map(|interval| self.prefix.range_of(&interval).map(|range| (interval, range))).transpose()
    }

    /// The first key of a range.
    pub(crate) fn first_of(&self, range: KeyRange) -> OrderedKey {
        OrderedKey { key: range.first(), space: self.id }
    }
}

pub(crate) fn bytes_of<B: AsRef<[u8]>>(bound: Bound<&B>) -> Bound<&[u8]> {
    bound.map(AsRef::as_ref)
}

/// Whether what is known of a namespace has changed in what its keys are.
pub(crate) fn is_same_space(known: Option<&KeySpace>, kind: Option<&NamespaceKind>) -> bool {
    let prefix = kind.and_then(|kind| match &kind.keys {
        Keys::Hashed => None,
        Keys::Ordered(prefix) => Some(prefix),
    });
    known.map(KeySpace::prefix) == prefix
}
