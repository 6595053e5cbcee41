//! Which keys may kill their Owners: the deaths that each key has seen since an Owner last outlived it (ADR 24).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Generation, OwnerName, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::{Key, KeyRange};
use crate::range_map::RangeMap;
use crate::range_set::RangeSet;
use crate::record::DeathEvidence;
use crate::time::Instant;

use super::grant_times::GrantTimes;

/// How many different Owners must have died soon after they got a key before it is a suspect.
pub(super) const SUSPECT_AFTER: usize = 3;
/// A suspect that was granted in parts, and of which one part has killed again, has this many.
const QUARANTINE_AFTER: usize = SUSPECT_AFTER + 1;
/// Keys are guilty once fewer than one in so many would have seen their deaths by chance.
const CHANCE: u64 = 256;
/// In how many parts a suspect is granted at most.
const MAX_PARTS: usize = 8;
/// More ranges than this are not the work of one key.
const MAX_TRAILS: usize = 4_096;
/// The first deaths make a suspect and the latest say where it is: what lies between is forgotten.
const MAX_DEATHS: usize = 16;
/// How many ends of sessions are remembered.
const MAX_RECENT: usize = 1_024;

/// What a leader remembers of deaths. All of it is volatile, and each part of it has a bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Suspects {
    trails: RangeMap<Trail>,
    /// Where keys with a trail are to go, and to stay until an Owner has outlived them.
    pub(super) probation: RangeMap<SessionId>,
    /// The sessions that ended unplanned lately, the latest last.
    recent: VecDeque<(SessionId, Instant)>,
    /// When leases were granted.
    pub(super) grants: GrantTimes,
}

/// The deaths that a key has seen, the oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Trail {
    deaths: Arc<[Death]>,
    /// Since the latest of them the keys have been given a place: only another death says more.
    is_placed: bool,
}

/// An Owner died that had a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Death {
    pub(super) session: SessionId,
    pub(super) name: OwnerName,
    /// Its lease.
    pub(super) generation: Generation,
    /// How long it had the key, up to its last word.
    pub(super) held: Duration,
    /// When it was last heard from.
    pub(super) heard: Instant,
    /// Among how many Owners it was: by chance it would have hit any of them.
    pub(super) among: u64,
    /// It speaks against the key: it came soon after the grant, and the first three are of different Owners.
    pub(super) counts: bool,
}

/// What the end of a lease with its Owner says about its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tenure {
    /// The Owner died soon after it got them.
    Short(Duration),
    /// The Owner had them for longer than the window, or since before anything that is remembered.
    Long,
    /// The Owner was out of contact before it was granted them.
    Unreached,
}

impl Tenure {
    /// The tenure of an Owner that was granted keys at `granted` and last heard from at `heard`.
    pub(super) fn new(
        granted: Option<Instant>,
        heard: Instant,
        renewal: Duration,
        window: Duration,
    ) -> Tenure {
        match granted {
            Some(granted) if heard + renewal * 2 < granted => Tenure::Unreached,
            Some(granted) if heard.since(granted) <= window => Tenure::Short(heard.since(granted)),
            _ => Tenure::Long,
        }
    }
}

/// An Owner that may get keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate<'a> {
    pub(super) session: SessionId,
    pub(super) name: &'a OwnerName,
    /// It has other keys that may kill it, or is to get some.
    pub(super) has_suspect: bool,
}

impl Suspects {
    /// The keys that have seen a death, and their trails.
    pub(super) fn trails(&self) -> impl Iterator<Item = (KeyRange, &Trail)> {
        self.trails.iter()
    }

    /// The same of these keys.
    pub(super) fn trails_of(&self, range: KeyRange) -> impl Iterator<Item = (KeyRange, &Trail)> {
        self.trails.overlapping(range)
    }

    /// Whether any of these keys has seen a death since an Owner last outlived them.
    pub(super) fn overlaps(&self, range: KeyRange) -> bool {
        self.trails_of(range).next().is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.trails.is_empty() && self.probation.is_empty()
    }

    /// Whether the end of a session has been noted.
    pub(super) fn knows(&self, session: SessionId) -> bool {
        self.recent.iter().any(|(known, _)| *known == session)
    }

    /// A session has ended unplanned at `now`, with these leases.
    pub(super) fn note_death(
        &mut self,
        death: &Death,
        now: Instant,
        leases: &[(KeyRange, Generation, Tenure)],
    ) {
        self.recent.push_back((death.session, now));
        self.recent.drain(..self.recent.len().saturating_sub(MAX_RECENT));
        let cut = self.parts_among(leases);
        for (range, generation, tenure) in leases {
            let death = Death { generation: *generation, ..death.clone() };
            match tenure {
                Tenure::Unreached => {}
                Tenure::Long => self.trails.insert(*range, Trail::default().with(death, false)),
                Tenure::Short(held) => self.extend(*range, &Death { held: *held, ..death }),
            }
        }
        // What died with them before and lies elsewhere is cleared: the key is in the part that has killed.
        self.acquit_if(|trail| trail.is_suspect() && trail.latest().is_some_and(|it| cut.contains(&it)));
        if self.trails.len() > MAX_TRAILS {
            self.trails.clear();
            self.probation.clear();
        }
    }

