//! A caller's process: finds owners, asks them to count, and writes down what it saw and what it was told.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use centrifuge::lookup::Loss;
use centrifuge::router::Refusal;
use centrifuge::{Key, Lookup, Router};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::wire::{self, Request, Response};
use super::{Part, told_to_stop};
use crate::bug::Bug;
use crate::lines::{CallerLine, Journal, Span, Why, true_now};
use crate::plan::{NAMESPACE, key_name};

/// Nothing but the harness ends the wait for a table.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);
/// How long one request is tried.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(800);
/// How many requests are under way at once.
const WORKERS: usize = 3;
/// The pause between two requests of a worker.
const REQUEST_INTERVAL: Duration = Duration::from_millis(30);
/// With a bug: every so many requests a false alarm.
const ALARM_EVERY: u64 = 100;

/// What the parts of a caller share.
struct Caller {
    name: String,
    lookup: Lookup,
    router: Router,
    places: Vec<Key>,
    journal: Journal,
    bug: Option<Bug>,
    requests: AtomicU64,
}

/// Asks until it is told to stop.
pub(super) async fn run(part: &Part, writes: &[u32]) -> Result<(), Box<dyn Error>> {
    let times = part.times;
    let lookup = Lookup::builder(part.managers()?, NAMESPACE)
        .poll(times.poll)
        .contact_timeout(times.contact)
        .unowned_delay(times.unowned_delay)
        .silence(times.silence)
        .connect_timeout(CONNECT_TIMEOUT)
        .connect()
        .await?;
    let mut losses = lookup.losses();
    let caller = Arc::new(Caller {
        name: part.name.clone(),
        router: Router::new(lookup.clone()).patience(REQUEST_TIMEOUT),
        lookup,
        places: (0..part.keys).map(|key| Key::of(key_name(key).as_bytes())).collect(),
        journal: Journal::open(&part.journal)?,
        bug: part.bug,
        requests: AtomicU64::new(0),
    });
    caller.connected()?;
    let listening = async {
        while let Some(loss) = losses.next().await {
            caller.lost(&loss)?;
        }
        Err::<(), io::Error>(io::Error::other("the Lookup has ended"))
    };
    for worker in 0..WORKERS {
        let keys: Vec<u32> = writes.iter().copied().skip(worker).step_by(WORKERS).collect();
        tokio::spawn(Arc::clone(&caller).work(keys));
    }
    tokio::select! {
        ended = listening => ended?,
        () = told_to_stop() => caller.journal.write(&[CallerLine::Ended { at: true_now() }])?,
    }
    Ok(())
}

impl Caller {
    fn connected(&self) -> io::Result<()> {
        let leases = self.places.iter().map(|place| self.table(*place)).collect();
        self.journal.write(&[CallerLine::Connected { at: true_now(), leases }])
    }

    /// The lease that the table has for a key.
    fn table(&self, place: Key) -> u64 {
        self.lookup.lookup(place).map_or(0, |route| route.generation().0)
    }

    fn lost(&self, loss: &Loss) -> io::Result<()> {
        if self.bug == Some(Bug::DeafCaller) {
            return Ok(());
        }
        let why = Why::from(loss.why);
        let keys = (0_u32..).zip(&self.places).filter(|(_, place)| loss.keys.contains(**place));
        let keys: Vec<(u32, u64)> = keys.map(|(key, place)| (key, self.table(*place))).collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.journal.write(&[CallerLine::Lost { why, keys, at: true_now() }])
    }

    async fn work(self: Arc<Caller>, keys: Vec<u32>) {
        let servers = Servers { me: self.name.clone(), open: Mutex::default() };
        for key in keys.iter().copied().cycle() {
            if let Err(error) = self.add(&servers, key).await {
                tracing::error!(%error, "what the caller saw cannot be written down");
                return;
            }
            tokio::time::sleep(REQUEST_INTERVAL).await;
        }
    }

    /// Asks for one key, and writes down what came back.
    async fn add(&self, servers: &Servers, key: u32) -> io::Result<()> {
        let place = self.places[key as usize];
        let begun = true_now();
        let answer = self.router.send(place, |route| {
            let table = route.generation().0;
            async move {
                let asked_at = true_now();
                let response = servers.ask(route.url(), key).await?;
                Ok((table, asked_at, response))
            }
        });
        if let Ok((table, asked_at, Response::Added { state_id, value, generation })) = answer.await {
            let at = Span(asked_at.max(begun), true_now());
            self.journal.write(&[CallerLine::Reply { key, generation, state_id, value, table, at }])?;
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if self.bug == Some(Bug::CryingCaller) && number % ALARM_EVERY == ALARM_EVERY - 1 {
            let keys = vec![(key, self.table(place))];
            self.journal.write(&[CallerLine::Lost { why: Why::BeganAnew, keys, at: true_now() }])?;
        }
        Ok(())
    }
}

/// Connections to servers, kept for the next request.
struct Servers {
    me: String,
    open: Mutex<HashMap<String, TcpStream>>,
}

impl Servers {
    async fn ask(&self, url: &str, key: u32) -> Result<Response, Refusal<io::Error>> {
        // A stream that fails is not used again: whatever comes on it would answer another request.
        let open = self.open.lock().await.remove(url);
        let asked = tokio::time::timeout(ANSWER_TIMEOUT, async {
            let mut stream = match open {
                Some(stream) => stream,
                None => wire::connect(&self.me, url).await?,
            };
            let response = wire::ask(&mut stream, &Request::Add { key }).await?;
            Ok((stream, response))
        });
        let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut));
        let (stream, response) = asked.await.unwrap_or_else(late).map_err(Refusal::Unreachable)?;
        self.open.lock().await.insert(url.to_owned(), stream);
        match response {
            Response::Added { .. } => Ok(response),
            _ => Err(Refusal::NotOwner),
        }
    }
}
