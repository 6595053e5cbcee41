//! What Trim remembers between decisions: estimates by range, streaks by Owner, and tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::SessionId;
use crate::key::{Key, KeyRange};
use crate::time::Instant;
use crate::trim::TrimRange;
use crate::trim::budget::Budget;
use crate::trim::density::{Density, fit_heavy, heavy_within};
use crate::trim::estimate::Estimate;
use crate::trim::preparation::Member;
use crate::trim::report::{Observation, ReportReader};
use crate::trim::shape::Shape;

/// How long a range stays after it came, so that the first report after a move is whole.
const REST: Duration = Duration::from_secs(30);

/// What Trim knows besides its input. Volatile: a new leader begins with an empty one, and with no tokens.
///
/// It has one entry for each range of the table and one for each member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrimMemory {
    /// In key order, the ranges of the latest table.
    pub(super) ranges: Vec<RangeMemory>,
    pub(super) owners: BTreeMap<SessionId, OwnerMemory>,
    pub(super) budget: Budget,
}

/// What is known of a range.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RangeMemory {
    pub(super) range: KeyRange,
    owner: Option<SessionId>,
    holder: Option<SessionId>,
    /// Since when the Owner is its Owner.
    owner_since: Instant,
    /// Since when the holder is its holder.
    holder_since: Instant,
    /// Whether the holder has reported a load of it.
    is_reported: bool,
    /// Whether anybody ever has.
    is_known: bool,
    pub(super) estimate: Estimate,
    /// In key order.
    pub(super) heavy: Vec<(Key, u64)>,
    /// Where the rest of its load lies.
    pub(super) shape: Shape,
}

/// What is known of an Owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnerMemory {
    /// When its latest report came.
    pub(super) reported_at: Option<Instant>,
    /// In how many reports running it had too much; counted up to 2.
    pub(super) high_streak: u8,
    /// In how many reports running it had too little; counted up to 2.
    pub(super) low_streak: u8,
    /// Whether it has had its share, and is a newcomer no more.
    pub(super) is_settled: bool,
    /// When it was first seen.
    pub(super) since: Instant,
}

impl TrimMemory {
    /// How many ranges and members it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len() + self.owners.len()
    }

    /// Whether it knows nothing, as a new leader's.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notes who the members are and when they reported.
    pub(super) fn follow_members(&mut self, members: &[Member], now: Instant) {
        let mut known = std::mem::take(&mut self.owners);
        for member in members {
            let is_known = known.remove(&member.session);
            // An Owner that had keys before this leader saw it is no newcomer.
            let mut memory = is_known.unwrap_or_else(|| OwnerMemory::new(now, member.is_holder));
            memory.reported_at = memory.reported_at.max(member.reported_at);
            self.owners.insert(member.session, memory);
        }
    }

    /// What is known of a range of the table. Ranges are asked for in key order, and `next` is kept between them.
    pub(super) fn of_range(&self, range: &TrimRange, next: &mut usize, now: Instant) -> RangeMemory {
        while self.ranges.get(*next).is_some_and(|known| known.range.last() < range.range.first()) {
            *next += 1;
        }
        let memory = match self.ranges.get(*next) {
            Some(same) if same.range == range.range => same.clone(),
            _ => inherited(&self.ranges[*next..], range, now),
        };
        memory.followed(range, now)
    }
}

impl OwnerMemory {
    fn new(now: Instant, is_settled: bool) -> OwnerMemory {
        OwnerMemory { reported_at: None, high_streak: 0, low_streak: 0, is_settled, since: now }
    }
}

impl RangeMemory {
    /// Nothing is known.
    fn new(range: &TrimRange, now: Instant) -> RangeMemory {
        RangeMemory {
            range: range.range,
            owner: range.owner,
            holder: range.holder,
            owner_since: now,
            holder_since: now,
            is_reported: false,
            is_known: false,
            estimate: Estimate::default(),
            heavy: Vec::new(),
            shape: Shape::default(),
        }
    }

    /// Notes whose the range is now.
    fn followed(mut self, range: &TrimRange, now: Instant) -> RangeMemory {
        if self.owner != range.owner {
            (self.owner, self.owner_since) = (range.owner, now);
        }
        if self.holder != range.holder {
            (self.holder, self.holder_since, self.is_reported) = (range.holder, now, false);
        }
        self
    }

    /// Whether the range stayed long enough, and its holder knows its load.
    pub(super) fn is_rested(&self, now: Instant) -> bool {
        self.is_reported && self.has_stayed(now, REST)
    }

