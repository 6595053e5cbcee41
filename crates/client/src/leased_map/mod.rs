//! A map that knows which of its entries this server owns.

mod codec;
mod frame;
mod place;
mod scan;
mod shard;
mod transfer;

use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use centrifuge_core::id::Generation;
use centrifuge_core::key::Key;
use centrifuge_core::time::Instant;
use centrifuge_net::clock;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::codec::{Codec, CodecError, Json};
pub use self::place::{LeasedKey, OrderedName, Place};
pub use self::scan::Scan;
use self::shard::Shard;
use self::transfer::Arrivals;
use crate::hot::{HotLeases, Lease, NotOwner};
use crate::keys::{Hashed, KeyKind, KeyOrder, KeyPrefix, NoKey, Ordered};
use crate::owner::Guard;

/// Enough that threads seldom meet at one.
const SHARDS: usize = 64;

/// What a map asks about leases; an Owner's answers, or a test's.
pub trait Leases: Send + Sync + 'static {
    /// Whether an operation on `key` may begin now, and under which lease.
    fn check(&self, key: Key) -> Result<Lease, NotOwner>;

    /// The lease on `key`, be it about to move.
    fn held(&self, key: Key) -> Option<Lease>;

    /// Whether `key` has been held without a gap since `lease` was told.
    fn is_continuous(&self, key: Key, lease: Generation) -> bool;

    /// The time, for entries that end by themselves.
    fn now(&self) -> Instant;

    /// What all application keys begin with, where keys are ordered and that is known.
    fn prefix(&self) -> Option<KeyPrefix> {
        None
    }

    /// The key of an application key, where keys are ordered.
    fn place(&self, application_key: &[u8]) -> Result<Key, NotOwner> {
        let prefix = self.prefix().ok_or(NotOwner::NoLease)?;
        let rest = application_key.strip_prefix(prefix.as_bytes());
        rest.map(Key::in_order).ok_or(NotOwner::OutsidePrefix)
    }
}

impl Leases for HotLeases {
    fn check(&self, key: Key) -> Result<Lease, NotOwner> {
        self.lease(key)
    }

    fn held(&self, key: Key) -> Option<Lease> {
        HotLeases::held(self, key).map(|(lease, _)| lease)
    }

    fn is_continuous(&self, key: Key, lease: Generation) -> bool {
        self.check_lease_continuous(key, lease)
    }

    fn now(&self) -> Instant {
        clock::now()
    }

    fn prefix(&self) -> Option<KeyPrefix> {
        HotLeases::prefix(self)
    }

    fn place(&self, application_key: &[u8]) -> Result<Key, NotOwner> {
        self.key_of(application_key).map(|key| key.key()).map_err(|why| match why {
            NoKey::Outside(_) => NotOwner::OutsidePrefix,
            NoKey::Unknown => NotOwner::NoLease,
        })
    }
}

/// State in memory, each entry valid under one lease. Cheap to clone; clones share the entries.
///
/// Every operation takes the papers' steps: check the lease, discard what is left of an earlier one, operate, check
/// again. What it returns carries the lease; [`LeasedMap::recheck`] it before each thing that leaves the server. Entries
/// move with their range when the map is given to [`OwnerBuilder::state`](crate::owner::OwnerBuilder::state); an entry moves in one
/// piece, and one that is too large for what carries it takes its whole range down with it: bound what clients can make grow.
///
/// ```
/// use centrifuge::leased_map::LeasedMap;
/// use centrifuge::test_cluster::TestCluster;
/// use std::time::Duration;
///
/// let mut cluster = TestCluster::new();
/// let rooms: LeasedMap<String, u32> = LeasedMap::new();
/// let owner = cluster.owner_with("a", &rooms);
/// cluster.advance(Duration::from_secs(30));
///
/// let room = "room-7".to_owned();
/// rooms.insert(room.clone(), 3)?;
/// let people = rooms.get(&room)?;
/// assert_eq!(people.value, Some(3));
/// rooms.recheck(&people)?; // and only now answer the caller, with `people.generation`
///
/// cluster.partition(&owner);
/// cluster.advance(Duration::from_secs(60));
/// assert!(rooms.recheck(&people).is_err());
/// # Ok::<(), centrifuge::NotOwner>(())
/// ```
pub struct LeasedMap<N, V, K: KeyOrder = Hashed> {
    inner: Arc<Inner<N, V, K>>,
}

