//! The hostile client: legal messages, as large and as many as the Manager takes.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use centrifuge::{Managers, Owner};
use centrifuge_core::id::ManagerId;
use centrifuge_harness::process::input_lines;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use clap::Args;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::Channel;

use super::LOUD;
use super::lists;
use super::order::{Answer, Kind, Order, Pacing};
use super::session::{Did, GRANT_TIMEOUT, Session, encode};
use super::wire::open_watch;
use crate::Failure;
use crate::process::say;
use crate::testbed::make_room;

/// How many Owners join, and how many Lookups ask, at a time in a flood.
const FLOOD: usize = 32;
/// How long an Owner may take to join: the machine may be busy with all the others.
const JOIN_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a Lookup waits that asked too often.
const REFUSED_PAUSE: Duration = Duration::from_millis(2);

#[derive(Args)]
pub(crate) struct HostileArgs {
    /// The Manager
    #[arg(long)]
    manager: String,
    /// What it does
    #[arg(long, value_enum)]
    kind: Kind,
    /// When its next message goes out
    #[arg(long, value_enum)]
    pacing: Pacing,
    /// How many pieces, leases, ranges or Owners
    #[arg(long)]
    pieces: usize,
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
pub(crate) async fn run(args: HostileArgs) -> Result<(), Failure> {
    let mut orders = input_lines();
    let tally = Arc::new(Tally::default());
    match args.kind {
        Kind::Joins => {
            make_room(args.pieces)?;
            begin(&mut orders, args.pieces).await;
            until_end(&mut orders, join_all(&args, &tally)).await?;
        }
        Kind::Lookups => {
            let mut session = Session::join(&args.manager, LOUD, "hostile").await?;
            session.divide(args.pieces).await?;
            begin(&mut orders, session.leases().len()).await;
            until_end(&mut orders, watch_all(&args, &tally)).await?;
        }
        kind => {
            let mut session = Session::join(&args.manager, LOUD, "hostile").await?;
            session.divide(if kind == Kind::Renewals { args.pieces } else { 1 }).await?;
            begin(&mut orders, args.pieces).await;
            match args.pacing {
                Pacing::InTurn => until_end(&mut orders, report_in_turn(&mut session, &args, &tally)).await?,
                Pacing::Flood => until_end(&mut orders, flood(&mut session, &args, &tally)).await?,
            }
        }
    }
    say(&Answer::Sent {
        messages: tally.messages.load(Ordering::Relaxed),
        replies: tally.replies.load(Ordering::Relaxed),
    });
    // Whatever it keeps stays until the measuring process is done with it.
    while orders.recv().await.is_some() {}
    Ok(())
}

async fn begin(orders: &mut mpsc::UnboundedReceiver<String>, size: usize) {
    say(&Answer::Ready { size });
    await_order(orders, Order::Begin).await;
}

/// Goes on until it is told to end, or fails.
async fn until_end(
    orders: &mut mpsc::UnboundedReceiver<String>,
    attack: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    tokio::select! {
        () = await_order(orders, Order::End) => Ok(()),
        ended = attack => ended,
    }
}

async fn await_order(orders: &mut mpsc::UnboundedReceiver<String>, wanted: Order) {
    while let Some(line) = orders.recv().await {
        if serde_json::from_str(&line).is_ok_and(|order: Order| order == wanted) {
            return;
        }
    }
}

/// Whether what an Owner holds changes with each of its reports.
fn changes_leases(kind: Kind) -> bool {
    matches!(kind, Kind::ReleasedPieces | Kind::RefusedPieces)
}

/// The next report goes out when the one before is answered.
async fn report_in_turn(session: &mut Session, args: &HostileArgs, tally: &Tally) -> Result<(), Failure> {
    let mut lists = encode(&lists::hostile(args.kind, session.leases(), args.pieces));
    loop {
        tally.sent();
        if changes_leases(args.kind) {
            session.report_once(&lists).await?;
            if session.leases().is_empty() {
                // Too late is no harm: then it asks.
                let _ = tokio::time::timeout(GRANT_TIMEOUT, session.receive_leases()).await;
            }
            lists = encode(&lists::hostile(args.kind, session.leases(), args.pieces));
        } else {
            session.report(&lists).await?;
        }
        tally.answered();
    }
}

/// The next report goes out as soon as the stream takes it, and says what was heard until then.
async fn flood(session: &mut Session, args: &HostileArgs, tally: &Tally) -> Result<(), Failure> {
    let in_full = changes_leases(args.kind);
    let mut lists = encode(&lists::hostile(args.kind, session.leases(), args.pieces));
    loop {
        match session.send_or_receive(&lists, in_full).await? {
            Did::Sent => tally.sent(),
            Did::Received => {
                tally.answered();
                // Until it is granted something again, it says the same again.
                if in_full && !session.leases().is_empty() {
                    lists = encode(&lists::hostile(args.kind, session.leases(), args.pieces));
                }
            }
        }
    }
}

/// Owners join and stay: one after another, or many at a time.
async fn join_all(args: &HostileArgs, tally: &Arc<Tally>) -> Result<(), Failure> {
    let managers = Managers::list([&args.manager])?;
    let at_once = match args.pacing {
        Pacing::InTurn => 1,
        Pacing::Flood => FLOOD,
    };
    let mut joined = Vec::new();
    let mut joining = JoinSet::new();
    for number in 0..args.pieces {
        if joining.len() >= at_once {
            joined.extend(joining.join_next().await);
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
    while let Some(last) = joining.join_next().await {
        joined.push(last);
    }
    for owner in &joined {
        if let Ok(Err(failure)) = owner {
            return Err(Failure::from(failure.to_string()));
        }
    }
    // They live on, and give each other ranges.
    pending().await
}

/// Lookups ask for the whole table again and again: one of them, or many.
async fn watch_all(args: &HostileArgs, tally: &Arc<Tally>) -> Result<(), Failure> {
    let lookups = match args.pacing {
        Pacing::InTurn => 1,
        Pacing::Flood => FLOOD,
    };
    let mut watching = JoinSet::new();
    for number in 0..lookups {
        let channel = Dialer::new().channel(&ManagerId::from(args.manager.as_str()));
        let channel = channel?;
        watching.spawn(watch(channel, number, Arc::clone(tally)));
    }
    match watching.join_next().await {
        Some(Ok(Err(failure))) => Err(failure),
        ended => Err(Failure::from(format!("a Lookup ended: {ended:?}"))),
    }
}

async fn watch(channel: Channel, number: usize, tally: Arc<Tally>) -> Result<(), Failure> {
    for seq in 1.. {
        let request = v1::WatchRequest {
            namespace: LOUD.to_owned(),
            lookup: (number as u128 + 1).to_be_bytes().to_vec().into(),
            seq,
            position: None,
            term: 0,
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
