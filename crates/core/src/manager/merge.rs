//! Neighbouring leases become one, so that a table does not grow for ever while Owners come and go.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{Generation, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::manager_state::NamespaceState;
use crate::message::Report;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::{Change, Reason};
use crate::table::{Entry, LeaseNumbers};

use super::decide::Decision;
use super::listed::HeldInOrder;

impl Decision<'_> {
    /// Begins to join neighbours that one session holds, that are where they should be, and whose state is of one age: a
    /// Lookup that knows an earlier lease of theirs could not tell otherwise which of them lost its state since.
    ///
    /// Their holder hears the new number with its next renewal, beside the old ones, for as long as it has not listed it.
    pub(super) fn merge_neighbours(&mut self) {
        let is_due = std::mem::take(&mut self.runtime.placement.merge_due);
        let is_calm = self.now >= self.runtime.placement.balance_from && self.runtime.rebuild.is_none();
        if !is_due || !is_calm || self.stored().frozen {
            return;
        }
        for range in self.runs() {
            if self.is_full() {
                self.runtime.placement.merge_due = true;
                return;
            }
            let Some(generation) = self.next_generation() else { return };
            self.emit(Change::MergeBegun { range, generation }, Reason::Neighbours);
        }
    }

    /// The keys of neighbours that can be one lease, run by run.
    fn runs(&self) -> Vec<KeyRange> {
        let mut runs = Vec::new();
        for session in self.stored().sessions.keys() {
            let Some(report) = self.runtime.conversations.report(*session) else {
                continue;
            };
            let held: RangeMap<Generation> =
                report.held.iter().map(|held| (held.range, held.generation)).collect();
            let mut run: Option<(KeyRange, Entry, usize)> = None;
            for (range, entry) in self.stored().table.of_session(*session) {
                let stays = self.stays(*session, range, entry, &held);
                run = match run {
                    Some((keys, first, length))
                        if stays
                            && keys.touches(range)
                            && self.are_of_one_age(&first, entry)
                            && self.may_become_one(keys, range) =>
                    {
                        let joined = KeyRange::new(keys.first(), range.last()).unwrap_or(keys);
                        Some((joined, first, length + 1))
                    }
                    ended => {
                        runs.extend(ended.filter(|(_, _, length)| *length > 1).map(|(keys, _, _)| keys));
                        stays.then_some((range, *entry, 1))
                    }
                };
            }
            runs.extend(run.filter(|(_, _, length)| *length > 1).map(|(keys, _, _)| keys));
        }
        runs
    }

    /// Whether nothing speaks for keeping neighbours apart: Trim keeps what it may want to move.
    fn may_become_one(&self, one: KeyRange, other: KeyRange) -> bool {
        let joined = KeyRange::new(one.first(), other.last()).unwrap_or(one);
        !self.trims() || self.runtime.placement.trimming.joinable.contains_range(joined)
    }

    fn are_of_one_age(&self, one: &Entry, other: &Entry) -> bool {
        one.state_since == other.state_since || injected(Bug::MergesUnequalAges)
    }

    /// Whether a session holds a range, by its latest report, and nothing else is about to happen to it.
    fn stays(&self, session: SessionId, range: KeyRange, entry: &Entry, held: &RangeMap<Generation>) -> bool {
        let listed = held.overlapping(range).filter(|(_, of)| **of == entry.generation);
        let listed: RangeSet = listed.map(|(piece, _)| piece).collect();
        let is_wanted = |desired: &RangeMap<SessionId>| {
            desired.covers(range) && desired.overlapping(range).all(|(_, wanted)| *wanted == session)
        };
        entry.recall.is_none()
            && entry.merge.is_none()
            // What may be cut, or was, stays apart until it is cleared.
            && !self.runtime.suspects.overlaps(range)
            && listed.contains_range(range)
            && self.runtime.placement.desired.as_ref().is_some_and(|desired| is_wanted(desired.ranges()))
    }

    /// What the holder lists under its new number has that number from now on.
    pub(super) fn take_merges(&mut self, session: SessionId, report: &Report) {
        let mut taken: BTreeMap<Generation, RangeSet> = BTreeMap::new();
        let mut held = HeldInOrder::new(&report.held);
        for (range, entry) in self.stored().table.of_session(session) {
            let Some(merge) = entry.merge else { continue };
            let mut listed: RangeSet =
                held.pieces(range, LeaseNumbers { generation: merge, merge: None }).collect();
            // What is no longer renewed ends under the number that it has.
            self.runtime.recalls.withdrawn.overlapping(range).for_each(|(piece, _)| listed.remove(piece));
            listed.iter().for_each(|piece| taken.entry(merge).or_default().insert(piece));
        }
        for (generation, keys) in taken {
            for range in keys.iter() {
                self.emit(Change::Merged { range, generation }, Reason::Reported);
            }
        }
    }
}

/// Whether a report lists something under a number that its holder was told to take.
pub(super) fn takes_up_merge(report: &Report, stored: &NamespaceState) -> bool {
    let merges = stored.table.of_session(report.session).filter_map(|(_, entry)| entry.merge);
    let merges: BTreeSet<Generation> = merges.collect();
    !merges.is_empty() && report.held.iter().any(|held| merges.contains(&held.generation))
}
