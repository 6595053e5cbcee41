//! Leases on ordered keys: by a key that knows its prefix.

use std::sync::Arc;

use centrifuge_core::id::Generation;
use centrifuge_core::namespace_kind::{Keys, Mode, NamespaceKind};

use super::{HotLeases, Lease, LeaseTable, NotOwner, OwnView};
use crate::keys::{KeyPrefix, KeySpace, NoKey, OrderedKey};

impl HotLeases {
    /// These leases, on ordered keys without a prefix, to measure what checks of such keys cost.
    #[doc(hidden)]
    #[must_use]
    pub fn with_ordered_keys(self) -> HotLeases {
        let kind = NamespaceKind { keys: Keys::Ordered(KeyPrefix::default()), mode: Mode::Exclusive };
        let snapshot = self.snapshot();
        let leases: Vec<_> = snapshot.table.leases().map(|lease| (*lease, false)).collect();
        let table = LeaseTable::new(&leases).with_space(KeySpace::of(Some(&kind)));
        self.publish(Arc::new(table), snapshot.validity);
        self
    }

    /// Whether an operation on an ordered key may begin now, and under which lease. Counts as load.
    #[doc(hidden)]
    #[inline(always)]
    pub fn check_ordered(&self, key: OrderedKey) -> Result<Generation, NotOwner> {
        self.read(|view| view.within(key)?.check_now(key.key()))
    }

    /// The same, with everything known of the lease.
    pub(crate) fn lease_ordered(&self, key: OrderedKey) -> Result<Lease, NotOwner> {
        self.read(|view| {
            view.within(key)?.check_now(key.key())?;
            view.table.leases[view.own.index.find(key.key())].ok_or(NotOwner::NoLease)
        })
    }

    /// The key of an application key, where keys are ordered.
    #[doc(hidden)]
    pub fn key_of(&self, application_key: &[u8]) -> Result<OrderedKey, NoKey> {
        self.read(|view| {
            let space = view.table.space.as_ref().ok_or(NoKey::Unknown)?;
            Ok(space.key_of(application_key)?)
        })
    }

    /// The prefix of ordered keys, once it is known.
    pub(crate) fn prefix(&self) -> Option<KeyPrefix> {
        self.snapshot().table.space.as_ref().map(|space| space.prefix().clone())
    }
}

impl LeaseTable {
    /// The same, of ordered keys.
    pub(crate) fn with_space(self, space: Option<KeySpace>) -> LeaseTable {
        LeaseTable { space, ..self }
    }

    /// What the keys are, if they are ordered and that is known.
    pub(crate) fn space(&self) -> Option<&KeySpace> {
        self.space.as_ref()
    }
}

impl OwnView {
    /// What is held of the keys that this one is of: nothing, if another namespace has taken the place of theirs.
    #[inline(always)]
    fn within(&self, key: OrderedKey) -> Result<&OwnView, NotOwner> {
        match &self.table.space {
            Some(space) if space.has(key) => Ok(self),
            _ => Err(NotOwner::NoLease),
        }
    }
}
