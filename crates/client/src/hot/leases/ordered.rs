//! Leases on ordered keys: by a key that knows its prefix.

use centrifuge_core::id::Generation;

use super::{HotLeases, Lease, LeaseTable, NotOwner, OwnView};
use crate::keys::{KeyPrefix, KeySpace, NoKey, OrderedKey};

impl HotLeases {
    /// Whether an operation on an ordered key may begin now, and under which lease. Counts as load.
    #[inline(always)]
    pub(crate) fn check_ordered(&self, key: OrderedKey) -> Result<Generation, NotOwner> {
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
    pub(crate) fn key_of(&self, application_key: &[u8]) -> Result<OrderedKey, NoKey> {
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
