//! `centrifuge-bench isolation`: what a renewal in one namespace waits for while somebody in another does the worst
//! that is legal.

mod hostile;
mod lists;
mod session;
mod wire;

use std::time::{Duration, Instant};

use centrifuge_harness::{Process, Samples};
use centrifuge_net::dial::Dialer;
use centrifuge_net::limits;
use centrifuge_net::proto::v1;
use clap::{Args, ValueEnum};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

pub(crate) use self::hostile::{HostilePart, run as run_hostile};
use self::session::Session;
use crate::output::{Format, hundredths, table_of};
use crate::process::{Orders, Part, ask};
use crate::testbed::{ClientFiles, MeasuredManager};
use crate::{Failure, Result, count};

/// Where the honest Owner is.
const QUIET: &str = "quiet";
/// Where the hostile client is.
const LOUD: &str = "loud";
/// The longest that a renewal should wait because of others, at the 99th percentile.
const MAX_ABOVE_BASELINE_US: u64 = 10_000;
/// How long a child may take to prepare, and beyond the measurement to answer.
const CHILD_TIMEOUT: Duration = Duration::from_secs(180);
/// The hostile client's leases outlast every measurement: it need not renew what it only keeps.
const LOUD_LEASE: Duration = Duration::from_secs(3_600);
/// How often the honest Owner renews.
const INTERVAL: Duration = Duration::from_millis(10);
/// How many leases it has.
const LEASES: usize = 64;

/// The columns of the table.
const COLUMNS: [(&str, &str); 13] = [
    ("kind", "/kind"),
    ("pacing", "/pacing"),
    ("pieces", "/pieces"),
    ("sent", "/hostile_messages"),
    ("answered", "/hostile_replies"),
    ("renewals", "/renewals"),
    ("p50 us", "/p50_us"),
    ("p99 us", "/p99_us"),
    ("max us", "/max_us"),
    ("stall us", "/machine_stall_us"),
    ("above us", "/p99_above_baseline_us"),
    ("within", "/within_10_ms"),
    ("cpu s", "/cpu_seconds"),
];

pub(crate) const ABOUT: &str = "\
What a renewal in one namespace waits for while somebody in another does the worst that is legal.

For every kind a Manager process of its own, with a file store and two namespaces. In one an honest Owner
renews 64 leases every 10 ms; what is measured is the time from the send of its report to the answer. A
renewal that would have been due while an earlier one waited counts with the rest of that wait: otherwise a
long wait would hide how many renewals it holds up. In the other namespace a hostile client is active:

  held_pieces         an Owner reports its one lease in as many pieces as a report may have
  released_pieces     it gives all its leases back in pieces, and what it then gets, again
  released_of_others  it gives back leases that it does not have
  refused_pieces      it refuses its leases in pieces, and what it then gets, again
  imports             it says that it has copies of state that nobody moved
  renewals            it has as many leases as a report may list, and renews them all
  joins               Owners join under new names, 500 at most
  lookups             a Lookup asks for snapshots of a table with as many ranges

Each of them twice: in turn, the next message going out when the one before is answered; and as a flood, as
fast as the stream takes messages (32 Owners join at a time; 32 Lookups ask at a time).

The baseline comes first, with nobody in the other namespace. The Manager, the honest Owner and the hostile
client are three processes. The hostile client gets whatever processor time the others leave (nice 19): on a
machine of its own it would not compete with them. The honest Owner still waits for a core on a small machine,
so the times are an upper bound of what the Manager is to blame for. The stall is the longest time by which
a thread beside the honest Owner slept too long: a wait of that length is the machine's, not the Manager's.";

#[derive(Args)]
pub(crate) struct IsolationArgs {
    /// How long each kind is measured, in seconds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How many pieces or leases the messages have, if not as many as are legal
    #[arg(long, value_parser = count)]
    pieces: Option<usize>,
    /// Only this kind; can be given several times
    #[arg(long = "kind", value_enum)]
    kinds: Vec<Kind>,
    #[command(flatten)]
    format: Format,
}

/// What the hostile client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// An Owner reports its one lease in pieces
    HeldPieces,
    /// An Owner gives its leases back in pieces
    ReleasedPieces,
    /// An Owner gives back leases that it does not have
    ReleasedOfOthers,
    /// An Owner refuses its leases in pieces
    RefusedPieces,
    /// An Owner says that it has copies of state that nobody moved
    Imports,
    /// An Owner renews many leases
    Renewals,
    /// Owners join under new names
    Joins,
    /// A Lookup asks for snapshots of a large table
    Lookups,
}

impl Kind {
    /// How many pieces, leases or ranges it has: as many as are legal, or fewer if so many are wanted. For joins, how
    /// many Owners.
    fn pieces(self, wanted: Option<usize>) -> usize {
        let most = match self {
            Kind::HeldPieces | Kind::Renewals | Kind::Lookups => limits::MOST_ITEMS,
            Kind::ReleasedPieces | Kind::ReleasedOfOthers | Kind::RefusedPieces | Kind::Imports => {
                limits::MOST_CHANGES
            }
            Kind::Joins => 500,
        };
        wanted.unwrap_or(most).min(most)
    }
}

