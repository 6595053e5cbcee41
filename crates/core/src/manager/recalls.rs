//! Recalls: what is wanted back, from whom and until when, and what becomes of one that takes too long.

use std::collections::BTreeSet;

use crate::id::{Generation, SessionId};
use crate::injected_bug::{Bug, any_injected, injected};
use crate::key::KeyRange;
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::{Change, Reason, SessionInfo};
use crate::table::{Entry, Recall};
use crate::time::Instant;

use super::decide::Decision;
use super::desired::{Desired, may_have_keys};
use super::namespace_runtime::RuntimeTimer;

/// What a leader keeps in mind about recalls under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Recalls {
    /// Until when each recall may take, key by key: neighbours that were recalled at different times may look like one entry.
    pub(super) deadlines: RangeMap<RecallDeadline>,
    /// Some recall has no deadline yet, because its holder has not said that it knows of it, or is past it, and its
    /// destination has not been heard since.
    pub(super) unheard: bool,
    /// Some recall has no deadline yet, because its lease has not arrived at its holder, or because its time was over.
    pub(super) unwatched: bool,
    /// Some recall may be wanted no more, or towards somebody else.
    pub(super) review: bool,
    /// Recalled leases that are no longer renewed.
    pub(super) withdrawn: RangeMap<Generation>,
}

impl Default for Recalls {
    fn default() -> Recalls {
        let (deadlines, withdrawn) = (RangeMap::new(), RangeMap::new());
        Recalls { deadlines, unheard: false, unwatched: false, review: true, withdrawn }
    }
}

impl Recalls {
    /// The pieces of a lease on `range` that are no longer renewed.
    pub(super) fn withdrawn_of(
        &self,
        range: KeyRange,
        generation: Generation,
    ) -> impl Iterator<Item = KeyRange> {
        let any_lease = injected(Bug::WithdrawnForAnyLease);
        let withdrawn = self.withdrawn.overlapping(range);
        withdrawn.filter(move |(_, of)| any_lease || **of == generation).map(|(piece, _)| piece)
    }
}

/// Until when a recall may take. One of another lease or to somebody else is another recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RecallDeadline {
    pub(super) generation: Generation,
    pub(super) to: Option<SessionId>,
    pub(super) at: Instant,
}

impl RecallDeadline {
    /// Whether this is the deadline of an entry's recall.
    fn is_of(&self, entry: &Entry, recall: Recall) -> bool {
        self.generation == entry.generation && self.to == recall.to
    }
}

/// Until when each recall may take.
struct Deadlines {
    times: RangeMap<RecallDeadline>,
    /// Some holder has not said that it knows of a recall.
    unheard: bool,
    /// Some recall is of a lease whose session has not been seen to hold it.
    on_their_way: bool,
}