struct Inner<N, V, K> {
    leases: OnceLock<Box<dyn Leases>>,
    codec: Box<dyn Codec<N, V>>,
    ttl: Option<Duration>,
    shards: Box<[Mutex<Shard<N, V, K>>]>,
    /// Rises with every change, so that a copy made earlier can be brought up to date.
    changes: AtomicU64,
    /// How many copies are being made: removed entries are remembered meanwhile.
    exports: AtomicUsize,
    arrivals: Mutex<Arrivals<N, V>>,
    keys: PhantomData<K>,
}

/// One entry. Without a value it was removed, which a copy that is being made must be told.
struct Entry<V> {
    value: Option<V>,
    generation: Generation,
    ends: Option<Instant>,
    changed: u64,
}

/// The outcome of an operation, with the lease it is true under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leased<T> {
    /// What the operation returned.
    pub value: T,
    /// The key it was on.
    pub key: Key,
    /// The lease: what leaves the server carries it, and the receiver refuses a lower one.
    pub generation: Generation,
}

impl<N, V> LeasedMap<N, V>
where
    N: LeasedKey + Eq + Hash + Clone + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    /// An empty map whose entries travel as JSON.
    #[must_use]
    pub fn new() -> LeasedMap<N, V> {
        LeasedMap::with_codec(Json)
    }
}

impl<N, V> Default for LeasedMap<N, V>
where
    N: LeasedKey + Eq + Hash + Clone + Serialize + DeserializeOwned,
    V: Serialize + DeserializeOwned,
{
    fn default() -> LeasedMap<N, V> {
        LeasedMap::new()
    }
}

impl<N: LeasedKey + Eq + Hash + Clone, V> LeasedMap<N, V> {
    /// An empty map whose entries travel as `codec` writes them.
    #[must_use]
    pub fn with_codec(codec: impl Codec<N, V> + 'static) -> LeasedMap<N, V> {
        LeasedMap::build(codec, None)
    }

    /// An empty map whose entries end `ttl` after they were last written.
    #[must_use]
    pub fn with_ttl(codec: impl Codec<N, V> + 'static, ttl: Duration) -> LeasedMap<N, V> {
        LeasedMap::build(codec, Some(ttl))
    }
}

impl<N: OrderedName + Eq + Hash + Clone, V> LeasedMap<N, V, Ordered> {
    /// An empty map of a namespace with ordered keys, whose entries travel as JSON and can be [scanned](LeasedMap::scan) in order.
    #[must_use]
    pub fn ordered() -> LeasedMap<N, V, Ordered>
    where
        N: Serialize + DeserializeOwned,
        V: Serialize + DeserializeOwned,
    {
        LeasedMap::build(Json, None)
    }

    /// The same, whose entries travel as `codec` writes them and, with a `ttl`, end so long after they were last written.
    #[must_use]
    pub fn ordered_with(
        codec: impl Codec<N, V> + 'static,
        ttl: Option<Duration>,
    ) -> LeasedMap<N, V, Ordered> {
        LeasedMap::build(codec, ttl)
    }
}

impl<N: Place<K> + Eq + Hash + Clone, V, K: KeyOrder> LeasedMap<N, V, K> {
    fn build(codec: impl Codec<N, V> + 'static, ttl: Option<Duration>) -> LeasedMap<N, V, K> {
        let inner = Inner {
            leases: OnceLock::new(),
            codec: Box::new(codec),
            ttl,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            changes: AtomicU64::new(0),
            exports: AtomicUsize::new(0),
            arrivals: Mutex::default(),
            keys: PhantomData,
        };
        LeasedMap { inner: Arc::new(inner) }
    }

    /// Ties the map to an Owner's leases, once; before that it owns nothing.
    /// [`OwnerBuilder::state`](crate::owner::OwnerBuilder::state) does so by itself, otherwise give it
    /// [`Owner::hot_leases`](crate::Owner::hot_leases).
    pub fn attach(&self, leases: impl Leases) {
        if self.inner.leases.set(Box::new(leases)).is_err() {
            tracing::error!("a LeasedMap belongs to one Owner for good: make another map for another Owner");
        }
    }

