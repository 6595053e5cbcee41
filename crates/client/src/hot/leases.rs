//! The leases of an Owner as readers see them, and the load that readers leave behind.

mod ordered;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use centrifuge_core::id::Generation;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::time::Instant;
use centrifuge_net::clock;

use super::index::RangeIndex;
use super::local::{Local, Published, View};
use super::sampling::{FIRST_LOAD_PER_SAMPLE, Sampler, Samples};
use crate::keys::KeySpace;

thread_local! {
    static LOCAL: RefCell<Local<LeaseSnapshot, OwnView>> = const { RefCell::new(Local::new()) };
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
    /// The key does not begin with what all keys of the namespace begin with.
    #[error("the key does not begin with the prefix that all keys of this namespace have: nobody owns it")]
    OutsidePrefix,
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
    /// The keys. A lease may lose a part of them and keep its number for the rest.
    pub range: KeyRange,
    /// Its number: what leaves the server carries it, and the receiver refuses a lower one. It may rise while the lease is
    /// held, when neighbouring leases become one.
    pub generation: Generation,
    /// The number under which the keys were granted: they have been held without a gap since.
    pub continuous_from: Generation,
    /// When the state of these keys last began empty.
    pub state_since: Generation,
    /// The lease under which the state that came along was held elsewhere. `None`: the state began empty here.
    pub source: Option<Generation>,
}

impl Lease {
    /// Whether its keys have been held without a gap since they were held under `lease`: state of then is state of now.
    #[must_use]
    pub fn is_continuous_since(&self, lease: Generation) -> bool {
        self.continuous_from <= lease && lease <= self.generation
    }
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

    #[inline(always)]
    fn holds(&self, now: Instant, offset: i64) -> bool {
        now < self.expiry && offset.wrapping_sub(self.offset).unsigned_abs() <= self.slack
    }

    /// Checks against the clocks as they are now. They are read after the table, so that a reader that was stopped in
    /// between does not take an old table for a valid one.
    #[inline(always)]
    fn holds_now(&self) -> bool {
        let (now, offset) = clock::now_and_wall_offset();
        self.holds(now, offset)
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

    /// Whether the key has been held since that lease, by given clocks.
    pub(crate) fn is_held_at(&self, now: Instant, offset: i64, key: Key, lease: Generation) -> bool {
        let held = *self.table.index.value(self.table.index.find(key));
        held.is_under(lease) && self.validity.holds(now, offset)
    }
}

/// What is held of a run of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LeaseEntry {
    /// Zero: nothing.
    generation: Generation,
    continuous_from: Generation,
    is_frozen: bool,
}

impl LeaseEntry {
    const NOTHING: LeaseEntry =
        LeaseEntry { generation: Generation::ZERO, continuous_from: Generation(u64::MAX), is_frozen: false };

    #[inline(always)]
    fn check(self, is_valid: bool) -> Result<Generation, NotOwner> {
        if self.generation == Generation::ZERO || !is_valid {
            Err(NotOwner::NoLease)
        } else if self.is_frozen {
            Err(NotOwner::Moving)
        } else {
            Ok(self.generation)
        }
    }

    #[inline(always)]
    fn is_under(self, lease: Generation) -> bool {
        self.continuous_from <= lease && lease <= self.generation
    }
}

/// The leases of an Owner, built once and never changed; renewals keep it.
#[derive(Debug)]
pub(crate) struct LeaseTable {
    index: RangeIndex<LeaseEntry>,
    leases: Box<[Option<Lease>]>,
    /// What the keys are, if they are ordered and that is known.
    space: Option<KeySpace>,
    /// What a check counts as load.
    load_per_check: u64,
    /// How much load there should be for each sample.
    load_per_sample: AtomicU64,
    copies: Mutex<Copies>,
}

/// Who counts, and what was counted.
#[derive(Debug)]
struct Copies {
    /// Each reading thread's copy.
    live: Vec<ThreadCopy>,
    /// What threads counted that are gone, run by run; short while nobody is.
    gone: Vec<u64>,
    /// What threads sampled that are gone.
    gone_samples: Samples,
    /// How many threads ever had a copy. Seeds the next one's sampler: the same threads draw the same samples.
    registered: u64,
}

