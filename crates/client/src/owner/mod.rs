//! The Owner: what an in-memory server links to hold leases on the keys it keeps state for.

mod book;
mod builder;
mod change;
mod heartbeat;
mod host;
mod in_flight;
mod join;
mod links;
mod load;
mod migration;
mod migrations;
#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use centrifuge_core::id::{Generation, Namespace, OwnerName, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{LoadMeasurement, glance_interval};
use centrifuge_core::message::RefusedReason;
use centrifuge_core::namespace_kind::ExpectedKind;
use centrifuge_core::owner::OwnerEvent;
use centrifuge_core::time::Instant;
use centrifuge_net::clock;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::AbortHandle;

pub(crate) use self::book::LeaseBook;
pub use self::builder::OwnerBuilder;
pub use self::change::{Change, Changes, LeftReason};
pub(crate) use self::in_flight::InFlight;
pub use self::join::JoinError;
use self::load::{LoadMeter, measurement_due};
use self::migration::Imports;
pub use self::migration::{BoxError, Import, ImportError, ImportOffer, MigrationOut, MigrationVoid};
pub use self::migrations::{Migration, Migrations};
use crate::hot::{HotLeases, Lease, LeaseTable, NotOwner};
use crate::keys::{Hashed, KeyOrder, KeyPrefix, NoKey, Ordered, OrderedKey};
use crate::managers::Managers;

/// A member of a pool: holds leases, and answers for keys without asking anyone. Cheap to clone.
///
/// When the last clone is dropped the Owner stops renewing, and its leases run out. [`Owner::leave`] is kinder, and
/// [`Owner::shutdown`] kinder still: it moves the state away first.
///
/// ```no_run
/// use centrifuge::{Key, Owner};
///
/// async fn serve(owner: &Owner, room: &str) -> Result<String, centrifuge::NotOwner> {
///     // While the guard lives a recall of the range waits, up to the lease's end.
///     let operation = owner.begin(Key::of(room.as_bytes()))?;
///     let answer = format!("what {room} says, under lease {}", operation.generation());
///     // Before anything leaves the server:
///     if operation.recheck() { Ok(answer) } else { Err(centrifuge::NotOwner::NoLease) }
/// }
/// ```
#[derive(Clone)]
pub struct Owner<K: KeyOrder = Hashed> {
    inner: Arc<Inner>,
    keys: PhantomData<K>,
}

/// Ends the tasks when the last handle goes.
struct Inner {
    shared: Arc<Shared>,
    events: mpsc::Sender<OwnerEvent>,
    tasks: Vec<AbortHandle>,
    namespace: Namespace,
    name: OwnerName,
    expects: ExpectedKind,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Told of a range whose imported copies are void, or that from under one lease alone.
type DiscardHook = Box<dyn Fn(KeyRange, Option<Generation>) + Send + Sync>;

/// What the handle and the driver share.
struct Shared {
    session: Mutex<SessionId>,
    hot: HotLeases,
    in_flight: Arc<InFlight>,
    imports: Imports,
    discard_hooks: Vec<DiscardHook>,
    changes: broadcast::Sender<Change>,
    status: watch::Sender<Status>,
    meter: Mutex<LoadMeter>,
    /// When the latest report was sent, by the boot-time clock, and how long there is to the next one, in nanoseconds.
    reported_at: AtomicU64,
    renewal: AtomicU64,
    /// What a check counts as load: nothing, where the application counts something else.
    load_per_check: u64,
    /// The last sign of life of the application, by the boot-time clock.
    alive_at: AtomicU64,
    gives_up: AtomicBool,
    drain_waits: AtomicBool,
}

/// How far an Owner is.
#[derive(Clone, Copy, Debug, Default)]
struct Status {
    is_joined: bool,
    refused: Option<RefusedReason>,
    is_drained: bool,
    /// How many times a drain of its own was ended.
    undrains: u64,
    left: Option<LeftReason>,
}

impl Shared {
    fn session(&self) -> SessionId {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_session(&self, session: SessionId) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
    }

    fn tell(&self, change: Change) {
        // Without readers nobody wants to know.
        let _ = self.changes.send(change);
    }

    /// Readers count in another table.
    fn count_in(&self, table: Arc<LeaseTable>) {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner).turn_to(table);
    }

