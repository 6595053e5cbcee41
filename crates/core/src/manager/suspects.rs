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
pub(super) const QUARANTINE_AFTER: usize = SUSPECT_AFTER + 1;
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
mod tests {
    use super::*;
    use crate::id::Nonce;

    fn session(number: u128) -> SessionId {
        SessionId(Nonce(number))
    }

    fn name(text: &str) -> OwnerName {
        OwnerName::new(text).expect("a name")
    }

    fn range(first: u64, last: u64) -> KeyRange {
        KeyRange::new(Key(first), Key(last)).expect("a range")
    }

    fn death(number: u128, owner: &str) -> Death {
        let (generation, held) = (Generation::ZERO, Duration::ZERO);
        Death {
            session: session(number),
            name: name(owner),
            generation,
            held,
            heard: Instant(0),
            counts: false,
        }
    }

    const SHORT: Tenure = Tenure::Short(Duration::from_secs(1));

    fn die(suspects: &mut Suspects, number: u128, owner: &str, keys: KeyRange, tenure: Tenure) {
        suspects.note_death(&death(number, owner), Instant(number as u64), &[(keys, Generation(1), tenure)]);
    }

    fn counted(suspects: &Suspects, key: u64) -> usize {
        suspects.trails.get(Key(key)).map_or(0, |(_, trail)| trail.counted())
    }

    #[test]
    fn a_tenure_is_short_within_the_window_and_only_of_an_owner_that_was_there() {
        let seconds = |n: u64| Instant(n * 1_000_000_000);
        let of = |granted: Option<Instant>, heard| {
            Tenure::new(granted, heard, Duration::from_secs(15), Duration::from_secs(120))
        };
        let granted = Some(seconds(100));
        assert_eq!(of(granted, seconds(103)), Tenure::Short(Duration::from_secs(3)));
        assert_eq!(of(granted, seconds(220)), Tenure::Short(Duration::from_secs(120)));
        assert_eq!(of(granted, seconds(221)), Tenure::Long);
        assert_eq!(of(granted, seconds(70)), Tenure::Short(Duration::ZERO), "it may have died of the grant");
        assert_eq!(of(granted, seconds(69)), Tenure::Unreached);
        assert_eq!(of(None, seconds(103)), Tenure::Long);
    }

    #[test]
    fn only_keys_that_all_deaths_share_are_counted_so_often() {
        let mut suspects = Suspects::default();
        die(&mut suspects, 1, "a", range(0, 99), SHORT);
        die(&mut suspects, 2, "b", range(50, 199), SHORT);
        die(&mut suspects, 3, "c", range(60, 69), SHORT);
        assert_eq!([10, 55, 65, 150, 250].map(|key| counted(&suspects, key)), [1, 2, 3, 1, 0]);
        assert!(suspects.overlaps(range(199, 300)) && !suspects.overlaps(range(200, 300)));
    }

    #[test]
    fn restarts_of_one_owner_are_one_until_three_have_died() {
        let mut suspects = Suspects::default();
        for (number, owner) in (1..).zip(["a", "a", "a", "b", "a", "c"]) {
            die(&mut suspects, number, owner, range(0, 9), SHORT);
        }
        assert_eq!(counted(&suspects, 5), 3);
        die(&mut suspects, 7, "a", range(0, 9), SHORT);
        assert_eq!(counted(&suspects, 5), 4, "from then on every death counts");
    }

    #[test]
    fn an_owner_that_had_the_keys_for_long_clears_what_was_before_it() {
        let mut suspects = Suspects::default();
        die(&mut suspects, 1, "a", range(0, 9), SHORT);
        die(&mut suspects, 2, "b", range(0, 9), SHORT);
        die(&mut suspects, 3, "c", range(0, 9), Tenure::Unreached);
        assert_eq!(counted(&suspects, 5), 2, "it says nothing");
        die(&mut suspects, 4, "d", range(0, 4), Tenure::Long);
        assert_eq!([3, 7].map(|key| counted(&suspects, key)), [0, 2]);
        suspects.acquit(range(6, 9));
        assert_eq!(counted(&suspects, 7), 0);
    }

