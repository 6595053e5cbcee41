//! Who should have what: the partitioner's wish, recalls towards it, grants of what nobody has, and their limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::id::{Generation, SessionId};
use crate::injected_bug::{Bug, any_injected, injected};
use crate::key::KeyRange;
use crate::load::{LoadRound, OwnerLoad, RangeLoad};
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::{Change, Reason, SessionInfo};
use crate::table::{Entry, Recall};

use super::decide::Decision;
use super::desired::{Desired, may_have_keys};
use super::event::Skip;
use super::namespace_runtime::{LiveTimer, RecallDeadline};

/// The recalls that begin now, and what holds others up.
#[derive(Default)]
struct Moves {
    changes: Vec<(Change, Reason)>,
    /// A destination has not opened its conversation yet.
    waits: bool,
    is_frozen: bool,
    /// As many ranges move as may.
    is_full: bool,
    /// The batch has no room for the others.
    unfinished: bool,
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
    /// Moves the table towards what the partitioner wants, as far as calm and brakes allow.
    pub(super) fn assign(&mut self) {
        let changed = self.refresh_desired();
        self.live.waits_for_talk = false;
        self.note_waiting_drains();
        self.withdraw_from_evicted();
        if self.is_calm() && (changed || !injected(Bug::UnownedNeverGranted)) {
            self.grant_unowned();
        }
        let reviewed = self.review_recalls();
        self.recall_misplaced();
        self.keep_what_nobody_can_take();
        self.watch_recalls(reviewed);
    }

    /// Asks the partitioner again if its input is another; says whether it is.
    fn refresh_desired(&mut self) -> bool {
        let stored = &self.draft.namespaces[self.namespace];
        let members_changed = std::mem::take(&mut self.live.members_changed);
        if !members_changed && self.live.desired.as_ref().is_some_and(|desired| desired.is_for(stored)) {
            return false;
        }
        let known = self.live.desired.take().filter(|desired| desired.is_of(stored));
        let is_new = known.is_none();
        let mut desired = known.unwrap_or_else(|| Desired::new(stored));
        let changed = desired.follow(stored);
        debug_assert!(stored.table.len() > 1_000 || any_injected() || desired.is_up_to_date(stored));
        self.live.desired = Some(desired);
        self.live.review_recalls |= changed || is_new;
        changed || is_new
    }

    /// Whether no Owner may have keys.
    fn nobody_can_have_keys(&self) -> bool {
        self.live.desired.as_ref().is_some_and(|desired| desired.ranges().is_empty())
    }

    fn note_waiting_drains(&mut self) {
        if !self.nobody_can_have_keys() {
            return;
        }
        let stored = self.stored();
        let waiting = stored
            .sessions
            .iter()
            .filter(|(session, info)| info.is_draining() && stored.table.has_any(**session));
        let skips: Vec<Skip> = waiting
            .map(|(_, info)| Skip::DrainWaits { namespace: self.namespace.clone(), owner: info.name.clone() })
            .collect();
        self.live.skips.extend(skips);
    }

    /// Whether there are enough Owners, or enough time has passed, to give unowned ranges away.
    fn is_calm(&mut self) -> bool {
        let stored = self.stored();
        let present = |session: &SessionId| self.live.talks.contains_key(session);
        let (min_owners, settle) = (stored.settings.min_owners, stored.settings.settle);
        let owners = stored.sessions.iter().filter(|(s, info)| may_have_keys(info) && present(s));
        // More than enough need not be counted.
        let owners = owners.take(min_owners.max(1)).count();
        if owners >= min_owners {
            self.live.short_since = None;
            self.live.waits_for_talk |= owners == 0;
            return owners > 0;
        }
        if stored.table.unowned().next().is_none() {
            self.live.short_since = None;
            return false;
        }
        let since = *self.live.short_since.get_or_insert(self.now);
        if self.now >= since + settle {
            self.live.waits_for_talk |= owners == 0;
            return owners > 0;
        }
        self.live.waits_for_talk = true;
        self.live.timers.set(LiveTimer::Calm, since + settle);
        let namespace = self.namespace.clone();
        self.live.skips.push(Skip::Settling { namespace });
        false
    }

