//! One process of clients: Owners and Lookups as applications link them, each with a connection of its own.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge::{Key, Lookup, Managers, Owner};
use centrifuge_core::random::Random;
use centrifuge_harness::lock;
use centrifuge_net::clock;
use centrifuge_server::descriptors::raise_limit;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{ClientFiles, NAMESPACE, Share, owner_name, owner_url};
use crate::process::Orders;
use crate::{Failure, Result};

/// How long a client may take to start: the machine may be busy with all the others.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// File descriptors that a process needs besides its connections.
const SPARE: usize = 64;
/// How many clients start at the same time when all do.
const MAX_STARTING: usize = 32;

/// What a process of clients is told at its start.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClientsPart {
    pub(crate) manager: String,
    pub(crate) files: ClientFiles,
    pub(crate) share: Share,
}

/// Which clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Those that hold leases.
    Owners,
    /// Those that follow the table.
    Lookups,
}

/// What a process of clients should do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start all of a kind.
    Start { kind: Kind },
    /// Restart all of a kind, spread evenly over this time.
    Restart { kind: Kind, within: Duration },
    /// For some time, restart each client after a random lifetime.
    RestartAtRandom { mean_lifetime: Duration, time: Duration },
    /// Say how far the clients are; a Lookup is up to date at this position of the change log.
    Count { lsn: u64 },
    /// Note from now on when each Lookup routes the key to this address.
    Expect { key: u64, url: String },
    /// Wait until each has, and say when: nanoseconds of the boot-time clock.
    Collect,
}

/// How many Owners hold leases, and how many Lookups are up to date.
#[derive(Serialize, Deserialize)]
pub(crate) struct Counted {
    pub(crate) owners: usize,
    pub(crate) lookups: usize,
}

/// Obeys orders from its input until that ends.
pub(crate) async fn run(part: ClientsPart) -> Result<()> {
    let mut random = Random::from_number(u64::from(std::process::id()));
    let clients = Arc::new(Clients {
        managers: part.files.security().tls.into_iter().fold(Managers::list([&part.manager])?, Managers::tls),
        first_owner: part.share.first_owner,
        owners: (0..part.share.owners).map(|_| Mutex::default()).collect(),
        lookups: (0..part.share.lookups).map(|_| Mutex::default()).collect(),
        expected: Arc::default(),
    });
    make_room(part.share.owners + part.share.lookups)?;
    let mut orders = Orders::new();
    while let Some(order) = orders.next().await {
        match order {
            Order::Count { lsn } => orders.answer(Ok(clients.count(lsn))),
            Order::Collect => orders.answer(clients.collect().await),
            order => orders.answer(clients.obey(order, &mut random).await),
        }
    }
    Ok(())
}

/// Every client has a connection, and every connection a file descriptor.
pub(crate) fn make_room(clients: usize) -> Result<()> {
    raise_limit(clients + SPARE);
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let allowed = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    match allowed.filter(|allowed| *allowed < clients + SPARE) {
        None => Ok(()),
        Some(allowed) => Err(Failure::from(format!(
            "a process may have {allowed} files open, and {clients} clients need {}: raise the system's limit \
             (ulimit -n), or divide the clients with --processes",
            clients + SPARE
        ))),
    }
}

struct Clients {
    managers: Managers,
    first_owner: usize,
    owners: Vec<Mutex<Option<Owner>>>,
    lookups: Vec<Mutex<Option<Lookup>>>,
    expected: Arc<Mutex<Option<Arc<Expected>>>>,
}

/// What every Lookup is expected to see.
struct Expected {
    key: Key,
    url: String,
    seen_at: Mutex<Vec<u64>>,
    seen: Notify,
}

impl Clients {
    async fn obey(self: &Arc<Self>, order: Order, random: &mut Random) -> Result<()> {
        match order {
            Order::Start { kind } => self.start_all(kind).await,
            Order::Restart { kind, within } => self.restart_all(kind, within).await,
            Order::RestartAtRandom { mean_lifetime, time } => {
                self.restart_at_random(mean_lifetime, Instant::now() + time, random).await
            }
            Order::Expect { key, url } => {
                let expected =
                    Expected { key: Key(key), url, seen_at: Mutex::default(), seen: Notify::new() };
                *lock(&self.expected) = Some(Arc::new(expected));
                Ok(())
            }
            Order::Count { .. } | Order::Collect => Err("that is a question".into()),
        }
    }

    fn count_of(&self, kind: Kind) -> usize {
        match kind {
            Kind::Owners => self.owners.len(),
            Kind::Lookups => self.lookups.len(),
        }
    }

    async fn start_all(self: &Arc<Self>, kind: Kind) -> Result<()> {
        let turns = Arc::new(Semaphore::new(MAX_STARTING));
        let start = |number| {
            let (clients, turns) = (Arc::clone(self), Arc::clone(&turns));
            async move {
                let _turn = turns.acquire().await;
                clients.start(kind, number).await
            }
        };
        all((0..self.count_of(kind)).map(start)).await
    }

    async fn restart_all(self: &Arc<Self>, kind: Kind, within: Duration) -> Result<()> {
        let (began, count) = (Instant::now(), self.count_of(kind));
        let restart = |number: usize| {
            let clients = Arc::clone(self);
            async move {
                tokio::time::sleep_until(began + within.mul_f64(number as f64 / count as f64)).await;
                clients.start(kind, number).await
            }
        };
        all((0..count).map(restart)).await
    }

