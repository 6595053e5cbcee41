//! State that is between two Owners when a leader without a store dies (ADR 18).
//!
//! The source's word that it moved the state is what the next leader learns of it. The word is good for one use: the
//! destination takes the lease that follows, and has no copy any more; or the source takes its word back; or the source's
//! contact lapses, and with that its word. Until one of these has happened nobody else is granted the keys.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::{Generation, Namespace, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::{Key, KeyRange};
use crate::message::{MovedLease, Release, Report, Warrant};
use crate::range_set::RangeSet;
use crate::record::{Change, Reason};
use crate::table::{Entry, LeaseNumbers, Table};
use crate::time::Instant;

use super::broken;
use super::conversation::Conversation;
use super::decide::Decision;
use super::leader::Leader;
use super::namespace_runtime::NamespaceRuntime;

/// A report's word that state was moved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) lease: MovedLease,
    pub(super) state_since: Generation,
    pub(super) to: SessionId,
    /// What a leader without a store can trust in that does not know of the lease.
    pub(super) warrant: Option<Warrant>,
}

/// What a report says was moved.
pub(super) fn moves(report: &Report) -> impl Iterator<Item = Move> {
    report.released.iter().filter_map(|release| {
        let Release { range, generation, state_since, .. } = *release;
        Some(Move {
            lease: MovedLease { range, generation },
            state_since,
            to: release.clean_to.filter(|to| *to != report.session)?,
            warrant: release.warrant.filter(|warrant| warrant.range.contains_range(range)),
        })
    })
}

/// What a report would tell the next leader was moved. Where there is a store nothing is said in this way.
pub(super) fn warranted_moves(report: &Report) -> impl Iterator<Item = Move> {
    moves(report).filter(|moved| moved.warrant.is_some())
}

/// Keys that were moved, by the number of the lease.
pub(super) struct MovedKeys {
    /// In the order of number and first key, each with the highest key of it and of those before it under its number.
    up_to: Vec<(Generation, Key, Key)>,
}

impl MovedKeys {
    fn new(moved: impl Iterator<Item = MovedLease>) -> MovedKeys {
        let mut up_to: Vec<_> =
            moved.map(|lease| (lease.generation, lease.range.first(), lease.range.last())).collect();
        up_to.sort_unstable();
        for next in 1..up_to.len() {
            let (generation, _, last) = up_to[next - 1];
            if up_to[next].0 == generation {
                up_to[next].2 = up_to[next].2.max(last);
            }
        }
        MovedKeys { up_to }
    }

    /// Whether one of them has all of these keys.
    pub(super) fn contain(&self, range: KeyRange, generation: Generation) -> bool {
        let after = self.up_to.partition_point(|(of, first, _)| (*of, *first) <= (generation, range.first()));
        let before = after.checked_sub(1).map(|place| self.up_to[place]);
        before.is_some_and(|(of, _, last)| of == generation && range.last() <= last)
    }
}

impl NamespaceRuntime {
    /// The keys that some session's latest report says it moved: if the leader changed now, they could go where it says.
    pub(super) fn spoken_for(&self, now: Instant) -> RangeSet {
        let mut keys = RangeSet::new();
        for session in self.conversations.movers.iter().filter(|session| !self.holds.is_over(**session, now))
        {
            let Some(conversation) = self.conversations.open.get(session) else { continue };
            for moved in conversation.report.as_deref().into_iter().flat_map(warranted_moves) {
                // An Owner that was told to speak of it no more has done so, or lapsed, when a hold has passed.
                let told = conversation.told_to_stop.get(&(moved.lease.range, moved.lease.generation));
                if told.is_none_or(|at| now < *at + self.holds.longest) {
                    keys.insert(moved.lease.range);
                }
            }
        }
        keys
    }

    /// What a session's latest report says it moved.
    pub(super) fn moved_by(&self, session: SessionId) -> MovedKeys {
        let report = self.conversations.report(session);
        MovedKeys::new(report.into_iter().flat_map(moves).map(|moved| moved.lease))
    }

    /// Whether a session has yet to take back that it moved something.
    pub(super) fn speaks_of_moves(&self, session: SessionId) -> bool {
        let is_mover = self.conversations.movers.contains(&session);
        let report = self.conversations.report(session).filter(|_| is_mover);
        report.is_some_and(|report| warranted_moves(report).next().is_some())
    }