    /// Gives what nobody has to whom the partitioner names; neighbours that go to one Owner go as one lease.
    fn grant_unowned(&mut self) {
        let Some(desired) = &self.live.desired else { return };
        let mut grants: Vec<(KeyRange, SessionId)> = Vec::new();
        let mut waits = false;
        let spoken_for = match self.floor {
            Some(_) if !injected(Bug::GrantedBeforeTakenBack) => self.live.spoken_for(self.now),
            _ => RangeSet::new(),
        };
        let unowned = self.stored().table.unowned().flat_map(|(part, _)| desired.ranges().overlapping(part));
        let unowned = unowned.flat_map(|(part, session)| {
            let parts = self.live.free_of_earlier_leases(part);
            let parts = RangeSet::from_ranges(parts).difference(&spoken_for);
            parts.iter().map(|part| (part, session)).collect::<Vec<_>>()
        });
        let room = self.max_batch.saturating_sub(self.plan.records.len());
        for (part, session) in unowned {
            if grants.len() > room {
                break;
            }
            if !self.live.talks.contains_key(session) {
                waits = true;
                continue;
            }
            match grants.last_mut() {
                Some((last, to)) if to == session && last.touches(part) => {
                    *last = KeyRange::new(last.first(), part.last()).unwrap_or(*last);
                }
                _ => grants.push((part, *session)),
            }
        }
        self.live.waits_for_talk |= waits;
        let too_low = injected(Bug::SharedAgeTooLow).then_some(self.stored().last_generation);
        let mut since = too_low.filter(|last| *last > Generation::ZERO);
        for (range, session) in grants {
            if self.is_full() {
                return;
            }
            since = self.grant_empty(range, session, since, Reason::Unowned);
        }
    }

    /// Wants back what belongs elsewhere, as far as nothing holds that up.
    fn recall_misplaced(&mut self) {
        let misplaced = self.misplaced();
        self.unfinished |= misplaced.unfinished;
        self.live.waits_for_talk |= misplaced.waits;
        let namespace = || self.namespace.clone();
        if misplaced.is_full {
            self.live.skips.push(Skip::MovesFull { namespace: namespace() });
        }
        if misplaced.is_frozen {
            self.live.skips.push(Skip::Frozen { namespace: namespace() });
        }
        for (change, reason) in misplaced.changes {
            self.emit_recall(change, reason);
        }
    }

    /// What belongs elsewhere and may begin to move now, in key order: what its holder keeps stays in few pieces.
    fn misplaced(&self) -> Moves {
        let mut moves = Moves::default();
        let stored = self.stored();
        let Some(desired) = self.live.desired.as_ref().filter(|desired| !desired.misplaced().is_empty())
        else {
            return moves;
        };
        let settled = self.now >= self.live.balance_from;
        let early = (!settled).then(|| self.may_move_early_at_all().intersection(desired.misplaced()));
        let candidates = early.as_ref().unwrap_or(desired.misplaced());
        let entries = candidates.iter().flat_map(|range| stored.table.overlapping(range));
        let pieces = entries.flat_map(|(range, entry)| {
            desired.ranges().overlapping(range).map(move |(part, wanted)| (part, entry, *wanted))
        });
        let room = self.room_for_moves();
        for (part, entry, wanted) in pieces {
            let Some(owner) = entry.owner else { continue };
            let Some(change) = self.recall_change(part, entry, owner, wanted) else { continue };
            if !self.live.talks.contains_key(&wanted) {
                moves.waits = true;
                continue;
            }
            if stored.frozen {
                moves.is_frozen = true;
                break;
            }
            if !(settled || self.may_move_early(part, owner, wanted)) {
                continue;
            }
            if moves.changes.len() >= room {
                // The others are looked at when moves have ended.
                moves.is_full = true;
                break;
            }
            if self.plan.records.len() + moves.changes.len() >= self.max_batch {
                moves.unfinished = true;
                break;
            }
            moves.changes.push(change);
        }
        moves
    }

    /// How many more ranges may begin to move. None until a quarter of the limit is free: moves that begin together share
    /// messages and commits.
    fn room_for_moves(&self) -> usize {
        let stored = self.stored();
        let most = stored.settings.max_moves;
        let room = most.saturating_sub(stored.table.recalled().count());
        if room < most.div_ceil(4) { 0 } else { room }
    }

    /// Stops wanting back what belongs where it is, and sends what is on its way to somebody who is gone to somebody else; says
    /// whether there was a reason to look.
    fn review_recalls(&mut self) -> bool {
        let is_due = std::mem::take(&mut self.live.review_recalls);
        if !is_due {
            debug_assert!(any_injected() || self.outdated_recalls().is_empty());
            return false;
        }
        for (change, reason) in self.outdated_recalls() {
            self.emit_recall(change, reason);
        }
        true
    }

    fn outdated_recalls(&self) -> Vec<(Change, Reason)> {
        let Some(desired) = &self.live.desired else { return Vec::new() };
        let recalled = self.stored().table.recalled();
        let changes = recalled.flat_map(|(range, entry)| {
            let wanted = desired.ranges().overlapping(range);
            wanted.filter_map(|(part, wanted)| self.recall_change(part, entry, entry.owner?, *wanted))
        });
        changes.collect()
    }