    /// PRS §7.1: lifetimes without memory, so that the next restart is always equally far away.
    async fn restart_at_random(
        self: &Arc<Self>,
        mean_lifetime: Duration,
        end: Instant,
        random: &mut Random,
    ) -> Result<()> {
        let count = self.owners.len() + self.lookups.len();
        let mut restarts = JoinSet::new();
        let mut next = Instant::now();
        loop {
            next += mean_lifetime.mul_f64(-(1.0 - share(random)).ln() / count.max(1) as f64);
            if next >= end || count == 0 {
                break;
            }
            tokio::time::sleep_until(next).await;
            let chosen = ((share(random) * count as f64) as usize).min(count - 1);
            let clients = Arc::clone(self);
            restarts.spawn(async move {
                match chosen.checked_sub(clients.owners.len()) {
                    None => clients.start(Kind::Owners, chosen).await,
                    Some(lookup) => clients.start(Kind::Lookups, lookup).await,
                }
            });
        }
        tokio::time::sleep_until(end).await;
        finish(restarts).await
    }

    /// Starts one client; what ran in its place ends first, without a word.
    async fn start(&self, kind: Kind, number: usize) -> Result<()> {
        match kind {
            Kind::Owners => {
                drop(lock(&self.owners[number]).take());
                let owner = self.join(number).await?;
                *lock(&self.owners[number]) = Some(owner);
            }
            Kind::Lookups => {
                drop(lock(&self.lookups[number]).take());
                let lookup = Lookup::builder(self.managers.clone(), NAMESPACE).connect_timeout(START_TIMEOUT);
                let lookup = lookup.connect().await.map_err(|error| format!("Lookup {number}: {error}"))?;
                tokio::spawn(look_out(&lookup, Arc::clone(&self.expected)));
                *lock(&self.lookups[number]) = Some(lookup);
            }
        }
        Ok(())
    }

    async fn join(&self, number: usize) -> Result<Owner> {
        let name = owner_name(self.first_owner + number);
        let owner = Owner::builder(self.managers.clone(), NAMESPACE)
            .name(&name)
            .url(&owner_url(&name))
            // The previous one was in this process, and is dropped.
            .takes_over_previous(true)
            .join_timeout(START_TIMEOUT);
        owner.join().await.map_err(|error| format!("{name}: {error}").into())
    }

    fn count(&self, lsn: u64) -> Counted {
        let holds = |owner: &&Mutex<Option<Owner>>| {
            lock(owner).as_ref().is_some_and(|owner| !owner.leases().is_empty())
        };
        let is_current = |lookup: &&Mutex<Option<Lookup>>| {
            let position = lock(lookup).as_ref().and_then(Lookup::position);
            position.is_some_and(|position| position.lsn.0 >= lsn)
        };
        Counted {
            owners: self.owners.iter().filter(holds).count(),
            lookups: self.lookups.iter().filter(is_current).count(),
        }
    }

    async fn collect(&self) -> Result<Vec<u64>> {
        let Some(expected) = lock(&self.expected).clone() else { return Ok(Vec::new()) };
        let all_seen = async {
            while lock(&expected.seen_at).len() < self.lookups.len() {
                expected.seen.notified().await;
            }
        };
        let in_time = tokio::time::timeout(START_TIMEOUT, all_seen).await;
        *lock(&self.expected) = None;
        let (at, count) = (lock(&expected.seen_at).clone(), self.lookups.len());
        let late = |_| format!("only {} of {count} Lookups saw a move within {START_TIMEOUT:?}", at.len());
        in_time.map_err(late)?;
        Ok(at)
    }
}

/// Notes when a Lookup's table shows what is expected, for as long as the Lookup lives.
fn look_out(
    lookup: &Lookup,
    expected: Arc<Mutex<Option<Arc<Expected>>>>,
) -> impl Future<Output = ()> + use<> {
    let (routes, mut positions) = (lookup.routes(), lookup.table_changes());
    async move {
        let mut noted: Option<Arc<Expected>> = None;
        while positions.next().await.is_some() {
            let Some(expected) = lock(&expected).clone() else { continue };
            let is_noted = noted.as_ref().is_some_and(|noted| Arc::ptr_eq(noted, &expected));
            if !is_noted && routes.lookup(expected.key).is_ok_and(|route| route.url() == expected.url) {
                lock(&expected.seen_at).push(clock::now().0);
                expected.seen.notify_one();
                noted = Some(expected);
            }
        }
    }
}

/// Runs all of them at once, and gives the first failure.
async fn all(starts: impl Iterator<Item = impl Future<Output = Result<()>> + Send + 'static>) -> Result<()> {
    finish(starts.collect()).await
}

async fn finish(mut starts: JoinSet<Result<()>>) -> Result<()> {
    while let Some(started) = starts.join_next().await {
        started??;
    }
    Ok(())
}

/// A random number from 0 up to 1, without 1.
fn share(random: &mut Random) -> f64 {
    (random.nonce().0 >> (u128::BITS - 53)) as f64 / (1_u64 << 53) as f64
}
