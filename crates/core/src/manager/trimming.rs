//! Trim in the Manager: what it is told, and what follows from its decisions.

use std::sync::Arc;
use std::time::Duration;

use crate::id::SessionId;
use crate::key::KeyRange;
use crate::partition::PartitionerKind;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::Reason;
use crate::settings::Settings;
use crate::table::Entry;
use crate::trim::{
    Bucket, TrimDecision, TrimInput, TrimMemory, TrimMove, TrimOwner, TrimRange, TrimReport, TrimRun,
    TrimSettings, TrimSummary, WORK_AT_ONCE,
};

use super::decide::Decision;
use super::desired::may_have_keys;
use super::event::Skip;
use super::namespace_runtime::RuntimeTimer;

/// What a leader keeps of Trim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Trimming {
    memory: TrimMemory,
    /// A decision that is being made.
    run: Option<TrimRun>,
    /// Members or weights are others than at the last decision.
    members_changed: bool,
    /// Why keys are wanted where they are.
    why: RangeMap<Arc<str>>,
    /// Neighbours that may be joined.
    pub(super) joinable: RangeSet,
    /// What the latest decision left behind.
    pub(super) summary: TrimSummary,
}

/// How often a namespace's load is looked at.
pub(super) fn load_interval(settings: &Settings) -> Duration {
    match settings.partitioner {
        // Reports come at all times: whoever has too much does not wait for everybody else.
        PartitionerKind::Trim => settings.renewal / 3,
        PartitionerKind::ConsistentHash | PartitionerKind::Fixed => settings.load_interval,
    }
}

impl Decision<'_> {
    /// Whether Trim divides the keys.
    pub(super) fn trims(&self) -> bool {
        self.stored().settings.partitioner == PartitionerKind::Trim
    }

    /// Asks Trim if it is time to, or if members have changed, and goes on with a decision that is being made.
    pub(super) fn trim(&mut self, members_changed: bool) {
        let trimming = &mut self.runtime.placement.trimming;
        trimming.members_changed |= members_changed;
        let is_due = std::mem::take(&mut self.runtime.placement.load_due) || trimming.members_changed;
        if trimming.run.is_none() && is_due {
            self.begin_trim();
        }
        let trimming = &mut self.runtime.placement.trimming;
        let Some(mut run) = trimming.run.take() else { return };
        match run.advance(&mut trimming.memory, WORK_AT_ONCE) {
            Some(decision) => self.take_trim(decision),
            None => {
                trimming.run = Some(run);
                self.runtime.timers.set(RuntimeTimer::Trim, self.now);
            }
        }
    }

    fn begin_trim(&mut self) {
        let ranges = self.trim_ranges();
        let stored = &self.draft.namespaces[self.namespace];
        let settings = &stored.settings;
        let dimension = self.runtime.conversations.load_dimension().unwrap_or_default();
        let owners: Vec<TrimOwner<'_>> = stored
            .sessions
            .iter()
            .map(|(session, info)| TrimOwner {
                session: *session,
                name: &info.name,
                weight: info.weight,
                is_eligible: may_have_keys(info),
                report: self.runtime.conversations.open.get(session).and_then(|conversation| {
                    let report = conversation.report.as_deref()?;
                    let report = Some(report).filter(|report| report.load_dimension == dimension)?;
                    Some(TrimReport { at: conversation.reported.0, loads: &report.loads })
                }),
            })
            .collect();
        let trim_settings = TrimSettings {
            churn_percent: settings.churn_budget,
            max_ranges_per_owner: settings.max_ranges_per_owner,
            imbalance_permille: settings.imbalance,
            max_moves: settings.max_moves,
            renewal: settings.renewal,
        };
        let trimming = &mut self.runtime.placement.trimming;
        let input = TrimInput {
            now: self.now,
            owners: &owners,
            ranges: &ranges,
            settings: &trim_settings,
            may_move: !stored.frozen && self.now >= self.runtime.placement.balance_from,
            is_new: stored.table.iter().all(|(_, entry)| entry.owner.is_none()),
            moves_under_way: stored.table.recalled().count(),
            membership_changed: std::mem::take(&mut trimming.members_changed),
        };
        trimming.run = Some(TrimRun::begin(&trimming.memory, &input));
    }

    /// The table as Trim sees it: what moves, or waits to move, is where it goes.
    fn trim_ranges(&self) -> Vec<TrimRange> {
        let stored = self.stored();
        let Some(desired) = &self.runtime.placement.desired else { return Vec::new() };
        let pinned = desired.pinned();
        let mut ranges = Vec::new();
        for (range, entry) in stored.table.iter() {
            let wanted = desired.ranges().overlapping(range).map(|(part, wanted)| (part, Some(*wanted)));
            // What nobody may keep is with who has it until Trim has found a place.
            let unplaced = desired.ranges().gaps(range).map(|part| (part, entry.owner));
            let mut parts: Vec<(KeyRange, Option<SessionId>)> = wanted.chain(unplaced).collect();
            parts.sort_unstable_by_key(|(part, _)| *part);
            for (part, owner) in parts {
                let stays = entry.quarantined || desired.is_on_probation(part);
                let on_its_way = stays || is_on_its_way(entry, owner);
                ranges.extend(cut(part, &pinned).into_iter().map(|(range, is_pinned)| TrimRange {
                    range,
                    owner,
                    holder: entry.owner,
                    is_fixed: on_its_way || is_pinned,
                    state_since: entry.state_since,
                }));
            }
        }
        ranges
    }

    fn take_trim(&mut self, decision: TrimDecision) {
        let trimming = &mut self.runtime.placement.trimming;
        trimming.summary = decision.summary;
        trimming.joinable = decision.merges.iter().copied().collect();
        self.runtime.placement.merge_due |= !decision.merges.is_empty();
        let table = &self.draft.namespaces[self.namespace].table;
        if let Some(desired) = &mut self.runtime.placement.desired {
            // The table, and who lives, may be others than when the decision began.
            for moved in decision.moves {
                if desired.place(moved.range, (moved.from, moved.to), table) {
                    trimming.why.insert(moved.range, words(&moved).into());
                }
            }
            let begins = |(range, _): &(KeyRange, &Arc<str>)| desired.misplaced().overlaps(*range);
            trimming.why =
                trimming.why.iter().filter(begins).map(|(range, why)| (range, Arc::clone(why))).collect();
        }
        let namespace = || self.namespace.clone();
        let skips = decision.skipped.into_iter().map(|why| Skip::Trim { namespace: namespace(), why });
        self.runtime.skips.extend(skips);
    }

    /// Why a range is wanted elsewhere, where Trim wants it there.
    pub(super) fn reason_to_trim(&self, range: KeyRange) -> Option<Reason> {
        let (_, why) = self.runtime.placement.trimming.why.get(range.first()).filter(|_| self.trims())?;
        Some(Reason::Balanced(Arc::clone(why)))
    }
}

