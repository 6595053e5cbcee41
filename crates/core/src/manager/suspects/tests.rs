//! What speaks against keys, death by death.

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

/// One of ten dies.
fn death(number: u128, owner: &str) -> Death {
    Death {
        session: session(number),
        name: name(owner),
        generation: Generation::ZERO,
        held: Duration::ZERO,
        heard: Instant(0),
        among: 10,
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

/// Of five, four that die one after the other share one key in 120 by chance.
#[test]
fn the_fewer_owners_there_are_the_more_deaths_are_a_coincidence() {
    let proven_after = |among: fn(u64) -> u64| {
        let mut trail = Trail::default();
        (0..16).find(|number| {
            let dead = death(u128::from(*number), &format!("owner-{number}"));
            trail = trail.with(Death { among: among(*number), ..dead }, true);
            trail.is_proven()
        })
    };
    let deaths = |among| proven_after(among).map(|last| last + 1);
    assert_eq!(deaths(|_| 10), Some(4), "of ten that are started again");
    assert_eq!(deaths(|_| 4), Some(4));
    assert_eq!(deaths(|_| 3), Some(6));
    assert_eq!(deaths(|_| 2), Some(8));
    assert_eq!(deaths(|_| 1), None);
    assert_eq!(deaths(|dead| 7_u64.saturating_sub(dead).max(1)), Some(4), "of seven that are not");
    assert_eq!(deaths(|dead| 5_u64.saturating_sub(dead).max(1)), None);
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
    let leases: Vec<_> = (0..5_000).map(|n| (range(n * 10, n * 10 + 5), Generation(n + 1), SHORT)).collect();
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
    let cut_into = |ranges: &[KeyRange], parts| cut(&RangeSet::from_ranges(ranges.iter().copied()), parts);
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
    let candidate = |(number, name)| Candidate { session: session(number), name, has_suspect: number == 12 };
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
    assert_eq!(evidence.iter().map(|death| death.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    suspects.acquit(range(0, 9));
    suspects.parole(range(0, 9), &evidence, Instant(1_000_000));
    assert_eq!(counted(&suspects, 5), 4);
    let is_news = |suspects: &Suspects| suspects.trails.get(Key(5)).is_some_and(|(_, trail)| trail.is_news());
    assert!(!is_news(&suspects), "nobody has died of it since");
    die(&mut suspects, 5, "e", range(0, 9), SHORT);
    assert!(is_news(&suspects));
    suspects.place(range(0, 9), session(6));
    assert!(!is_news(&suspects));
}