    /// Whether the Owner has been its Owner for that long.
    pub(super) fn has_stayed(&self, now: Instant, time: Duration) -> bool {
        now.since(self.owner_since) >= time
    }

    /// Takes what its holder reports, which came at that time.
    pub(super) fn read(&mut self, reader: &mut ReportReader, at: Option<Instant>) {
        // The first report of a holder may cover a part of the time that it was counted over only.
        let held = at.unwrap_or_default().since(self.holder_since);
        let is_whole = !self.is_known || held >= reader.precision.span / 4 * 3;
        if let Some(observed) = reader.read(self.range).filter(|_| is_whole) {
            self.observe(observed, reader);
        }
    }

    fn observe(&mut self, observed: Observation, reader: &ReportReader) {
        let precision = reader.precision;
        if self.is_known {
            self.estimate.observe(observed.load, precision);
        } else {
            self.estimate = Estimate::first(observed.load);
        }
        let known = std::mem::take(&mut self.heavy);
        let scale = |load: u64| {
            let scaled = u128::from(load) * u128::from(self.estimate.load) / u128::from(observed.load.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        let load_of = |key: Key, load: u64| match known.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(place) if !precision.is_surprised(known[place].1, load) => {
                precision.smoothed(known[place].1, load)
            }
            _ => load,
        };
        self.heavy = observed.heavy.iter().map(|&(key, load)| (key, load_of(key, scale(load)))).collect();
        if !precision.is_whole {
            self.keep_unseen(&known, reader.least_heavy);
        }
        fit_heavy(&mut self.heavy, self.estimate.load);
        self.shape = observed.shape;
        (self.is_reported, self.is_known) = (true, true);
    }

    /// Keeps the heavy keys that a short report could not have named.
    fn keep_unseen(&mut self, known: &[(Key, u64)], least: u64) {
        let named = std::mem::take(&mut self.heavy);
        let is_named = |key: &Key| named.binary_search_by_key(key, |(key, _)| *key).is_ok();
        let unseen = known.iter().filter(|(key, load)| *load < least.saturating_mul(2) && !is_named(key));
        self.heavy = unseen.chain(&named).copied().collect();
        self.heavy.sort_unstable_by_key(|(key, _)| *key);
    }

    /// Adds what another range knows of the keys that both have.
    fn absorb(&mut self, other: &RangeMemory, part: KeyRange) {
        let RangeMemory { range, ref heavy, ref shape, .. } = *other;
        let density = Density { range, load: other.estimate.load, heavy, shape };
        let share = other.estimate.of_part(density.load_of(part));
        self.estimate = self.estimate.joined(share);
        self.heavy.extend_from_slice(heavy_within(&other.heavy, part));
        fit_heavy(&mut self.heavy, self.estimate.load);
    }
}

/// What the former ranges, of which the first overlaps `range`, know of it: its parts of those that were split, the sum
/// of those that were merged.
fn inherited(known: &[RangeMemory], range: &TrimRange, now: Instant) -> RangeMemory {
    let mut memory = RangeMemory::new(range, now);
    let mut is_first = true;
    let mut parts: Vec<(KeyRange, u64, &Shape)> = Vec::new();
    for other in known {
        let Some(part) = other.range.intersection(range.range) else { break };
        let before = memory.estimate.load;
        memory.absorb(other, part);
        parts.push((part, memory.estimate.load.saturating_sub(before), &other.shape));
        if is_first {
            (memory.owner, memory.holder) = (other.owner, other.holder);
            (memory.owner_since, memory.holder_since) = (other.owner_since, other.holder_since);
            (memory.is_reported, memory.is_known) = (other.is_reported, other.is_known);
        } else if (memory.owner, memory.holder) == (other.owner, other.holder) {
            memory.owner_since = memory.owner_since.max(other.owner_since);
            memory.holder_since = memory.holder_since.max(other.holder_since);
            memory.is_reported &= other.is_reported;
            memory.is_known |= other.is_known;
        } else {
            (memory.owner_since, memory.holder_since, memory.is_reported) = (now, now, false);
            memory.is_known |= other.is_known;
        }
        is_first = false;
    }
    memory.shape = match parts.as_slice() {
        // A part of a range has that range's shape.
        [(part, _, shape)] => shape.of_part(*part),
        parts => Shape::of_parts(parts),
    };
    memory
}
