//! Where a name has its place in the key space: by its hash, or by its order.

use std::borrow::Cow;

use centrifuge_core::key::Key;

use super::Leases;
use crate::hot::NotOwner;
use crate::keys::{Hashed, KeyOrder, Ordered};

/// Something that names a thing, and so has a place in the key space.
pub trait LeasedKey {
    /// Its place: the same in every process and every language that shares the pool.
    fn key(&self) -> Key;
}

impl LeasedKey for String {
    fn key(&self) -> Key {
        Key::of(self.as_bytes())
    }
}

impl LeasedKey for Vec<u8> {
    fn key(&self) -> Key {
        Key::of(self)
    }
}

impl LeasedKey for u64 {
    fn key(&self) -> Key {
        Key::of(&self.to_le_bytes())
    }
}

/// Something that names a thing in a namespace with ordered keys.
pub trait OrderedName {
    /// The application key, which begins with the prefix of the namespace: the same in every process and every language that
    /// shares the pool.
    fn application_key(&self) -> Cow<'_, [u8]>;
}

impl OrderedName for String {
    fn application_key(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

impl OrderedName for Vec<u8> {
    fn application_key(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

/// Numbers in their order, for namespaces without a prefix.
impl OrderedName for u64 {
    fn application_key(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.to_be_bytes().to_vec())
    }
}

/// A name that has a place among keys of a kind: a [`LeasedKey`] among [`Hashed`] ones, an [`OrderedName`] among [`Ordered`] ones.
pub trait Place<K: KeyOrder> {
    #[doc(hidden)]
    fn place(&self, leases: &dyn Leases) -> Result<Key, NotOwner>;

    /// Its place among others of its map, if they have an order.
    #[doc(hidden)]
    fn order(&self) -> Option<Box<[u8]>>;
}

impl<N: LeasedKey> Place<Hashed> for N {
    fn place(&self, _leases: &dyn Leases) -> Result<Key, NotOwner> {
        Ok(self.key())
    }

    fn order(&self) -> Option<Box<[u8]>> {
        None
    }
}

impl<N: OrderedName> Place<Ordered> for N {
    fn place(&self, leases: &dyn Leases) -> Result<Key, NotOwner> {
        leases.place(&self.application_key())
    }

    fn order(&self) -> Option<Box<[u8]>> {
        Some(self.application_key().into())
    }
}