    #[test]
    fn deaths_that_do_not_share_the_keys_are_a_mass_death() {
        let mut suspects = Suspects::default();
        // The first has had the keys for long: it is explained by them though it does not count.
        die(&mut suspects, 1, "a", range(0, 9), Tenure::Long);
        for (number, owner) in (2..).zip(["b", "c", "d"]) {
            die(&mut suspects, number, owner, range(0, 9), SHORT);
        }
        let trail = suspects.trails.get(Key(5)).expect("a trail").1.clone();
        assert_eq!(trail.counted(), 3);
        let explained: BTreeSet<SessionId> = trail.all().collect();
        let is_mass = |suspects: &Suspects, members| suspects.is_mass_death(&explained, members);
        assert!(!is_mass(&suspects, 8));
        for (number, owner) in (10..).zip(["v", "w", "x"]) {
            die(&mut suspects, number, owner, range(number as u64 * 10, number as u64 * 10 + 9), SHORT);
        }
        assert!(!is_mass(&suspects, 8), "two may die of something else, and one of another suspect");
        die(&mut suspects, 13, "y", range(130, 139), Tenure::Unreached);
        assert!(is_mass(&suspects, 8));
        assert!(!is_mass(&suspects, 96), "in a large pool more may");
        let known = explained.iter().copied().chain([session(10)]).collect();
        assert!(!suspects.is_mass_death(&known, 8), "it died of what is in quarantine");
        suspects.forget_before(Instant(12));
        assert!(!is_mass(&suspects, 8), "it is over");
    }