    /// Operates on the entry of `name`: `None` is no entry, and leaving `None` removes it. Nothing else happens to the
    /// entry meanwhile, so be quick and do not wait.
    pub fn with<R>(
        &self,
        name: &N,
        operate: impl FnOnce(&mut Option<V>) -> R,
    ) -> Result<Leased<R>, NotOwner> {
        self.with_lease(name, |slot, _| operate(slot))
    }

    /// Like [`LeasedMap::with`], for state that keeps the number of the lease under which it was written.
    pub fn with_lease<R>(
        &self,
        name: &N,
        operate: impl FnOnce(&mut Option<V>, &Lease) -> R,
    ) -> Result<Leased<R>, NotOwner> {
        self.operate(name, Leases::check, operate)
    }

    /// Like [`LeasedMap::with_lease`], for the end of an operation that began with [`Owner::begin`](crate::Owner::begin): also
    /// while the range is frozen for a move, which waits for the guard and takes along what is written here.
    ///
    /// # Panics
    /// If the guard is on another key than that of `name`.
    pub fn with_guard<R>(
        &self,
        guard: &Guard,
        name: &N,
        operate: impl FnOnce(&mut Option<V>, &Lease) -> R,
    ) -> Result<Leased<R>, NotOwner> {
        assert_eq!(Ok(guard.key()), name.place(self.inner.leases()?), "a guard is on one key");
        let held = |leases: &dyn Leases, key| {
            let lease = leases.held(key).filter(|lease| lease.is_continuous_since(guard.generation()));
            lease.ok_or(NotOwner::NoLease)
        };
        self.operate(name, held, operate)
    }

    /// The steps of an operation; `find` is the first of them.
    fn operate<R>(
        &self,
        name: &N,
        find: impl FnOnce(&dyn Leases, Key) -> Result<Lease, NotOwner>,
        operate: impl FnOnce(&mut Option<V>, &Lease) -> R,
    ) -> Result<Leased<R>, NotOwner> {
        let leases = self.inner.leases()?;
        let key = name.place(leases)?;
        let mut shard = self.inner.shard(key);
        // Within the lock: a copy for another server is made after the range was frozen, and waits for this.
        let lease = find(leases, key)?;
        self.inner.check_place(name, key)?;
        let now = leases.now();
        self.inner.settle(&mut shard, name, key, &lease, now);
        let entry = shard.get_or_insert(name, || Entry::empty(lease.generation));
        let result = operate(&mut entry.value, &lease);
        entry.changed = self.inner.changes.fetch_add(1, Ordering::SeqCst) + 1;
        entry.ends = self.inner.ttl.map(|ttl| now + ttl);
        // A copy that is being made must be told of what was removed since it began.
        if entry.value.is_none() && self.inner.exports.load(Ordering::SeqCst) == 0 {
            shard.remove(name);
        }
        drop(shard);
        let leased = Leased { value: result, key, generation: lease.generation };
        self.recheck(&leased)?;
        Ok(leased)
    }

    /// The entry of `name`. Does not make it live longer.
    pub fn get(&self, name: &N) -> Result<Leased<Option<V>>, NotOwner>
    where
        V: Clone,
    {
        let leases = self.inner.leases()?;
        let key = name.place(leases)?;
        let mut shard = self.inner.shard(key);
        let lease = leases.check(key)?;
        self.inner.check_place(name, key)?;
        self.inner.settle(&mut shard, name, key, &lease, leases.now());
        let value = shard.get(name).and_then(|entry| entry.value.clone());
        drop(shard);
        let leased = Leased { value, key, generation: lease.generation };
        self.recheck(&leased)?;
        Ok(leased)
    }

    /// Writes the entry of `name`, and returns what was there.
    pub fn insert(&self, name: N, value: V) -> Result<Leased<Option<V>>, NotOwner> {
        self.with(&name, |slot| slot.replace(value))
    }

    /// Removes the entry of `name`, and returns what was there.
    pub fn remove(&self, name: &N) -> Result<Leased<Option<V>>, NotOwner> {
        self.with(name, Option::take)
    }