impl Default for Copies {
    fn default() -> Copies {
        Copies { live: Vec::new(), gone: Vec::new(), gone_samples: Samples::new(), registered: 0 }
    }
}

impl Copies {
    /// Keeps only the counts and samples of threads that let go of their copy.
    fn settle(&mut self) {
        let is_live = |copy: &ThreadCopy| copy.index.is_shared();
        let (live, gone) = std::mem::take(&mut self.live).into_iter().partition::<Vec<_>, _>(is_live);
        self.live = live;
        add_counts(&mut self.gone, &gone);
        for copy in gone {
            copy.take_samples(&mut self.gone_samples);
        }
    }
}

/// What a thread and whoever measures share.
#[derive(Clone, Debug)]
struct ThreadCopy {
    index: RangeIndex<Counted>,
    sampler: Arc<Mutex<Sampler>>,
}

impl ThreadCopy {
    fn new(index: RangeIndex<Counted>, sampler: Sampler) -> ThreadCopy {
        ThreadCopy { index, sampler: Arc::new(Mutex::new(sampler)) }
    }

    /// Moves the thread's samples. A check that comes meanwhile does not wait: the next one is sampled instead.
    fn take_samples(&self, into: &mut Samples) {
        self.sampler.lock().unwrap_or_else(PoisonError::into_inner).take_into(into);
    }
}

/// Adds the counts of copies to sums, run by run.
fn add_counts(sums: &mut Vec<u64>, copies: &[ThreadCopy]) {
    for ThreadCopy { index, .. } in copies {
        sums.resize(index.len(), 0);
        for (sum, counted) in sums.iter_mut().zip(index.values()) {
            *sum = sum.wrapping_add(counted.count.load(Ordering::Relaxed));
        }
    }
}

impl LeaseTable {
    /// A table of leases in key order, each with whether it is frozen.
    pub(crate) fn new(leases: &[(Lease, bool)]) -> LeaseTable {
        let held = leases.iter().map(|(lease, is_frozen)| {
            let (generation, continuous_from) = (lease.generation, lease.continuous_from);
            (lease.range, LeaseEntry { generation, continuous_from, is_frozen: *is_frozen })
        });
        let index = RangeIndex::new(held, LeaseEntry::NOTHING);
        let mut details = vec![None; index.len()];
        for (lease, _) in leases {
            details[index.find(lease.range.first())] = Some(*lease);
        }
        LeaseTable {
            index,
            leases: details.into_boxed_slice(),
            space: None,
            load_per_check: 1,
            load_per_sample: AtomicU64::new(FIRST_LOAD_PER_SAMPLE),
            copies: Mutex::default(),
        }
    }

    /// The same, where a check counts as so much load; zero: only what the application reports is load.
    pub(crate) fn with_load_per_check(self, load_per_check: u64) -> LeaseTable {
        LeaseTable { load_per_check, ..self }
    }

    /// How much load there should be for each sample.
    pub(crate) fn load_per_sample(&self) -> u64 {
        self.load_per_sample.load(Ordering::Relaxed)
    }

    /// Threads go by it from their next sample on.
    pub(crate) fn set_load_per_sample(&self, load: u64) {
        self.load_per_sample.store(load, Ordering::Relaxed);
    }

    /// The leases, in key order, whether or not they are still valid.
    pub(crate) fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter().flatten()
    }

    /// How often each leased range was asked for since this table exists.
    pub(crate) fn counts(&self) -> Vec<(KeyRange, u64)> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.settle();
        let mut counts = copies.gone.clone();
        add_counts(&mut counts, &copies.live);
        counts.resize(self.index.len(), 0);
        let leases = self.leases.iter().zip(counts);
        leases.filter_map(|(lease, count)| lease.map(|lease| (lease.range, count))).collect()
    }

    /// Moves the keys that were sampled since they were last taken.
    pub(crate) fn take_samples(&self, into: &mut Samples) {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.settle();
        into.merge(&copies.gone_samples);
        copies.gone_samples.clear();
        for copy in &copies.live {
            copy.take_samples(into);
        }
    }

    /// A copy that counts.
    fn copy(&self) -> RangeIndex<Counted> {
        self.index.map(|held| Counted { held: *held, count: AtomicU64::new(0) })
    }

    fn sampler(&self, seed: u64) -> Sampler {
        let sampler = Sampler::new(seed, self.load_per_sample());
        if self.space.is_some() { sampler.keeping_keys() } else { sampler }
    }

    /// A copy for a thread that begins to read, whose counts count.
    fn registered_copy(&self) -> ThreadCopy {
        let index = self.copy();
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.settle();
        copies.registered += 1;
        let copy = ThreadCopy::new(index, self.sampler(copies.registered));
        copies.live.push(copy.clone());
        copy
    }
}