    /// Of what was moved, what may be on its way still, so that the next leader would have to hear of it.
    fn under_way(&self, source: SessionId, moved: &[Move], tables: &[&Table]) -> Vec<MovedLease> {
        let keys: RangeSet = moved.iter().map(|moved| moved.lease.range).collect();
        let numbers: BTreeSet<Generation> = moved.iter().map(|moved| moved.lease.generation).collect();
        // By the number that was moved, and to whom its next lease was granted: what waits is granted to nobody else yet.
        let mut waiting: BTreeMap<(Generation, Option<SessionId>), RangeSet> = BTreeMap::new();
        let entries = |table: &'_ &Table| -> Vec<(KeyRange, Entry)> {
            let entries = keys.iter().flat_map(|range| table.overlapping(range));
            entries.map(|(piece, entry)| (piece, *entry)).collect()
        };
        for (piece, entry) in tables.iter().flat_map(entries) {
            let Some(owner) = entry.owner else { continue };
            let LeaseNumbers { generation, merge } = entry.numbers();
            let own = [Some(generation), merge].into_iter().flatten();
            for number in own.filter(|number| owner == source && numbers.contains(number)) {
                waiting.entry((number, None)).or_default().insert(piece);
            }
            let is_listed = |conversation: &Conversation| {
                conversation.offers.listed(piece, entry.numbers()).contains_range(piece)
            };
            if let Some(number) = entry.source.filter(|number| numbers.contains(number))
                && !self.conversations.open.get(&owner).is_some_and(is_listed)
            {
                waiting.entry((number, Some(owner))).or_default().insert(piece);
            }
        }
        let waits = |lease: MovedLease, to: Option<SessionId>| {
            waiting.get(&(lease.generation, to)).is_some_and(|keys| keys.overlaps(lease.range))
        };
        let is_under_way = |moved: &&Move| {
            waits(moved.lease, None) || waits(moved.lease, Some(moved.to)) || self.may_be_taken(moved)
        };
        moved.iter().filter(is_under_way).map(|moved| moved.lease).collect()
    }

    /// Whether nobody is known to have what an earlier leader knew as moved.
    fn may_be_taken(&self, moved: &Move) -> bool {
        moved.warrant.is_some() && !self.unclaimed_of(moved.lease.range).is_empty()
    }

    /// Those of these keys that nobody has claimed, and for whose claims this leader still waits.
    fn unclaimed_of(&self, range: KeyRange) -> RangeSet {
        let awaited = self.awaited.intersect_range(range);
        match &self.rebuild {
            Some(rebuild) => rebuild.unclaimed_of(range).union(&awaited),
            None => awaited,
        }
    }
}

impl Leader {
    /// Of what a session's latest report says was moved, what it should go on saying.
    pub(super) fn to_repeat(&self, namespace: &Namespace, session: SessionId) -> Vec<MovedLease> {
        let (Some(report), Some(runtime)) = (self.report(namespace, session), self.runtimes.get(namespace))
        else {
            return Vec::new();
        };
        if self.floor.is_none() || injected(Bug::MoveSettledUnlisted) {
            return Vec::new();
        }
        let groups = [&self.draft, &self.committed];
        let tables: Vec<_> =
            groups.iter().filter_map(|group| group.namespaces.get(namespace)).map(|s| &s.table).collect();
        let moved: Vec<Move> = moves(report).collect();
        if moved.is_empty() { Vec::new() } else { runtime.under_way(session, &moved, &tables) }
    }
}

