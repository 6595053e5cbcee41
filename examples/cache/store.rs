//! What is in memory, kept true to the database under this server's leases.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use centrifuge::hot::Lease;
use centrifuge::leased_map::{Leased, LeasedKey};
use centrifuge::owner::Guard;
use centrifuge::{Generation, Key, LeasedMap, NotOwner, Owner};
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::range_set::RangeSet;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinError;

use super::database::{Database, DatabaseError};

/// Enough that operations on different names seldom wait for each other.
const TURNS: usize = 256;

/// Why an operation has no outcome.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    /// This server does not answer for the key.
    #[error(transparent)]
    NotOwner(#[from] NotOwner),
    /// The database does not do it.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The operation panicked.
    #[error("the operation was abandoned, try again: {0}")]
    Abandoned(#[from] JoinError),
}

/// A value, and where it was found.
#[derive(Debug, Serialize)]
pub(super) struct Found {
    pub(super) value: Value,
    pub(super) from: Source,
}

/// Where a value was found.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Source {
    Memory,
    Database,
}

/// What happened so far.
#[derive(Debug, Default, Serialize)]
pub(super) struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    prefetched: AtomicU64,
    /// Writes that are past their last check.
    writes: AtomicU64,
}

/// The cache. Cheap to clone. Every operation is a task of its own: it ends even if its caller has gone.
#[derive(Clone)]
pub(super) struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    owner: Owner,
    map: LeasedMap<String, Value>,
    database: Database,
    prefetch: u32,
    stall: Duration,
    /// Which keys are claimed and prefetched, under which lease.
    prepared: Mutex<RangeMap<Generation>>,
    /// One preparation after the other.
    preparing: tokio::sync::Mutex<()>,
    /// Operations on one name take turns.
    turns: Box<[tokio::sync::Mutex<()>]>,
    counts: Counts,
}

impl Store {
    pub(super) fn new(
        owner: Owner,
        map: LeasedMap<String, Value>,
        database: Database,
        prefetch: u32,
        stall: Duration,
    ) -> Store {
        let turns = (0..TURNS).map(|_| tokio::sync::Mutex::default()).collect();
        let (prepared, preparing, counts) = Default::default();
        let inner = Inner { owner, map, database, prefetch, stall, prepared, preparing, turns, counts };
        Store { inner: Arc::new(inner) }
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.inner.counts
    }

    /// The value of a name.
    pub(super) async fn get(&self, name: String) -> Result<Leased<Option<Found>>, StoreError> {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move { inner.get(&name).await }).await?
    }

    /// Writes the value of a name, or deletes it, and says whether there was one.
    pub(super) async fn write(&self, name: String, value: Option<Value>) -> Result<Leased<bool>, StoreError> {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move { inner.write(name, value).await }).await?
    }

    /// Claims the range of a lease and prefetches it, if that is not done yet.
    pub(super) async fn prepare(&self, lease: Lease) -> Result<(), StoreError> {
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move { inner.prepare(lease).await }).await?
    }
}

impl Inner {
    async fn get(&self, name: &String) -> Result<Leased<Option<Found>>, StoreError> {
        let (guard, _) = self.begin(name.key()).await?;
        if let Some(value) = self.map.get(name)?.value {
            return self.found(&guard, value);
        }
        let _turn = self.turn(name.key()).lock().await;
        // Whoever had the turn before may have left it here.
        if let Some(value) = self.map.get(name)?.value {
            return self.found(&guard, value);
        }
        self.counts.misses.fetch_add(1, Ordering::Relaxed);
        let asked = name.clone();
        let value = self.ask(move |database| database.read(&asked)).await?;
        if let Some(value) = &value {
            self.remember(&guard, name, value)?;
        }
        outcome(&guard, value.map(|value| Found { value, from: Source::Database }))
    }

