//! Scenarios of peers in one process, on loopback, with short leases.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use centrifuge_core::flease::Packet;
use centrifuge_net::flease::seal;
use centrifuge_net::secrets::{KeyRing, Secrets};

use super::super::*;

/// How long a test waits for what should come soon, on a machine that does much else.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Long enough that a machine that does much else does not lose one.
const LEASE: Duration = Duration::from_secs(6);
pub(super) const EPSILON: Duration = Duration::from_millis(300);
const ROUND: Duration = Duration::from_secs(1);
const KEY: &[u8] = b"a secret of these tests";

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future)
        .await
        .unwrap_or_else(|_| panic!("not within {TEST_TIMEOUT:?}: {what}"))
}

/// Addresses that nobody else has: taken all at once, then let go, and each given to one scenario.
static FREE: LazyLock<Mutex<Vec<String>>> = LazyLock::new(|| {
    let sockets: Vec<UdpSocket> =
        (0..64).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a free port")).collect();
    let address = |socket: &UdpSocket| socket.local_addr().expect("an address").to_string();
    Mutex::new(sockets.iter().map(address).collect())
});

pub(super) fn free_peers(number: u16) -> Peers {
    let mut free = FREE.lock().expect("no panic");
    let rest = free.len() - usize::from(number);
    Peers::list((1..).zip(free.split_off(rest))).expect("a list")
}

pub(super) fn builder(peers: &Peers, me: u16) -> FleaseBuilder {
    Flease::builder(peers.clone(), me).key(KEY).lease(LEASE).epsilon(EPSILON).round(ROUND)
}

async fn start_all(peers: &Peers) -> Vec<Flease> {
    let mut all = Vec::new();
    for (me, _) in peers.iter() {
        all.push(builder(peers, me).start().await.expect("it starts"));
    }
    all
}

async fn ready(all: &[Flease]) {
    for flease in all {
        in_time("ready", flease.ready()).await.expect("it takes part");
    }
}

async fn acquire(flease: &Flease, cell: &str) -> Lease {
    let cell = flease.cell(cell).expect("a name");
    in_time("a lease", cell.acquire()).await.expect("it is acquired")
}

