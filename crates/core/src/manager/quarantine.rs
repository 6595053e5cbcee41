//! Keys of death: deaths are noted, suspects are granted in parts, and the part that goes on killing is quarantined (ADR 24).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::{Generation, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::manager_state::{MAX_QUARANTINED_KEYS, Quarantine};
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::{Change, Reason};
use crate::time::Instant;

use super::decide::Decision;
use super::desired::may_have_keys;
use super::event::Skip;
use super::namespace_runtime::RuntimeTimer;
use super::suspects::{Candidate, Death, QUARANTINE_AFTER, Tenure, Trail, cut, parts_of};

/// How many keys one quarantine may have: several fit into what a namespace may have in all.
const MAX_KEYS: u128 = MAX_QUARANTINED_KEYS / 4;
/// How many ranges of a namespace may be in quarantine.
const MAX_QUARANTINES: usize = 64;

/// Keys that nobody has and with which the same Owner died last.
struct Suspect {
    /// The longest trail of all of them.
    trail: Trail,
    /// Whoever died with any of them.
    dead: BTreeSet<SessionId>,
    /// How many deaths speak against each of them at least.
    counted: usize,
    keys: RangeSet,
}

impl Suspect {
    fn new(trail: &Trail) -> Suspect {
        let (dead, counted) = (BTreeSet::new(), trail.counted());
        Suspect { trail: trail.clone(), dead, counted, keys: RangeSet::new() }
    }

    fn add(&mut self, piece: KeyRange, trail: &Trail) {
        if trail.counted() > self.trail.counted() {
            self.trail = trail.clone();
        }
        self.dead.extend(trail.all());
        self.counted = self.counted.min(trail.counted());
        self.keys.insert(piece);
    }
}

