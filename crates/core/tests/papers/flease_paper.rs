//! The claims of the Flease paper, one test each.

use std::time::Duration;

use centrifuge_core::flease::{
    Ballot, Body, Cell, FleaseAction, FleaseConfigError, FleaseEvent, Holder, Lease, PeerId, Progress,
    Register, Round,
};
use centrifuge_core::id::Nonce;
use centrifuge_core::time::Instant;
use proptest::prelude::*;

use crate::flease_peers::{EPSILON, LEASE, Peers, ROUND, cell, config};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// A history of operations on one register of several peers, each with a ballot of its own, in any interleaving.
#[derive(Debug, Default)]
struct History {
    facts: Vec<Fact>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fact {
    ReadInvoked(Ballot),
    ReadCommitted(Ballot, Option<Lease>),
    ReadAborted(Ballot),
    WriteInvoked(Ballot, Option<Lease>),
    WriteCommitted(Ballot, Option<Lease>),
    WriteAborted(Ballot),
}

/// One step of a schedule: which operation, which peer, what its proposer does if it may choose.
#[derive(Clone, Copy, Debug)]
struct Choice {
    operation: usize,
    peer: usize,
    /// Whether the proposer writes a value of its own though it found one.
    writes_own: bool,
    /// Whether the request is lost.
    is_lost: bool,
}

fn choices() -> impl Strategy<Value = Vec<Choice>> {
    let choice = (0..6_usize, 0..5_usize, any::<bool>(), prop::bool::weighted(0.1));
    let choice = choice.prop_map(|(operation, peer, writes_own, is_lost)| Choice {
        operation,
        peer,
        writes_own,
        is_lost,
    });
    prop::collection::vec(choice, 0..120)
}

fn ballot(number: usize) -> Ballot {
    Ballot { time: Instant(10 + number as u64 / 2), peer: PeerId(number as u16 % 2) }
}

fn lease_of(ballot: Ballot) -> Lease {
    let holder = Holder { peer: ballot.peer, incarnation: Nonce(u128::from(ballot.time.0)) };
    Lease { holder, epoch: ballot, until: ballot.time + LEASE }
}

/// Plays a schedule of up to six rounds on the registers of 3 or 5 peers. The ballots are in another order than the starts.
fn play(peers: usize, schedule: &[Choice]) -> History {
    let mut history = History::default();
    let mut registers = vec![Register::default(); peers];
    let mut rounds: Vec<Option<(Round, Body)>> = vec![None; 6];
    for choice in schedule {
        let ballot = ballot((choice.operation * 5 + 2) % 6);
        let place = &mut rounds[choice.operation];
        let (round, request) = place.get_or_insert_with(|| {
            history.facts.push(Fact::ReadInvoked(ballot));
            (Round::new(ballot, peers), Body::Read)
        });
        let peer = choice.peer % peers;
        if choice.is_lost {
            continue;
        }
        let outcome = match *request {
            Body::Write(lease) => registers[peer].write(ballot, lease).map(|()| Body::WriteAck),
            _ => registers[peer].read(ballot).map(|(written, lease)| Body::ReadAck { written, lease }),
        };
        let reply = outcome.unwrap_or_else(|promised| Body::Nack { promised });
        match round.on_reply(PeerId(peer as u16), reply) {
            Progress::Waiting => {}
            Progress::Read(found) => {
                history.facts.push(Fact::ReadCommitted(ballot, found));
                let value = found.filter(|_| !choice.writes_own).or(Some(lease_of(ballot)));
                history.facts.push(Fact::WriteInvoked(ballot, value));
                round.write(value);
                *request = Body::Write(value);
            }
            Progress::Written(value) => history.facts.push(Fact::WriteCommitted(ballot, value)),
            Progress::Aborted(_) => {
                let is_read = *request == Body::Read;
                history.facts.push(if is_read {
                    Fact::ReadAborted(ballot)
                } else {
                    Fact::WriteAborted(ballot)
                });
            }
        }
    }
    history
}

impl History {
    /// The ballots of operations invoked before a place in the history.
    fn invoked_before(&self, place: usize) -> impl Iterator<Item = Ballot> + '_ {
        self.facts[..place].iter().filter_map(|fact| match fact {
            Fact::ReadInvoked(ballot) | Fact::WriteInvoked(ballot, _) => Some(*ballot),
            _ => None,
        })
    }

    fn place(&self, wanted: impl Fn(&Fact) -> bool) -> Option<usize> {
        self.facts.iter().position(wanted)
    }

