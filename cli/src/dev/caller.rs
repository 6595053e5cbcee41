//! A caller of the demonstration: looks a key up, asks the server there, and keeps book of the answers.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use centrifuge::{Key, Lookup, Managers};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::book::Book;
use super::skew::Skew;
use super::wire::{Request, Response};
use crate::failure::Failure;

/// How long a request is tried.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(2);
/// The first pause before a request is tried again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest.
const LAST_PAUSE: Duration = Duration::from_millis(250);
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
        managers: Managers,
        namespace: &str,
        counts: &Arc<Counts>,
        book: &Arc<Book>,
        skew: &Arc<Skew>,
    ) -> Result<Caller, Failure> {
        let lookup = Lookup::builder(managers, namespace)
            .poll(Duration::from_secs(5))
            .contact_timeout(Duration::from_secs(30))
            .unowned_delay(Duration::from_secs(5))
            .silence(Duration::from_secs(1))
            .connect()
            .await
            .map_err(|error| Failure::failed(format!("a caller: {error}")))?;
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
                servers: HashMap::new(),
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
    servers: HashMap<String, TcpStream>,
    counts: Arc<Counts>,
    book: Arc<Book>,
    skew: Arc<Skew>,
}

impl Worker {
    async fn run(mut self) {
        for turn in 0_usize.. {
            let key = self.skew.pick(turn, &self.keys, &self.lookup).to_owned();
            self.add(&key).await;
            tokio::time::sleep(BREATH).await;
        }
    }

    /// Adds one to a counter, wherever it is, or gives up after a while.
    async fn add(&mut self, key: &str) {
        self.book.asked(key);
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            match self.try_once(key).await {
                Ok(Some(Response::Added { value, generation })) => {
                    self.book.answered(key, value, generation);
                    return count(&self.counts.requests);
                }
                Ok(Some(_)) => count(&self.counts.rejected),
                Ok(None) | Err(_) => {}
            }
            if began.elapsed() > PATIENCE {
                count(&self.counts.failed);
                return count(&self.counts.requests);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
            count(&self.counts.retried);
        }
    }

    /// `None`: nobody owns the key now.
    async fn try_once(&mut self, key: &str) -> io::Result<Option<Response>> {
        let Ok(route) = self.lookup.lookup(Key::of(key.as_bytes())) else { return Ok(None) };
        let url = route.url().to_owned();
        // A stream that fails is not used again: whatever comes on it would answer another request.
        let stream = self.servers.remove(&url);
        let asked = tokio::time::timeout(ANSWER, async {
            let mut stream = match stream {
                Some(stream) => stream,
                None => TcpStream::connect(&url).await?,
            };
            let response = Request::Add(key.to_owned()).ask(&mut stream).await?;
            Ok::<_, io::Error>((stream, response))
        });
        let (stream, response) =
            asked.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)))?;
        self.servers.insert(url, stream);
        Ok(Some(response))
    }
}