/// When the hostile client's next message goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pacing {
    /// When the one before is answered
    InTurn,
    /// As soon as the stream takes it
    Flood,
}

/// An honest Owner in a namespace of its own, measured while something else keeps a Manager busy.
pub(crate) struct HonestOwner {
    process: Process,
}

impl HonestOwner {
    /// Joins, however long that takes. Its namespace is made for it.
    pub(crate) async fn join(manager: &MeasuredManager) -> Result<HonestOwner> {
        let mut process = Part::Quiet(QuietPart::at(manager)).start()?;
        ask_within::<()>(&mut process, Order::Prepare, CHILD_TIMEOUT).await?;
        Ok(HonestOwner { process })
    }

    /// Makes its namespace, before anything keeps the Manager busy.
    pub(crate) async fn prepare(manager: &MeasuredManager) -> Result<()> {
        manager.create_namespace(QUIET, None).await
    }

    /// Renews for so long; gives how long renewals waited.
    pub(crate) async fn renew(&mut self, seconds: u64) -> Result<Samples> {
        let timeout = CHILD_TIMEOUT + Duration::from_secs(seconds);
        let renewed: Renewed = ask_within(&mut self.process, Order::Measure { seconds }, timeout).await?;
        Ok(with_held_up(&renewed.waits, INTERVAL))
    }
}

/// What a client should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Order {
    /// Say when it is prepared, and how many pieces its messages have.
    Prepare,
    /// The honest Owner: renew for so long, and say how long each renewal waited.
    Measure { seconds: u64 },
    /// The hostile client: begin.
    Begin,
    /// The hostile client: say how many messages it has sent, and how many answers it got.
    End,
}

/// Gives a client an order, and waits for its answer.
async fn ask_within<A: DeserializeOwned>(client: &mut Process, order: Order, timeout: Duration) -> Result<A> {
    let late = |_| {
        Err(format!("a client said nothing for {timeout:?}: the Manager may not answer it any more").into())
    };
    tokio::time::timeout(timeout, ask(client, &order)).await.unwrap_or_else(late)
}

/// Who does the worst that is legal, and how.
type Case = Option<(Kind, Pacing)>;

pub(crate) async fn run(args: IsolationArgs) -> Result<()> {
    let kinds = if args.kinds.is_empty() { Kind::value_variants() } else { &args.kinds };
    let both = [Pacing::InTurn, Pacing::Flood];
    let hostile = kinds.iter().flat_map(|kind| both.map(|pacing| Some((*kind, pacing))));
    let mut rows: Vec<Value> = Vec::new();
    let mut baseline = None;
    for case in std::iter::once(None).chain(hostile) {
        let (row, p99) = measure(case, &args, baseline).await?;
        baseline = baseline.or(Some(p99));
        args.format.say(&format!("{} {}", row["kind"], row["pacing"]));
        if args.format.is_json() {
            println!("{row}");
        }
        rows.push(row);
    }
    if !args.format.is_json() {
        println!("{}", words(&rows));
    }
    Ok(())
}

/// What one case does to the honest Owner, and the 99th percentile of its waits in microseconds.
async fn measure(case: Case, args: &IsolationArgs, baseline: Option<u64>) -> Result<(Value, u64)> {
    let mut manager = MeasuredManager::start().await?;
    manager.create_namespace(QUIET, None).await?;
    manager.create_namespace(LOUD, Some(loud_settings())).await?;
    let address = || manager.address().to_owned();
    let (mut hostile, mut pieces) = (None, 0);
    if let Some((kind, pacing)) = case {
        let part = HostilePart { manager: address(), kind, pacing, pieces: kind.pieces(args.pieces) };
        let process = hostile.insert(Part::Hostile(part).start_behind_others()?);
        pieces = ask_within(process, Order::Prepare, CHILD_TIMEOUT).await?;
    }
    // Last, because it does not renew while it waits for the others.
    let mut quiet = Part::Quiet(QuietPart::at(&manager)).start()?;
    ask_within::<()>(&mut quiet, Order::Prepare, CHILD_TIMEOUT).await?;

    let before = manager.read_meter().await?;
    if let Some(hostile) = &mut hostile {
        ask_within::<()>(hostile, Order::Begin, CHILD_TIMEOUT).await?;
    }
    let (seconds, timeout) = (args.seconds, CHILD_TIMEOUT + Duration::from_secs(args.seconds));
    let Renewed { waits: measured, stall } =
        ask_within(&mut quiet, Order::Measure { seconds }, timeout).await?;
    let cost = before.cost_until(&manager.read_meter().await?);
    let (messages, replies): (u64, u64) = match &mut hostile {
        Some(hostile) => ask_within(hostile, Order::End, CHILD_TIMEOUT).await?,
        None => (0, 0),
    };
    manager.check()?;
    let waits = with_held_up(&measured, INTERVAL);
    let times = waits.percentiles(Duration::from_micros(1));
    let above = baseline.map(|baseline| times.p99.saturating_sub(baseline));
    let (kind, pacing) =
        case.map_or((json!("baseline"), json!("-")), |(kind, pacing)| (json!(kind), json!(pacing)));
    let row = json!({
        "kind": kind,
        "pacing": pacing,
        "pieces": pieces,
        "hostile_messages": messages,
        "hostile_replies": replies,
        "renewals": measured.len(),
        "p50_us": times.p50,
        "p99_us": times.p99,
        "max_us": times.max,
        "machine_stall_us": u64::try_from(stall.as_micros()).unwrap_or(u64::MAX),
        "p99_above_baseline_us": above,
        "within_10_ms": above.map(|above| above <= MAX_ABOVE_BASELINE_US),
        "seconds": hundredths(cost.seconds),
        "cpu_seconds": hundredths(cost.cpu_seconds),
    });
    Ok((row, times.p99))
}