    /// The keys of which some may move though a new leader has not heard of everybody yet.
    fn may_move_early_at_all(&self) -> RangeSet {
        let stored = self.stored();
        let draining =
            stored.sessions.iter().filter(|(_, info)| info.is_draining()).map(|(session, _)| *session);
        let leases = draining.flat_map(|session| stored.table.of_session(session)).map(|(range, _)| range);
        leases.chain(stored.pins.iter().map(|(range, _)| range)).collect()
    }

    /// Whether a range may move though a new leader has not heard of everybody yet: its move is planned, and both ends have
    /// spoken to this leader. The holder's release proves the range free, so that nothing rests on silence.
    fn may_move_early(&self, range: KeyRange, owner: SessionId, wanted: SessionId) -> bool {
        let stored = self.stored();
        let has_reported = |session| self.live.talks.get(&session).is_some_and(|talk| talk.report.is_some());
        let drains = stored.sessions.get(&owner).is_some_and(|info| info.is_draining());
        let name = stored.sessions.get(&wanted).map(|info| &info.name);
        let is_pinned =
            || stored.pins.covers(range) && stored.pins.overlapping(range).all(|(_, to)| Some(to) == name);
        (drains || is_pinned()) && has_reported(owner) && has_reported(wanted)
    }

    /// Where no Owner may have keys, nothing is wanted back towards one: its holder keeps it, and a drain waits.
    fn keep_what_nobody_can_take(&mut self) {
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

    fn emit_recall(&mut self, change: Change, reason: Reason) {
        if let (Change::Recalled { range, to: Some(to), .. }, true) =
            (&change, injected(Bug::GrantBeforeRelease))
        {
            self.grant_empty(*range, *to, None, reason);
            return;
        }
        self.emit(change, reason);
    }

    /// What should change about the recall of one piece, if anything.
    fn recall_change(
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
            Reason::Repartitioned
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
        self.live.withdrawn.overlapping(range).any(|(_, of)| *of == generation)
    }

    /// An evicted Owner gives everything back at once, whoever else there is.
    fn withdraw_from_evicted(&mut self) {
        let stored = self.stored();
        let plain = Some(Recall { to: None });
        let evicted = self.live.evicted.iter().copied();
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
        let deadlines = self.live.recall_deadlines.iter().flat_map(|(range, deadline)| {
            table.overlapping(range).map(move |(part, entry)| (part, entry, deadline))
        });
        for (range, entry, deadline) in deadlines {
            let Some(recall) = entry.recall.filter(|recall| deadline.is_of(entry, *recall)) else { continue };
            if self.now < deadline.at {
                continue;
            }
            let answers =
                |to: SessionId| self.live.talks.get(&to).is_some_and(|talk| talk.alive_at >= deadline.at);
            let undecided = |to: &SessionId| !answers(*to) && !self.is_out_of_contact(*to);
            match recall.to.filter(undecided) {
                Some(to) if !injected(Bug::StaleRecallStands) => {
                    unsure.insert((to, deadline.at));
                }
                _ => over.push((range, entry.generation, recall.to, entry.owner)),
            }
        }
        for (to, deadline) in unsure {
            if let Some(talk) = self.live.talks.get_mut(&to).filter(|talk| talk.sent_at < deadline) {
                talk.probed = true;
                self.live.push(to);
            }
        }
        self.live.recalls_unwatched |= !over.is_empty();
        for (range, generation, to, owner) in over {
            self.live.recall_deadlines.remove(range);
            match to {
                Some(to) if self.is_out_of_contact(to) && !injected(Bug::StaleRecallStands) => {
                    self.emit(Change::RecallCancelled { range, generation }, Reason::DestinationGone);
                }
                Some(_) => {
                    self.emit(Change::Recalled { range, generation, to: None }, Reason::MigrationTimedOut);
                }
                None => {
                    self.live.withdrawn.insert(range, generation);
                    owner.into_iter().for_each(|owner| self.live.push(owner));
                }
            }
        }
    }

    /// Whether a session has been silent for longer than one that is well ever is.
    fn is_out_of_contact(&self, session: SessionId) -> bool {
        let patience = self.stored().settings.renewal * 2;
        let speaks = self.live.talks.contains_key(&session);
        !speaks || self.live.heard.get(&session).is_none_or(|heard| self.now >= heard + patience)
    }

    /// Gives every recall its deadline, and forgets those of recalls that are over. What a lease that has ended leaves behind
    /// is forgotten later: its number never comes again.
    fn watch_recalls(&mut self, reviewed: bool) {
        let has_timer = self.live.timers.get(&LiveTimer::Recall).is_some();
        let is_due = reviewed
            || self.live.review_recalls
            || self.live.recalls_unwatched
            || self.live.recalls_unheard
            || has_timer == self.live.recall_deadlines.is_empty();
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
            Some(at) => self.live.timers.set(LiveTimer::Recall, at),
            None => self.live.timers.clear(&LiveTimer::Recall),
        }
        self.live.recall_deadlines = times;
        self.live.recalls_unheard = unheard || is_waiting;
        self.live.recalls_unwatched = on_their_way;
    }