    #[test]
    fn two_keys_may_kill_at_once_and_four_may_not() {
        let lanes = |count: u64| {
            let mut suspects = Suspects::default();
            for (number, owner) in (0..).zip(["a", "b", "c"]) {
                for lane in 0..count {
                    let (session, keys) = (number * 10 + u128::from(lane), range(lane * 10, lane * 10 + 9));
                    die(&mut suspects, session, &format!("{owner}{lane}"), keys, SHORT);
                }
            }
            let trail = suspects.trails.get(Key(5)).expect("a trail").1.clone();
            suspects.is_mass_death(&trail.all().collect(), 20)
        };
        assert_eq!([1, 2, 4].map(lanes), [false, false, true]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut suspects = Suspects::default();
        for number in 0..2_000 {
            die(&mut suspects, number, &format!("o{number}"), range(0, 9), SHORT);
        }
        assert_eq!((suspects.recent.len(), suspects.trails.len()), (MAX_RECENT, 1));
        let trail = suspects.trails.get(Key(5)).expect("a trail").1;
        assert_eq!((trail.deaths.len(), trail.counted()), (MAX_DEATHS, MAX_DEATHS));
        let names: Vec<_> = trail.deaths.iter().map(|death| death.name.as_str()).collect();
        assert_eq!((names[2], names[3], names[15]), ("o2", "o1987", "o1999"));
        let leases: Vec<_> =
            (0..5_000).map(|n| (range(n * 10, n * 10 + 5), Generation(n + 1), SHORT)).collect();
        suspects.note_death(&death(9_999, "large"), Instant(9_999), &leases);
        assert!(suspects.is_empty(), "so many ranges are not the work of one key");
    }

    #[test]
    fn parts_are_two_unless_that_is_too_few() {
        let keys = |ranges: &[KeyRange]| RangeSet::from_ranges(ranges.iter().copied());
        assert_eq!(parts_of(&keys(&[range(0, 99)]), 1_000), 2);
        assert_eq!(parts_of(&keys(&[range(0, 99)]), 30), 4);
        assert_eq!(parts_of(&keys(&[range(0, 99)]), 20), 8);
        assert_eq!(parts_of(&keys(&[range(0, 99)]), 1), 8);
        assert_eq!(parts_of(&keys(&[range(0, 9), range(20, 29), range(40, 49)]), 1), 3, "told apart first");
        assert_eq!(parts_of(&RangeSet::all(), 0), 8, "without room it is still cut");
    }

    #[test]
    fn parts_are_equal_and_whole_pieces_stay_whole() {
        let cut_into =
            |ranges: &[KeyRange], parts| cut(&RangeSet::from_ranges(ranges.iter().copied()), parts);
        assert_eq!(cut_into(&[range(0, 99)], 2), [[range(0, 49)], [range(50, 99)]]);
        assert_eq!(cut_into(&[range(7, 7)], 2), [[range(7, 7)]], "a single key cannot be cut");
        let two = cut_into(&[range(0, 9), range(20, 24), range(40, 44)], 2);
        assert_eq!(two, [vec![range(0, 9)], vec![range(20, 24), range(40, 44)]]);
        let whole = cut(&RangeSet::all(), 8);
        assert_eq!(whole.len(), 8);
        assert!(whole.iter().all(|part| part.len() == 1 && part[0].key_count() == 1 << 61));
    }

    #[test]
    fn owners_that_it_has_not_killed_come_first_then_those_that_died_first() {
        let mut suspects = Suspects::default();
        for (number, owner) in (1..).zip(["a", "b", "c"]) {
            die(&mut suspects, number, owner, range(0, 9), SHORT);
        }
        let trail = suspects.trails.get(Key(5)).expect("a trail").1;
        let names = ["c", "d", "a", "e"].map(name);
        let candidate =
            |(number, name)| Candidate { session: session(number), name, has_suspect: number == 12 };
        let candidates: Vec<_> = (11..).zip(&names).map(candidate).collect();
        let order = trail.in_order(&candidates, Key(5));
        assert_eq!(order, [session(14), session(12), session(13), session(11)]);
        assert!(trail.spares(&name("d")) && !trail.spares(&name("b")));
    }

    #[test]
    fn when_a_part_kills_the_others_are_cleared() {
        let mut suspects = Suspects::default();
        for (number, owner) in (1..).zip(["a", "b", "c"]) {
            die(&mut suspects, number, owner, range(0, 99), SHORT);
        }
        die(&mut suspects, 4, "x", range(200, 209), SHORT);
        die(&mut suspects, 5, "d", range(0, 49), SHORT);
        assert_eq!([10, 60, 205].map(|key| counted(&suspects, key)), [4, 0, 1]);
        die(&mut suspects, 6, "e", range(0, 24), Tenure::Unreached);
        assert_eq!([10, 30].map(|key| counted(&suspects, key)), [4, 4], "nobody has said where it is");
    }

    #[test]
    fn what_is_paroled_has_its_trail_again() {
        let mut suspects = Suspects::default();
        for (number, owner) in (1..).zip(["a", "b", "c", "d"]) {
            die(&mut suspects, number, owner, range(0, 9), SHORT);
        }
        let evidence = suspects.trails.get(Key(5)).expect("a trail").1.evidence(Instant(4));
        assert_eq!(
            evidence.iter().map(|death| death.name.as_str()).collect::<Vec<_>>(),
            ["a", "b", "c", "d"]
        );
        suspects.acquit(range(0, 9));
        suspects.parole(range(0, 9), &evidence, Instant(1_000_000));
        assert_eq!(counted(&suspects, 5), 4);
        let is_news =
            |suspects: &Suspects| suspects.trails.get(Key(5)).is_some_and(|(_, trail)| trail.is_news());
        assert!(!is_news(&suspects), "nobody has died of it since");
        die(&mut suspects, 5, "e", range(0, 9), SHORT);
        assert!(is_news(&suspects));
        suspects.place(range(0, 9), session(6));
        assert!(!is_news(&suspects));
    }
}
