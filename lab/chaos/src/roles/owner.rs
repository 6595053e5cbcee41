//! An Owner's process: counts under leases, and writes down for what it answered.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use centrifuge::owner::BoxError;
use centrifuge::{Key, LeasedMap, NotOwner, Owner};
use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, TcpStream};

use super::probe::probe;
use super::stretch::Stretch;
use super::wire::{self, Request, Response};
use super::{OwnerRole, Part, told_to_stop};
use crate::bug::Bug;
use crate::lines::{Journal, Nanos, OwnerLine, Span, true_now};
use crate::plan::{DRAIN, NAMESPACE, key_name};

/// Nothing but the harness ends the wait for a pool.
const JOIN_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);
/// How long a Manager has to confirm that this Owner leaves.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// With a bug: every so many requests something goes wrong.
const WRONG_EVERY: u64 = 50;
/// With a bug: a pause that makes the Owner careless, for as long again.
const LONG_PAUSE: Nanos = 1_000_000_000;

/// The state of a key.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct State {
    /// Names it from its beginning, wherever it moves.
    state_id: String,
    value: u64,
}

/// What answers.
struct Server {
    name: String,
    owner: Owner,
    states: LeasedMap<String, State>,
    journal: Arc<Journal>,
    bug: Option<Bug>,
    requests: AtomicU64,
}

/// Serves until it is told to stop.
pub(super) async fn run(part: &Part, role: &OwnerRole) -> Result<(), Box<dyn Error>> {
    let journal = Arc::new(Journal::open(&part.journal)?);
    let listener = TcpListener::bind(&role.listen).await?;
    let states = LeasedMap::new();
    let mut stop = std::pin::pin!(told_to_stop());
    let owner = tokio::select! {
        joined = join(part, role, &states, &journal) => joined?,
        // It has no state that could be lost.
        () = &mut stop => return Ok(()),
    };
    let (session, url) = (owner.session().to_string(), role.url.clone());
    journal.write(&[OwnerLine::Joined { session, url, migrates: role.migrates, at: true_now() }])?;
    let leases = owner.hot_leases();
    let places: Vec<Key> = (0..part.keys).map(|key| Key::of(key_name(key).as_bytes())).collect();
    let mut is_careless = carelessness(part.bug);
    probe((0..part.keys).collect(), Arc::clone(&journal), line, move |key, before| {
        let is_careless = is_careless();
        let checked = || leases.check_lease_now(places[key as usize]).ok().map(|lease| lease.0);
        before.filter(|_| is_careless).or_else(checked)
    });
    let (name, bug) = (part.name.clone(), part.bug);
    let server = Arc::new(Server { name, owner, states, journal, bug, requests: AtomicU64::new(0) });
    tokio::select! {
        () = accept(listener, Arc::clone(&server)) => Err("nobody can connect any more".into()),
        left = async { stop.await; server.leave().await } => Ok(left?),
    }
}

/// Whether the Owner answers without a check: with the bug, for a while after a pause.
fn carelessness(bug: Option<Bug>) -> impl FnMut() -> bool {
    let (mut asked_at, mut careless_until) = (true_now(), 0);
    move || {
        let now = true_now();
        if bug == Some(Bug::UncheckedOwner) && now - asked_at > LONG_PAUSE {
            careless_until = now + LONG_PAUSE;
        }
        asked_at = now;
        now < careless_until
    }
}

fn line(stretch: Stretch<u64>) -> OwnerLine {
    let Stretch { key, lease, first, last, checks } = stretch;
    OwnerLine::Held { key, generation: lease, first, last, checks }
}