    /// The load, if it is time to measure it or if it has shifted.
    fn measure(&self) -> Option<LoadMeasurement> {
        let now = clock::now();
        let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        match now >= self.measurement_due(&meter) {
            true => Some(meter.measure(now)),
            false => meter.measure_if_shifted(now),
        }
    }

    /// How long it is until load is to be looked at.
    fn until_glance(&self) -> Duration {
        let meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        self.measurement_due(&meter).since(clock::now()).min(glance_interval(self.renewal()))
    }

    fn measurement_due(&self, meter: &LoadMeter) -> Instant {
        let reported_at = Instant(self.reported_at.load(Ordering::Relaxed));
        measurement_due(meter.since(), reported_at, self.renewal())
    }

    fn renewal(&self) -> Duration {
        Duration::from_nanos(self.renewal.load(Ordering::Relaxed))
    }

    fn left(&self) {
        let gives_up = self.gives_up.load(Ordering::Relaxed);
        self.gone(if gives_up { LeftReason::Heartbeat } else { LeftReason::Asked });
    }

    /// The first reason stays.
    fn gone(&self, why: LeftReason) {
        let first = self.status.send_if_modified(|status| {
            let first = status.left.is_none();
            status.left.get_or_insert(why);
            first
        });
        if first {
            self.tell(Change::Left(why));
        }
    }
}

impl Owner {
    /// Begins to describe an Owner of the namespace that these Managers manage.
    #[must_use]
    pub fn builder(managers: Managers, namespace: &str) -> OwnerBuilder {
        OwnerBuilder::new(managers, namespace)
    }

    /// The leases as readers see them, for code that only checks.
    #[must_use]
    pub fn hot_leases(&self) -> HotLeases {
        self.inner.shared.hot.clone()
    }
}

impl Owner<Ordered> {
    /// Begins to describe an Owner of a namespace with ordered keys.
    #[must_use]
    pub fn ordered(managers: Managers, namespace: &str) -> OwnerBuilder<Ordered> {
        OwnerBuilder::new(managers, namespace)
    }

    /// The key of an application key, which must begin with the prefix of the namespace.
    pub fn key_of(&self, application_key: impl AsRef<[u8]>) -> Result<OrderedKey, NoKey> {
        self.inner.shared.hot.key_of(application_key.as_ref())
    }

    /// What all application keys begin with. [`KeyPrefix::interval_of`] says which of them a range has.
    #[must_use]
    pub fn prefix(&self) -> Option<KeyPrefix> {
        self.inner.shared.hot.prefix()
    }
}

impl<K: KeyOrder> Owner<K> {
    fn new(inner: Arc<Inner>) -> Owner<K> {
        Owner { inner, keys: PhantomData }
    }

    /// Whether an operation on `key` may begin now, and under which lease.
    ///
    /// Compares the clocks itself, takes no lock and allocates nothing; tens of nanoseconds. Counts as load. The answer
    /// is true of a moment during the call: check again with [`Owner::check_lease_continuous`] before anything leaves
    /// the server, or hold a guard with [`Owner::begin`].
    #[inline]
    pub fn check_lease_now(&self, key: K::Key) -> Result<Generation, NotOwner> {
        K::check(&self.inner.shared.hot, key)
    }

    /// Whether this process has held `key` without a gap since it was told of `lease`. As cheap as the other check.
    #[inline]
    #[must_use]
    pub fn check_lease_continuous(&self, key: K::Key, lease: Generation) -> bool {
        self.inner.shared.hot.check_lease_continuous(K::point(key), lease)
    }

    /// Like [`Owner::check_lease_now`], with everything known of the lease.
    pub fn lease(&self, key: K::Key) -> Result<Lease, NotOwner> {
        K::lease(&self.inner.shared.hot, key)
    }

    /// Begins an operation on `key`. While the guard lives, a recall of the range waits, up to the lease's end: the
    /// guard does not make the lease longer. Check again before anything leaves the server.
    pub fn begin(&self, key: K::Key) -> Result<Guard, NotOwner> {
        let entered = Entered::new(Arc::clone(&self.inner.shared.in_flight), K::point(key));
        let generation = self.check_lease_now(key)?;
        Ok(Guard { entered, generation, hot: self.inner.shared.hot.clone() })
    }

