//! What a peer of Flease promises beyond the paper: batches, cells that cost nothing, epochs, release, watched clocks.

mod flease_peers;

use std::time::Duration;

use centrifuge_core::flease::{
    Ballot, Body, Cell, EndedReason, FleaseAction, FleaseConfigError, FleaseEvent, Message, Packet, PeerId,
};
use centrifuge_core::machine::Machine;

use flease_peers::{EPSILON, LEASE, Peers, ROUND, cell, config};

const SECOND: Duration = Duration::from_secs(1);

fn cells(count: usize) -> Vec<Cell> {
    (0..count).map(|number| cell(&format!("cell-{number}"))).collect()
}

/// Lets the first peer renew what it holds for a while, and says how many renewals it began at which instants, from now on.
fn renewals(peers: &mut Peers, length: Duration) -> Vec<(Duration, usize)> {
    let (begun, mut renewals) = (peers.now, Vec::new());
    while let Some(wake) = peers.next_wake(0).filter(|wake| wake.since(begun) <= length) {
        peers.now = peers.now.max(wake);
        peers.wake(0);
        let to_one =
            peers.flying.iter().filter(|flying| flying.to == 1).flat_map(|flying| &flying.packet.messages);
        renewals.push((wake.since(begun), to_one.filter(|message| message.body == Body::Read).count()));
        peers.deliver();
    }
    renewals
}

#[test]
fn renewals_of_many_cells_are_spread_over_time_and_share_packets() {
    const CELLS: usize = 600;
    let mut peers = Peers::new(3);
    // All at once, as after a start. Then they are stopped for a while and everything is due at once again.
    cells(CELLS).iter().for_each(|cell| peers.acquire(0, cell));
    peers.deliver();
    renewals(&mut peers, LEASE / 2);
    for pause in [Duration::ZERO, LEASE * 2 / 5] {
        peers.now = peers.now + pause;
        peers.wake(0);
        peers.deliver();
        let renewals = renewals(&mut peers, LEASE / 2);
        let period = LEASE / 2;
        let mut tenths = [0_usize; 10];
        for (after, count) in &renewals {
            tenths[usize::try_from(after.as_nanos() * 10 / (period.as_nanos() + 1)).expect("a tenth")] +=
                count;
        }
        let all: usize = tenths.iter().sum();
        assert!((CELLS..CELLS * 5 / 4).contains(&all), "each about once: {tenths:?}");
        assert!(tenths.iter().all(|count| *count <= 2 * all / 10 && *count >= all / 20), "{tenths:?}");
        assert!(renewals.len() <= CELLS / 8, "several go in one packet: {}", renewals.len());
    }
    assert!(cells(CELLS).iter().all(|cell| peers.holders(cell) == [0]));
}

#[test]
fn cells_of_others_have_no_timer_and_are_forgotten_when_they_are_over() {
    let mut peers = Peers::new(3);
    for cell in cells(50) {
        peers.acquire(0, &cell);
    }
    peers.deliver();
    let now = peers.clock(1);
    assert_eq!((peers.machines[1].cells(), peers.machines[1].on_wake(now).wake), (50, None));
    for cell in cells(50) {
        peers.release(0, &cell);
    }
    peers.deliver();
    peers.pass(LEASE * 2);
    let last = cell("last");
    for _ in 0..30 {
        peers.acquire(0, &last);
        peers.deliver();
        peers.release(0, &last);
        peers.deliver();
        peers.pass(SECOND);
    }
    assert!((0..3).all(|place| peers.machines[place].cells() <= 1), "only the last is in use");
}

#[test]
fn a_released_cell_is_taken_by_one_who_waits_without_waiting_for_its_end() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    peers.acquire(1, &cell);
    peers.deliver();
    let first = peers.epoch(0, &cell);
    peers.release(0, &cell);
    assert!(peers.holders(&cell).is_empty(), "it is not held any more when the first message leaves");
    peers.deliver();
    peers.pass(LEASE / 8);
    assert_eq!(peers.holders(&cell), [1]);
    assert!(peers.epoch(1, &cell) > first);
}

#[test]
fn who_waits_for_a_held_cell_sends_nothing() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    peers.acquire(1, &cell);
    peers.deliver();
    peers.pass(SECOND);
    let before = peers.machines[1].counters().rounds;
    peers.pass(LEASE * 20);
    let counters = peers.machines[1].counters();
    assert_eq!(counters.rounds, before);
    assert!(counters.kept_silent > 0, "its own register saw the renewals");
    assert_eq!(peers.holders(&cell), [0]);
}

#[test]
fn a_lease_that_ran_out_is_acquired_anew_under_a_higher_epoch() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    let first = peers.epoch(0, &cell).expect("it is held");
    peers.pass_among(LEASE + SECOND, |place| place == 0);
    let ended = FleaseAction::Ended { cell: cell.clone(), epoch: first, why: EndedReason::Expired };
    assert!(peers.done.contains(&(0, ended)), "{:?}", peers.done);
    peers.pass(LEASE);
    assert!(peers.epoch(0, &cell) > Some(first));
}

