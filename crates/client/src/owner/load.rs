//! How much each leased range is asked for, from the counts that checks leave behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::time::Instant;

use crate::hot::LeaseTable;

/// Load is told in requests per this many seconds.
const PER_SECONDS: u128 = 1000;

/// Turns counts of checks into rates.
#[derive(Debug)]
pub(super) struct LoadMeter {
    table: Arc<LeaseTable>,
    /// The counts of the table that earlier measurements took, by first key.
    taken: BTreeMap<Key, u64>,
    /// What was counted in earlier tables since the last measurement, by first key of its range there.
    carried: BTreeMap<Key, u64>,
    since: Instant,
}

impl LoadMeter {
    pub(super) fn new(table: Arc<LeaseTable>, now: Instant) -> LoadMeter {
        LoadMeter { table, taken: BTreeMap::new(), carried: BTreeMap::new(), since: now }
    }

    /// Readers count in another table from now on. The few that are still in the old one are not counted.
    pub(super) fn turn_to(&mut self, table: Arc<LeaseTable>) {
        for (range, count) in self.fresh() {
            *self.carried.entry(range.first()).or_default() += count;
        }
        self.taken.clear();
        self.table = table;
    }

    /// The load of every leased range since the last measurement.
    pub(super) fn measure(&mut self, now: Instant) -> Vec<RangeLoad> {
        let elapsed = now.since(self.since).as_nanos();
        if elapsed == 0 {
            return Vec::new();
        }
        let fresh = self.fresh();
        for (range, count) in &fresh {
            *self.taken.entry(range.first()).or_default() += count;
        }
        let carried = std::mem::take(&mut self.carried);
        self.since = now;
        let load = |(range, count): (KeyRange, u64)| {
            let carried: u64 = carried.range(range.first()..=range.last()).map(|(_, count)| count).sum();
            let count = u128::from(count.saturating_add(carried));
            let rate = count.saturating_mul(PER_SECONDS * 1_000_000_000) / elapsed;
            RangeLoad { range, load: u64::try_from(rate).unwrap_or(u64::MAX), hottest: None }
        };
        fresh.into_iter().map(load).collect()
    }

    /// What was counted in the table since the last measurement.
    fn fresh(&self) -> Vec<(KeyRange, u64)> {
        let taken = |range: &KeyRange| self.taken.get(&range.first()).copied().unwrap_or_default();
        let counts = self.table.counts();
        counts.into_iter().map(|(range, count)| (range, count.saturating_sub(taken(&range)))).collect()
    }
}
