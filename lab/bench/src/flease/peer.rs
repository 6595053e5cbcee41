//! One peer, as an application links it, in a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use centrifuge::flease::{Flease, Lease, Peers, RoundTimes};
use centrifuge_core::random::Random;
use centrifuge_net::clock;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::process::Orders;
use crate::{Failure, Result};

/// How long one acquisition may take: the machine may be busy with all the others.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

/// The times of a group of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    lease: Duration,
    epsilon: Duration,
    round: Duration,
}

impl Times {
    /// In the proportions of the default times, in which a lease has ten seconds.
    pub(super) fn of(lease: Duration) -> Times {
        Times { lease, epsilon: lease / 20, round: lease / 5 }
    }

    /// When a cell comes free, each peer that waits for it tries after a random time of at most this, by default.
    pub(super) fn window(&self) -> Duration {
        (self.epsilon * 2).min(self.lease / 8)
    }

    /// How long a peer takes no part after its start.
    pub(super) fn recovery(&self) -> Duration {
        self.lease + self.epsilon * 3 + self.round
    }
}

/// What a peer is told at its start.
#[derive(Serialize, Deserialize)]
pub(crate) struct PeerPart {
    pub(super) peers: String,
    pub(super) me: u16,
    pub(super) key: String,
    pub(super) times: Times,
}

/// What a peer should do.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// Say when it takes part.
    Ready,
    /// Acquire so many cells from this one on, some at a time, and keep them.
    Acquire { first: usize, count: usize, in_flight: usize },
    /// Give back all that is held.
    Release,
    /// Acquire the first cell and give it back, so many times.
    Cycle { times: usize },
    /// Want some cells again and again, for some time, with a random pause after each that was had; say how often one was.
    Contend { cells: usize, time: Duration, pause: Duration },
    /// Say what has been counted.
    Count,
}

/// How long each acquisition took, and when the first began and the last ended, in nanoseconds of boot time.
#[derive(Serialize, Deserialize)]
pub(super) struct Acquired {
    pub(super) times: Vec<Duration>,
    pub(super) from: u64,
    pub(super) until: u64,
}

/// How long each acquisition and each release took.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Cycled {
    pub(super) acquire: Vec<Duration>,
    pub(super) release: Vec<Duration>,
}

/// What a peer has counted since its start; of several peers, what all have.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    /// Requests and replies in the datagrams.
    pub(super) messages: u64,
    pub(super) renewed: u64,
    pub(super) lost: u64,
    /// Rounds that renewed a lease since this was last asked: how long they took, and how many did.
    pub(super) renewals: Vec<(Duration, u64)>,
}

impl Counts {
    pub(super) fn add(&mut self, other: Counts) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.messages += other.messages;
        self.renewed += other.renewed;
        self.lost += other.lost;
        self.renewals.extend(other.renewals);
    }
}

/// Obeys orders from its input until that ends; on a task, as an application's code is.
pub(crate) async fn run(part: PeerPart) -> Result<()> {
    tokio::spawn(obey_all(part)).await?
}

async fn obey_all(part: PeerPart) -> Result<()> {
    let PeerPart { peers, me, key, times } = part;
    let peers: Peers = peers.parse()?;
    let builder = Flease::builder(peers, me).key(key);
    let flease = builder.lease(times.lease).epsilon(times.epsilon).round(times.round).start().await?;
    let mut peer = Peer { flease, held: Vec::new(), told: RoundTimes::default() };
    let mut orders = Orders::new();
    while let Some(order) = orders.next().await {
        match order {
            Order::Ready => orders.answer(peer.flease.ready().await.map_err(Failure::from)),
            Order::Acquire { first, count, in_flight } => {
                orders.answer(peer.acquire_all(first, count, in_flight).await);
            }
            Order::Release => {
                let releases: JoinSet<()> = peer.held.drain(..).map(Lease::release).collect();
                releases.join_all().await;
                orders.answer(Ok(()));
            }
            Order::Cycle { times } => orders.answer(peer.cycle(times).await),
            Order::Contend { cells, time, pause } => orders.answer(peer.contend(cells, time, pause).await),
            Order::Count => orders.answer(Ok(peer.count())),
        }
    }
    Ok(())
}

