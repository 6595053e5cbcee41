//! Keys of death: deaths are noted, suspects are granted in parts, and the part that goes on killing is quarantined (ADR 24).

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::id::{Generation, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::manager_state::{MAX_QUARANTINED_KEYS, Quarantine};
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::{Change, Reason};
use crate::table::Entry;
use crate::time::Instant;

use super::decide::Decision;
use super::desired::may_have_keys;
use super::event::Skip;
use super::namespace_runtime::RuntimeTimer;
use super::suspects::{Candidate, Death, Tenure, Trail, cut, parts_of};

/// How many keys one quarantine may have: several fit into what a namespace may have in all.
const MAX_KEYS: u128 = MAX_QUARANTINED_KEYS / 4;
/// How many ranges of a namespace may be in quarantine.
const MAX_QUARANTINES: usize = 64;

/// Keys that nobody has, with which the same Owner died last, and of which none explains all the deaths of the others.
struct Suspect {
    /// The longest trail of all of them.
    trail: Trail,
    /// Whoever died with any of them.
    dead: BTreeSet<SessionId>,
    /// Whether enough speaks against each of them.
    is_proven: bool,
    keys: RangeSet,
    /// What died with the others, but not as often: they explain its deaths.
    cleared: RangeSet,
}

impl Suspect {
    fn of(pieces: &[(KeyRange, &Trail)]) -> Option<Suspect> {
        let (_, trail) = pieces.iter().max_by_key(|(_, trail)| trail.counted())?;
        let longest: BTreeSet<SessionId> = trail.sessions().into_iter().collect();
        let mut suspect = Suspect {
            trail: (*trail).clone(),
            dead: BTreeSet::new(),
            is_proven: true,
            keys: RangeSet::new(),
            cleared: RangeSet::new(),
        };
        for (piece, other) in pieces {
            suspect.dead.extend(other.all());
            let is_shorter = other.counted() < trail.counted();
            if is_shorter && other.sessions().iter().all(|session| longest.contains(session)) {
                suspect.cleared.insert(*piece);
            } else {
                suspect.keys.insert(*piece);
                suspect.is_proven &= other.is_proven();
            }
        }
        Some(suspect)
    }
}

impl Decision<'_> {
    /// An Owner has ended unplanned, with the leases that the table still gives it.
    pub(super) fn note_death(&mut self, session: SessionId) {
        let window = self.stored().settings.death_window;
        let Some(info) = self.stored().sessions.get(&session) else { return };
        // Whoever was on its way out did not die of a key.
        let leaves = self.runtime.conversations.report(session).is_some_and(|report| report.leaving);
        let is_planned = (info.is_draining() || info.evicted || leaves) && !injected(Bug::PlannedEndCounts);
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
        let among = self.stored().sessions.values().filter(|info| may_have_keys(info)).count() as u64;
        let death = Death { session, name, generation, held, heard, among, counts: false };
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
            self.shun_the_dead();
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

    /// Keys that have killed go where the partitioner wants them, but not to an Owner of a name that they have killed: a server that
    /// restarts would get them back and die alone, again and again. Suspects that nobody has are judged later.
    fn shun_the_dead(&mut self) {
        let places = self.places_for_shunned();
        let trails = self.runtime.suspects.trails().filter(|(_, trail)| !trail.is_suspect());
        let keys: Vec<KeyRange> = trails.map(|(range, _)| range).collect();
        keys.into_iter().for_each(|range| self.runtime.suspects.probation.remove(range));
        for (piece, session) in places {
            self.runtime.suspects.probation.insert(piece, session);
        }
    }

    fn places_for_shunned(&self) -> Vec<(KeyRange, SessionId)> {
        let (stored, suspects) = (self.stored(), &self.runtime.suspects);
        let Some(desired) = &self.runtime.placement.desired else { return Vec::new() };
        let candidates = LazyCell::new(|| self.candidates());
        let mut is_mass: BTreeMap<Vec<SessionId>, bool> = BTreeMap::new();
        let mut places = Vec::new();
        for (range, trail) in suspects.trails().filter(|(_, trail)| trail.counted() > 0) {
            let judged = is_mass.entry(trail.sessions());
            if *judged.or_insert_with(|| self.is_mass_death(trail.all().collect())) {
                continue;
            }
            let is_judged =
                |entry: &Entry| entry.quarantined || (entry.owner.is_none() && trail.is_suspect());
            for (part, entry) in stored.table.overlapping(range).filter(|(_, entry)| !is_judged(entry)) {
                let wishes = desired.wishes(part).into_iter();
                for (piece, wish) in wishes.filter(|(_, wish)| self.is_shunned(*wish, entry, trail)) {
                    let others = || trail.in_order(&candidates, piece.first()).first().copied();
                    let place = self.place_for_shunned((piece, entry), trail).or_else(others);
                    places.extend(place.filter(|place| Some(*place) != wish).map(|place| (piece, place)));
                }
            }
        }
        places
    }

    /// Whether keys must not go where the partitioner wants them, or nobody says where that is.
    fn is_shunned(&self, wish: Option<SessionId>, entry: &Entry, trail: &Trail) -> bool {
        match wish.and_then(|wish| self.stored().sessions.get(&wish)) {
            Some(info) => !trail.spares(&info.name),
            None => entry.owner.is_none(),
        }
    }

    /// Who has keys keeps them, if it may. Otherwise they go where they were to go before.
    fn place_for_shunned(&self, (piece, entry): (KeyRange, &Entry), trail: &Trail) -> Option<SessionId> {
        let info = |session: &SessionId| self.stored().sessions.get(session);
        let may_have = |session: &SessionId| info(session).is_some_and(may_have_keys);
        let is_there = |session: &SessionId| self.runtime.conversations.open.contains_key(session);
        let is_spared = |session: &SessionId| info(session).is_some_and(|info| trail.spares(&info.name));
        let planned = entry.recall.and_then(|recall| recall.to).filter(is_spared);
        let before = self.runtime.suspects.probation.get(piece.first()).map(|(_, session)| *session);
        let before = before.or(planned).filter(|it| may_have(it) && is_there(it));
        entry.owner.filter(may_have).or(before)
    }

    /// What is suspected and nobody has, told apart by who died last: the deaths must have nothing else in common. An operator's wish
    /// stands, whatever its keys do.
    fn suspects(&self) -> Vec<Suspect> {
        let (stored, suspects) = (self.stored(), &self.runtime.suspects);
        let pinned =
            self.runtime.placement.desired.as_ref().map(|desired| desired.pinned()).unwrap_or_default();
        let mut by_death: BTreeMap<(SessionId, bool), Vec<(KeyRange, &Trail)>> = BTreeMap::new();
        for (range, trail) in suspects.trails().filter(|(_, trail)| trail.is_suspect()) {
            let Some(latest) = trail.latest() else { continue };
            let free = stored.table.overlapping(range).filter(|(_, entry)| entry.is_free());
            let free: RangeSet = free.map(|(piece, _)| piece).collect();
            let pieces = by_death.entry((latest, trail.is_news())).or_default();
            pieces.extend(free.difference(&pinned).iter().map(|piece| (piece, trail)));
        }
        by_death.values().filter_map(|pieces| Suspect::of(pieces)).collect()
    }

    /// Whether so many others die that none of these deaths proves anything.
    fn is_mass_death(&self, mut explained: BTreeSet<SessionId>) -> bool {
        let quarantines = self.stored().quarantines.iter();
        explained.extend(quarantines.flat_map(|known| known.evidence.iter()).map(|death| death.session));
        self.runtime.suspects.is_mass_death(&explained, self.stored().sessions.len())
    }

    fn judge(&mut self, suspect: Suspect) {
        let Suspect { trail, dead, is_proven, keys, cleared } = suspect;
        if self.is_mass_death(dead) {
            keys.iter().for_each(|range| self.runtime.suspects.probation.remove(range));
            self.runtime.skips.push(Skip::ManyDeaths { namespace: self.namespace.clone() });
            return;
        }
        cleared.iter().for_each(|range| self.runtime.suspects.acquit(range));
        if is_proven && trail.is_news() && self.quarantine(&keys) {
            return;
        }
        for (piece, session) in self.places_for_parts(&self.unplaced(&keys), &trail) {
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
