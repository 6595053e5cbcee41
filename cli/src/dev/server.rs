//! A server of the demonstration: counts, under leases, and moves its counters when it is told to.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use centrifuge::owner::{BoxError, ImportOffer, MigrationOut};
use centrifuge::{Generation, Key, KeyRange, Managers, Owner, SessionId};
use centrifuge_core::id::Nonce;
use centrifuge_core::owner::TransferId;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::counters::{Counter, Counters};
use super::wire::{Request, Response};
use crate::failure::Failure;

/// How long leaving may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server. Dropping it is a power failure: nobody hears of it.
pub(super) struct Server {
    owner: Owner,
    service: Arc<Service>,
    _tasks: JoinSet<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The Owner's own tasks know the service: without this they would keep each other alive.
        self.service.set_owner(None);
    }
}

/// What connections share.
struct Service {
    counters: Counters,
    /// There is one from when it has joined until the server stops.
    owner: RwLock<Option<Owner>>,
}

/// A part of a range on its way: everything while the range is served, and everything again once it is frozen.
#[derive(Serialize, Deserialize)]
struct Part {
    first: u64,
    last: u64,
    source: u64,
    from: u128,
    transfer: u64,
    is_last: bool,
    counters: Vec<Counter>,
}

impl Server {
    /// Listens, joins, and serves.
    pub(super) async fn start(
        name: &str,
        managers: Managers,
        namespace: &str,
        listen: &str,
    ) -> Result<Server, Failure> {
        let listening =
            |error: io::Error| Failure::failed(format!("{name} cannot listen on {listen}: {error}"));
        let listener = TcpListener::bind(listen).await.map_err(listening)?;
        let url = listener.local_addr().map_err(listening)?.to_string();
        let service = Arc::new(Service { counters: Counters::default(), owner: RwLock::default() });
        let mover = Arc::clone(&service);
        let owner = Owner::builder(managers, namespace)
            .name(name)
            .url(&url)
            .on_migrate_out(move |out| move_away(Arc::clone(&mover), out))
            .join()
            .await
            .map_err(|error| Failure::failed(format!("{name}: {error}")))?;
        service.set_owner(Some(owner.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&service)));
        Ok(Server { owner, service, _tasks: tasks })
    }

    /// Moves everything away and goes.
    pub(super) async fn drain(self) -> Result<(), Failure> {
        self.owner.clone().shutdown(PATIENCE).await.map_err(|error| Failure::failed(error.to_string()))
    }

    /// Waits until this server is not a member any more, through no wish of its own.
    pub(super) async fn gone(&self) {
        let mut changes = self.owner.changes();
        while self.owner.left().is_none() && changes.next().await.is_some() {}
    }
}

async fn accept(listener: TcpListener, service: Arc<Service>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(&service)));
    }
}

/// Answers until the other side goes away.
async fn serve(mut stream: TcpStream, service: Arc<Service>) {
    while let Ok(request) = Request::receive(&mut stream).await {
        let response = match request {
            Request::Add(key) => service.add(&key),
            Request::Transfer(bytes) => service.take(&bytes).await,
        };
        if response.send(&mut stream).await.is_err() {
            return;
        }
    }
}

impl Service {
    fn owner(&self) -> Option<Owner> {
        self.owner.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_owner(&self, owner: Option<Owner>) {
        *self.owner.write().unwrap_or_else(PoisonError::into_inner) = owner;
    }

    /// The papers' steps: check the lease, forget stale state, operate, and check again before the answer leaves.
    fn add(&self, key: &str) -> Response {
        let key = Key::of(key.as_bytes());
        let Some(owner) = self.owner() else { return Response::NotOwner };
        let Ok(guard) = owner.begin(key) else { return Response::NotOwner };
        let Ok(lease) = owner.lease(key) else { return Response::NotOwner };
        let value = self.counters.add(key, &lease);
        if guard.recheck() && guard.generation() == lease.generation {
            Response::Added { value, generation: lease.generation.0 }
        } else {
            Response::NotOwner
        }
    }

    async fn take(&self, bytes: &[u8]) -> Response {
        let (Some(owner), Ok(part)) = (self.owner(), serde_json::from_slice::<Part>(bytes)) else {
            return Response::Refused;
        };
        let Some(range) = KeyRange::new(Key(part.first), Key(part.last)) else { return Response::Refused };
        let source = Generation(part.source);
        let from = SessionId(Nonce(part.from));
        let offer = ImportOffer { range, source, from, transfer: TransferId(part.transfer) };
        let Ok(import) = owner.begin_import(offer) else { return Response::Refused };
        self.counters.take(range, part.counters, source);
        if !part.is_last {
            return Response::Transferred(Vec::new());
        }
        match import.complete().await {
            Ok(session) => Response::Transferred(session.0.0.to_le_bytes().to_vec()),
            Err(_) => Response::Refused,
        }
    }
}

/// Copies a range to its next owner while it is served, freezes it, sends it again, and returns who has it.
async fn move_away(service: Arc<Service>, mut out: MigrationOut) -> Result<SessionId, BoxError> {
    let mut stream = TcpStream::connect(out.url().as_str()).await?;
    send_part(&service, &out, &mut stream, false).await?;
    out.freeze().await?;
    let answer = send_part(&service, &out, &mut stream, true).await?;
    let session = answer.try_into().map_err(|_| "the destination did not say who it is")?;
    Ok(SessionId(Nonce(u128::from_le_bytes(session))))
}

async fn send_part(
    service: &Service,
    out: &MigrationOut,
    stream: &mut TcpStream,
    is_last: bool,
) -> Result<Vec<u8>, BoxError> {
    let owner = service.owner().ok_or("the server has not joined")?;
    let leases = owner.leases();
    let held = leases.iter().find(|lease| lease.generation == out.generation()).ok_or("the lease is gone")?;
    let offer = out.offer();
    let part = Part {
        first: offer.range.first().0,
        last: offer.range.last().0,
        source: offer.source.0,
        from: offer.from.0.0,
        transfer: offer.transfer.0,
        is_last,
        counters: service.counters.of(offer.range, held),
    };
    match Request::Transfer(serde_json::to_vec(&part)?).ask(stream).await? {
        Response::Transferred(answer) => Ok(answer),
        _ => Err("the destination refused the copy".into()),
    }
}