    /// Every lease held now, in key order, for people and for readers that missed a change.
    #[must_use]
    pub fn leases(&self) -> Vec<Lease> {
        let snapshot = self.inner.shared.hot.snapshot();
        let now = clock::now();
        let offset = clock::wall_offset(now);
        let is_held =
            |lease: &&Lease| snapshot.is_held_at(now, offset, lease.range.first(), lease.generation);
        snapshot.table.leases().filter(is_held).copied().collect()
    }

    /// What happens to this Owner from now on.
    #[must_use]
    pub fn changes(&self) -> Changes {
        Changes::new(self.inner.shared.changes.subscribe())
    }

    /// This process. It goes on as another session if its clock jumps: then it holds nothing any more.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.inner.shared.session()
    }

    /// The name that its restarts share.
    #[must_use]
    pub fn name(&self) -> &OwnerName {
        &self.inner.name
    }

    /// The pool.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }

    /// Adds to the load of `key`.
    ///
    /// Without a [dimension](OwnerBuilder::load_dimension) of the application's own, checks are counted by themselves, and this
    /// says that a request cost as much as `amount` more of them. With one, such as CPU time, this is all load there is. What
    /// is held all the time, such as memory, is reported again and again, for instance once a second: load is a rate.
    ///
    /// As cheap as a check. Load of keys that are not leased here is not counted.
    pub fn report_load(&self, key: K::Key, amount: u64) {
        self.inner.shared.hot.add_load(K::point(key), amount);
    }

    /// This process can carry so much, in percent of the usual; zero: it should get nothing.
    pub async fn set_weight(&self, percent: u32) -> Result<(), OwnerGone> {
        self.feed(OwnerEvent::Weight(percent)).await
    }

    /// The application lives. Matters only if the Owner was built with a heartbeat.
    pub fn alive(&self) {
        self.inner.shared.alive_at.store(clock::now().0, Ordering::Relaxed);
    }

    /// Takes in the state of a range that another Owner sends, because it will be ours.
    ///
    /// Keep the copy apart from what is served: it counts only if a lease follows whose `source` is the offer's, and
    /// is void if a lease without it follows.
    pub fn begin_import(&self, offer: ImportOffer) -> Result<Import, ImportError> {
        self.inner.shared.imports.begin(&offer)?;
        Ok(Import { offer, owner: Owner::new(Arc::clone(&self.inner)) })
    }

    async fn note_import(&self, offer: &ImportOffer) -> Result<SessionId, ImportError> {
        let permit = self.inner.events.reserve().await.map_err(|_| ImportError::Gone)?;
        let knows = self.inner.shared.imports.complete(offer, permit)?;
        let mut status = self.inner.shared.status.subscribe();
        tokio::select! {
            known = knows => known.map_err(|_| ImportError::Gone)?,
            _ = status.wait_for(|status| status.left.is_some()) => return Err(ImportError::Gone),
        }
        Ok(self.session())
    }

    /// Moves everything to other Owners, with its state if the application moves state. Ends when nothing is held any
    /// more, or with an error when [`Owner::undrain`] ends it; while nobody else can take the ranges, waits (see
    /// [`Owner::drain_waits`]). The wish stands if this future is dropped.
    pub async fn drain(&self) -> Result<(), NotDrained> {
        let mut status = self.inner.shared.status.subscribe();
        let undrains = status.borrow().undrains;
        self.feed(OwnerEvent::Drain).await?;
        let is_over =
            |status: &Status| status.is_drained || status.left.is_some() || status.undrains != undrains;
        let over = status.wait_for(is_over).await.map(|status| *status);
        match over {
            Ok(status) if status.undrains != undrains => Err(NotDrained::Undrained),
            Ok(Status { is_drained: true, .. }) => Ok(()),
            Ok(Status { left, .. }) => Err(OwnerGone { why: left.unwrap_or(LeftReason::Stopped) }.into()),
            Err(_) => Err(OwnerGone { why: LeftReason::Stopped }.into()),
        }
    }

    /// Ends the Owner's own drain: it keeps what it still holds and gets its share of the keys again. A drain that an
    /// operator ordered stands; `centrifuge undrain` ends that.
    pub async fn undrain(&self) -> Result<(), OwnerGone> {
        let mut status = self.inner.shared.status.subscribe();
        let undrains = status.borrow().undrains;
        self.feed(OwnerEvent::Undrain).await?;
        // A later drain must find that this one is over.
        let is_over = |status: &Status| status.undrains != undrains || status.left.is_some();
        match status.wait_for(is_over).await.map(|status| *status) {
            Ok(status) if status.undrains != undrains => Ok(()),
            Ok(Status { left, .. }) => Err(OwnerGone { why: left.unwrap_or(LeftReason::Stopped) }),
            Err(_) => Err(OwnerGone { why: LeftReason::Stopped }),
        }
    }

    /// Whether the Manager says that the drain waits because no other Owner can take the ranges.
    #[must_use]
    pub fn drain_waits(&self) -> bool {
        self.inner.shared.drain_waits.load(Ordering::Relaxed)
    }

    /// Gives everything up at once, without its state, and goes. Waits for a Manager to confirm it; without a
    /// confirmation nothing is held here any more all the same, and others get the ranges after the hold.
    pub async fn leave(&self, patience: Duration) -> Result<(), Unconfirmed> {
        if self.left().is_some_and(|why| why != LeftReason::Stopped) {
            return Ok(());
        }
        self.feed(OwnerEvent::Leave).await.map_err(|_| Unconfirmed)?;
        let mut status = self.inner.shared.status.subscribe();
        let left = status.wait_for(|status| status.left.is_some());
        match tokio::time::timeout(patience, left).await {
            Ok(Ok(status)) if status.left != Some(LeftReason::Stopped) => Ok(()),
            _ => Err(Unconfirmed),
        }
    }

    /// Drains for at most `patience`, then leaves. What could not be moved by then is lost, and callers are told. It is
    /// final: an [`Owner::undrain`] meanwhile only makes it drain again.
    pub async fn shutdown(&self, patience: Duration) -> Result<(), Unconfirmed> {
        let drain = async { while self.drain().await == Err(NotDrained::Undrained) {} };
        if tokio::time::timeout(patience, drain).await.is_err() {
            tracing::warn!(owner = %self.inner.name, "not drained in time; what is left is given up");
        }
        self.leave(patience.max(LEAVE)).await
    }

    /// Why the Owner has left, if it has.
    #[must_use]
    pub fn left(&self) -> Option<LeftReason> {
        self.inner.shared.status.borrow().left
    }

    async fn feed(&self, event: OwnerEvent) -> Result<(), OwnerGone> {
        if let Some(why) = self.left() {
            return Err(OwnerGone { why });
        }
        let sent = self.inner.events.send(event).await;
        sent.map_err(|_| OwnerGone { why: self.left().unwrap_or(LeftReason::Stopped) })
    }
}

