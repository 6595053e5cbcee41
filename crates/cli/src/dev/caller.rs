//! A caller of the demonstration: looks a key up, asks the server there, and keeps book of the answers.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use centrifuge::router::Refusal;
use centrifuge::{Key, Lookup, Router};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::Place;
use super::book::Book;
use super::skew::Skew;
use super::wire::{Request, Response};
use crate::failure::Failure;

/// How long a request is tried.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// How many requests a caller has under way.
const WORKERS: usize = 4;
/// How many keys each of them asks for.
const KEYS: usize = 100;
/// The pause between two requests of one worker.
const BREATH: Duration = Duration::from_millis(4);

/// What callers count.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests that were answered or given up.
    pub(crate) requests: AtomicU64,
    /// Answers of servers that did not own the key.
    pub(crate) rejected: AtomicU64,
    /// Tries after the first.
    pub(crate) retried: AtomicU64,
    /// Requests that were given up.
    pub(crate) failed: AtomicU64,
    /// Notices of losses.
    pub(crate) losses: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A caller with its own Lookup. It stops when it is dropped.
pub(super) struct Caller {
    _listener: JoinSet<()>,
    workers: JoinSet<()>,
}

impl Caller {
    /// Connects and begins to ask for counters of its own.
    pub(super) async fn start(
        name: &str,
        place: Place<'_>,
        counts: &Arc<Counts>,
        book: &Arc<Book>,
        skew: &Arc<Skew>,
    ) -> Result<Caller, Failure> {
        let mut builder = Lookup::builder(place.managers, place.namespace)
            .poll(Duration::from_secs(5))
            .contact_timeout(Duration::from_secs(30))
            .unowned_delay(Duration::from_secs(5))
            .silence(Duration::from_secs(1));
        if let Some(file) = place.record {
            builder = builder.record(file);
        }
        let lookup = builder.connect().await?;
        let mut listener = JoinSet::new();
        let mut losses = lookup.losses();
        let (counted, noted) = (Arc::clone(counts), Arc::clone(book));
        listener.spawn(async move {
            while let Some(loss) = losses.next().await {
                count(&counted.losses);
                noted.lost(&loss);
            }
        });
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS {
            let worker = Worker {
                keys: (0..KEYS).map(|number| format!("{name}-{worker}-{number}")).collect(),
                lookup: lookup.clone(),
                router: Router::new(lookup.clone()).patience(PATIENCE),
                servers: Servers { open: Mutex::default(), counts: Arc::clone(counts) },
                counts: Arc::clone(counts),
                book: Arc::clone(book),
                skew: Arc::clone(skew),
            };
            workers.spawn(worker.run());
        }
        // The Lookup has to outlive the workers: losses may still be announced.
        listener.spawn(async move {
            let _lookup = lookup;
            std::future::pending().await
        });
        Ok(Caller { _listener: listener, workers })
    }

    /// Asks no more, and goes on to hear of losses.
    pub(super) fn stop_asking(&mut self) {
        self.workers.abort_all();
    }
}

struct Worker {
    keys: Vec<String>,
    lookup: Lookup,
    router: Router,
    servers: Servers,
    counts: Arc<Counts>,
    book: Arc<Book>,
    skew: Arc<Skew>,
}

impl Worker {
    async fn run(self) {
        for turn in 0_usize.. {
            let key = self.skew.pick(turn, &self.keys, &self.lookup).to_owned();
            self.add(&key).await;
            tokio::time::sleep(BREATH).await;
        }
    }

    /// Adds one to a counter, wherever it is, or gives up after a while.
    async fn add(&self, key: &str) {
        self.book.asked(key);
        let mut is_first = true;
        let added = self.router.send(Key::of(key.as_bytes()), |route| {
            if !std::mem::take(&mut is_first) {
                count(&self.counts.retried);
            }
            async move { self.servers.ask(route.url(), Request::Add(key.to_owned())).await }
        });
        match added.await {
            Ok((value, generation)) => self.book.answered(key, value, generation),
            Err(_) => count(&self.counts.failed),
        }
        count(&self.counts.requests);
    }
}

/// Connections to servers, kept for the next request.
struct Servers {
    open: Mutex<HashMap<String, TcpStream>>,
    counts: Arc<Counts>,
}

impl Servers {
    async fn ask(&self, url: &str, request: Request) -> Result<(u64, u64), Refusal<io::Error>> {
        // A stream that fails is not used again: whatever comes on it would answer another request.
        let open = self.lock().remove(url);
        let asked = tokio::time::timeout(ANSWER, async {
            let mut stream = match open {
                Some(stream) => stream,
                None => TcpStream::connect(url).await?,
            };
            let response = request.ask(&mut stream).await?;
            Ok((stream, response))
        });
        let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut));
        let (stream, response) = asked.await.unwrap_or_else(late).map_err(Refusal::Unreachable)?;
        self.lock().insert(url.to_owned(), stream);
        match response {
            Response::Added { value, generation } => Ok((value, generation)),
            _ => {
                count(&self.counts.rejected);
                Err(Refusal::NotOwner)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, TcpStream>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