/// A move as operators read it: why, what it does to the Owner that it is for, and what it costs.
fn words(moved: &TrimMove) -> String {
    let TrimMove { reason, ratio_before, ratio_after, load, key_share_ppb, bucket, tokens_left, .. } = moved;
    let ratio = |permille: &u32| format!("{}.{:03}", permille / 1_000, permille % 1_000);
    let percent = |ppb: u64| format!("{}.{:03} %", ppb / 10_000_000, ppb / 10_000 % 1_000);
    let left = match bucket {
        Bucket::Free => String::new(),
        Bucket::Calm | Bucket::Relief => format!(
            "; {} budget left: {} of the load, {} of the keys",
            bucket.as_str(),
            percent(tokens_left.load_ppb),
            percent(tokens_left.keys_ppb)
        ),
    };
    format!(
        "{}: {} to {} of its share; moves {} requests/s, {} of the keys{left}",
        reason.as_str(),
        ratio(ratio_before),
        ratio(ratio_after),
        load / 1_000,
        percent(*key_share_ppb),
    )
}

/// A range in its pieces that are pinned and those that are not, in key order.
fn cut(range: KeyRange, pinned: &RangeSet) -> Vec<(KeyRange, bool)> {
    if !pinned.overlaps(range) {
        return vec![(range, false)];
    }
    let free = RangeSet::from_ranges([range]).difference(pinned);
    let pinned = pinned.intersect_range(range);
    let mut pieces: Vec<_> = pinned.iter().map(|piece| (piece, true)).collect();
    pieces.extend(free.iter().map(|piece| (piece, false)));
    pieces.sort_unstable_by_key(|(piece, _)| *piece);
    pieces
}

/// Whether a range moves already, or is about to.
fn is_on_its_way(entry: &Entry, wanted: Option<SessionId>) -> bool {
    entry.recall.is_some() || (wanted.is_some() && entry.owner.is_some() && entry.owner != wanted)
}