#[test]
fn a_renewal_that_commits_too_late_revives_nothing() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    let held = peers.held(0, &cell).expect("it is held");
    // The round starts just before the end, and its replies come just after.
    peers.now = held.until - SECOND / 2;
    peers.wake(0);
    let requests = std::mem::take(&mut peers.flying);
    requests.into_iter().for_each(|request| peers.arrive(request));
    let replies = std::mem::take(&mut peers.flying);
    peers.now = held.until + SECOND / 2;
    replies.into_iter().for_each(|reply| peers.arrive(reply));
    assert!(peers.held(0, &cell).is_none());
    peers.deliver();
    peers.pass(SECOND);
    assert!(peers.epoch(0, &cell) > Some(held.epoch));
}

#[test]
fn a_restarted_holder_does_not_go_on_with_the_lease_of_its_earlier_life() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    let first = peers.epoch(0, &cell);
    let holder = peers.machines[0].holder();
    peers.restart(0);
    peers.acquire(0, &cell);
    assert_ne!(peers.machines[0].holder(), holder);
    let recovery = LEASE + EPSILON * 3 + ROUND;
    peers.pass(recovery - SECOND);
    assert!(peers.holders(&cell).is_empty());
    peers.pass(SECOND * 3);
    assert!(peers.epoch(0, &cell) > first);
}

#[test]
fn a_duplicated_acknowledgment_counts_once() {
    let mut peers = Peers::new(5);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver_among(|place| place < 2);
    assert!(peers.flying.is_empty() && peers.holders(&cell).is_empty());
    // Only p2 answers, and its answer arrives again and again.
    peers.pass_among(ROUND + SECOND, |place| place == 0);
    let request = peers.flying.iter().find(|flying| flying.to == 1).cloned();
    for request in request.into_iter().cycle().take(5) {
        peers.arrive(request);
    }
    peers.deliver_among(|place| place < 2);
    assert!(peers.holders(&cell).is_empty(), "two of five are no majority");
}

#[test]
fn peers_that_were_told_different_things_do_not_hear_each_other() {
    let agreement = config(0, 3).agreement();
    assert_eq!(agreement, config(2, 3).agreement(), "who one is does not matter");
    assert_ne!(agreement, config(0, 5).agreement());
    for other in [(LEASE * 2, EPSILON, ROUND), (LEASE, EPSILON * 2, ROUND), (LEASE, EPSILON, ROUND * 2)] {
        assert_ne!(agreement, config(0, 3).with_times(other.0, other.1, other.2).agreement());
    }
}

#[test]
fn impossible_lists_of_peers_are_refused() {
    let mut config = config(0, 3);
    config.me = PeerId(9);
    assert_eq!(config.check(), Err(FleaseConfigError::NotAPeer(PeerId(9))));
    config.peers = [2, 1].map(PeerId).into();
    assert_eq!(config.check(), Err(FleaseConfigError::PeersNotInOrder));
}

#[test]
fn a_peer_whose_clock_is_apart_gives_up_its_leases_and_says_so() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    peers.acquire(1, &cell);
    peers.deliver();
    assert_eq!(peers.holders(&cell), [0]);
    peers.ahead[0] = EPSILON * 3;
    peers.done.clear();
    peers.pass(LEASE / 2 + SECOND);
    assert!(peers.holders(&cell).is_empty(), "{:?}", peers.done);
    let says =
        |wanted: &FleaseAction| peers.done.iter().any(|(place, action)| *place == 0 && action == wanted);
    assert!(says(&FleaseAction::ClockApart { from: vec![PeerId(2), PeerId(3)] }), "{:?}", peers.done);
    assert!(!peers.machines[0].takes_part(peers.clock(0)));
    peers.pass(LEASE * 2);
    assert_eq!(peers.holders(&cell), [1], "the others go on without it");
    // Its clock is set right, and it waits out a recovery.
    peers.ahead[0] = Duration::ZERO;
    peers.now = peers.now + EPSILON * 3;
    peers.pass(ROUND * 2);
    assert!(peers.done.contains(&(0, FleaseAction::ClockAgrees)), "{:?}", peers.done);
    peers.release(1, &cell);
    peers.pass(LEASE * 3);
    assert_eq!(peers.holders(&cell), [0]);
}

#[test]
fn a_peer_whose_clock_is_behind_learns_it_though_only_the_holder_speaks() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    let hour = LEASE * 360;
    peers.ahead = vec![hour, hour, Duration::ZERO];
    peers.restart(2);
    peers.acquire(0, &cell);
    peers.deliver_among(|place| place != 2);
    assert_eq!(peers.holders(&cell), [0]);
    peers.acquire(2, &cell);
    peers.done.clear();
    peers.pass(LEASE * 3);
    let apart = FleaseAction::ClockApart { from: vec![PeerId(1), PeerId(2)] };
    assert!(peers.done.contains(&(2, apart)), "{:?}", peers.done);
    assert!(!peers.done.iter().any(|(_, action)| matches!(action, FleaseAction::Ended { .. })));
    assert_eq!(peers.holders(&cell), [0]);
}