    /// Who died last of those suspects that an Owner has died with now.
    fn parts_among(&self, leases: &[(KeyRange, Generation, Tenure)]) -> BTreeSet<SessionId> {
        let short = leases.iter().filter(|(.., tenure)| matches!(tenure, Tenure::Short(_)));
        let trails = short.flat_map(|(range, ..)| self.trails_of(*range)).map(|(_, trail)| trail);
        trails.filter(|trail| trail.is_suspect()).filter_map(Trail::latest).collect()
    }

    fn acquit_if(&mut self, is_cleared: impl Fn(&Trail) -> bool) {
        let cleared = self.trails().filter(|(_, trail)| is_cleared(trail)).map(|(range, _)| range);
        for range in cleared.collect::<Vec<_>>() {
            self.acquit(range);
        }
    }

    fn extend(&mut self, range: KeyRange, death: &Death) {
        let unseen: Vec<KeyRange> = self.trails.gaps(range).collect();
        self.trails.update(range, |_, trail| Some(trail.with(death.clone(), true)));
        for piece in unseen {
            self.trails.insert(piece, Trail::default().with(death.clone(), true));
        }
    }

    /// Nothing speaks against these keys any more.
    pub(super) fn acquit(&mut self, range: KeyRange) {
        self.trails.remove(range);
        self.probation.remove(range);
    }

    /// These keys go to a session, and stay there.
    pub(super) fn place(&mut self, range: KeyRange, session: SessionId) {
        self.probation.insert(range, session);
        self.trails.update(range, |_, trail| Some(Trail { is_placed: true, ..trail.clone() }));
    }

    /// What spoke against these keys when their quarantine began speaks against them again.
    pub(super) fn parole(&mut self, range: KeyRange, evidence: &[DeathEvidence], began: Instant) {
        let death = |of: &DeathEvidence| Death {
            session: of.session,
            name: of.name.clone(),
            generation: of.generation,
            held: of.held,
            heard: began - of.ago,
            // The quarantine was no chance.
            among: CHANCE,
            counts: true,
        };
        let deaths = evidence.iter().map(death).collect();
        self.trails.insert(range, Trail { deaths, is_placed: true });
    }

    /// Forgets deaths before `since`, and grants that cannot matter any more.
    pub(super) fn forget_before(&mut self, since: Instant) {
        while self.recent.front().is_some_and(|(_, at)| *at < since) {
            self.recent.pop_front();
        }
        self.grants.forget_before(since);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Suspects::default();
    }

    /// Whether so many Owners have died lately, beside those whose death is explained, that no key is to blame: a bad deployment,
    /// or a network that is cut. Those of one other trail do not count: two keys may kill at once.
    pub(super) fn is_mass_death(&self, explained: &BTreeSet<SessionId>, members: usize) -> bool {
        let allowed = allowed_deaths(members);
        let recent = self.recent.iter().map(|(session, _)| *session);
        let rest: Vec<SessionId> = recent.filter(|session| !explained.contains(session)).collect();
        let are_many = |unexplained: usize| unexplained > allowed;
        let also = |other: &Trail| rest.iter().filter(|session| !other.has(**session)).count();
        are_many(rest.len())
            && !injected(Bug::QuarantinesInMassDeath)
            && (rest.len() > allowed + MAX_DEATHS || self.trails.values().all(|other| are_many(also(other))))
    }
}

/// How many Owners may die of something else while a key is suspected.
pub(super) fn allowed_deaths(members: usize) -> usize {
    (members / 32).max(2)
}

impl Trail {
    /// The deaths that speak against the key.
    pub(super) fn counted(&self) -> usize {
        self.deaths.iter().filter(|death| death.counts).count()
    }

    /// Whether the latest death has yet to be answered.
    pub(super) fn is_news(&self) -> bool {
        !self.is_placed
    }

    /// Whether enough different Owners have died of the key.
    pub(super) fn is_suspect(&self) -> bool {
        self.counted() >= SUSPECT_AFTER
    }

    /// Whether a part of what was suspected has killed again, and so many deaths are no coincidence: in a small pool whatever an
    /// Owner had is soon shared with the next that dies, of whatever cause.
    pub(super) fn is_proven(&self) -> bool {
        let counted = self.deaths.iter().filter(|death| death.counts);
        let chance = counted.fold(1_u64, |chance, death| chance.saturating_mul(death.among));
        self.counted() >= QUARANTINE_AFTER && chance >= CHANCE
    }

