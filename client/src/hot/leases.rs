//! The leases of an Owner as readers see them, and the load that readers leave behind.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use centrifuge_core::id::Generation;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::time::Instant;
use centrifuge_net::clock;

use super::index::RangeIndex;
use super::local::{Local, Published};

thread_local! {
    static LOCAL: RefCell<Local<LeaseSnapshot, Counters>> = const { RefCell::new(Local::new()) };
}

/// Why an Owner does not answer for a key, and so what the caller should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotOwner {
    /// This process has no lease on the key, or the lease ran out.
    #[error("this process holds no lease on the key: look the key up again and ask the owner it has now")]
    NoLease,
    /// The key is about to move: no new operation may begin.
    #[error("the key is moving to another owner: wait a moment, look it up again and ask its next owner")]
    Moving,
}

impl From<centrifuge_core::owner::NotOwner> for NotOwner {
    fn from(why: centrifuge_core::owner::NotOwner) -> NotOwner {
        match why {
            centrifuge_core::owner::NotOwner::NoLease => NotOwner::NoLease,
            centrifuge_core::owner::NotOwner::Moving => NotOwner::Moving,
        }
    }
}

/// A lease that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The keys.
    pub range: KeyRange,
    /// Its number: what leaves the server carries it, and the receiver refuses a lower one.
    pub generation: Generation,
    /// When the state of these keys last began empty.
    pub state_since: Generation,
    /// The lease under which the state that came along was held elsewhere. `None`: the state began empty here.
    pub source: Option<Generation>,
}

/// Until when leases are valid, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    /// The instant from which no lease counts.
    pub(crate) expiry: Instant,
    /// Wall time minus boot time when the report was sent from which the leases count.
    pub(crate) offset: i64,
    /// How far the two clocks may have moved against each other since, in nanoseconds.
    pub(crate) slack: u64,
}

impl Validity {
    /// Nothing is valid.
    pub(crate) const NONE: Validity = Validity { expiry: Instant::ZERO, offset: 0, slack: 0 };

    #[inline]
    fn holds(&self, now: Instant, offset: i64) -> bool {
        now < self.expiry && offset.wrapping_sub(self.offset).unsigned_abs() <= self.slack
    }
}

/// One consistent state of an Owner: its leases and until when they are valid.
#[derive(Debug)]
pub(crate) struct LeaseSnapshot {
    pub(crate) table: Arc<LeaseTable>,
    pub(crate) validity: Validity,
}

impl LeaseSnapshot {
    /// Checks against given clocks; the same answers as the machine's.
    pub(crate) fn check_at(&self, now: Instant, offset: i64, key: Key) -> Result<Generation, NotOwner> {
        let held = *self.table.index.value(self.table.index.find(key));
        held.check(self.validity.holds(now, offset))
    }

    /// The lease on a key by given clocks, and whether it is frozen.
    pub(crate) fn held_at(&self, now: Instant, offset: i64, key: Key) -> Option<(Lease, bool)> {
        let run = self.table.index.find(key);
        let lease = self.table.leases[run].filter(|_| self.validity.holds(now, offset))?;
        Some((lease, self.table.index.value(run).is_frozen))
    }

    /// Whether the key is held at that lease, by given clocks.
    pub(crate) fn is_held_at(&self, now: Instant, offset: i64, key: Key, lease: Generation) -> bool {
        let held = *self.table.index.value(self.table.index.find(key));
        held.is_under(lease) && self.validity.holds(now, offset)
    }

    /// Checks against the clocks as they are now. The clock is read after the table, so that a reader that was
    /// stopped in between does not take an old table for a valid one.
    #[inline]
    fn holds_now(&self) -> bool {
        let now = clock::now();
        self.validity.holds(now, clock::wall_offset(now))
    }
}

/// What is held of a run of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    /// Zero: nothing.
    generation: Generation,
    is_frozen: bool,
}

impl Held {
    const NOTHING: Held = Held { generation: Generation::ZERO, is_frozen: false };

    #[inline]
    fn check(self, is_valid: bool) -> Result<Generation, NotOwner> {
        if self.generation == Generation::ZERO || !is_valid {
            Err(NotOwner::NoLease)
        } else if self.is_frozen {
            Err(NotOwner::Moving)
        } else {
            Ok(self.generation)
        }
    }

    #[inline]
    fn is_under(self, lease: Generation) -> bool {
        self.generation != Generation::ZERO && self.generation == lease
    }
}

/// The leases of an Owner, built once and never changed; renewals keep it.
#[derive(Debug)]
pub(crate) struct LeaseTable {
    id: u64,
    index: RangeIndex<Held>,
    leases: Box<[Option<Lease>]>,
    /// Each reading thread's counts, a number for each run.
    counts: Mutex<Vec<Arc<[AtomicU64]>>>,
}

impl LeaseTable {
    /// A table of leases in key order, each with whether it is frozen.
    pub(crate) fn new(leases: &[(Lease, bool)]) -> LeaseTable {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let held = leases.iter().map(|(lease, is_frozen)| {
            (lease.range, Held { generation: lease.generation, is_frozen: *is_frozen })
        });
        let index = RangeIndex::new(held, Held::NOTHING);
        let mut details = vec![None; index.len()];
        for (lease, _) in leases {
            details[index.find(lease.range.first())] = Some(*lease);
        }
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        LeaseTable { id, index, leases: details.into_boxed_slice(), counts: Mutex::default() }
    }