    fn writes(&self) -> impl Iterator<Item = (Ballot, Option<Lease>)> + '_ {
        self.facts.iter().filter_map(|fact| match fact {
            Fact::WriteInvoked(ballot, value) => Some((*ballot, *value)),
            _ => None,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Flease §3.2, lemma R1.
    #[test]
    fn flease_3_2_r1_a_read_aborts_only_for_a_higher_operation(peers in prop::sample::select(vec![3, 5]), schedule in choices()) {
        let history = play(peers, &schedule);
        for (place, fact) in history.facts.iter().enumerate() {
            if let Fact::ReadAborted(ballot) = fact {
                prop_assert!(history.invoked_before(place).any(|other| other > *ballot));
            }
        }
    }

    /// Flease §3.2, lemma R2.
    #[test]
    fn flease_3_2_r2_a_write_aborts_only_for_a_higher_operation(peers in prop::sample::select(vec![3, 5]), schedule in choices()) {
        let history = play(peers, &schedule);
        for (place, fact) in history.facts.iter().enumerate() {
            if let Fact::WriteAborted(ballot) = fact {
                prop_assert!(history.invoked_before(place).any(|other| other > *ballot));
            }
        }
    }

    /// Flease §3.2, lemma R3. The paper's text excludes a later write of the very ballot that was read, which its own
    /// algorithm does; a lower one is meant.
    #[test]
    fn flease_3_2_r3_nothing_lower_commits_after_a_commit(peers in prop::sample::select(vec![3, 5]), schedule in choices()) {
        let history = play(peers, &schedule);
        for (place, fact) in history.facts.iter().enumerate() {
            let (Fact::ReadCommitted(ballot, _) | Fact::WriteCommitted(ballot, _)) = fact else { continue };
            for (invoked, later) in history.facts.iter().enumerate().skip(place) {
                let commits = match later {
                    Fact::ReadInvoked(other) if other < ballot => {
                        history.place(|fact| matches!(fact, Fact::ReadCommitted(it, _) if it == other))
                    }
                    Fact::WriteInvoked(other, _) if other < ballot => {
                        history.place(|fact| matches!(fact, Fact::WriteCommitted(it, _) if it == other))
                    }
                    _ => None,
                };
                prop_assert_eq!(commits, None, "invoked at {} after {}", invoked, place);
            }
        }
    }

    /// Flease §3.2, lemma R4.
    #[test]
    fn flease_3_2_r4_what_is_read_was_written_by_a_lower_operation(peers in prop::sample::select(vec![3, 5]), schedule in choices()) {
        let history = play(peers, &schedule);
        for fact in &history.facts {
            if let Fact::ReadCommitted(ballot, Some(value)) = fact {
                prop_assert!(history.writes().any(|(other, written)| other < *ballot && written == Some(*value)));
            }
        }
    }

    /// Flease §3.2, lemma R5.
    #[test]
    fn flease_3_2_r5_a_committed_write_is_read_until_another_is_invoked(peers in prop::sample::select(vec![3, 5]), schedule in choices()) {
        let history = play(peers, &schedule);
        for fact in &history.facts {
            let Fact::WriteCommitted(ballot, value) = fact else { continue };
            for later in &history.facts {
                let Fact::ReadCommitted(reader, found) = later else { continue };
                let differs = |(other, written): (Ballot, Option<Lease>)| {
                    *ballot <= other && other < *reader && written != *value
                };
                if reader > ballot && !history.writes().any(differs) {
                    prop_assert_eq!(found, value);
                }
            }
        }
    }
}

/// What happens next among three peers whose network loses, repeats and reorders.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Acquire(usize),
    Arrive { which: usize, again: bool },
    Lose(usize),
    Pass(u64),
    Wake(usize),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let happening = prop_oneof![
        1 => (0..3_usize).prop_map(Happening::Acquire),
        10 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(which, again)| Happening::Arrive { which, again }),
        1 => any::<usize>().prop_map(Happening::Lose),
        2 => (1..400_u64).prop_map(Happening::Pass),
        3 => (0..3_usize).prop_map(Happening::Wake),
    ];
    prop::collection::vec(happening, 0..400)
}