    /// All sessions that died with the key.
    pub(super) fn all(&self) -> impl Iterator<Item = SessionId> {
        self.deaths.iter().map(|death| death.session)
    }

    /// Those that speak against it.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.deaths.iter().filter(|death| death.counts).map(|death| death.session).collect()
    }

    /// The latest of them.
    pub(super) fn latest(&self) -> Option<SessionId> {
        self.deaths.iter().rfind(|death| death.counts).map(|death| death.session)
    }

    fn has(&self, session: SessionId) -> bool {
        self.deaths.iter().any(|death| death.session == session)
    }

    /// How long ago, in deaths, an Owner of this name died: the lower, the longer; `None` if none did.
    fn place_of(&self, name: &OwnerName) -> Option<usize> {
        self.deaths.iter().rposition(|death| death.counts && death.name == *name)
    }

    /// Restarts of one Owner are one Owner until it is sure that others die as well; from then on every death tells where.
    fn with(&self, death: Death, is_short: bool) -> Trail {
        let is_known = self.deaths.iter().any(|known| known.counts && known.name == death.name);
        let counts = is_short && (!is_known || self.counted() >= SUSPECT_AFTER);
        let mut deaths = self.deaths.to_vec();
        deaths.push(Death { counts, ..death });
        if deaths.len() > MAX_DEATHS {
            let first = deaths.iter().position(|death| !death.counts).unwrap_or(SUSPECT_AFTER);
            deaths.remove(first.min(SUSPECT_AFTER));
        }
        Trail { deaths: deaths.into(), is_placed: false }
    }

    /// The deaths that speak against the key, for operators.
    pub(super) fn evidence(&self, now: Instant) -> Arc<[DeathEvidence]> {
        let deaths = self.deaths.iter().filter(|death| death.counts);
        let evidence = deaths.map(|death| DeathEvidence {
            name: death.name.clone(),
            session: death.session,
            generation: death.generation,
            held: death.held,
            ago: now.since(death.heard),
        });
        evidence.collect()
    }

    /// The Owners that may get keys with this trail, the best first: those that they have not killed, and of those that
    /// they have, the ones that died first; before others those that have no suspect. Among equals the key decides, so that
    /// not all suspects meet the same Owners.
    pub(super) fn in_order(&self, candidates: &[Candidate<'_>], key: Key) -> Vec<SessionId> {
        let mixed = |session: SessionId| {
            let bits = session.0.0 as u64 ^ (session.0.0 >> 64) as u64 ^ key.0;
            bits.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        };
        let mut order: Vec<_> = candidates
            .iter()
            .map(|Candidate { session, name, has_suspect }| {
                let died = self.place_of(name).map_or(0, |place| place + 1);
                (died, *has_suspect, mixed(*session), *session)
            })
            .collect();
        order.sort_unstable();
        order.into_iter().map(|(.., session)| session).collect()
    }

    /// Whether keys with this trail have not killed an Owner of this name.
    pub(super) fn spares(&self, name: &OwnerName) -> bool {
        self.place_of(name).is_none()
    }
}

/// In how many parts keys are granted that are suspected. Several ranges are told apart first; one is cut in halves, or in more
/// while a half would still be too large to be quarantined.
pub(super) fn parts_of(keys: &RangeSet, limit: u128) -> usize {
    if injected(Bug::SuspectUncut) {
        return 1;
    }
    if keys.len() > 1 {
        return keys.len().min(MAX_PARTS);
    }
    let parts = keys.key_count().div_ceil(limit.max(1)).clamp(2, MAX_PARTS as u128);
    // Halves of halves, so that they are of one size.
    usize::try_from(parts).unwrap_or(2).next_power_of_two()
}

/// Keys in so many parts of about the same size, in as few pieces as that allows. Fewer parts if there are fewer keys.
pub(super) fn cut(keys: &RangeSet, parts: usize) -> Vec<Vec<KeyRange>> {
    let mut pieces: Vec<KeyRange> = keys.iter().collect();
    while pieces.len() < parts {
        let largest = (0..pieces.len()).max_by_key(|place| pieces[*place].key_count());
        let Some((place, (low, high))) = largest.and_then(|place| Some((place, halves(pieces[place])?)))
        else {
            break;
        };
        pieces.splice(place..=place, [low, high]);
    }
    pieces.sort_by_key(|piece| (std::cmp::Reverse(piece.key_count()), *piece));
    let mut groups: Vec<(u128, Vec<KeyRange>)> = vec![(0, Vec::new()); parts.min(pieces.len())];
    for piece in pieces {
        if let Some((keys, group)) = groups.iter_mut().min_by_key(|(keys, _)| *keys) {
            *keys += piece.key_count();
            group.push(piece);
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn halves(range: KeyRange) -> Option<(KeyRange, KeyRange)> {
    let half = u64::try_from(range.key_count() / 2).ok()?;
    range.split_at(Key(range.first().0 + half))
}

#[cfg(test)]
mod tests;
