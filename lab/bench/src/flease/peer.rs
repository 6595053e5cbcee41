//! One peer, as an application links it, in a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use centrifuge::flease::{Flease, Lease, Peers, RoundTimes};
use centrifuge_core::random::Random;
use centrifuge_harness::process::input_lines;
use centrifuge_net::clock;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::order::{Answer, Counts, Order, Times};
use crate::Failure;
use crate::process::say;

/// How long one acquisition may take: the machine may be busy with all the others.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

/// Obeys orders from its input until that ends; on a task, as an application's code is.
pub(crate) async fn run() -> Result<(), Failure> {
    Ok(tokio::spawn(obey_all(input_lines())).await?)
}

async fn obey_all(mut orders: UnboundedReceiver<String>) {
    let mut peer = None;
    while let Some(line) = orders.recv().await {
        let answer = match serde_json::from_str(&line) {
            Ok(order) => obey(&mut peer, order).await.unwrap_or_else(|why| Answer::Failed { why }),
            Err(error) => Answer::Failed { why: format!("not an order: {error}") },
        };
        say(&answer);
    }
}

async fn obey(peer: &mut Option<Peer>, order: Order) -> Result<Answer, String> {
    match (order, peer) {
        (Order::Start { peers, me, key, times }, peer) => {
            *peer = Some(Peer::start(&peers, me, key, times).await?);
            Ok(Answer::Done)
        }
        (order, Some(peer)) => peer.obey(order).await,
        (_, None) => Err("start first".to_owned()),
    }
}

/// A peer that runs, and what it holds.
struct Peer {
    flease: Flease,
    held: Vec<Lease>,
    told: RoundTimes,
}

impl Peer {
    async fn start(peers: &str, me: u16, key: String, times: Times) -> Result<Peer, String> {
        let peers: Peers = peers.parse().map_err(|error| format!("peers: {error}"))?;
        let builder = Flease::builder(peers, me).key(key);
        let builder = builder.lease(times.lease).epsilon(times.epsilon).round(times.round);
        let flease = builder.start().await.map_err(|error| error.to_string())?;
        Ok(Peer { flease, held: Vec::new(), told: RoundTimes::default() })
    }

    async fn obey(&mut self, order: Order) -> Result<Answer, String> {
        match order {
            Order::Start { .. } => Err("it was started before".to_owned()),
            Order::Ready => {
                self.flease.ready().await.map_err(|error| error.to_string())?;
                Ok(Answer::Done)
            }
            Order::Acquire { first, count, in_flight } => self.acquire_all(first, count, in_flight).await,
            Order::Release => {
                let releases: JoinSet<()> = self.held.drain(..).map(Lease::release).collect();
                releases.join_all().await;
                Ok(Answer::Done)
            }
            Order::Cycle { times } => self.cycle(times).await,
            Order::Contend { cells, time, pause } => self.contend(cells, time, pause).await,
            Order::Count => Ok(Answer::Counted(self.count())),
        }
    }

    async fn acquire_all(&mut self, first: usize, count: usize, in_flight: usize) -> Result<Answer, String> {
        let next = Arc::new(AtomicUsize::new(first));
        let from = clock::now().0;
        let mut tasks = JoinSet::new();
        for _ in 0..in_flight {
            tasks.spawn(acquire_some(self.flease.clone(), Arc::clone(&next), first + count));
        }
        let mut nanos = Vec::with_capacity(count);
        while let Some(done) = tasks.join_next().await {
            for (lease, time) in done.map_err(|error| error.to_string())?? {
                self.held.push(lease);
                nanos.push(nanoseconds(time));
            }
        }
        Ok(Answer::Acquired { nanos, from, until: clock::now().0 })
    }

    async fn cycle(&self, times: usize) -> Result<Answer, String> {
        let (mut acquire, mut release) = (Vec::with_capacity(times), Vec::with_capacity(times));
        for _ in 0..times {
            let (lease, time) = acquire_one(&self.flease, 0).await?;
            acquire.push(nanoseconds(time));
            let since = Instant::now();
            lease.release().await;
            release.push(nanoseconds(since.elapsed()));
        }
        Ok(Answer::Cycled { acquire, release })
    }

    async fn contend(&self, cells: usize, time: Duration, pause: Duration) -> Result<Answer, String> {
        let until = Instant::now() + time;
        let mut tasks = JoinSet::new();
        for number in 0..cells {
            let flease = self.flease.clone();
            let random = Random::from_number(u64::from(std::process::id()) << 32 | number as u64);
            tasks.spawn(contend_for(flease, number, until, pause, random));
        }
        let mut had = 0;
        while let Some(done) = tasks.join_next().await {
            had += done.map_err(|error| error.to_string())??;
        }
        Ok(Answer::Contended { had })
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
            renewals: renewals.steps().map(|(time, count)| (nanoseconds(time), count)).collect(),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

async fn acquire_one(flease: &Flease, number: usize) -> Result<(Lease, Duration), String> {
    let cell = flease.cell(&format!("cell-{number}")).map_err(|error| error.to_string())?;
    let since = Instant::now();
    match tokio::time::timeout(ACQUIRE_TIMEOUT, cell.acquire()).await {
        Ok(Ok(lease)) => Ok((lease, since.elapsed())),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("a free cell was not acquired within {ACQUIRE_TIMEOUT:?}")),
    }
}

/// Acquires one cell after the other, of those that nobody here has begun with.
async fn acquire_some(
    flease: Flease,
    next: Arc<AtomicUsize>,
    end: usize,
) -> Result<Vec<(Lease, Duration)>, String> {
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
) -> Result<u64, String> {
    let cell = flease.cell(&format!("contended-{number}")).map_err(|error| error.to_string())?;
    let mut had = 0;
    loop {
        // Whoever waits for the cell tries after such a pause when it comes free: who had it has no head start.
        tokio::time::sleep(random.between(Duration::ZERO, pause)).await;
        match tokio::time::timeout_at(until.into(), cell.acquire()).await {
            Ok(acquired) => acquired.map_err(|error| error.to_string())?.release().await,
            Err(_) => return Ok(had),
        }
        had += 1;
    }
}