async fn join(
    part: &Part,
    role: &OwnerRole,
    states: &LeasedMap<String, State>,
    journal: &Arc<Journal>,
) -> Result<Owner, Box<dyn Error>> {
    let builder = Owner::builder(part.managers()?, NAMESPACE)
        .name(&part.name)
        .url(&role.url)
        .takes_over_previous(role.takes_over)
        .join_timeout(JOIN_TIMEOUT)
        .wait_for_name();
    if role.migrates {
        let (me, journal) = (part.name.clone(), Arc::clone(journal));
        let carry = move |url, bytes| carry(me.clone(), url, bytes, Arc::clone(&journal));
        return Ok(builder.state(states, carry).join().await?);
    }
    let owner = builder.join().await?;
    states.attach(owner.hot_leases());
    Ok(owner)
}

/// Brings a part of a moving range to the server that gets it, and its answer back. Written down before anything is
/// sent: if that server is in trouble, it is known whom the state was for.
async fn carry(me: String, url: String, bytes: Vec<u8>, journal: Arc<Journal>) -> Result<Vec<u8>, BoxError> {
    journal.write(&[OwnerLine::Sends { to: url.clone(), at: true_now() }])?;
    let mut stream = wire::connect(&me, &url).await?;
    match wire::ask(&mut stream, &Request::Transfer(bytes)).await? {
        Response::Transferred(answer) => Ok(answer),
        _ => Err("not an answer to a transfer".into()),
    }
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    while let Ok((stream, _)) = listener.accept().await {
        let server = Arc::clone(&server);
        tokio::spawn(async move {
            // A caller that goes away is no news.
            let _ = server.serve(stream).await;
        });
    }
}

impl Server {
    /// Answers until the other side goes away.
    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        wire::read_name(&mut stream).await?;
        loop {
            let response = match wire::receive(&mut stream).await? {
                Request::Add { key } => self.answer(key)?,
                Request::Abort { key } => {
                    if self.owner.check_lease_now(Key::of(key_name(key).as_bytes())).is_ok() {
                        std::process::abort();
                    }
                    Response::NotOwner
                }
                Request::Transfer(bytes) => {
                    Response::Transferred(self.states.handle(&self.owner, &bytes).await)
                }
                Request::Weigh { percent } => {
                    self.owner.set_weight(percent).await.map_err(io::Error::other)?;
                    Response::Weighed
                }
            };
            wire::send(&mut stream, &response).await?;
        }
    }

    /// Moves everything away and goes. It answers meanwhile.
    async fn leave(&self) -> io::Result<()> {
        let is_hasty = self.bug == Some(Bug::HastyOwner);
        let is_drained =
            !is_hasty && matches!(tokio::time::timeout(DRAIN, self.owner.drain()).await, Ok(Ok(())));
        self.journal.write(&[OwnerLine::Leaves { is_drained, at: true_now() }])?;
        // Without a confirmation others get what is left after the hold, which is no failure of this process.
        let _ = self.owner.leave(LEAVE_TIMEOUT).await;
        Ok(())
    }

    /// Counts one more, and writes it down before the answer leaves: what a caller saw is in the journal.
    fn answer(&self, key: u32) -> io::Result<Response> {
        let (at, added) = Span::of(|| self.add(key));
        let Ok((generation, State { state_id, value })) = added else { return Ok(Response::NotOwner) };
        let line = OwnerLine::Served { key, generation, state_id: state_id.clone(), value, at };
        self.journal.write(&[line])?;
        Ok(Response::Added { state_id, value, generation })
    }

    fn add(&self, key: u32) -> Result<(u64, State), NotOwner> {
        let name = key_name(key);
        let bug =
            self.bug.filter(|_| self.requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(WRONG_EVERY));
        if bug == Some(Bug::ForgetfulOwner) {
            self.states.remove(&name)?;
        }
        let added = self.states.with(&name, |slot| {
            let fresh = || State { state_id: format!("{}@{}", self.name, true_now()), value: 0 };
            let state = slot.get_or_insert_with(fresh);
            state.value = match bug {
                Some(Bug::BackwardOwner) => state.value.saturating_sub(3),
                _ => state.value + 1,
            };
            state.clone()
        })?;
        self.states.recheck(&added)?;
        Ok((added.generation.0, added.value))
    }
}
