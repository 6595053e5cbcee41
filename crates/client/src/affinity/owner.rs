//! An Owner in affinity mode.

use std::fmt;
use std::time::Duration;

use centrifuge_core::id::{Namespace, OwnerName, SessionId};
use centrifuge_core::key::{Key, KeyRange};

use super::{AffinityChanges, AffinityImport, AffinityOffer, AffinityOwnerBuilder, Belief, Probably};
use crate::hot::NotOwner;
use crate::keys::{Hashed, KeyOrder, KeyPrefix, NoKey, Ordered, OrderedKey};
use crate::managers::Managers;
use crate::owner::{Guard, ImportError, LeftReason, NotDrained, Owner, OwnerGone, Unconfirmed};

/// A member of a pool whose keys have a preferred owner each. Cheap to clone.
///
/// It runs the same machine as an [`Owner`], and its checks cost the same. They promise less: while this process is cut off from the
/// Managers, the namespace's silence is over before its leases are, and another process may be the owner of the same keys from then until
/// the leases of this one end, or it hears that it lost them.
#[derive(Clone)]
pub struct AffinityOwner<K: KeyOrder = Hashed> {
    owner: Owner<K>,
}

impl AffinityOwner {
    /// Begins to describe an Owner of the namespace that these Managers manage.
    #[must_use]
    pub fn builder(managers: Managers, namespace: &str) -> AffinityOwnerBuilder {
        AffinityOwnerBuilder::new(Owner::builder(managers, namespace))
    }
}

impl AffinityOwner<Ordered> {
    /// Begins to describe an Owner of a namespace with ordered keys.
    #[must_use]
    pub fn ordered(managers: Managers, namespace: &str) -> AffinityOwnerBuilder<Ordered> {
        AffinityOwnerBuilder::new(Owner::ordered(managers, namespace))
    }

    /// The key of an application key, which must begin with the prefix of the namespace.
    pub fn key_of(&self, application_key: impl AsRef<[u8]>) -> Result<OrderedKey, NoKey> {
        self.owner.key_of(application_key)
    }

    /// What all application keys begin with. [`KeyPrefix::interval_of`] says which of them a range has.
    #[must_use]
    pub fn prefix(&self) -> Option<KeyPrefix> {
        self.owner.prefix()
    }
}

impl<K: KeyOrder> AffinityOwner<K> {
    pub(super) fn new(owner: Owner<K>) -> AffinityOwner<K> {
        AffinityOwner { owner }
    }

    /// Whether `key` is probably this process's own. Compares the clocks itself, takes no lock and allocates nothing; counts as load.
    #[inline]
    pub fn check_lease_now(&self, key: K::Key) -> Probably {
        match self.owner.check_lease_now(key) {
            Ok(generation) => Probably::Mine(Belief(generation)),
            Err(why) => Probably::NotMine(why),
        }
    }

    /// Whether this process has believed without a gap that `key` is its own: what it keeps in memory for the key is then what it
    /// kept. It does not say that nobody else has served the key meanwhile.
    #[inline]
    #[must_use]
    pub fn check_lease_continuous(&self, key: K::Key, belief: Belief) -> bool {
        self.owner.check_lease_continuous(key, belief.0)
    }

    /// Begins an operation on `key`. While the guard lives, a recall of the range waits, up to the lease's end; the silence of this
    /// process does not wait for it.
    pub fn begin(&self, key: K::Key) -> Result<AffinityGuard, NotOwner> {
        self.owner.begin(key).map(|guard| AffinityGuard { guard })
    }

    /// The ranges that are probably this process's own, in key order.
    #[must_use]
    pub fn ranges(&self) -> Vec<KeyRange> {
        self.owner.leases().into_iter().map(|lease| lease.range).collect()
    }

    /// What happens to this Owner from now on.
    #[must_use]
    pub fn changes(&self) -> AffinityChanges {
        AffinityChanges::new(self.owner.changes())
    }

    /// This process; see [`Owner::session`].
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.owner.session()
    }

    /// The name that its restarts share.
    #[must_use]
    pub fn name(&self) -> &OwnerName {
        self.owner.name()
    }

    /// The pool.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        self.owner.namespace()
    }

    /// Adds to the load of `key`; see [`Owner::report_load`].
    pub fn report_load(&self, key: K::Key, amount: u64) {
        self.owner.report_load(key, amount);
    }

    /// This process can carry so much, in percent of the usual; zero: it should get nothing.
    pub async fn set_weight(&self, percent: u32) -> Result<(), OwnerGone> {
        self.owner.set_weight(percent).await
    }

    /// The application lives. Matters only if the Owner was built with a heartbeat.
    pub fn alive(&self) {
        self.owner.alive();
    }

    /// Takes in the state of a range that another Owner sends; see [`Owner::begin_import`].
    pub fn begin_import(&self, offer: AffinityOffer) -> Result<AffinityImport, ImportError> {
        self.owner.begin_import(offer.0).map(AffinityImport)
    }

    /// Moves everything to other Owners; see [`Owner::drain`].
    pub async fn drain(&self) -> Result<(), NotDrained> {
        self.owner.drain().await
    }

    /// Ends the Owner's own drain; see [`Owner::undrain`].
    pub async fn undrain(&self) -> Result<(), OwnerGone> {
        self.owner.undrain().await
    }

    /// Whether the Manager says that the drain waits because no other Owner can take the ranges.
    #[must_use]
    pub fn drain_waits(&self) -> bool {
        self.owner.drain_waits()
    }

    /// Gives everything up at once, without its state, and goes. Without a confirmation others get the ranges after the silence.
    pub async fn leave(&self, patience: Duration) -> Result<(), Unconfirmed> {
        self.owner.leave(patience).await
    }

    /// Drains for at most `patience`, then leaves; see [`Owner::shutdown`].
    pub async fn shutdown(&self, patience: Duration) -> Result<(), Unconfirmed> {
        self.owner.shutdown(patience).await
    }

    /// Why the Owner has left, if it has.
    #[must_use]
    pub fn left(&self) -> Option<LeftReason> {
        self.owner.left()
    }
}

impl<K: KeyOrder> fmt::Debug for AffinityOwner<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = &self.owner;
        write!(f, "AffinityOwner({}/{} {})", owner.namespace(), owner.name(), owner.session())
    }
}

/// An operation on a key that is under way.
#[derive(Debug)]
pub struct AffinityGuard {
    guard: Guard,
}

impl AffinityGuard {
    /// The key.
    #[must_use]
    pub fn key(&self) -> Key {
        self.guard.key()
    }

    /// Whether this process has believed without a gap since the operation began that the key is its own.
    #[must_use]
    pub fn recheck(&self) -> bool {
        self.guard.recheck()
    }
}
