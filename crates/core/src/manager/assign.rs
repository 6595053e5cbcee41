//! Who should have what: the partitioner's wish, recalls towards it, grants of what nobody has, and their limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::id::{Generation, OwnerName, SessionId};
use crate::injected_bug::{Bug, any_injected, injected};
use crate::key::KeyRange;
use crate::load::{LoadMemory, LoadRound, LoadSkip, OwnerLoad, RangeLoad};
use crate::range_set::RangeSet;
use crate::record::{Change, Reason, SessionInfo};
use crate::time::Instant;

use super::decide::Decision;
use super::desired::{Desired, may_have_keys};
use super::event::Skip;
use super::namespace_runtime::RuntimeTimer;
use super::trimming::{Trimming, is_frozen, load_interval};

/// Where keys are wanted, and what a decision about that waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Placement {
    /// Where each key is wanted, and which keys are elsewhere.
    pub(super) desired: Option<Desired>,
    /// Members may be others than at the last decision.
    pub(super) members_changed: bool,
    /// The members that operators evicted.
    pub(super) evicted: Vec<SessionId>,
    /// No range is moved before this: stored sessions count as present until they had the time to speak.
    pub(super) balance_from: Instant,
    /// At the last decision something waited for a session to open its conversation.
    pub(super) waits_for_conversation: bool,
    /// When the latest session that was no member said hello.
    pub(super) latest_arrival: Instant,
    /// Since when unowned ranges wait for more Owners.
    pub(super) short_since: Option<Instant>,
    /// The load policy is to be asked at the next decision.
    pub(super) load_due: bool,
    pub(super) load_memory: LoadMemory,
    /// Neighbours are to be joined at the next decision.
    pub(super) merge_due: bool,
    pub(super) trimming: Trimming,
}

impl Placement {
    /// Nothing is decided yet.
    pub(super) fn new(now: Instant) -> Placement {
        Placement {
            desired: None,
            members_changed: true,
            evicted: Vec::new(),
            balance_from: now,
            waits_for_conversation: false,
            latest_arrival: Instant::ZERO,
            short_since: None,
            load_due: false,
            load_memory: LoadMemory::default(),
            merge_due: false,
            trimming: Trimming::default(),
        }
    }
}

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