    /// The deadline of every recall that has one: the one it had, or one from now on if its time begins.
    fn deadlines(&self) -> Deadlines {
        let stored = self.stored();
        let mut times: Vec<(KeyRange, RecallDeadline)> = Vec::new();
        let (mut unheard, mut on_their_way) = (false, false);
        for (range, entry) in stored.table.recalled() {
            let Some(recall) = entry.recall else { continue };
            if self.live.is_on_its_way(range, entry) {
                on_their_way = true;
                continue;
            }
            let timeout = match recall.to {
                Some(_) => stored.settings.migration_timeout,
                None => stored.settings.recall_timeout,
            };
            let latest =
                RecallDeadline { generation: entry.generation, to: recall.to, at: self.now + timeout };
            let known = self.live.recall_deadlines.overlapping(range);
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
                    (Some(to), Some(owner)) => self.live.known_to_go(owner, piece, to),
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
        let set = self.live.recall_deadlines.iter().flat_map(|(range, deadline)| {
            let entries = table.overlapping(range);
            let of = move |entry: &Entry| entry.recall.is_some_and(|recall| deadline.is_of(entry, recall));
            entries.filter(move |(_, entry)| of(entry)).map(move |(part, _)| (part, *deadline))
        });
        set.collect()
    }

    /// Only a lease that is recalled stays withdrawn, and only on the keys that it still has.
    fn forget_withdrawn(&mut self) {
        if self.live.withdrawn.is_empty() || injected(Bug::WithdrawnForAnyLease) {
            return;
        }
        let stored = &self.draft.namespaces[self.namespace];
        let withdrawn = self.live.withdrawn.iter().flat_map(|(range, of)| {
            stored.table.overlapping(range).map(move |(part, entry)| (part, entry, of))
        });
        let withdrawn = withdrawn.filter(|(_, entry, of)| entry.generation == **of && entry.recall.is_some());
        let withdrawn: RangeMap<Generation> = withdrawn.map(|(range, _, of)| (range, *of)).collect();
        let cleared = self.live.withdrawn.keys().difference(&withdrawn.keys());
        self.live.withdrawn = withdrawn;
        self.live.review_recalls |= !cleared.is_empty();
        for range in cleared.iter() {
            for owner in stored.table.overlapping(range).filter_map(|(_, entry)| entry.owner) {
                self.live.push(owner);
            }
        }
    }

    /// Asks the load policy, unless ranges are moving.
    pub(super) fn balance_load(&mut self) {
        if !std::mem::take(&mut self.live.load_due) {
            return;
        }
        let table = &self.stored().table;
        let moving = table.recalled().next().is_some() || table.unowned().next().is_some();
        if moving || self.stored().frozen || self.now < self.live.balance_from {
            return;
        }
        let (owners, ranges) = self.loads();
        let settings = Arc::clone(&self.stored().settings);
        let round = LoadRound {
            owners: &owners,
            ranges: &ranges,
            partitioner: settings.partitioner.partitioner(),
            max_changes: settings.max_load_changes,
        };
        let decision = settings.load_policy.policy().round(&mut self.live.load_memory, &round);
        for (owner, why) in decision.skipped {
            self.live.skips.push(Skip::Load { namespace: self.namespace.clone(), owner, why });
        }
        for change in decision.changes {
            let Some(session) = self.stored().session_named(&change.name) else { continue };
            let Some(info) = self.stored().sessions.get(&session) else { continue };
            let info = SessionInfo { virtual_nodes: change.virtual_nodes, ..info.clone() };
            self.emit(Change::SessionChanged { session, info }, Reason::LoadBalanced);
        }
    }

    fn loads(&self) -> (Vec<OwnerLoad>, Vec<RangeLoad>) {
        let mut ranges = Vec::new();
        let mut owners = Vec::new();
        for (session, info) in self.stored().sessions.iter().filter(|(_, info)| may_have_keys(info)) {
            let report = self.live.talks.get(session).and_then(|talk| talk.report.as_deref());
            let loads = report.map_or(&[][..], |report| &report.loads);
            let load = loads.iter().fold(0u64, |sum, range| sum.saturating_add(range.load));
            owners.push(OwnerLoad {
                name: info.name.clone(),
                virtual_nodes: info.virtual_nodes,
                weight: info.weight,
                load,
            });
            ranges.extend(loads.iter().cloned());
        }
        ranges.sort_by_key(|load| load.range);
        (owners, ranges)
    }
}