/// However short a shutdown's patience, a leave gets this long.
const LEAVE: Duration = Duration::from_secs(1);

impl<K: KeyOrder> fmt::Debug for Owner<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({}/{} {})", self.inner.namespace, self.inner.name, self.session())
    }
}

/// The Owner has left, so there is nothing to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Owner is gone: {why}")]
pub struct OwnerGone {
    /// Why it left.
    pub why: LeftReason,
}

/// Why a drain ended before the Owner was empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotDrained {
    /// [`Owner::undrain`] ended it.
    #[error("the drain was ended by `undrain`: the Owner keeps its ranges; drain again if it should go")]
    Undrained,
    /// The Owner has left.
    #[error(transparent)]
    Gone(#[from] OwnerGone),
}

/// No Manager confirmed that the Owner left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no Manager confirmed it: nothing is held here any more, and others get the ranges when the hold has run out"
)]
pub struct Unconfirmed;

/// An operation on a key that is under way.
#[derive(Debug)]
pub struct Guard {
    entered: Entered,
    generation: Generation,
    hot: HotLeases,
}

impl Guard {
    /// The key.
    #[must_use]
    pub fn key(&self) -> Key {
        self.entered.key
    }

    /// The lease under which the operation began.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Whether the key has been held without a gap since the operation began: ask before anything leaves the server.
    #[must_use]
    pub fn recheck(&self) -> bool {
        self.hot.check_lease_continuous(self.entered.key, self.generation)
    }
}

/// One operation in flight.
#[derive(Debug)]
struct Entered {
    in_flight: Arc<InFlight>,
    key: Key,
}

impl Entered {
    fn new(in_flight: Arc<InFlight>, key: Key) -> Entered {
        in_flight.enter(key);
        Entered { in_flight, key }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.in_flight.exit(self.key);
    }
}