/// What is held of a run of keys, and how often one thread asked for it.
#[derive(Debug)]
struct Counted {
    held: LeaseEntry,
    count: AtomicU64,
}

impl Counted {
    /// No other thread writes this count, so that counting is no more than an addition.
    #[inline(always)]
    fn add(&self, amount: u64) {
        let count = self.count.load(Ordering::Relaxed).wrapping_add(amount);
        self.count.store(count, Ordering::Relaxed);
    }
}

/// What one thread reads: its own copy of the table, so that what is held and its count are in one place.
struct OwnView {
    validity: Validity,
    own: ThreadCopy,
    load_per_check: u64,
    /// How much more load there is to the next sample; never zero.
    until_sample: Cell<u64>,
    table: Arc<LeaseTable>,
}

impl OwnView {
    fn new(table: &Arc<LeaseTable>, validity: Validity, own: ThreadCopy) -> OwnView {
        // Nobody else can have it but who takes samples away, and that is short.
        let until_sample = own.sampler.lock().unwrap_or_else(PoisonError::into_inner).gap();
        let (table, load_per_check) = (Arc::clone(table), table.load_per_check);
        OwnView { validity, own, load_per_check, until_sample: Cell::new(until_sample), table }
    }

    /// Counts load of a key, and gives its run and what is held of it.
    #[inline(always)]
    fn count(&self, key: Key, amount: u64) -> (usize, LeaseEntry) {
        let left = self.until_sample.get();
        if amount < left {
            self.until_sample.set(left - amount);
        } else {
            self.sample(key, amount - left);
        }
        self.count_unsampled(key, amount)
    }

    #[inline(always)]
    fn count_unsampled(&self, key: Key, amount: u64) -> (usize, LeaseEntry) {
        let run = self.own.index.find(key);
        let counted = self.own.index.value(run);
        counted.add(amount);
        (run, counted.held)
    }

    /// Takes a sample of the load. If somebody takes samples away at this moment, the next load is sampled instead.
    #[cold]
    #[inline(never)]
    fn sample(&self, key: Key, beyond: u64) {
        let until_sample = match self.own.sampler.try_lock() {
            Ok(mut sampler) => sampler.sample(key, beyond, self.table.load_per_sample()),
            Err(_) => 1,
        };
        self.until_sample.set(until_sample);
    }

    #[inline(always)]
    fn check_now(&self, key: Key) -> Result<Generation, NotOwner> {
        let (_, held) = self.count(key, self.load_per_check);
        held.check(self.validity.holds_now())
    }

    #[inline(always)]
    fn check_now_unsampled(&self, key: Key) -> Result<Generation, NotOwner> {
        let (_, held) = self.count_unsampled(key, self.load_per_check);
        held.check(self.validity.holds_now())
    }

    #[inline(always)]
    fn is_under(&self, key: Key, lease: Generation) -> bool {
        let held = self.own.index.value(self.own.index.find(key)).held;
        held.is_under(lease) && self.validity.holds_now()
    }
}

impl View<LeaseSnapshot> for OwnView {
    fn of(latest: &LeaseSnapshot) -> OwnView {
        let LeaseSnapshot { table, validity } = latest;
        OwnView::new(table, *validity, table.registered_copy())
    }

    fn refresh(&mut self, latest: &LeaseSnapshot) {
        if Arc::ptr_eq(&self.table, &latest.table) {
            self.validity = latest.validity;
        } else {
            *self = OwnView::of(latest);
        }
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
        HotLeases { published: Published::new(nothing) }
    }
}