pub(super) async fn one_holds_and_the_others_are_told() {
    let peers = free_peers(3);
    let all = start_all(&peers).await;
    let early = all[0].cell("primary").expect("a name").try_acquire().await;
    assert!(matches!(early, Err(TryAcquireError::Recovering { .. })), "{early:?}");
    ready(&all).await;

    let lease = acquire(&all[0], "primary").await;
    assert!(lease.is_valid() && lease.rest() <= LEASE && lease.cell() == "primary");
    let other = all[1].cell("primary").expect("a name");
    let refused = in_time("an answer", other.try_acquire()).await;
    assert!(matches!(refused, Err(TryAcquireError::HeldByOther { peer: 1, .. })), "{refused:?}");
    let here = all[0].cell("primary").expect("a name").try_acquire().await;
    assert!(matches!(here, Err(TryAcquireError::HeldHere)), "{here:?}");
    let status = other.status().await.expect("it runs");
    let holder = status.holder.expect("somebody holds it");
    assert_eq!((holder.peer, holder.is_this_process, holder.epoch), (1, false, lease.epoch()));

    // It is renewed by itself, and keeps its epoch.
    let since = Instant::now();
    while since.elapsed() < LEASE + ROUND {
        assert!(lease.is_valid(), "after {:?}", since.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(all[0].counters().leases.renewed > 0 && all[0].counters().leases.acquired == 1);

    // A release frees the cell at once, and its next holder has a higher epoch.
    let (epoch, since) = (lease.epoch(), Instant::now());
    in_time("a release", lease.release()).await;
    let next = in_time("a lease", other.acquire()).await.expect("it is acquired");
    assert!(since.elapsed() < LEASE, "nobody waited for the end of the lease: {:?}", since.elapsed());
    assert!(next.epoch() > epoch && next.epoch().to_string() > epoch.to_string());
    // So does dropping it.
    drop(next);
    let third = acquire(&all[2], "primary").await;
    assert!(third.is_valid());
}

pub(super) async fn tasks_of_one_process_take_turns() {
    let all = start_all(&free_peers(3)).await;
    ready(&all).await;
    let first = acquire(&all[0], "turns").await;
    let cell = all[0].cell("turns").expect("a name");
    let waiting = tokio::spawn(async move { cell.acquire().await });
    let epoch = first.epoch();
    in_time("a release", first.release()).await;
    let second = in_time("the other's turn", waiting).await.expect("no panic").expect("it is acquired");
    assert!(second.epoch() > epoch && second.is_valid());
}

pub(super) async fn a_dead_holders_cell_is_free_after_its_lease() {
    let peers = free_peers(3);
    let mut all = start_all(&peers).await;
    ready(&all).await;
    let lease = acquire(&all[0], "primary").await;
    let (epoch, since) = (lease.epoch(), Instant::now());
    // Dies without a word.
    all.remove(0).inner.driver.abort();
    let next = acquire(&all[0], "primary").await;
    assert!(next.epoch() > epoch);
    assert!(since.elapsed() > LEASE / 4, "its lease was still running: {:?}", since.elapsed());
    assert!(!lease.is_valid() && in_time("its end", lease.ended()).await == LeaseEnd::Stopped);
}

pub(super) async fn without_a_majority_a_lease_runs_out_and_is_not_taken_again() {
    let peers = free_peers(3);
    let mut all = start_all(&peers).await;
    ready(&all).await;
    let mut changes = all[0].changes();
    let lease = acquire(&all[0], "alone").await;
    for other in all.drain(1..) {
        other.inner.driver.abort();
    }
    assert_eq!(in_time("its end", lease.ended()).await, LeaseEnd::Expired);
    assert!(!lease.is_valid());
    let told = [in_time("news", changes.next()).await, in_time("news", changes.next()).await];
    let (cell, epoch) = ("alone".to_owned(), lease.epoch());
    let ended = Change::Ended { cell: cell.clone(), epoch, why: LeaseEnd::Expired };
    assert_eq!(told, [Some(Change::Acquired { cell, epoch }), Some(ended)]);
    drop(lease);
    let refused = in_time("an answer", all[0].cell("alone").expect("a name").try_acquire()).await;
    assert!(matches!(refused, Err(TryAcquireError::NoMajority { .. })), "{refused:?}");
}

pub(super) async fn a_peer_whose_clock_is_apart_steps_down_and_says_so() {
    let peers = free_peers(3);
    let mut all = Vec::new();
    for me in [1, 2] {
        all.push(builder(&peers, me).start().await.expect("it starts"));
    }
    let mut skewed = builder(&peers, 3);
    skewed.ahead = 5_000_000_000;
    let skewed = skewed.start().await.expect("it starts");
    let mut changes = skewed.changes();
    ready(&all).await;
    in_time("ready", skewed.ready()).await.expect("nobody has told it yet");
    let cell = skewed.cell("primary").expect("a name");
    let refused = in_time("an error", cell.acquire()).await.expect_err("its clock is wrong");
    assert_eq!(refused, AcquireError::ClockApart { from: vec![1, 2] });
    let told = in_time("news", changes.next()).await;
    assert_eq!(told, Some(Change::ClockApart { from: vec![1, 2] }));
    assert_eq!((skewed.status().ready_in, skewed.status().apart), (None, vec![1, 2]));
    assert!(acquire(&all[0], "primary").await.is_valid(), "the others go on");
}

pub(super) async fn a_clock_within_epsilon_is_welcome() {
    let peers = free_peers(3);
    let mut all = Vec::new();
    for (me, ahead) in [(1, 0), (2, 40_000_000), (3, -40_000_000)] {
        let mut builder = builder(&peers, me);
        builder.ahead = ahead;
        all.push(builder.start().await.expect("it starts"));
    }
    ready(&all).await;
    for flease in &all {
        let lease = acquire(flease, "primary").await;
        assert!(lease.is_valid());
        in_time("a release", lease.release()).await;
    }
}

pub(super) async fn a_peer_with_another_secret_is_refused() {
    let peers = free_peers(3);
    let mut all = Vec::new();
    for (me, key) in [(1, KEY), (2, KEY), (3, b"another secret, as long".as_slice())] {
        all.push(builder(&peers, me).key(key).start().await.expect("it starts"));
    }
    ready(&all).await;
    let stranger = in_time("an answer", all[2].cell("primary").expect("a name").try_acquire()).await;
    assert!(matches!(stranger, Err(TryAcquireError::NoMajority { .. })), "{stranger:?}");
    assert!(all[0].counters().datagrams.wrong_code > 0);
    assert_eq!(all[2].counters().datagrams.received, 0);
    assert!(acquire(&all[0], "primary").await.is_valid(), "the others are a majority");
}

/// Waits until a condition holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    in_time(what, waiting).await;
}

/// Changes the file of a peer's secrets, and waits until it uses them.
async fn rotate(flease: &Flease, file: &Path, lines: &[&str]) {
    let text = lines.join("\n");
    let beside = file.with_extension("new");
    std::fs::write(&beside, &text).expect("written");
    std::fs::rename(&beside, file).expect("renamed");
    let expected = Secrets::parse(text.as_bytes()).expect("secrets");
    until("other secrets", || *flease.inner.socket.keys().secrets() == expected).await;
}

pub(super) async fn a_secret_is_rotated_at_one_peer_after_the_other_and_the_holder_keeps_its_lease() {
    let (old, new) = ("the old secret of this test", "the new secret of this test");
    let (peers, folder) = (free_peers(3), tempfile::tempdir().expect("a folder"));
    let file = |me: u16| folder.path().join(me.to_string());
    let mut all = Vec::new();
    for (me, _) in peers.iter() {
        std::fs::write(file(me), old).expect("written");
        all.push(builder(&peers, me).key_file(file(me)).start().await.expect("it starts"));
    }
    ready(&all).await;
    let holder = &all[0];
    let lease = acquire(holder, "primary").await;
    // The holder is the first at one step and the last at another. Each mix of two steps has to renew the lease.
    for (step, order) in [(&[old, new][..], [2, 3, 1]), (&[new, old], [1, 2, 3]), (&[new], [3, 2, 1])] {
        for me in order {
            rotate(&all[usize::from(me) - 1], &file(me), step).await;
            let renewed = holder.counters().leases.renewed;
            until("a renewal", || holder.counters().leases.renewed > renewed).await;
        }
    }
    assert!(lease.is_valid(), "a lease that has ended does not come back");
    assert_eq!(holder.counters().leases.acquired, 1);
    for flease in &all {
        assert_eq!(flease.counters().datagrams.wrong_code, 0, "every datagram was accepted: {flease:?}");
    }

    // Whoever has the old secret alone is a stranger now.
    let keys = KeyRing::parse(old.as_bytes()).expect("a secret");
    let (sent, echo) = (centrifuge_core::time::Instant(1), centrifuge_core::time::Instant::ZERO);
    let packet = Packet { agreement: 0, sent, echo, probe: false, messages: Vec::new() };
    let datagram = seal(&keys, PeerId(2), PeerId(1), &packet).remove(0);
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    until("a refusal", || {
        stranger.send_to(&datagram, holder.address()).expect("it is sent");
        holder.counters().datagrams.wrong_code > 0
    })
    .await;
    assert!(lease.is_valid());
}

pub(super) async fn a_cell_among_some_needs_only_those() {
    let peers = free_peers(5);
    let mut all = start_all(&peers).await;
    ready(&all).await;
    assert!(matches!(all[0].cell_among("a", &[]), Err(CellError::NoMembers(_))));
    assert!(matches!(all[0].cell_among("a", &[1, 9]), Err(CellError::NoSuchPeer { peer: 9, .. })));
    assert!(matches!(all[0].cell_among("a", &[2, 3]), Err(CellError::NotAMember(_))));
    // Three of five die: there is no majority of all.
    for other in all.drain(2..) {
        other.inner.driver.abort();
    }
    let some = all[0].cell_among("some", &[1, 2]).expect("a cell");
    let lease = in_time("a lease", some.acquire()).await.expect("both its members live");
    let refused =
        in_time("an answer", all[1].cell_among("some", &[2, 1]).expect("a cell").try_acquire()).await;
    assert!(matches!(refused, Err(TryAcquireError::HeldByOther { peer: 1, .. })), "{refused:?}");
    let refused = in_time("an answer", all[1].cell("all").expect("a cell").try_acquire()).await;
    assert!(matches!(refused, Err(TryAcquireError::NoMajority { .. })), "{refused:?}");
    assert!(lease.is_valid());
}

pub(super) async fn no_two_hold_at_once_and_epochs_rise() {
    let all = start_all(&free_peers(3)).await;
    ready(&all).await;
    let held = Arc::new(Mutex::new((0_u32, Vec::new())));
    let tasks: Vec<_> = all
        .iter()
        .map(|flease| {
            let (cell, held) = (flease.cell("contended").expect("a name"), Arc::clone(&held));
            tokio::spawn(async move {
                for _ in 0..5 {
                    let lease = cell.acquire().await.expect("it is acquired");
                    {
                        let mut held = held.lock().expect("no panic");
                        assert_eq!(held.0, 0, "somebody else holds it");
                        held.0 += 1;
                        held.1.push(lease.epoch());
                    }
                    tokio::task::yield_now().await;
                    held.lock().expect("no panic").0 -= 1;
                    lease.release().await;
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("five turns each", task).await.expect("no panic");
    }
    let epochs = held.lock().expect("no panic").1.clone();
    assert!(epochs.is_sorted() && epochs.iter().collect::<BTreeSet<_>>().len() == 15, "{epochs:?}");
    let shares: Vec<u64> = all.iter().map(|flease| flease.counters().leases.acquired).collect();
    assert_eq!(shares.iter().sum::<u64>(), 15, "{shares:?}");
}

pub(super) async fn a_peer_that_stops_gives_everything_back() {
    let mut all = start_all(&free_peers(3)).await;
    ready(&all).await;
    let leases = [acquire(&all[0], "a").await, acquire(&all[0], "b").await];
    let (stopped, since) = (all.remove(0), Instant::now());
    in_time("its end", stopped.stop()).await;
    for lease in &leases {
        assert!(!lease.is_valid());
    }
    for cell in ["a", "b"] {
        let _next = acquire(&all[0], cell).await;
    }
    assert!(since.elapsed() < LEASE, "nobody waited for the end of a lease: {:?}", since.elapsed());
}

pub(super) async fn a_wish_that_is_taken_back_leaves_nothing_behind() {
    let all = start_all(&free_peers(3)).await;
    ready(&all).await;
    let lease = acquire(&all[0], "wished").await;
    let cell = all[1].cell("wished").expect("a name");
    let wish = tokio::time::timeout(ROUND, cell.acquire()).await;
    assert!(wish.is_err(), "somebody else holds it");
    in_time("a release", lease.release()).await;
    let mut busy = all[1].inner.shared.busy.subscribe();
    in_time("rest", busy.wait_for(|busy| *busy == 0)).await.expect("it runs");
    let third = acquire(&all[2], "wished").await;
    assert!(third.is_valid());
}