#[test]
fn an_early_wake_changes_nothing() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.acquire(0, &cell);
    peers.deliver();
    let before = peers.machines[0].clone();
    let now = peers.clock(0);
    let output = peers.machines[0].on_wake(now);
    assert!(output.actions.is_empty() && output.wake.is_some());
    assert_eq!(peers.machines[0], before);
}

/// Three peers wait for what a fourth holds, and take it when it is released.
#[test]
fn under_equal_contention_every_peer_wins_its_share_whatever_its_clock() {
    let mut peers = Peers::new(4);
    peers.ahead = vec![Duration::ZERO, EPSILON / 2, EPSILON, EPSILON / 2];
    let cell = cell("cell");
    let mut won = [0; 3];
    for _ in 0..300 {
        peers.acquire(3, &cell);
        peers.deliver();
        peers.pass(SECOND);
        assert_eq!(peers.holders(&cell), [3]);
        for place in 0..3 {
            peers.acquire(place, &cell);
            peers.deliver();
        }
        peers.release(3, &cell);
        peers.deliver();
        peers.pass(SECOND * 3);
        let [winner] = peers.holders(&cell)[..] else { panic!("nobody won") };
        won[winner] += 1;
        for place in 0..3 {
            peers.event(place, FleaseEvent::Release(cell.clone()));
            peers.deliver();
        }
        peers.pass(SECOND * 3);
    }
    println!("won by the slowest, the middle and the fastest clock: {won:?}");
    assert!(won.iter().all(|share| *share >= 60), "an even share is 100: {won:?}");
}

#[test]
fn a_peer_that_names_cells_without_end_costs_the_others_no_memory_without_end() {
    let mut peers = Peers::new(3);
    let held = cell("held");
    peers.acquire(2, &held);
    peers.deliver();
    let wild = |number: u32| Message {
        cell: cell(&format!("wild-{number}")),
        ballot: Ballot { time: peers.now, peer: PeerId(1) },
        body: Body::Read,
    };
    let packet = Packet {
        agreement: config(0, 3).agreement(),
        sent: peers.now,
        echo: peers.now,
        probe: false,
        messages: (0..300_000).map(wild).collect(),
    };
    peers.event(1, FleaseEvent::Receive { from: PeerId(1), packet });
    assert_eq!(peers.machines[1].cells(), 1 << 18);
    assert_eq!(peers.machines[1].counters().full, 300_001 - (1 << 18));
    // What it had it keeps: the holder of a cell renews with its vote.
    peers.flying.clear();
    peers.pass_among(LEASE * 3, |place| place > 0);
    assert_eq!(peers.holders(&held), [2]);
}

#[test]
fn peers_are_added_one_restart_after_the_other_and_nobody_holds_twice() {
    let (mut peers, cell) = (Peers::new(4), cell("cell"));
    // Three run among three; the fourth does not run yet.
    (0..3).for_each(|place| peers.restart_among(place, 3));
    let watch = |peers: &mut Peers, time: Duration, running: usize| {
        let end = peers.now + time;
        while peers.now < end {
            peers.pass_among(Duration::from_millis(50), |place| place < running);
            assert!(peers.holders(&cell).len() <= 1, "at {}", peers.now);
        }
    };
    (0..3).for_each(|place| peers.acquire(place, &cell));
    watch(&mut peers, LEASE * 3, 3);
    let [holder] = peers.holders(&cell)[..] else { panic!("somebody holds it") };
    let before = peers.epoch(holder, &cell);
    // The new list goes to one peer after the other, the holder among them, without a wait between them; then the new one starts.
    for place in [holder, (holder + 1) % 3, (holder + 2) % 3, 3] {
        peers.restart_among(place, 4);
        peers.acquire(place, &cell);
        watch(&mut peers, Duration::from_millis(300), 4);
    }
    watch(&mut peers, LEASE * 5, 4);
    let [holder] = peers.holders(&cell)[..] else { panic!("somebody holds it again") };
    assert!(peers.epoch(holder, &cell) > before);
}

#[test]
fn a_renewal_that_is_asked_for_begins_at_once_or_follows_the_round_under_way() {
    let mut peers = Peers::new(3);
    let cell = cell("cell");
    peers.event(0, FleaseEvent::Renew(cell.clone()));
    assert!(peers.flying.is_empty(), "what is not held is not renewed");
    peers.acquire(0, &cell);
    peers.deliver();
    let until = |peers: &Peers| peers.held(0, &cell).expect("it is held").until;
    peers.now = peers.now + SECOND;
    peers.event(0, FleaseEvent::Renew(cell.clone()));
    let begun = peers.now;
    peers.now = peers.now + SECOND / 2;
    peers.event(0, FleaseEvent::Renew(cell.clone()));
    peers.deliver();
    assert_eq!(until(&peers), begun + LEASE, "by the round that began first");
    let asked = peers.now;
    peers.pass(SECOND / 1000);
    assert!(until(&peers) > asked + LEASE, "by the one that began right after it");
}