impl HotLeases {
    /// Leases on so many ranges of equal size, together every key, for whoever measures checks without an Owner.
    #[must_use]
    pub fn evenly(ranges: u32, valid_for: Duration) -> HotLeases {
        let lease = |(range, number)| {
            let generation = Generation(number + 1);
            let (continuous_from, state_since) = (generation, generation);
            (Lease { range, generation, continuous_from, state_since, source: None }, false)
        };
        let leases: Vec<_> = super::slices(ranges).zip(0_u64..).map(lease).collect();
        let now = clock::now();
        let (expiry, offset) = (now + valid_for, clock::wall_offset(now));
        let hot = HotLeases::default();
        hot.publish(Arc::new(LeaseTable::new(&leases)), Validity { expiry, offset, slack: u64::MAX });
        hot
    }

    /// Every check is sampled from now on, as at a low rate, to measure what that costs.
    #[doc(hidden)]
    #[must_use]
    pub fn with_every_check_sampled(self) -> HotLeases {
        self.snapshot().table.set_load_per_sample(1);
        self
    }

    /// How often each leased range was asked for since it came to be as it is.
    #[must_use]
    pub fn counts(&self) -> Vec<(KeyRange, u64)> {
        self.snapshot().table.counts()
    }

    /// How many threads count.
    #[cfg(test)]
    pub(super) fn copies(&self) -> usize {
        self.snapshot().table.copies.lock().unwrap_or_else(PoisonError::into_inner).live.len()
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
        let checked = LOCAL.try_with(|local| local.borrow_mut().view(&self.published).check_now(key));
        checked.unwrap_or_else(|_| self.passing_view().check_now(key))
    }

    /// [`HotLeases::check_lease_now`] without samples of keys, to measure what they cost.
    #[doc(hidden)]
    #[inline(always)]
    pub fn check_lease_now_unsampled(&self, key: Key) -> Result<Generation, NotOwner> {
        let checked =
            LOCAL.try_with(|local| local.borrow_mut().view(&self.published).check_now_unsampled(key));
        checked.unwrap_or_else(|_| self.passing_view().check_now_unsampled(key))
    }

    /// Whether `key` has been held without a gap since it was held under `lease`, be it under another number now.
    #[inline(always)]
    #[must_use]
    pub fn check_lease_continuous(&self, key: Key, lease: Generation) -> bool {
        let checked = LOCAL.try_with(|local| local.borrow_mut().view(&self.published).is_under(key, lease));
        checked.unwrap_or_else(|_| self.passing_view().is_under(key, lease))
    }

    /// Like [`HotLeases::check_lease_now`], with everything known of the lease.
    pub fn lease(&self, key: Key) -> Result<Lease, NotOwner> {
        self.read(|view| {
            let (run, held) = view.count(key, view.load_per_check);
            held.check(view.validity.holds_now())?;
            view.table.leases[run].ok_or(NotOwner::NoLease)
        })
    }

    /// The lease on `key`, and whether it is frozen: a range that is about to move is still held.
    #[must_use]
    pub fn held(&self, key: Key) -> Option<(Lease, bool)> {
        self.read(|view| {
            let run = view.own.index.find(key);
            let lease = view.table.leases[run].filter(|_| view.validity.holds_now())?;
            Some((lease, view.own.index.value(run).held.is_frozen))
        })
    }

    /// Adds to the load of the range around `key`.
    pub fn add_load(&self, key: Key, amount: u64) {
        self.read(|view| {
            view.count(key, amount);
        });
    }

    fn read<R>(&self, read: impl Fn(&OwnView) -> R) -> R {
        let local = LOCAL.try_with(|local| read(local.borrow_mut().view(&self.published)));
        local.unwrap_or_else(|_| read(&self.passing_view()))
    }

    /// For a thread that is ending and has lost its view: it makes one for each read, and its counts are lost.
    #[cold]
    #[inline(never)]
    fn passing_view(&self) -> OwnView {
        let LeaseSnapshot { table, validity } = &*self.published.get();
        OwnView::new(table, *validity, ThreadCopy::new(table.copy(), table.sampler(0)))
    }
}