impl Decision<'_> {
    /// Whether a session's report says of keys that nobody has claimed that it moved them.
    pub(super) fn claims_moves(&self, report: &Report) -> bool {
        moves(report).any(|moved| self.is_credible(&moved) && self.runtime.may_be_taken(&moved))
    }

    fn is_credible(&self, moved: &Move) -> bool {
        moved.warrant.is_some()
            && self.floor.is_some_and(|floor| moved.lease.generation < floor)
            && !injected(Bug::MoveForgotten)
    }

    /// Of the keys that nobody claimed in time, those whose state is said to be with an Owner that may have spoken last before
    /// it had it. It reports again, or lapses, within a hold.
    pub(super) fn await_copies(&mut self) {
        if self.runtime.awaited.is_empty() {
            return;
        }
        let mut said = RangeSet::new();
        if self.now < self.runtime.placement.balance_from + self.runtime.holds.longest {
            let moved = self.moves_of_members().into_iter();
            let moved = moved.filter(|(source, moved)| {
                self.is_credible(moved) && self.is_alive(*source) && self.report_of_living(moved.to).is_some()
            });
            said = moved.map(|(_, moved)| moved.lease.range).collect();
        }
        self.runtime.awaited = self.runtime.awaited.intersection(&said);
    }

    /// The lease follows the state to where the source says it is, once the destination says so too. The source's word alone
    /// waits for the destination's; the destination's alone says nothing.
    pub(super) fn take_moves(&mut self) {
        let all = self.moves_of_members();
        let mut imports = Imports::default();
        for (source, moved) in all {
            let MovedLease { range, generation } = moved.lease;
            let unclaimed = match self.is_credible(&moved) {
                true => self.runtime.unclaimed_of(range),
                false => RangeSet::new(),
            };
            let held = self.stored().table.overlapping(range);
            let held = held.filter(|(_, entry)| entry.owner == Some(source) && entry.is_under(generation));
            let held: Vec<_> = held.map(|(piece, entry)| (piece, entry.generation)).collect();
            let copies = self.copies(&moved, &mut imports);
            for piece in unclaimed.intersection(&copies).iter() {
                self.take_over(source, &moved, piece);
            }
            if self.may_come(moved.to) {
                continue;
            }
            for (range, listed) in held {
                match self.is_alive(moved.to) {
                    true => self.grant_moved(range, moved.to, generation, Reason::Migrated),
                    false => {
                        let released = Change::Released { range, generation: listed };
                        self.emit(released, Reason::DestinationGone);
                    }
                }
            }
        }
    }

    /// Whether a process that is no member may be one that an earlier leader knew and that has yet to speak to this one.
    pub(super) fn may_come(&self, session: SessionId) -> bool {
        self.floor.is_some()
            && self.now < self.runtime.placement.balance_from
            && !self.stored().sessions.contains_key(&session)
            && !injected(Bug::MoveForgotten)
    }

    /// The keys of a move whose state its destination says it has. It becomes a member for that, if it is none.
    fn copies(&mut self, moved: &Move, imports: &mut Imports) -> RangeSet {
        let Some(report) = self.report_of_living(moved.to) else { return RangeSet::new() };
        let Some(copies) = imports.of(moved.to, report, moved.lease) else { return RangeSet::new() };
        if self.stored().sessions.contains_key(&moved.to) {
            return copies;
        }
        let report = report.clone();
        if self.join(moved.to, &report) { copies } else { RangeSet::new() }
    }

    /// The latest report of a session that stays and was heard within the hold, be it a member or not.
    fn report_of_living(&self, session: SessionId) -> Option<&Report> {
        let report = self.runtime.conversations.report(session).filter(|report| !report.leaving);
        report.filter(|_| !self.runtime.holds.is_over(session, self.now))
    }

    fn moves_of_members(&self) -> Vec<(SessionId, Move)> {
        let mut all = Vec::new();
        for session in self
            .runtime
            .conversations
            .movers
            .iter()
            .filter(|session| self.stored().sessions.contains_key(session))
        {
            let report = self.runtime.conversations.report(*session);
            all.extend(report.into_iter().flat_map(moves).map(|moved| (*session, moved)));
        }
        if injected(Bug::CopyTakenForMove) {
            all.extend(broken::copies_as_moves(self.runtime));
        }
        all
    }

    /// What an earlier leader knew of goes on: the lease that was moved, and the one that follows it.
    fn take_over(&mut self, source: SessionId, moved: &Move, range: KeyRange) {
        let Move { lease: MovedLease { generation, .. }, state_since, to, .. } = *moved;
        if let Some(warrant) = moved.warrant {
            self.note_lease_length(warrant.lease);
        }
        self.runtime.awaited.remove(range);
        if let Some(rebuild) = &mut self.runtime.rebuild {
            rebuild.note_claimed(range);
        }
        if !injected(Bug::CopyTakenForMove) {
            self.emit(Change::Claimed { range, generation, state_since, session: source }, Reason::Claimed);
        }
        self.grant_moved(range, to, generation, Reason::Migrated);
    }
}

/// The keys that destinations have copies of, by the lease under which they were held. Each report is looked at once.
#[derive(Default)]
struct Imports {
    by_session: BTreeMap<SessionId, BTreeMap<Generation, RangeSet>>,
}

impl Imports {
    /// The keys of a lease that a session's report has copies of; `None` if it has none of that number at all.
    fn of(&mut self, session: SessionId, report: &Report, lease: MovedLease) -> Option<RangeSet> {
        let by_lease = self.by_session.entry(session).or_insert_with(|| {
            let mut by_lease: BTreeMap<Generation, RangeSet> = BTreeMap::new();
            for copy in &report.imports {
                by_lease.entry(copy.source).or_default().insert(copy.range);
            }
            by_lease
        });
        let copies = by_lease.get(&lease.generation);
        copies.map(|copies| copies.intersect_range(lease.range))
    }
}