fn loud_settings() -> v1::Settings {
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).ok();
    v1::Settings {
        lease_ms: milliseconds(LOUD_LEASE),
        hold_ms: milliseconds(LOUD_LEASE * 65 / 60),
        ..v1::Settings::default()
    }
}

/// Renewals are due at a steady interval, but no Owner sends one before the last was answered. Each that a long wait
/// held up counts with what was left of that wait when it was due.
fn with_held_up(measured: &[Duration], interval: Duration) -> Samples {
    let shorter = |wait: &Duration| wait.checked_sub(interval).filter(|left| !left.is_zero());
    measured.iter().flat_map(|wait| std::iter::successors(Some(*wait), shorter)).collect()
}

fn words(rows: &[Value]) -> String {
    let outside = rows.iter().filter(|row| row["within_10_ms"] == false).count();
    let verdict = match outside {
        0 => "the 99th percentile is never more than 10 ms above the baseline's".to_owned(),
        outside => format!("in {outside} cases the 99th percentile is more than 10 ms above the baseline's"),
    };
    format!("{}\n\n{verdict}", table_of(&COLUMNS, rows))
}

/// What the honest Owner is told at its start.
#[derive(Serialize, Deserialize)]
pub(crate) struct QuietPart {
    manager: String,
    files: ClientFiles,
}

impl QuietPart {
    /// An Owner of this Manager.
    fn at(manager: &MeasuredManager) -> QuietPart {
        QuietPart { manager: manager.address().to_owned(), files: manager.client_files() }
    }
}

/// The honest Owner: renews its leases at a steady pace, and notes how long each answer takes.
pub(crate) async fn run_quiet(part: QuietPart) -> Result<()> {
    let dialer = Dialer::secured(part.files.security());
    let mut session = Session::join(&dialer, &part.manager, QUIET, "honest").await?;
    session.divide(LEASES).await?;
    let mut orders = Orders::new();
    while let Some(order) = orders.next().await {
        match order {
            Order::Measure { seconds } => {
                orders.answer(Ok(renew(&mut session, Duration::from_secs(seconds)).await?));
            }
            _ => orders.answer(Ok(())),
        }
    }
    Ok(())
}

/// How long each renewal waited, and the longest time for which the machine ran nothing of this process.
#[derive(Serialize, Deserialize)]
struct Renewed {
    waits: Vec<Duration>,
    stall: Duration,
}

async fn renew(session: &mut Session, length: Duration) -> Result<Renewed> {
    let stall = std::thread::spawn(move || longest_oversleep(length));
    let lists = session.renewal();
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let began = Instant::now();
    let mut waits = Vec::new();
    while began.elapsed() < length {
        interval.tick().await;
        let sent = Instant::now();
        session.report(&lists).await?;
        waits.push(sent.elapsed());
    }
    let stall = stall.join().map_err(|_| Failure::from("the thread that watches for stalls ended"))?;
    Ok(Renewed { waits, stall })
}

/// By how much a thread that sleeps again and again was late at most.
fn longest_oversleep(length: Duration) -> Duration {
    const NAP: Duration = Duration::from_millis(1);
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    while began.elapsed() < length {
        let asleep = Instant::now();
        std::thread::sleep(NAP);
        longest = longest.max(asleep.elapsed().saturating_sub(NAP));
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_long_wait_held_up_counts_too() {
        let waits = |milliseconds: &[u64]| {
            let measured: Vec<Duration> = milliseconds.iter().copied().map(Duration::from_millis).collect();
            with_held_up(&measured, INTERVAL)
        };
        let samples = |milliseconds: &[u64]| -> Samples {
            milliseconds.iter().copied().map(Duration::from_millis).collect()
        };
        assert_eq!(waits(&[35, 1]), samples(&[35, 25, 15, 5, 1]));
        assert_eq!(waits(&[10]), samples(&[10]), "the next is due just when this one is answered");
    }
}