impl Decision<'_> {
    /// An Owner has ended unplanned, with the leases that the table still gives it.
    pub(super) fn note_death(&mut self, session: SessionId) {
        let window = self.stored().settings.death_window;
        let Some(info) = self.stored().sessions.get(&session) else { return };
        // Whoever was on its way out did not die of a key.
        let leaves = self.runtime.conversations.report(session).is_some_and(|report| report.leaving);
        let is_planned = info.is_draining() || info.evicted || leaves;
        if window.is_zero() || is_planned || self.runtime.suspects.knows(session) {
            return;
        }
        let heard = self.runtime.holds.heard.get(&session).unwrap_or(self.now);
        let renewal = self.stored().settings.renewal;
        let tenure = |generation: Generation| {
            Tenure::new(self.runtime.suspects.grants.of(generation), heard, renewal, window)
        };
        let leases = self.stored().table.of_session(session);
        let leases: Vec<_> =
            leases.map(|(range, entry)| (range, entry.generation, tenure(entry.generation))).collect();
        let (generation, held, name) = (Generation::ZERO, Duration::ZERO, info.name.clone());
        let death = Death { session, name, generation, held, heard, counts: false };
        self.runtime.suspects.note_death(&death, self.now, &leases);
    }

    /// A lease has a new number: its age is remembered, for when its Owner dies. `table` does not have it yet.
    pub(super) fn note_grant_time(&mut self, change: &Change) {
        let window = self.stored().settings.death_window;
        if window.is_zero() {
            return;
        }
        let granted = match change {
            Change::Granted { generation, .. } => Some((*generation, self.now)),
            // What becomes one lease is as new as the newest part of it.
            Change::MergeBegun { range, generation } => {
                let parts = self.stored().table.overlapping(*range);
                let times = parts.filter_map(|(_, entry)| self.runtime.suspects.grants.of(entry.generation));
                times.max().map(|at| (*generation, at))
            }
            _ => None,
        };
        if let Some((generation, at)) = granted {
            self.runtime.suspects.grants.note(generation, at);
        }
    }

    /// Ends the quarantines whose time is over. What was known of them counts at the next death.
    pub(super) fn end_quarantines(&mut self) {
        let lasts = self.stored().settings.quarantine;
        let began = |known: &Quarantine| self.runtime.quarantined_since.get(&known.range).copied();
        let known = self.stored().quarantines.iter();
        let known = known.filter_map(|known| Some((known.clone(), began(known)?)));
        let due: Vec<_> = known.filter(|(_, began)| self.now >= *began + lasts).collect();
        for (Quarantine { range, evidence }, began) in due {
            self.emit(Change::Unquarantined { range }, Reason::TimePassed);
            if !self.stored().settings.death_window.is_zero() {
                self.runtime.suspects.parole(range, &evidence, began);
            }
        }
        self.watch_quarantines();
    }

    /// A quarantine lasts from when this leader knew of it: no clock of an earlier one says since when.
    fn watch_quarantines(&mut self) {
        let (stored, runtime) = (&self.draft.namespaces[self.namespace], &mut *self.runtime);
        let known = std::mem::take(&mut runtime.quarantined_since);
        let since = |range: KeyRange| known.get(&range).copied().unwrap_or(self.now);
        runtime.quarantined_since = stored.quarantines.iter().map(|q| (q.range, since(q.range))).collect();
        match runtime.quarantined_since.values().min() {
            Some(first) => runtime.timers.set(RuntimeTimer::Quarantine, *first + stored.settings.quarantine),
            None => runtime.timers.clear(&RuntimeTimer::Quarantine),
        }
    }

    /// Decides about what is suspected of killing its Owners, before anything is granted.
    pub(super) fn judge_suspects(&mut self) {
        if self.stored().settings.death_window.is_zero() {
            self.runtime.suspects.clear();
        }
        // Whose end did not fit into the batch has more keys, and nothing is granted before that is known.
        if !self.runtime.suspects.is_empty() && !self.unfinished {
            self.forget_outlived();
            for suspect in self.suspects() {
                self.judge(suspect);
            }
        }
        self.watch_quarantines();
        let (stored, runtime) = (&self.draft.namespaces[self.namespace], &mut *self.runtime);
        if let Some(desired) = &mut runtime.placement.desired
            && desired.follow_suspects(&runtime.suspects.probation, stored)
        {
            runtime.recalls.review = true;
        }
    }

    /// Keys that an Owner has had for the whole window, and lives, do not kill.
    fn forget_outlived(&mut self) {
        let settings = &self.draft.namespaces[self.namespace].settings;
        let memory = settings.death_window + self.runtime.holds.longest + settings.renewal * 2;
        let since = self.now - memory;
        self.runtime.suspects.forget_before(since);
        let outlived: Vec<KeyRange> =
            self.held_trails().filter(|(_, heard, until)| heard >= until).map(|(piece, ..)| piece).collect();
        for piece in outlived {
            self.runtime.suspects.acquit(piece);
        }
        self.runtime.suspects.probation = self.standing_probation();
    }

    /// Where keys are to stay, without those that may not be there any more, or that were moved on.
    fn standing_probation(&self) -> RangeMap<SessionId> {
        let stored = self.stored();
        let may_have = |session: &SessionId| stored.sessions.get(session).is_some_and(may_have_keys);
        let placed = self.runtime.suspects.probation.iter().filter(|(_, session)| may_have(session));
        let pieces = placed.flat_map(|(range, session)| {
            let is_there = |owner: Option<SessionId>| owner.is_none_or(|owner| owner == *session);
            let entries = stored.table.overlapping(range).filter(move |(_, entry)| is_there(entry.owner));
            entries.map(|(piece, _)| (piece, *session))
        });
        pieces.collect()
    }

    /// The keys with a trail that somebody has, when their Owner was last heard, and until when it must live.
    fn held_trails(&self) -> impl Iterator<Item = (KeyRange, Instant, Instant)> {
        let (stored, runtime) = (self.stored(), &*self.runtime);
        let window = stored.settings.death_window;
        let trails = runtime.suspects.trails().flat_map(|(range, _)| stored.table.overlapping(range));
        trails.filter_map(move |(piece, entry)| {
            let heard = runtime.holds.heard.get(&entry.owner?)?;
            let granted = runtime.suspects.grants.of(entry.generation).unwrap_or(Instant::ZERO);
            Some((piece, heard, granted + window))
        })
    }

    /// What nobody has and Owners died with. What is suspected is told apart by who died last: the deaths must have nothing else in
    /// common. The rest by all who died. An operator's wish stands, whatever its keys do.
    fn suspects(&self) -> Vec<Suspect> {
        let (stored, suspects) = (self.stored(), &self.runtime.suspects);
        let pinned =
            self.runtime.placement.desired.as_ref().map(|desired| desired.pinned()).unwrap_or_default();
        let mut by_deaths: BTreeMap<(bool, Vec<SessionId>, bool), Suspect> = BTreeMap::new();
        for (range, trail) in suspects.trails().filter(|(_, trail)| trail.counted() > 0) {
            let dead = match trail.is_suspect() {
                true => trail.latest().into_iter().collect(),
                false => trail.sessions(),
            };
            let free = stored.table.overlapping(range).filter(|(_, entry)| entry.is_free());
            let free: RangeSet = free.map(|(piece, _)| piece).collect();
            for piece in free.difference(&pinned).iter() {
                let known = by_deaths.entry((trail.is_suspect(), dead.clone(), trail.is_news()));
                known.or_insert_with(|| Suspect::new(trail)).add(piece, trail);
            }
        }
        by_deaths.into_values().collect()
    }

    fn judge(&mut self, suspect: Suspect) {
        let Suspect { trail, mut dead, counted, keys } = suspect;
        let quarantines = self.stored().quarantines.iter();
        dead.extend(quarantines.flat_map(|known| known.evidence.iter()).map(|death| death.session));
        if self.runtime.suspects.is_mass_death(&dead, self.stored().sessions.len()) {
            keys.iter().for_each(|range| self.runtime.suspects.probation.remove(range));
            if trail.is_suspect() {
                self.runtime.skips.push(Skip::ManyDeaths { namespace: self.namespace.clone() });
            }
            return;
        }
        if counted >= QUARANTINE_AFTER && trail.is_news() && self.quarantine(&keys) {
            return;
        }
        let unplaced = self.unplaced(&keys);
        let places = match trail.is_suspect() {
            true => self.places_for_parts(&unplaced, &trail),
            false => self.places_for_whole(&unplaced, &trail),
        };
        for (piece, session) in places {
            self.runtime.suspects.place(piece, session);
        }
    }

    /// Puts a range into quarantine if it is one, and small enough; says whether it did.
    fn quarantine(&mut self, keys: &RangeSet) -> bool {
        let too_much = injected(Bug::QuarantinesTooMuch);
        let fits = keys.len() == 1 && keys.key_count() <= self.quarantine_limit();
        if !fits && !too_much {
            return false;
        }
        for range in keys.iter() {
            let trail = self.runtime.suspects.trails_of(KeyRange::one(range.first())).next();
            let evidence = trail.map(|(_, trail)| trail.evidence(self.now)).unwrap_or_default();
            self.emit(Change::Quarantined { range, evidence }, Reason::KilledOwners);
            self.runtime.suspects.acquit(range);
        }
        true
    }

    /// How many keys the next quarantine may have.
    fn quarantine_limit(&self) -> u128 {
        let stored = self.stored();
        let room = MAX_QUARANTINED_KEYS.saturating_sub(stored.quarantined_keys());
        if stored.quarantines.len() < MAX_QUARANTINES { room.min(MAX_KEYS) } else { 0 }
    }

    /// Keys that are suspected go in parts to different Owners: the next death says in which part the key is.
    fn places_for_parts(&mut self, keys: &RangeSet, trail: &Trail) -> Vec<(KeyRange, SessionId)> {
        let limit = self.quarantine_limit();
        if limit == 0 {
            self.runtime.skips.push(Skip::QuarantineFull { namespace: self.namespace.clone() });
        }
        let Some(first) = keys.iter().next() else { return Vec::new() };
        let owners = trail.in_order(&self.candidates(), first.first());
        let parts = cut(keys, parts_of(keys, limit).min(owners.len())).into_iter().zip(owners);
        parts.flat_map(|(part, owner)| part.into_iter().map(move |piece| (piece, owner))).collect()
    }

    /// Keys go where the partitioner wants them, or to somebody else if they have killed an Owner of that name.
    fn places_for_whole(&self, keys: &RangeSet, trail: &Trail) -> Vec<(KeyRange, SessionId)> {
        let Some(desired) = &self.runtime.placement.desired else { return Vec::new() };
        let candidates = self.candidates();
        let spared: BTreeSet<SessionId> =
            candidates.iter().filter(|it| trail.spares(it.name)).map(|it| it.session).collect();
        let wishes = keys.iter().flat_map(|range| {
            let wishes = desired.ranges().overlapping(range).map(|(piece, session)| (piece, Some(*session)));
            wishes.chain(desired.ranges().gaps(range).map(|piece| (piece, None)))
        });
        let other = |piece: KeyRange| trail.in_order(&candidates, piece.first()).first().copied();
        let place = |(piece, wish): (KeyRange, Option<SessionId>)| {
            Some((piece, wish.filter(|wish| spared.contains(wish)).or_else(|| other(piece))?))
        };
        wishes.filter_map(place).collect()
    }

    /// Those of some keys that have nowhere to go yet.
    fn unplaced(&self, keys: &RangeSet) -> RangeSet {
        let is_there = |session: &SessionId| self.runtime.conversations.open.contains_key(session);
        let placed = self.runtime.suspects.probation.iter().filter(|(_, session)| is_there(session));
        keys.difference(&placed.map(|(range, _)| range).collect())
    }

    /// The Owners that can be granted something now.
    fn candidates(&self) -> Vec<Candidate<'_>> {
        let placed: BTreeSet<SessionId> = self.runtime.suspects.probation.values().copied().collect();
        let is_there = |session: &SessionId| self.runtime.conversations.open.contains_key(session);
        let members = self.stored().sessions.iter();
        let able = members.filter(|(session, info)| may_have_keys(info) && is_there(session));
        able.map(|(session, info)| Candidate {
            session: *session,
            name: &info.name,
            has_suspect: placed.contains(session),
        })
        .collect()
    }

    /// Looks again when the first of the suspects may have been outlived.
    pub(super) fn watch_suspects(&mut self) {
        let soon = self.now + self.stored().settings.renewal;
        let until = self.held_trails().map(|(_, _, until)| if until > self.now { until } else { soon }).min();
        match until {
            Some(at) => self.runtime.timers.set(RuntimeTimer::Suspects, at),
            None => self.runtime.timers.clear(&RuntimeTimer::Suspects),
        }
    }
}
