//! A server of the demonstration: counts, under leases, and moves its counters when it is told to.

use std::io;
use std::time::Duration;

use centrifuge::owner::{BoxError, LeftReason};
use centrifuge::{LeasedMap, NotOwner, Owner};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Place;
use super::wire::{Request, Response};
use crate::failure::Failure;

/// How long leaving may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The state: a number for each name.
type Counters = LeasedMap<String, u64>;

/// A running server. Dropping it is a power failure: nobody hears of it.
pub(super) struct Server {
    owner: Owner,
    url: String,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Listens, joins, and serves.
    pub(super) async fn start(name: &str, place: Place<'_>, listen: &str) -> Result<Server, Failure> {
        let listening =
            |error: io::Error| Failure::failed(format!("{name} cannot listen on {listen}: {error}"));
        let listener = TcpListener::bind(listen).await.map_err(listening)?;
        let url = listener.local_addr().map_err(listening)?.to_string();
        let counters = Counters::new();
        let mut builder =
            Owner::builder(place.managers, place.namespace).name(name).url(&url).state(&counters, carry);
        if let Some(file) = place.record {
            builder = builder.record(file);
        }
        let owner = builder.join().await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, counters, owner.clone()));
        Ok(Server { owner, url, _tasks: tasks })
    }

    /// Moves everything away and goes.
    pub(super) async fn drain(self) -> Result<(), Failure> {
        self.owner.shutdown(PATIENCE).await.map_err(|error| Failure::failed(error.to_string()))
    }

    /// Waits until this server loses its membership against its will, and says why.
    pub(super) async fn gone(&self) -> LeftReason {
        let mut changes = self.owner.changes();
        loop {
            if let Some(why) = self.owner.left() {
                return why;
            }
            changes.next().await;
        }
    }

    /// Where it serves.
    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

async fn accept(listener: TcpListener, counters: Counters, owner: Owner) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, counters.clone(), owner.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers until the other side goes away.
async fn serve(mut stream: TcpStream, counters: Counters, owner: Owner) {
    while let Ok(request) = Request::receive(&mut stream).await {
        let response = match request {
            Request::Add(name) => add(&counters, &name).unwrap_or(Response::NotOwner),
            Request::Transfer(bytes) => Response::Transferred(counters.handle(&owner, &bytes).await),
        };
        if response.send(&mut stream).await.is_err() {
            return;
        }
    }
}

/// Adds one; the answer leaves only if the lease it is true under was held throughout.
fn add(counters: &Counters, name: &String) -> Result<Response, NotOwner> {
    let added = counters.with(name, |slot| {
        let value = slot.unwrap_or(0) + 1;
        *slot = Some(value);
        value
    })?;
    counters.recheck(&added)?;
    Ok(Response::Added { value: added.value, generation: added.generation.0 })
}

/// Brings a part of a moving range to the server that gets it, and its answer back.
async fn carry(url: String, bytes: Vec<u8>) -> Result<Vec<u8>, BoxError> {
    let mut stream = TcpStream::connect(&url).await?;
    match Request::Transfer(bytes).ask(&mut stream).await? {
        Response::Transferred(answer) => Ok(answer),
        _ => Err("not an answer to a transfer".into()),
    }
}
