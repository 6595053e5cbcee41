//! The hostile client: legal messages, as large and as many as the Manager takes.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use centrifuge::{Managers, Owner};
use centrifuge_core::id::ManagerId;
use centrifuge_net::dial::Channel;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tonic::Code;

use super::lists;
use super::session::{Did, GRANT_TIMEOUT, Session, encode};
use super::wire::open_watch;
use super::{Kind, LOUD, Order, Pacing};
use crate::process::Orders;
use crate::testbed::make_room;
use crate::{Failure, Result};

/// How many Owners join, and how many Lookups ask, at a time in a flood.
const FLOOD: usize = 32;
/// How long an Owner may take to join: the machine may be busy with all the others.
const JOIN_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a Lookup waits that asked too often.
const REFUSED_PAUSE: Duration = Duration::from_millis(2);

/// What the hostile client is told at its start.
#[derive(Serialize, Deserialize)]
pub(crate) struct HostilePart {
    pub(super) manager: String,
    pub(super) kind: Kind,
    pub(super) pacing: Pacing,
    /// How many pieces, leases, ranges or Owners.
    pub(super) pieces: usize,
}

/// What it has done so far.
#[derive(Default)]
struct Tally {
    messages: AtomicU64,
    replies: AtomicU64,
}

impl Tally {
    fn sent(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    fn answered(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
    }
}

/// Prepares, waits for its order to begin, and goes on until it is told to end.
pub(crate) async fn run(part: HostilePart) -> Result<()> {
    let tally = Arc::new(Tally::default());
    let mut session = None;
    let mut size = part.pieces;
    if part.kind == Kind::Joins {
        make_room(part.pieces)?;
    } else {
        let session = session.insert(Session::join(&Dialer::new(), &part.manager, LOUD, "hostile").await?);
        let is_large = matches!(part.kind, Kind::Renewals | Kind::Lookups);
        session.divide(if is_large { part.pieces } else { 1 }).await?;
        if part.kind == Kind::Lookups {
            size = session.leases().len();
        }
    }
    let mut orders: Orders<Order> = Orders::new();
    orders.next().await;
    orders.answer(Ok(size));
    orders.next().await;
    orders.answer(Ok(()));
    let attack = async {
        match (part.kind, part.pacing, &mut session) {
            (Kind::Joins, ..) | (_, _, None) => join_all(&part, &tally).await,
            (Kind::Lookups, ..) => watch_all(&part, &tally).await,
            (_, Pacing::InTurn, Some(session)) => report_in_turn(session, &part, &tally).await,
            (_, Pacing::Flood, Some(session)) => flood(session, &part, &tally).await,
        }
    };
    tokio::select! {
        _ = orders.next() => {}
        ended = attack => ended?,
    }
    orders.answer(Ok((tally.messages.load(Ordering::Relaxed), tally.replies.load(Ordering::Relaxed))));
    // Whatever it keeps stays until the measuring process is done with it.
    while orders.next().await.is_some() {}
    Ok(())
}

/// How many do it at the same time.
fn at_once(part: &HostilePart) -> usize {
    match part.pacing {
        Pacing::InTurn => 1,
        Pacing::Flood => FLOOD,
    }
}

/// Whether what an Owner holds changes with each of its reports.
fn changes_leases(kind: Kind) -> bool {
    matches!(kind, Kind::ReleasedPieces | Kind::RefusedPieces)
}

/// The next report goes out when the one before is answered.
async fn report_in_turn(session: &mut Session, part: &HostilePart, tally: &Tally) -> Result<()> {
    let mut lists = encode(&lists::hostile(part.kind, session.leases(), part.pieces));
    loop {
        tally.sent();
        if changes_leases(part.kind) {
            session.report_once(&lists).await?;
            if session.leases().is_empty() {
                // Too late is no harm: then it asks.
                let _ = tokio::time::timeout(GRANT_TIMEOUT, session.receive_leases()).await;
            }
            lists = encode(&lists::hostile(part.kind, session.leases(), part.pieces));
        } else {
            session.report(&lists).await?;
        }
        tally.answered();
    }
}

/// The next report goes out as soon as the stream takes it, and says what was heard until then.
async fn flood(session: &mut Session, part: &HostilePart, tally: &Tally) -> Result<()> {
    let in_full = changes_leases(part.kind);
    let mut lists = encode(&lists::hostile(part.kind, session.leases(), part.pieces));
    loop {
        match session.send_or_receive(&lists, in_full).await? {
            Did::Sent => tally.sent(),
            Did::Received => {
                tally.answered();
                // Until it is granted something again, it says the same again.
                if in_full && !session.leases().is_empty() {
                    lists = encode(&lists::hostile(part.kind, session.leases(), part.pieces));
                }
            }
        }
    }
}

/// Owners join and stay: one after another, or many at a time.
async fn join_all(part: &HostilePart, tally: &Arc<Tally>) -> Result<()> {
    let managers = Managers::list([&part.manager])?;
    let mut owners = Vec::new();
    let mut joining = JoinSet::new();
    for number in 0..part.pieces {
        if joining.len() >= at_once(part)
            && let Some(joined) = joining.join_next().await
        {
            owners.push(joined??);
        }
        let name = format!("hostile-{number}");
        let (managers, tally) = (managers.clone(), Arc::clone(tally));
        joining.spawn(async move {
            let owner = Owner::builder(managers, LOUD)
                .name(&name)
                .url(&format!("http://{name}.example:8080"))
                .join_timeout(JOIN_TIMEOUT);
            tally.sent();
            let owner = owner.join().await;
            tally.answered();
            owner.map_err(Failure::from)
        });
    }
    while let Some(joined) = joining.join_next().await {
        owners.push(joined??);
    }
    // They live on, and give each other ranges.
    pending().await
}

/// Lookups ask for the whole table again and again: one of them, or many.
async fn watch_all(part: &HostilePart, tally: &Arc<Tally>) -> Result<()> {
    let mut watching = JoinSet::new();
    for number in 0..at_once(part) {
        let channel = Dialer::new().channel(&ManagerId::from(part.manager.as_str()))?;
        watching.spawn(watch(channel, number, Arc::clone(tally)));
    }
    match watching.join_next().await {
        Some(Ok(Err(failure))) => Err(failure),
        ended => Err(Failure::from(format!("a Lookup ended: {ended:?}"))),
    }
}

async fn watch(channel: Channel, number: usize, tally: Arc<Tally>) -> Result<()> {
    for seq in 1.. {
        let request = v1::WatchRequest {
            namespace: LOUD.to_owned(),
            lookup: (number as u128 + 1).to_be_bytes().to_vec().into(),
            seq,
            position: None,
            ..Default::default()
        };
        tally.sent();
        match open_watch(channel.clone(), &request).await {
            Ok(mut replies) => {
                if replies.message().await?.is_some() {
                    tally.answered();
                }
            }
            Err(status) if status.code() == Code::ResourceExhausted => {
                tokio::time::sleep(REFUSED_PAUSE).await;
            }
            Err(status) => return Err(status.into()),
        }
    }
    Ok(())
}