impl Decision<'_> {
    /// Stops wanting back what belongs where it is, and sends what is on its way to somebody who is gone to somebody else; says
    /// whether there was a reason to look.
    pub(super) fn review_recalls(&mut self) -> bool {
        let is_due = std::mem::take(&mut self.runtime.recalls.review);
        if !is_due {
            debug_assert!(any_injected() || self.outdated_recalls().is_empty());
            return false;
        }
        for (change, reason) in self.outdated_recalls() {
            self.give_the_rest_its_time(&change);
            self.emit_recall(change, reason);
        }
        true
    }

    /// When a part of what is moving is wanted elsewhere or no more, its holder begins anew with the rest: so does the rest's time.
    fn give_the_rest_its_time(&mut self, change: &Change) {
        let (Change::Recalled { range, .. } | Change::RecallCancelled { range, .. }) = change else { return };
        let (whole, _) = self.stored().table.get(range.first());
        if whole != *range {
            self.runtime.recalls.deadlines.remove(whole);
            self.runtime.recalls.unwatched = true;
        }
    }

    fn outdated_recalls(&self) -> Vec<(Change, Reason)> {
        let Some(desired) = &self.runtime.placement.desired else { return Vec::new() };
        let recalled = self.stored().table.recalled();
        let changes = recalled.flat_map(|(range, entry)| {
            let wanted = desired.ranges().overlapping(range);
            wanted.filter_map(|(part, wanted)| self.recall_change(part, entry, entry.owner?, *wanted))
        });
        changes.chain(self.recalls_to_nowhere(desired)).collect()
    }

    /// What is on its way to somebody who is gone, and wanted nowhere yet, stays where it is until it is.
    fn recalls_to_nowhere(&self, desired: &Desired) -> Vec<(Change, Reason)> {
        let mut changes = Vec::new();
        for (range, entry) in self.stored().table.recalled() {
            let to = entry.recall.and_then(|recall| recall.to);
            let is_gone = |to: &SessionId| !self.stored().sessions.get(to).is_some_and(may_have_keys);
            if to.filter(is_gone).is_none() {
                continue;
            }
            let generation = entry.generation;
            changes.extend(
                desired
                    .ranges()
                    .gaps(range)
                    .map(|range| (Change::RecallCancelled { range, generation }, Reason::DestinationGone)),
            );
        }
        changes
    }

    /// Where no Owner may have keys, nothing is wanted back towards one: its holder keeps it, and a drain waits.
    pub(super) fn keep_what_nobody_can_take(&mut self) {
        if !self.nobody_can_have_keys() || injected(Bug::StaleRecallStands) {
            return;
        }
        let recalled =
            self.stored().table.recalled().filter(|(_, entry)| entry.recall.is_some_and(|r| r.to.is_some()));
        let recalled: Vec<_> = recalled.map(|(range, entry)| (range, entry.generation)).collect();
        for (range, generation) in recalled {
            self.emit(Change::RecallCancelled { range, generation }, Reason::DestinationGone);
        }
    }

    pub(super) fn emit_recall(&mut self, change: Change, reason: Reason) {
        if let (Change::Recalled { range, to: Some(to), .. }, true) =
            (&change, injected(Bug::GrantBeforeRelease))
        {
            self.grant_empty(*range, *to, None, reason);
            return;
        }
        if injected(Bug::SplitRenumbers) {
            self.renumber_what_stays(&change);
        }
        self.emit(change, reason);
    }

    /// What should change about the recall of one piece, if anything.
    pub(super) fn recall_change(
        &self,
        range: KeyRange,
        entry: &Entry,
        owner: SessionId,
        wanted: SessionId,
    ) -> Option<(Change, Reason)> {
        let generation = entry.generation;
        let sessions = &self.stored().sessions;
        let owner_info = sessions.get(&owner);
        if owner_info.is_some_and(|info| info.evicted) {
            return None;
        }
        let reason = if owner_info.is_some_and(SessionInfo::is_draining) {
            Reason::Draining
        } else {
            self.reason_to_trim(range).unwrap_or(Reason::Repartitioned)
        };
        let to_wanted = Change::Recalled { range, generation, to: Some(wanted) };
        match entry.recall {
            None if owner == wanted => None,
            None => Some((to_wanted, reason)),
            // A holder that is no longer told of it drops it.
            Some(_) if owner == wanted && !self.is_withdrawn(range, generation) => {
                Some((Change::RecallCancelled { range, generation }, Reason::NoLongerWanted))
            }
            Some(Recall { to: None }) => None,
            Some(Recall { to: Some(to) }) => {
                let gone = !sessions.get(&to).is_some_and(may_have_keys);
                gone.then_some((to_wanted, Reason::DestinationGone))
            }
        }
    }

    /// Whether a piece of a lease is no longer listed to its holder.
    fn is_withdrawn(&self, range: KeyRange, generation: Generation) -> bool {
        self.runtime.recalls.withdrawn.overlapping(range).any(|(_, of)| *of == generation)
    }

    /// An evicted Owner gives everything back at once, whoever else there is.
    pub(super) fn withdraw_from_evicted(&mut self) {
        let stored = self.stored();
        let plain = Some(Recall { to: None });
        let evicted = self.runtime.placement.evicted.iter().copied();
        let pieces: Vec<(KeyRange, Generation)> = evicted
            .flat_map(|session| stored.table.of_session(session))
            .filter(|(_, entry)| entry.recall != plain)
            .map(|(range, entry)| (range, entry.generation))
            .collect();
        for (range, generation) in pieces {
            if self.is_full() {
                return;
            }
            let why = Reason::Operator("evicted".into());
            self.emit(Change::Recalled { range, generation, to: None }, why);
        }
    }

    /// A migration that takes too long becomes a plain recall; a plain recall that takes too long is not renewed. A
    /// migration whose destination is not known to have been alive when its time ran out waits for an answer to a message sent
    /// after that; to a process that is out of contact it is given up instead, and begun anew: its holder is not to blame.
    pub(super) fn time_out_recalls(&mut self) {
        let mut over = Vec::new();
        let mut unsure = BTreeSet::new();
        let table = &self.stored().table;
        let deadlines = self.runtime.recalls.deadlines.iter().flat_map(|(range, deadline)| {
            table.overlapping(range).map(move |(part, entry)| (part, entry, deadline))
        });
        for (range, entry, deadline) in deadlines {
            let Some(recall) = entry.recall.filter(|recall| deadline.is_of(entry, *recall)) else { continue };
            if self.now < deadline.at {
                continue;
            }
            let answers = |to: SessionId| {
                self.runtime
                    .conversations
                    .open
                    .get(&to)
                    .is_some_and(|conversation| conversation.alive_at >= deadline.at)
            };
            let undecided = |to: &SessionId| !answers(*to) && !self.is_out_of_contact(*to);
            match recall.to.filter(undecided) {
                Some(to) if !injected(Bug::StaleRecallStands) => {
                    unsure.insert((to, deadline.at));
                }
                _ => over.push((range, entry.generation, recall.to, entry.owner)),
            }
        }
        for (to, deadline) in unsure {
            if let Some(conversation) = self
                .runtime
                .conversations
                .open
                .get_mut(&to)
                .filter(|conversation| conversation.side.sent_at < deadline)
            {
                conversation.probed = true;
                self.runtime.conversations.push(to);
            }
        }
        self.runtime.recalls.unwatched |= !over.is_empty();
        for (range, generation, to, owner) in over {
            self.runtime.recalls.deadlines.remove(range);
            match to {
                Some(to) if self.is_out_of_contact(to) && !injected(Bug::StaleRecallStands) => {
                    self.emit(Change::RecallCancelled { range, generation }, Reason::DestinationGone);
                }
                Some(_) => {
                    self.emit(Change::Recalled { range, generation, to: None }, Reason::MigrationTimedOut);
                }
                None => {
                    self.runtime.recalls.withdrawn.insert(range, generation);
                    owner.into_iter().for_each(|owner| self.runtime.conversations.push(owner));
                }
            }
        }
    }

    /// Whether a session has been silent for longer than one that is well ever is.
    fn is_out_of_contact(&self, session: SessionId) -> bool {
        let patience = self.stored().settings.renewal * 2;
        let speaks = self.runtime.conversations.open.contains_key(&session);
        !speaks || self.runtime.holds.heard.get(&session).is_none_or(|heard| self.now >= heard + patience)
    }

    /// Gives every recall its deadline, and forgets those of recalls that are over. What a lease that has ended leaves behind
    /// is forgotten later: its number never comes again.
    pub(super) fn watch_recalls(&mut self, reviewed: bool) {
        let has_timer = self.runtime.timers.get(&RuntimeTimer::Recall).is_some();
        let is_due = reviewed
            || self.runtime.recalls.review
            || self.runtime.recalls.unwatched
            || self.runtime.recalls.unheard
            || has_timer == self.runtime.recalls.deadlines.is_empty();
        if is_due {
            self.set_deadlines();
        } else {
            debug_assert!(any_injected() || self.deadlines().times == self.current_deadlines());
        }
        self.forget_withdrawn();
    }

    fn set_deadlines(&mut self) {
        let Deadlines { times, unheard, on_their_way } = self.deadlines();
        let is_waiting = times.values().any(|deadline| deadline.at <= self.now);
        let look_again = is_waiting.then_some(self.now + self.stored().settings.renewal);
        let due = times.values().map(|deadline| deadline.at).filter(|at| *at > self.now);
        match due.chain(look_again).min() {
            Some(at) => self.runtime.timers.set(RuntimeTimer::Recall, at),
            None => self.runtime.timers.clear(&RuntimeTimer::Recall),
        }
        self.runtime.recalls.deadlines = times;
        self.runtime.recalls.unheard = unheard || is_waiting;
        self.runtime.recalls.unwatched = on_their_way;
    }

    /// The deadline of every recall that has one: the one it had, or one from now on if its time begins.
    fn deadlines(&self) -> Deadlines {
        let stored = self.stored();
        let mut times: Vec<(KeyRange, RecallDeadline)> = Vec::new();
        let (mut unheard, mut on_their_way) = (false, false);
        for (range, entry) in stored.table.recalled() {
            let Some(recall) = entry.recall else { continue };
            if self.runtime.conversations.is_on_its_way(range, entry) {
                on_their_way = true;
                continue;
            }
            let timeout = match recall.to {
                Some(_) => stored.settings.migration_timeout,
                None => stored.settings.recall_timeout,
            };
            let latest =
                RecallDeadline { generation: entry.generation, to: recall.to, at: self.now + timeout };
            let known = self.runtime.recalls.deadlines.overlapping(range);
            let known = known.filter(|(_, known)| known.is_of(entry, recall));
            let known = known.map(|(piece, known)| (piece, known.at.min(latest.at)));
            let first = times.len();
            times.extend(known.map(|(piece, at)| (piece, RecallDeadline { at, ..latest })));
            if times.get(first).is_some_and(|(piece, _)| *piece == range) {
                continue;
            }
            let mut fresh = RangeSet::from_ranges([range]);
            times[first..].iter().for_each(|(piece, _)| fresh.remove(*piece));
            for piece in fresh.iter() {
                let known = match (recall.to, entry.owner) {
                    (None, _) => RangeSet::from_ranges([piece]),
                    (Some(to), Some(owner)) => self.runtime.conversations.known_to_go(owner, piece, to),
                    (Some(_), None) => RangeSet::new(),
                };
                unheard |= !known.contains_range(piece);
                times.extend(known.iter().map(|known| (known, latest)));
            }
        }
        times.sort_unstable_by_key(|(range, _)| *range);
        Deadlines { times: times.into_iter().collect(), unheard, on_their_way }
    }

    /// The deadlines that are set, without those of leases that have ended.
    fn current_deadlines(&self) -> RangeMap<RecallDeadline> {
        let table = &self.stored().table;
        let set = self.runtime.recalls.deadlines.iter().flat_map(|(range, deadline)| {
            let entries = table.overlapping(range);
            let of = move |entry: &Entry| entry.recall.is_some_and(|recall| deadline.is_of(entry, recall));
            entries.filter(move |(_, entry)| of(entry)).map(move |(part, _)| (part, *deadline))
        });
        set.collect()
    }

    /// Only a lease that is recalled stays withdrawn, and only on the keys that it still has.
    fn forget_withdrawn(&mut self) {
        if self.runtime.recalls.withdrawn.is_empty() || injected(Bug::WithdrawnForAnyLease) {
            return;
        }
        let stored = &self.draft.namespaces[self.namespace];
        let withdrawn = self.runtime.recalls.withdrawn.iter().flat_map(|(range, of)| {
            stored.table.overlapping(range).map(move |(part, entry)| (part, entry, of))
        });
        let withdrawn = withdrawn.filter(|(_, entry, of)| entry.generation == **of && entry.recall.is_some());
        let withdrawn: RangeMap<Generation> = withdrawn.map(|(range, _, of)| (range, *of)).collect();
        let cleared = self.runtime.recalls.withdrawn.keys().difference(&withdrawn.keys());
        self.runtime.recalls.withdrawn = withdrawn;
        self.runtime.recalls.review |= !cleared.is_empty();
        for range in cleared.iter() {
            for owner in stored.table.overlapping(range).filter_map(|(_, entry)| entry.owner) {
                self.runtime.conversations.push(owner);
            }
        }
    }
}
