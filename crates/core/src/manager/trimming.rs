//! Trim in the Manager: what it is told, and what follows from its decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Namespace, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::manager_state::NamespaceState;
use crate::partition::PartitionerKind;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::Reason;
use crate::settings::Settings;
use crate::table::Entry;
use crate::time::Instant;
use crate::trim::{
    TrimDecision, TrimInput, TrimMemory, TrimMove, TrimOwner, TrimRange, TrimReport, TrimRun, TrimSettings,
    TrimSkip, WORK_AT_ONCE,
};

use super::decide::Decision;
use super::desired::may_have_keys;
use super::event::{Skip, TrimNews};
use super::namespace_runtime::RuntimeTimer;
use super::overview::TrimOverview;

/// The reasons of at most so many neighbours that move as one are said.
const MAX_REASONS: usize = 4;
/// How many of the largest keys readers see.
const SHOWN_HOT_KEYS: usize = 16;

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
    /// What readers see of it; `None` before the first decision.
    pub(super) overview: Option<Box<TrimOverview>>,
    /// Why load stayed where it was at the latest decision.
    skipped: Vec<&'static str>,
    /// What is to be told of the latest decision.
    pub(super) news: Option<Box<TrimNews>>,
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
                    Some(TrimReport {
                        at: conversation.reported.0,
                        loads: &report.loads,
                        span: report.load_span,
                    })
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
            may_move: !is_frozen(stored),
            is_settled: self.now >= self.runtime.placement.balance_from,
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

    fn take_trim(&mut self, mut decision: TrimDecision) {
        let trimming = &mut self.runtime.placement.trimming;
        trimming.joinable = decision.merges.iter().copied().collect();
        self.runtime.placement.merge_due |= !decision.merges.is_empty();
        let table = &self.draft.namespaces[self.namespace].table;
        if let Some(desired) = &mut self.runtime.placement.desired {
            // The table, and who lives, may be others than when the decision began.
            decision.moves.retain(|moved| desired.place(moved.range, (moved.from, moved.to), table));
            for moved in &decision.moves {
                trimming.why.insert(moved.range, moved.describe().into());
            }
            // A move that has begun may have to begin again.
            let is_under_way =
                |range: KeyRange| table.overlapping(range).any(|(_, entry)| entry.recall.is_some());
            let lasts = |(range, _): &(KeyRange, &Arc<str>)| {
                desired.misplaced().overlaps(*range) || is_under_way(*range)
            };
            trimming.why =
                trimming.why.iter().filter(lasts).map(|(range, why)| (range, Arc::clone(why))).collect();
        }
        trimming.show(self.now, &decision);
        trimming.tell(self.namespace, &decision);
        let namespace = || self.namespace.clone();
        let skips = decision.skipped.into_iter().map(|why| Skip::Trim { namespace: namespace(), why });
        self.runtime.skips.extend(skips);
    }

    /// Why a range is wanted elsewhere, where Trim and no operator wants it there. Neighbours that were decided about one by one and go
    /// to one Owner move as one.
    pub(super) fn reason_to_trim(&self, range: KeyRange) -> Option<Reason> {
        let desired = self.runtime.placement.desired.as_ref().filter(|_| self.trims())?;
        let known = &self.runtime.placement.trimming.why;
        let mut decided = known.overlapping(range).map(|(_, why)| &**why);
        let said: Vec<&str> = decided.by_ref().take(MAX_REASONS).collect();
        if said.is_empty() || desired.pinned().overlaps(range) {
            return None;
        }
        let is_all = decided.next().is_none() && known.gaps(range).next().is_none();
        let rest = if is_all { "" } else { "; and what moves with it" };
        Some(Reason::Balanced(format!("{}{rest}", said.join("; ")).into()))
    }
}

impl Trimming {
    /// Shows readers what was decided.
    fn show(&mut self, now: Instant, decision: &TrimDecision) {
        let before = self.overview.take();
        let (latest_move, latest_skip) =
            before.map_or((None, None), |before| (before.latest_move, before.latest_skip));
        let first_move = decision.moves.first().map(|moved| (now, moved.clone()));
        let first_skip = decision.skipped.iter().find(|skip| **skip != TrimSkip::NothingNew);
        let first_skip = first_skip.map(|skip| (now, *skip));
        self.overview = Some(Box::new(TrimOverview {
            decided_at: now,
            summary: decision.summary,
            hot_keys: decision.hot_keys.iter().take(SHOWN_HOT_KEYS).copied().collect(),
            hot_key_count: decision.hot_keys.len(),
            latest_move: first_move.or(latest_move),
            latest_skip: first_skip.or(latest_skip),
        }));
    }

    /// Tells of moves, and of reasons against moves that are others than at the decision before.
    fn tell(&mut self, namespace: &Namespace, decision: &TrimDecision) {
        if decision.moves.is_empty() && decision.skipped.contains(&TrimSkip::NothingNew) {
            return;
        }
        let mut skipped: Vec<&'static str> = decision.skipped.iter().map(TrimSkip::as_str).collect();
        skipped.sort_unstable();
        skipped.dedup();
        let is_as_before = std::mem::replace(&mut self.skipped, skipped) == self.skipped;
        if decision.moves.is_empty() && is_as_before {
            return;
        }
        let mut news = TrimNews {
            namespace: namespace.clone(),
            moves: BTreeMap::new(),
            merges: decision.merges.len(),
            skipped: self.skipped.clone(),
            summary: decision.summary,
        };
        for TrimMove { reason, load, key_share_ppb, .. } in &decision.moves {
            let tally = news.moves.entry(*reason).or_default();
            tally.ranges += 1;
            tally.load = tally.load.saturating_add(*load);
            tally.key_share_ppb = tally.key_share_ppb.saturating_add(*key_share_ppb);
        }
        self.news = Some(Box::new(news));
    }
}

/// Whether an operator stopped all moves.
pub(super) fn is_frozen(stored: &NamespaceState) -> bool {
    stored.frozen && !injected(Bug::TrimIgnoresFreeze)
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
