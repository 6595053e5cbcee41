//! What an Owner's latest report says about the ranges of the table.

use std::cmp::Reverse;
use std::time::Duration;

use crate::key::{Key, KeyRange};
use crate::load::RangeLoad;
use crate::time::Instant;
use crate::trim::TrimReport;
use crate::trim::density::{Density, fit_heavy, heavy_within};
use crate::trim::estimate::{MAX_LOAD, Precision};
use crate::trim::shape::Shape;

/// A key counts as heavy from this part of its Owner's load on, in permille: an Owner has at most 333 of them.
const HEAVY_PERMILLE: u128 = 3;
/// A key counts as heavy from so many requests on: fewer say little about the next report.
const HEAVY_REQUESTS: u64 = 8;
/// A report older than so many renewals says nothing about now.
const STALE_RENEWALS: u32 = 4;

/// The keys of a range that have much of its load, with that load.
fn heavy_keys(load: &RangeLoad) -> impl Iterator<Item = (Key, u64)> {
    load.heavy.iter().copied()
}

/// Whether a report of that time is recent enough to say something.
pub(super) fn is_recent(at: Instant, now: Instant, renewal: Duration) -> bool {
    now.since(at) <= renewal.saturating_mul(STALE_RENEWALS)
}

/// The load of one range of the table, as its holder reports it.
pub(super) struct Observation {
    pub(super) load: u64,
    pub(super) heavy: Vec<(Key, u64)>,
    pub(super) shape: Shape,
}

/// One report in key order, read once from the lowest key up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReportReader {
    entries: Vec<Entry>,
    /// The first entry that may say something about the next range.
    next: usize,
    pub(super) precision: Precision,
    /// Keys with less than this are not named.
    pub(super) least_heavy: u64,
}

/// One range of a report.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    range: KeyRange,
    load: u64,
    heavy: Vec<(Key, u64)>,
    shape: Shape,
}

impl ReportReader {
    pub(super) fn new(report: &TrimReport<'_>, renewal: Duration) -> ReportReader {
        let precision = Precision::new(report.span, renewal);
        let total: u128 = report.loads.iter().map(|load| u128::from(load.load.min(MAX_LOAD))).sum();
        let least = u64::try_from(total * HEAVY_PERMILLE / 1_000).unwrap_or(u64::MAX);
        let least = least.max(HEAVY_REQUESTS.saturating_mul(precision.one_request));
        let entry = |reported: &RangeLoad| {
            let load = reported.load.min(MAX_LOAD);
            let heavy = checked_heavy(reported, load, least);
            let shape = Shape::of(reported.range, &reported.quantiles);
            Entry { range: reported.range, load, heavy, shape }
        };
        let mut entries: Vec<Entry> = report.loads.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.range);
        ReportReader { entries, next: 0, precision, least_heavy: least }
    }

    /// What the report says about `range`; `None` if it does not say something about every key. Asked in key order.
    pub(super) fn read(&mut self, range: KeyRange) -> Option<Observation> {
        while self.entries.get(self.next).is_some_and(|entry| entry.range.last() < range.first()) {
            self.next += 1;
        }
        let mut observed = Observation { load: 0, heavy: Vec::new(), shape: Shape::default() };
        let mut parts: Vec<(KeyRange, u64, &Shape)> = Vec::new();
        let mut keys = 0_u128;
        for entry in &self.entries[self.next..] {
            let Some(part) = entry.range.intersection(range) else { break };
            let Entry { range, load, ref heavy, ref shape } = *entry;
            let own = Density { range, load, heavy, shape }.load_of(part);
            observed.load = observed.load.saturating_add(own).min(MAX_LOAD);
            parts.push((part, own, shape));
            observed.heavy.extend_from_slice(heavy_within(&entry.heavy, part));
            keys += part.key_count();
        }
        // A report with ranges that overlap is wrong, but must not be harmful.
        observed.heavy.sort_unstable_by_key(|(key, load)| (*key, Reverse(*load)));
        observed.heavy.dedup_by_key(|(key, _)| *key);
        observed.shape = match parts.as_slice() {
            [(_, _, shape)] => (*shape).clone(),
            // Ranges of a wrong report may overlap, and slices must not.
            parts if parts.windows(2).all(|pair| pair[0].0.last() < pair[1].0.first()) => {
                Shape::of_parts(parts)
            }
            _ => Shape::default(),
        };
        (keys >= range.key_count()).then_some(observed)
    }
}

/// The heavy keys of a reported range that can be true.
fn checked_heavy(reported: &RangeLoad, load: u64, least: u64) -> Vec<(Key, u64)> {
    let within = heavy_keys(reported).filter(|(key, _)| reported.range.contains(*key));
    let mut heavy: Vec<(Key, u64)> = within.filter(|(_, load)| *load >= least).collect();
    heavy.sort_unstable_by_key(|(key, load)| (*key, Reverse(*load)));
    heavy.dedup_by_key(|(key, _)| *key);
    fit_heavy(&mut heavy, load);
    heavy.retain(|(_, load)| *load >= least);
    heavy
}