/// A peer that runs, and what it holds.
struct Peer {
    flease: Flease,
    held: Vec<Lease>,
    told: RoundTimes,
}

impl Peer {
    async fn acquire_all(&mut self, first: usize, count: usize, in_flight: usize) -> Result<Acquired> {
        let next = Arc::new(AtomicUsize::new(first));
        let from = clock::now().0;
        let mut tasks = JoinSet::new();
        for _ in 0..in_flight {
            tasks.spawn(acquire_some(self.flease.clone(), Arc::clone(&next), first + count));
        }
        let mut times = Vec::with_capacity(count);
        while let Some(done) = tasks.join_next().await {
            for (lease, time) in done?? {
                self.held.push(lease);
                times.push(time);
            }
        }
        Ok(Acquired { times, from, until: clock::now().0 })
    }

    async fn cycle(&self, times: usize) -> Result<Cycled> {
        let mut cycled = Cycled::default();
        for _ in 0..times {
            let (lease, time) = acquire_one(&self.flease, 0).await?;
            cycled.acquire.push(time);
            let since = Instant::now();
            lease.release().await;
            cycled.release.push(since.elapsed());
        }
        Ok(cycled)
    }

    async fn contend(&self, cells: usize, time: Duration, pause: Duration) -> Result<u64> {
        let until = Instant::now() + time;
        let mut tasks = JoinSet::new();
        for number in 0..cells {
            let flease = self.flease.clone();
            let random = Random::from_number(u64::from(std::process::id()) << 32 | number as u64);
            tasks.spawn(contend_for(flease, number, until, pause, random));
        }
        let mut had = 0;
        while let Some(done) = tasks.join_next().await {
            had += done??;
        }
        Ok(had)
    }

    fn count(&mut self) -> Counts {
        let counters = self.flease.counters();
        let times = self.flease.round_times();
        let renewals = times.since(&self.told).renewed;
        self.told = times;
        Counts {
            datagrams: counters.datagrams.sent,
            bytes: counters.datagrams.sent_bytes,
            messages: counters.leases.messages,
            renewed: counters.leases.renewed,
            lost: counters.leases.lost,
            renewals: renewals.steps().collect(),
        }
    }
}

async fn acquire_one(flease: &Flease, number: usize) -> Result<(Lease, Duration)> {
    let cell = flease.cell(&format!("cell-{number}"))?;
    let since = Instant::now();
    let acquired = tokio::time::timeout(ACQUIRE_TIMEOUT, cell.acquire()).await;
    let late = |_| format!("a free cell was not acquired within {ACQUIRE_TIMEOUT:?}");
    Ok((acquired.map_err(late)??, since.elapsed()))
}

/// Acquires one cell after the other, of those that nobody here has begun with.
async fn acquire_some(flease: Flease, next: Arc<AtomicUsize>, end: usize) -> Result<Vec<(Lease, Duration)>> {
    let mut acquired = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= end {
            return Ok(acquired);
        }
        acquired.push(acquire_one(&flease, number).await?);
    }
}

/// How often it had the cell.
async fn contend_for(
    flease: Flease,
    number: usize,
    until: Instant,
    pause: Duration,
    mut random: Random,
) -> Result<u64> {
    let cell = flease.cell(&format!("contended-{number}"))?;
    let mut had = 0;
    loop {
        // Whoever waits for the cell tries after such a pause when it comes free: who had it has no head start.
        tokio::time::sleep(random.between(Duration::ZERO, pause)).await;
        match tokio::time::timeout_at(until.into(), cell.acquire()).await {
            Ok(acquired) => acquired?.release().await,
            Err(_) => return Ok(had),
        }
        had += 1;
    }
}
