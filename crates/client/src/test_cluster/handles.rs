//! What a test holds of an Owner and a Lookup.

use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::key::Key;
use centrifuge_core::time::Instant;

use super::Node;
use crate::hot::{HotLeases, HotRoutes, Lease, NoOwner, NotOwner, Route, Slice};
use crate::keys::{Hashed, KeyOrder, KeyPrefix, NoKey, Ordered, OrderedKey};
use crate::leased_map::Leases;
use crate::lookup::Loss;
use crate::router::Router;

/// Something that can crash and be cut off.
pub trait Member {
    #[doc(hidden)]
    fn node(&self) -> Node;
}

/// An Owner of a [`TestCluster`](super::TestCluster): the checks of a real one, on virtual time.
#[derive(Clone, Debug)]
pub struct TestOwner<K: KeyOrder = Hashed> {
    pub(super) number: usize,
    pub(super) session: SessionId,
    pub(super) hot: HotLeases,
    pub(super) clock: Arc<AtomicU64>,
    pub(super) keys: PhantomData<K>,
}

impl<K: KeyOrder> Member for TestOwner<K> {
    fn node(&self) -> Node {
        Node::Owner(self.number)
    }
}

impl TestOwner<Ordered> {
    /// As [`Owner::key_of`](crate::Owner::key_of).
    pub fn key_of(&self, application_key: impl AsRef<[u8]>) -> Result<OrderedKey, NoKey> {
        self.hot.key_of(application_key.as_ref())
    }
}

impl<K: KeyOrder> TestOwner<K> {
    /// As [`Owner::check_lease_now`](crate::Owner::check_lease_now).
    pub fn check_lease_now(&self, key: K::Key) -> Result<Generation, NotOwner> {
        self.hot.snapshot().check_at(self.now(), 0, K::point(key))
    }

    /// As [`Owner::check_lease_continuous`](crate::Owner::check_lease_continuous).
    #[must_use]
    pub fn check_lease_continuous(&self, key: K::Key, lease: Generation) -> bool {
        self.hot.snapshot().is_held_at(self.now(), 0, K::point(key), lease)
    }

    /// Every lease held now, in key order.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        let (snapshot, now) = (self.hot.snapshot(), self.now());
        let is_held = |lease: &&Lease| snapshot.held_at(now, 0, lease.range.first()).is_some();
        snapshot.table.leases().filter(is_held).copied().collect()
    }

    /// The process.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }
}

impl<K: KeyOrder> Leases for TestOwner<K> {
    fn check(&self, key: Key) -> Result<Lease, NotOwner> {
        self.hot.snapshot().check_at(self.now(), 0, key)?;
        Leases::held(self, key).ok_or(NotOwner::NoLease)
    }

    fn held(&self, key: Key) -> Option<Lease> {
        self.hot.snapshot().held_at(self.now(), 0, key).map(|(lease, _)| lease)
    }

    fn is_continuous(&self, key: Key, lease: Generation) -> bool {
        self.hot.snapshot().is_held_at(self.now(), 0, key, lease)
    }

    fn prefix(&self) -> Option<KeyPrefix> {
        self.hot.prefix()
    }

    fn now(&self) -> Instant {
        Instant(self.clock.load(Ordering::SeqCst))
    }
}

/// A Lookup of a [`TestCluster`](super::TestCluster).
#[derive(Clone, Debug)]
pub struct TestLookup<K: KeyOrder = Hashed> {
    pub(super) number: usize,
    pub(super) hot: HotRoutes,
    pub(super) losses: Arc<Mutex<Vec<Loss>>>,
    pub(super) keys: PhantomData<K>,
}

impl<K: KeyOrder> Member for TestLookup<K> {
    fn node(&self) -> Node {
        Node::Lookup(self.number)
    }
}

impl TestLookup {
    /// The table, for a [`Router`](crate::Router).
    #[must_use]
    pub fn routes(&self) -> HotRoutes {
        self.hot.clone()
    }
}

impl TestLookup<Ordered> {
    /// As [`Lookup::key_of`](crate::Lookup::key_of).
    pub fn key_of(&self, application_key: impl AsRef<[u8]>) -> Result<OrderedKey, NoKey> {
        self.hot.key_of(application_key.as_ref())
    }

    /// As [`Lookup::scan`](crate::Lookup::scan).
    pub fn scan<B: AsRef<[u8]>>(&self, bounds: impl RangeBounds<B>) -> Result<Vec<Slice>, NoKey> {
        self.hot.scan(&bounds)
    }

    /// A [`Router`](crate::Router) by its table.
    #[must_use]
    pub fn router(&self) -> Router<Ordered> {
        Router::by_table(self.hot.clone())
    }
}

impl<K: KeyOrder> TestLookup<K> {
    /// As [`Lookup::lookup`](crate::Lookup::lookup).
    pub fn lookup(&self, key: K::Key) -> Result<Route, NoOwner> {
        K::route(&self.hot, key)
    }

    /// As [`Lookup::state_since`](crate::Lookup::state_since).
    #[must_use]
    pub fn state_since(&self, key: K::Key) -> Option<Generation> {
        self.hot.state_since(K::point(key))
    }

    /// The losses raised since this was last asked.
    #[must_use = "a loss is told once"]
    pub fn take_losses(&self) -> Vec<Loss> {
        std::mem::take(&mut *self.losses.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