impl Decision<'_> {
    /// Moves the table towards what the partitioner wants, as far as calm and brakes allow.
    pub(super) fn assign(&mut self) {
        let changed = self.refresh_desired();
        self.judge_suspects();
        self.runtime.placement.waits_for_conversation = false;
        self.note_waiting_drains();
        self.withdraw_from_evicted();
        let is_calm = self.is_calm();
        if self.trims() && (is_calm || self.stored().table.unowned().next().is_none()) {
            self.trim(changed);
        }
        if is_calm && (changed || !injected(Bug::UnownedNeverGranted)) {
            self.grant_unowned();
        }
        let reviewed = self.review_recalls();
        self.recall_misplaced();
        self.keep_what_nobody_can_take();
        self.watch_recalls(reviewed);
        self.watch_suspects();
    }

    /// Asks the partitioner again if its input is another; says whether it is.
    fn refresh_desired(&mut self) -> bool {
        let stored = &self.draft.namespaces[self.namespace];
        let members_changed = std::mem::take(&mut self.runtime.placement.members_changed);
        if !members_changed
            && self.runtime.placement.desired.as_ref().is_some_and(|desired| desired.is_for(stored))
        {
            return false;
        }
        let known = self.runtime.placement.desired.take().filter(|desired| desired.is_of(stored));
        let is_new = known.is_none();
        if is_new && !self.trims() {
            // What Trim was told and was about to do is of no use to another partitioner, nor to itself after that one.
            self.runtime.placement.trimming = Trimming::default();
        }
        if is_new {
            // Each partitioner has its own pace.
            self.runtime.timers.set(RuntimeTimer::Load, self.now + load_interval(&stored.settings));
        }
        let mut desired = known.unwrap_or_else(|| Desired::new(stored));
        let changed = desired.follow(stored);
        debug_assert!(stored.table.len() > 1_000 || any_injected() || desired.is_up_to_date(stored));
        self.runtime.placement.desired = Some(desired);
        self.runtime.recalls.review |= changed || is_new;
        changed || is_new
    }

    /// Whether no Owner may have keys.
    pub(super) fn nobody_can_have_keys(&self) -> bool {
        self.runtime.placement.desired.as_ref().is_some_and(Desired::is_without_owners)
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
        self.runtime.skips.extend(skips);
    }

    /// Whether there are enough Owners, or enough time has passed, to give unowned ranges away.
    fn is_calm(&mut self) -> bool {
        let stored = self.stored();
        let present = |session: &SessionId| self.runtime.conversations.open.contains_key(session);
        let (min_owners, settle) = (stored.settings.min_owners, stored.settings.settle);
        let owners = stored.sessions.iter().filter(|(s, info)| may_have_keys(info) && present(s));
        // More than enough need not be counted.
        let owners = owners.take(min_owners.max(1)).count();
        let arriving_until = self.arriving_until();
        let is_waiting = owners < min_owners || arriving_until.is_some();
        if !is_waiting || stored.table.unowned().next().is_none() {
            self.runtime.placement.short_since = None;
            self.runtime.placement.waits_for_conversation |= !is_waiting && owners == 0;
            return !is_waiting && owners > 0;
        }
        let since = *self.runtime.placement.short_since.get_or_insert(self.now);
        let enough_at = arriving_until.filter(|_| owners >= min_owners).unwrap_or(Instant::NEVER);
        let until = enough_at.min(since + settle);
        if self.now >= until {
            self.runtime.placement.waits_for_conversation |= owners == 0;
            return owners > 0;
        }
        self.runtime.placement.waits_for_conversation = true;
        self.runtime.timers.set(RuntimeTimer::Calm, until);
        let namespace = self.namespace.clone();
        self.runtime.skips.push(Skip::Settling { namespace });
        false
    }

    /// Until when others may follow those who have just arrived, if nobody has anything yet.
    fn arriving_until(&self) -> Option<Instant> {
        let until = self.runtime.placement.latest_arrival + self.arrival_pause;
        let stored = self.stored();
        let has_any = |session: &SessionId| stored.table.has_any(*session);
        (self.now < until && !stored.sessions.keys().any(has_any)).then_some(until)
    }

    /// Gives what nobody has to whom the partitioner names; neighbours that go to one Owner go as one lease.
    fn grant_unowned(&mut self) {
        let Some(desired) = &self.runtime.placement.desired else { return };
        let mut grants: Vec<(KeyRange, SessionId)> = Vec::new();
        let mut waits = false;
        let spoken_for = match self.floor {
            Some(_) if !injected(Bug::GrantedBeforeTakenBack) => self.runtime.spoken_for(self.now),
            _ => RangeSet::new(),
        };
        let unowned = self.stored().table.unowned().flat_map(|(part, _)| desired.ranges().overlapping(part));
        let unowned = unowned.flat_map(|(part, session)| {
            let parts = self.runtime.free_of_earlier_leases(part);
            let parts = RangeSet::from_ranges(parts).difference(&spoken_for);
            parts.iter().map(|part| (part, session)).collect::<Vec<_>>()
        });
        let room = self.max_batch.saturating_sub(self.plan.records.len());
        for (part, session) in unowned {
            if grants.len() > room {
                break;
            }
            if !self.runtime.conversations.open.contains_key(session) {
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
        self.runtime.placement.waits_for_conversation |= waits;
        let too_low = injected(Bug::SharedAgeTooLow).then_some(self.stored().last_generation);
        let mut since = too_low.filter(|last| *last > Generation::ZERO);
        for (range, session) in grants {
            if self.is_full() {
                return;
            }
            let is_suspect = self.runtime.suspects.probation.overlapping(range).next().is_some();
            let reason = if is_suspect { Reason::Suspected } else { Reason::Unowned };
            since = self.grant_empty(range, session, since, reason);
        }
    }

    /// Wants back what belongs elsewhere, as far as nothing holds that up.
    fn recall_misplaced(&mut self) {
        let misplaced = self.misplaced();
        self.unfinished |= misplaced.unfinished;
        self.runtime.placement.waits_for_conversation |= misplaced.waits;
        let namespace = || self.namespace.clone();
        if misplaced.is_full {
            self.runtime.skips.push(Skip::MovesFull { namespace: namespace() });
        }
        if misplaced.is_frozen {
            self.runtime.skips.push(Skip::Frozen { namespace: namespace() });
        }
        for (change, reason) in misplaced.changes {
            self.emit_recall(change, reason);
        }
    }

    /// What belongs elsewhere and may begin to move now, in key order: what its holder keeps stays in few pieces.
    fn misplaced(&self) -> Moves {
        let mut moves = Moves::default();
        let stored = self.stored();
        let Some(desired) =
            self.runtime.placement.desired.as_ref().filter(|desired| !desired.misplaced().is_empty())
        else {
            return moves;
        };
        let settled = self.now >= self.runtime.placement.balance_from;
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
            if !self.runtime.conversations.open.contains_key(&wanted) {
                moves.waits = true;
                continue;
            }
            if is_frozen(stored) {
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
        let has_reported = |session| {
            self.runtime
                .conversations
                .open
                .get(&session)
                .is_some_and(|conversation| conversation.report.is_some())
        };
        let drains = stored.sessions.get(&owner).is_some_and(|info| info.is_draining());
        let name = stored.sessions.get(&wanted).map(|info| &info.name);
        let is_pinned =
            || stored.pins.covers(range) && stored.pins.overlapping(range).all(|(_, to)| Some(to) == name);
        (drains || is_pinned()) && has_reported(owner) && has_reported(wanted)
    }

    /// Asks the load policy, unless ranges are moving.
    pub(super) fn balance_load(&mut self) {
        let settings = Arc::clone(&self.stored().settings);
        // Without a partitioner the table is not divided by virtual nodes.
        let Some(partitioner) = settings.partitioner.partitioner() else { return };
        if !std::mem::take(&mut self.runtime.placement.load_due) {
            return;
        }
        let table = &self.stored().table;
        let moving = table.recalled().next().is_some() || table.unowned().next().is_some();
        if moving || self.stored().frozen || self.now < self.runtime.placement.balance_from {
            return;
        }
        let Loads { owners, ranges, incomparable } = self.loads();
        let round = LoadRound {
            owners: &owners,
            ranges: &ranges,
            partitioner,
            max_changes: settings.max_load_changes,
        };
        let decision = settings.load_policy.policy().round(&mut self.runtime.placement.load_memory, &round);
        for (owner, why) in decision.skipped {
            let why = if incomparable.contains(&owner) { LoadSkip::OtherDimension } else { why };
            self.runtime.skips.push(Skip::Load { namespace: self.namespace.clone(), owner, why });
        }
        for change in decision.changes {
            let Some(session) = self.stored().session_named(&change.name) else { continue };
            let Some(info) = self.stored().sessions.get(&session) else { continue };
            let info = SessionInfo { virtual_nodes: change.virtual_nodes, ..info.clone() };
            self.emit(Change::SessionChanged { session, info }, Reason::LoadBalanced);
        }
    }

    /// The loads in the namespace's dimension.
    fn loads(&self) -> Loads {
        let mut loads = Loads::default();
        let dimension = self.runtime.conversations.load_dimension().unwrap_or_default();
        for (session, info) in self.stored().sessions.iter().filter(|(_, info)| may_have_keys(info)) {
            let report = self.runtime.conversations.report(*session);
            if report.is_some_and(|report| report.load_dimension != dimension) {
                loads.incomparable.insert(info.name.clone());
            }
            let comparable = report.filter(|report| report.load_dimension == dimension);
            let ranges = comparable.map_or(&[][..], |report| &report.loads);
            loads.owners.push(OwnerLoad {
                name: info.name.clone(),
                virtual_nodes: info.virtual_nodes,
                weight: info.weight,
                load: ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.load)),
            });
            loads.ranges.extend(ranges.iter().cloned());
        }
        loads.ranges.sort_by_key(|load| load.range);
        loads.assume_shares();
        loads
    }
}

/// What the Owners of a namespace report.
#[derive(Default)]
struct Loads {
    owners: Vec<OwnerLoad>,
    /// In key order.
    ranges: Vec<RangeLoad>,
    /// The Owners whose load is in another dimension than the namespace's.
    incomparable: BTreeSet<OwnerName>,
}

impl Loads {
    /// An Owner whose load cannot be compared is taken to have its share: without a load it would look idle, and get more.
    fn assume_shares(&mut self) {
        let Loads { owners, incomparable, .. } = self;
        let is_known = |owner: &&OwnerLoad| !incomparable.contains(&owner.name);
        let total = |of: fn(&OwnerLoad) -> u128| owners.iter().filter(is_known).map(of).sum::<u128>();
        let (load, weight) = (total(|owner| owner.load.into()), total(|owner| owner.weight.into()).max(1));
        for owner in owners.iter_mut().filter(|owner| incomparable.contains(&owner.name)) {
            let share = load.saturating_mul(u128::from(owner.weight)) / weight;
            owner.load = u64::try_from(share).unwrap_or(u64::MAX);
        }
    }
}