    /// The leases, in key order, whether or not they are still valid.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter().flatten()
    }

    /// How often each leased range was asked for since this table exists.
    pub(crate) fn counts(&self) -> Vec<(KeyRange, u64)> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_run = |run: usize| counts.iter().map(|own| own[run].load(Ordering::Relaxed)).sum();
        let runs = self.leases.iter().enumerate();
        runs.filter_map(|(run, lease)| lease.map(|lease| (lease.range, of_run(run)))).collect()
    }

    fn register(&self) -> Arc<[AtomicU64]> {
        let own: Arc<[AtomicU64]> = (0..self.index.len()).map(|_| AtomicU64::new(0)).collect();
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&own));
        own
    }
}

/// One thread's counts for one table. No other thread writes them, so that counting is no more than an addition.
#[derive(Default)]
struct Counters {
    table: u64,
    counts: Option<Arc<[AtomicU64]>>,
}

impl Counters {
    #[inline]
    fn add(&mut self, table: &LeaseTable, run: usize, amount: u64) {
        if self.table != table.id {
            self.turn_to(table);
        }
        if let Some(count) = self.counts.as_ref().and_then(|counts| counts.get(run)) {
            count.store(count.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }

    /// The first check of this thread against a new table.
    #[cold]
    fn turn_to(&mut self, table: &LeaseTable) {
        self.table = table.id;
        self.counts = Some(table.register());
    }
}

/// The leases that readers of an Owner share; cheap to clone.
#[derive(Clone, Debug)]
pub struct HotLeases {
    published: Arc<Published<LeaseSnapshot>>,
}

impl Default for HotLeases {
    fn default() -> HotLeases {
        let nothing = LeaseSnapshot { table: Arc::new(LeaseTable::new(&[])), validity: Validity::NONE };
        HotLeases { published: Arc::new(Published::new(nothing)) }
    }
}

impl HotLeases {
    /// Leases on so many ranges of equal size, together every key, for whoever measures checks without an Owner.
    #[must_use]
    pub fn evenly(ranges: u32, valid_for: Duration) -> HotLeases {
        let lease = |(range, number)| {
            let generation = Generation(number + 1);
            (Lease { range, generation, state_since: generation, source: None }, false)
        };
        let leases: Vec<_> = super::slices(ranges).zip(0_u64..).map(lease).collect();
        let now = clock::now();
        let (expiry, offset) = (now + valid_for, clock::wall_offset(now));
        let hot = HotLeases::default();
        hot.publish(Arc::new(LeaseTable::new(&leases)), Validity { expiry, offset, slack: u64::MAX });
        hot
    }

    /// How often each leased range was asked for since it came to be as it is.
    #[must_use]
    pub fn counts(&self) -> Vec<(KeyRange, u64)> {
        self.snapshot().table.counts()
    }

    /// Every check that begins from now on sees this.
    pub(crate) fn publish(&self, table: Arc<LeaseTable>, validity: Validity) {
        self.published.publish(LeaseSnapshot { table, validity });
    }

    /// Nothing is held from now on.
    pub(crate) fn clear(&self) {
        self.publish(Arc::new(LeaseTable::new(&[])), Validity::NONE);
    }

    /// The latest state, for those who are in no hurry.
    pub(crate) fn snapshot(&self) -> Arc<LeaseSnapshot> {
        self.published.get()
    }

    /// Whether an operation on `key` may begin now, and under which lease. Counts as load.
    #[inline(always)]
    pub fn check_lease_now(&self, key: Key) -> Result<Generation, NotOwner> {
        self.read(|snapshot, counters| {
            let run = snapshot.table.index.find(key);
            counters.add(&snapshot.table, run, 1);
            let held = *snapshot.table.index.value(run);
            held.check(held.generation != Generation::ZERO && snapshot.holds_now())
        })
    }

    /// Whether `key` has been held without a gap since it was first held under `lease`.
    #[inline(always)]
    #[must_use]
    pub fn check_lease_continuous(&self, key: Key, lease: Generation) -> bool {
        self.read(|snapshot, _| {
            let held = *snapshot.table.index.value(snapshot.table.index.find(key));
            held.is_under(lease) && snapshot.holds_now()
        })
    }

    /// Like [`HotLeases::check_lease_now`], with everything known of the lease.
    pub fn lease(&self, key: Key) -> Result<Lease, NotOwner> {
        self.read(|snapshot, counters| {
            let run = snapshot.table.index.find(key);
            counters.add(&snapshot.table, run, 1);
            snapshot.table.index.value(run).check(snapshot.holds_now())?;
            snapshot.table.leases[run].ok_or(NotOwner::NoLease)
        })
    }

    /// The lease on `key`, and whether it is frozen: a range that is about to move is still held.
    #[must_use]
    pub fn held(&self, key: Key) -> Option<(Lease, bool)> {
        self.read(|snapshot, _| {
            let run = snapshot.table.index.find(key);
            let lease = snapshot.table.leases[run].filter(|_| snapshot.holds_now())?;
            Some((lease, snapshot.table.index.value(run).is_frozen))
        })
    }

    /// Adds to the load of the range around `key`.
    pub fn add_load(&self, key: Key, amount: u64) {
        self.read(|snapshot, counters| {
            counters.add(&snapshot.table, snapshot.table.index.find(key), amount);
        });
    }

    #[inline(always)]
    fn read<R>(&self, read: impl Fn(&LeaseSnapshot, &mut Counters) -> R) -> R {
        let local = LOCAL.try_with(|local| {
            local.borrow_mut().read(&self.published, |snapshot, counters| read(snapshot, counters))
        });
        // A thread that is ending has lost its copy, and its counts with it.
        local.unwrap_or_else(|_| read(&self.published.get(), &mut Counters::default()))
    }
}