/// Lets it happen; returns every decision with the real instant at which it was made: a lease that a peer holds, or was told
/// of. `slow` is how many times longer the passes are than in milliseconds.
fn decisions(happenings: &[Happening], slow: u64, end: Duration) -> Vec<(Instant, Lease)> {
    let mut peers = Peers::new(3);
    peers.ahead = vec![Duration::ZERO, EPSILON, EPSILON / 3];
    let (cell, begin) = (cell("cell"), peers.now);
    let mut decided = Vec::new();
    for happening in happenings {
        match *happening {
            Happening::Acquire(place) => peers.acquire(place, &cell),
            Happening::Arrive { which, again } if !peers.flying.is_empty() => {
                let which = which % peers.flying.len();
                let flying =
                    if again { peers.flying[which].clone() } else { peers.flying.swap_remove(which) };
                peers.arrive(flying);
            }
            Happening::Lose(which) if !peers.flying.is_empty() => {
                let which = which % peers.flying.len();
                peers.flying.swap_remove(which);
            }
            Happening::Pass(millis) => {
                let next = peers.now + Duration::from_millis(millis * slow);
                peers.now = if next.since(begin) < end { next } else { peers.now };
            }
            Happening::Wake(place) => peers.wake(place),
            _ => {}
        }
        for (place, action) in std::mem::take(&mut peers.done) {
            let holder = peers.machines[place].holder();
            match action {
                FleaseAction::Held { epoch, until, .. } => {
                    decided.push((peers.now, Lease { holder, epoch, until }));
                }
                FleaseAction::HeldByOther { lease, .. } => decided.push((peers.now, lease)),
                _ => {}
            }
        }
    }
    decided
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Flease §3.3, property L1: without renewals, everybody decides a lease of the same holder until its end. A holder whose
    /// own round failed, while others completed it, takes the lease up under a new epoch.
    #[test]
    fn flease_3_3_l1_everybody_decides_the_same_lease(happenings in happenings()) {
        let decided = decisions(&happenings, 1, LEASE / 3);
        for pair in decided.windows(2) {
            prop_assert_eq!(pair[0].1.holder, pair[1].1.holder);
        }
    }

    /// Flease §3.4, property L2: until the end of a decided lease everybody decides the same holder. (The ends that are
    /// decided rise with the ballots; a decision that arrives late may be of a lower ballot.)
    #[test]
    fn flease_3_4_l2_everybody_decides_the_same_holder(happenings in happenings()) {
        let decided = decisions(&happenings, 10, LEASE * 20);
        for (number, (_, lease)) in decided.iter().enumerate() {
            for (at, later) in &decided[number + 1..] {
                if *at < lease.until - EPSILON {
                    prop_assert_eq!(later.holder, lease.holder);
                }
            }
        }
    }
}

#[test]
fn flease_1_a_cell_may_name_some_of_the_peers() {
    let mut peers = Peers::new(5);
    let some = cell("some").among([1, 2, 3].map(PeerId));
    peers.acquire(0, &some);
    assert!(peers.flying.iter().all(|flying| flying.to < 3), "only its members are asked");
    peers.deliver();
    assert_eq!(peers.holders(&some), [0]);
    peers.acquire(4, &some);
    assert_eq!(peers.done.last(), Some(&(4, FleaseAction::NotAMember(some))));
}

#[test]
fn flease_3_1_a_lease_is_valid_until_its_end_by_the_clock_of_its_holder() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    let held = peers.held(0, &cell).expect("it is held");
    let nanosecond = Duration::from_nanos(1);
    assert!(peers.machines[0].held(&cell, held.until - nanosecond).is_some());
    assert!(peers.machines[0].held(&cell, held.until).is_none(), "no timer had to ring for that");
}

#[test]
fn flease_3_1_times_that_cannot_work_are_refused() {
    let config = config(0, 3);
    assert_eq!(config.check(), Ok(()));
    let short = config.clone().with_times(EPSILON * 2 + ROUND, EPSILON, ROUND);
    assert_eq!(short.check(), Err(FleaseConfigError::LeaseTooShort));
    let mut hasty = config;
    hasty.recovery -= Duration::from_nanos(1);
    assert_eq!(hasty.check(), Err(FleaseConfigError::RecoveryTooShort));
}

#[test]
fn flease_3_2_a_majority_is_enough_and_nothing_less() {
    let cell = cell("cell");
    for (count, up, is_held) in [(3, 2, true), (3, 1, false), (5, 3, true), (5, 2, false)] {
        let mut peers = Peers::new(count);
        peers.acquire(0, &cell);
        peers.deliver_among(|place| place < up);
        peers.pass_among(LEASE, |place| place < up);
        assert_eq!(!peers.holders(&cell).is_empty(), is_held, "{up} of {count}");
    }
}