    /// Whether an outcome is still true: the key was held without a gap since. To be asked before each thing that leaves
    /// the server (PRS §2.2, step 5).
    pub fn recheck<T>(&self, leased: &Leased<T>) -> Result<(), NotOwner> {
        let is_held = self.inner.leases()?.is_continuous(leased.key, leased.generation);
        if is_held { Ok(()) } else { Err(NotOwner::NoLease) }
    }

    /// Frees what is of no use: entries of leases that are gone, removed ones, and those whose time is over. To be
    /// called now and then; nothing but memory depends on it.
    pub fn sweep(&self) {
        let Ok(leases) = self.inner.leases() else { return };
        self.install_imports(None);
        let now = leases.now();
        for shard in &self.inner.shards {
            let mut shard = lock(shard);
            // Asked within the lock: a copy that begins later locks each shard after it said so.
            let copying = self.inner.exports.load(Ordering::SeqCst) > 0;
            shard.retain(|name, entry| {
                let key = name.place(leases);
                let is_held = key.is_ok_and(|key| leases.is_continuous(key, entry.generation));
                is_held && (copying || entry.is_live(now))
            });
        }
    }

    /// How many entries are in memory, valid or not.
    #[must_use]
    pub fn len(&self) -> usize {
        let values = |shard: &Mutex<Shard<N, V, K>>| {
            lock(shard).values().filter(|entry| entry.value.is_some()).count()
        };
        self.inner.shards.iter().map(values).sum()
    }

    /// Whether no entry is in memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<V> Entry<V> {
    fn empty(generation: Generation) -> Entry<V> {
        Entry { value: None, generation, ends: None, changed: 0 }
    }

    fn is_live(&self, now: Instant) -> bool {
        self.value.is_some() && self.ends.is_none_or(|ends| now < ends)
    }
}

impl<N: Place<K> + Eq + Hash + Clone, V, K: KeyOrder> Inner<N, V, K> {
    fn leases(&self) -> Result<&dyn Leases, NotOwner> {
        self.leases.get().map(AsRef::as_ref).ok_or(NotOwner::NoLease)
    }

    /// Ordered keys differ in their first bits alone, and hashed ones in all: a product spreads both.
    fn shard(&self, key: Key) -> MutexGuard<'_, Shard<N, V, K>> {
        let spread = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        lock(&self.shards[spread as usize % SHARDS])
    }

    /// The place of a name, if it has one.
    fn place_of(&self, name: &N) -> Option<Key> {
        name.place(self.leases().ok()?).ok()
    }

    /// After a lease was found: whether the name still has that key. Another namespace, whose keys have another prefix, may have taken the
    /// place of the one that the key was of.
    fn check_place(&self, name: &N, key: Key) -> Result<(), NotOwner> {
        let is_settled = K::KIND == KeyKind::Hashed || self.place_of(name) == Some(key);
        if is_settled { Ok(()) } else { Err(NotOwner::NoLease) }
    }

    /// Makes the entry of a name true under a lease: what is of an earlier one, or over, goes; what came along is here.
    fn settle(&self, shard: &mut Shard<N, V, K>, name: &N, key: Key, lease: &Lease, now: Instant) {
        let is_current = shard.get(name).is_some_and(|entry| lease.is_continuous_since(entry.generation));
        if !is_current {
            let arrived = lease.source.and_then(|source| self.arrived(name, key, source));
            match arrived {
                Some((value, ends)) => {
                    let changed = self.changes.fetch_add(1, Ordering::SeqCst) + 1;
                    let generation = lease.generation;
                    shard.insert(name.clone(), Entry { value, generation, ends, changed });
                }
                None => shard.remove(name),
            }
        }
        if let Some(entry) = shard.get_mut(name)
            && !entry.is_live(now)
        {
            entry.value = None;
        }
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals<N, V>> {
        lock(&self.arrivals)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<N, V, K: KeyOrder> Clone for LeasedMap<N, V, K> {
    fn clone(&self) -> LeasedMap<N, V, K> {
        LeasedMap { inner: Arc::clone(&self.inner) }
    }
}

impl<N, V, K: KeyOrder> fmt::Debug for LeasedMap<N, V, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeasedMap")
    }
}