    fn found(&self, guard: &Guard, value: Value) -> Result<Leased<Option<Found>>, StoreError> {
        self.counts.hits.fetch_add(1, Ordering::Relaxed);
        outcome(guard, Some(Found { value, from: Source::Memory }))
    }

    async fn write(&self, name: String, value: Option<Value>) -> Result<Leased<bool>, StoreError> {
        let (guard, claim) = self.begin(name.key()).await?;
        let _turn = self.turn(name.key()).lock().await;
        // Gone before the database changes: whatever becomes of the write, nothing in memory is wrong.
        self.map.remove(&name)?;
        if !guard.recheck() {
            return Err(NotOwner::NoLease.into());
        }
        // What happens from here on no check can see. The database's claim is the fence.
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.stall).await;
        let (written, kept) = (name.clone(), value.clone());
        let was_there = self.ask(move |database| database.write(&written, value.as_ref(), claim)).await?;
        if let Some(value) = &kept {
            // It is written, whatever becomes of the memory.
            let _ = self.remember(&guard, &name, value);
        }
        outcome(&guard, was_there)
    }

    /// Begins an operation: the key is owned, prefetched, and claimed under the number that comes with it.
    async fn begin(&self, key: Key) -> Result<(Guard, Generation), StoreError> {
        let guard = self.owner.begin(key)?;
        if self.claim_on(key).is_none() {
            self.prepare(self.owner.lease(key)?).await?;
        }
        let claim = self.claim_on(key).ok_or(NotOwner::NoLease)?;
        Ok((guard, claim))
    }

    async fn prepare(&self, lease: Lease) -> Result<(), StoreError> {
        let _alone = self.preparing.lock().await;
        for range in self.unprepared(&lease).iter() {
            let most = self.prefetch;
            let items = self.ask(move |database| database.claim(range, lease.generation, most)).await?;
            for (name, value) in items {
                self.prefetched(&name, value, lease.generation)?;
            }
            self.prepared.lock().unwrap_or_else(PoisonError::into_inner).insert(range, lease.generation);
        }
        Ok(())
    }

    /// The keys of a lease that are not prepared under it. A lease may lose a part of its range and keep its number.
    fn unprepared(&self, lease: &Lease) -> RangeSet {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = RangeSet::from_ranges([lease.range]);
        for (part, under) in prepared.overlapping(lease.range) {
            if lease.is_continuous_since(*under) {
                rest.remove(part);
            }
        }
        rest
    }

    /// The number under which a key is claimed, if it has been held without a gap since; the lease may have
    /// another by now.
    fn claim_on(&self, key: Key) -> Option<Generation> {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        let claim = prepared.get(key).map(|(_, under)| *under)?;
        self.owner.check_lease_continuous(key, claim).then_some(claim)
    }

    /// Puts an item into memory, unless it came along with its range.
    fn prefetched(&self, name: &String, value: Value, lease: Generation) -> Result<(), NotOwner> {
        self.map.with_lease(name, |slot, now| {
            if now.is_continuous_since(lease) && slot.is_none() {
                *slot = Some(value);
                self.counts.prefetched.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        Ok(())
    }

    /// Puts into memory what the database said during an operation, also while the range waits for it to move.
    fn remember(&self, guard: &Guard, name: &String, value: &Value) -> Result<(), NotOwner> {
        self.map.with_guard(guard, name, |slot, _| *slot = Some(value.clone()))?;
        Ok(())
    }

    /// Asks the database on a thread that may block.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Database) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let database = self.database.clone();
        Ok(tokio::task::spawn_blocking(move || question(&database)).await??)
    }

    fn turn(&self, key: Key) -> &tokio::sync::Mutex<()> {
        &self.turns[key.0 as usize % TURNS]
    }
}

/// What may leave the server: the key was held all the while.
fn outcome<T>(guard: &Guard, value: T) -> Result<Leased<T>, StoreError> {
    if !guard.recheck() {
        return Err(NotOwner::NoLease.into());
    }
    Ok(Leased { value, key: guard.key(), generation: guard.generation() })
}