#[test]
fn flease_3_3_whoever_asks_while_a_lease_is_valid_is_told_of_it() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    let held = peers.held(0, &cell).expect("it is held");
    peers.pass(SECOND);
    peers.done.clear();
    peers.acquire(1, &cell);
    peers.deliver();
    let (_, FleaseAction::HeldByOther { lease, .. }) = &peers.done[0] else { panic!("{:?}", peers.done) };
    assert_eq!((lease.holder, lease.until), (peers.machines[0].holder(), held.until));
    assert_eq!(peers.holders(&cell), [0]);
}

#[test]
fn flease_3_3_a_lease_that_ran_out_is_followed_by_another() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    let first = peers.epoch(0, &cell).expect("it is held");
    peers.acquire(1, &cell);
    peers.deliver();
    peers.pass_among(LEASE * 2, |place| place != 0);
    assert_eq!(peers.holders(&cell), [1]);
    assert!(peers.epoch(1, &cell) > Some(first), "the epoch rises with every acquisition");
}

#[test]
fn flease_3_4_the_holder_renews_without_a_gap() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    (0..3).for_each(|place| peers.acquire(place, &cell));
    peers.deliver();
    peers.pass(SECOND);
    let holder = peers.holders(&cell)[0];
    let epoch = peers.epoch(holder, &cell);
    for _ in 0..1_000 {
        peers.pass(MILLISECOND * 100);
        assert_eq!(peers.holders(&cell), [holder]);
    }
    assert_eq!(peers.epoch(holder, &cell), epoch, "a renewal keeps the epoch");
}

#[test]
fn flease_3_5_a_restarted_peer_takes_no_part_until_its_recovery_is_over() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.restart(1);
    peers.acquire(1, &cell);
    peers.acquire(0, &cell);
    let recovery = LEASE + EPSILON * 3 + ROUND;
    peers.pass_among(recovery - MILLISECOND, |place| place != 2);
    assert!(peers.holders(&cell).is_empty(), "one of three has a vote that counts");
    assert_eq!(peers.machines[1].counters().rounds, 0, "nor does it start a round");
    peers.pass_among(LEASE, |place| place != 2);
    assert_eq!(peers.holders(&cell).len(), 1);
}

#[test]
fn flease_3_5_ballots_after_a_recovery_are_above_all_before() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    let old = peers.flying.iter().find(|flying| flying.to == 1).expect("a request").clone();
    peers.deliver();
    let first = peers.epoch(0, &cell).expect("it is held");
    (0..3).for_each(|place| peers.restart(place));
    peers.pass(LEASE + EPSILON * 3 + ROUND);
    peers.arrive(old);
    assert_eq!(peers.machines[1].counters().stale, 1, "what is left of a round before is refused");
    peers.acquire(2, &cell);
    peers.deliver();
    peers.pass(SECOND);
    assert!(peers.epoch(2, &cell) > Some(first));
}

#[test]
fn flease_3_6_a_lease_is_taken_over_only_after_the_safety_period() {
    let mut peers = Peers::new(3);
    peers.ahead = vec![Duration::ZERO, EPSILON, EPSILON];
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    peers.acquire(1, &cell);
    peers.deliver();
    let until = peers.held(0, &cell).expect("it is held").until;
    while peers.now < until {
        assert_eq!(peers.holders(&cell), [0], "the other clock is already past its end at {}", peers.now);
        peers.pass_among(MILLISECOND, |place| place != 0);
    }
    peers.pass_among(LEASE, |place| place != 0);
    assert_eq!(peers.holders(&cell), [1]);
}

#[test]
fn flease_3_6_ballots_have_a_total_order() {
    let ballot = |time, peer| Ballot { time: Instant(time), peer: PeerId(peer) };
    let (one, two, three) = (ballot(5, 1), ballot(3, 2), ballot(1, 3));
    assert!(one.is_above(two) && two.is_above(three) && one.is_above(three));
    assert!(ballot(5, 2).is_above(one) && !one.is_above(one));
}

/// Flease §4: as many round trips as Paxos, and nothing is stored.
#[test]
fn flease_4_an_acquisition_takes_two_round_trips() {
    let mut peers = Peers::new(3);
    let cell: Cell = cell("cell");
    peers.acquire(0, &cell);
    let mut trips = 0;
    while peers.held(0, &cell).is_none() {
        for flying in std::mem::take(&mut peers.flying) {
            peers.arrive(flying);
        }
        trips += 1;
    }
    assert_eq!(trips, 4, "there, back, there, back");
    let packets: u64 = peers.machines.iter().map(|machine| machine.counters().packets).sum();
    assert_eq!(packets, 8);
    peers.event(0, FleaseEvent::Start);
    assert!(peers.held(0, &cell).is_some(), "a second start changes nothing");
}
