//! `centrifuge-bench isolation`: what a renewal in one namespace waits for while somebody in another does the worst
//! that is legal.

mod hostile;
mod lists;
mod order;
mod quiet;
mod session;
mod waits;
mod wire;

use std::io::IsTerminal;
use std::time::Duration;

use centrifuge_harness::Process;
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::{Value, json};

pub(crate) use self::hostile::{HostileArgs, run as run_hostile};
use self::order::{Answer, Kind, Order, Pacing, name_of, wait_for};
pub(crate) use self::quiet::{QuietArgs, run as run_quiet};
use self::waits::Waits;
use crate::Failure;
use crate::output::{Format, table};
use crate::process::{start, start_behind_others, tell};
use crate::testbed::MeasuredManager;
use crate::{count, hundredths};

/// Where the honest Owner is.
const QUIET: &str = "quiet";
/// Where the hostile client is.
const LOUD: &str = "loud";
/// The longest that a renewal should wait because of others, at the 99th percentile.
const MAX_ABOVE_BASELINE: Duration = Duration::from_millis(10);
/// How long a child may take to prepare, and beyond the measurement to answer.
const CHILD_TIMEOUT: Duration = Duration::from_secs(180);
/// The hostile client's leases outlast every measurement: it need not renew what it only keeps.
const LOUD_LEASE: Duration = Duration::from_secs(3_600);

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
so the times are an upper bound of what the Manager is to blame for.";

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

pub(crate) async fn run(args: IsolationArgs) -> Result<(), Failure> {
    let kinds = if args.kinds.is_empty() { Kind::ALL.to_vec() } else { args.kinds.clone() };
    let speaks = !args.format.is_json() && std::io::stderr().is_terminal();
    let hostile = kinds.into_iter().flat_map(|kind| Pacing::ALL.map(|pacing| Some((kind, pacing))));
    let mut rows: Vec<Row> = Vec::new();
    for case in std::iter::once(None).chain(hostile) {
        if speaks {
            eprintln!("{}", show_case(case).join(" "));
        }
        let baseline = rows.first().map(|row| row.p99);
        let row = measure(case, &args, baseline).await?;
        if args.format.is_json() {
            println!("{}", row.json());
        }
        rows.push(row);
    }
    if !args.format.is_json() {
        println!("{}", show(&rows));
    }
    Ok(())
}

type Case = Option<(Kind, Pacing)>;

async fn measure(case: Case, args: &IsolationArgs, baseline: Option<Duration>) -> Result<Row, Failure> {
    let mut manager = MeasuredManager::start().await?;
    manager.create_namespace(QUIET, v1::Settings::default()).await?;
    manager.create_namespace(LOUD, loud_settings()).await?;
    let mut hostile = match case {
        Some((kind, pacing)) => Some(Hostile::start(manager.address(), kind, pacing, args.pieces).await?),
        None => None,
    };
    // Last, because it does not renew while it waits for the others.
    let mut quiet = start(&["isolation-quiet", "--manager", manager.address()])?;
    wait_for(&mut quiet, CHILD_TIMEOUT).await?;

    let meter = manager.meter();
    let before = meter.read().await?;
    hostile.as_mut().map(Hostile::begin).transpose()?;
    let waits = renew(&mut quiet, args.seconds).await?;
    let cost = before.cost_until(&meter.read().await?);
    let (messages, replies) = match &mut hostile {
        Some(hostile) => hostile.end().await?,
        None => (0, 0),
    };
    manager.check()?;
    let p99 = waits.percentile(99);
    Ok(Row {
        case,
        pieces: hostile.map_or(0, |hostile| hostile.pieces),
        messages,
        replies,
        p99,
        above_baseline: baseline.map(|baseline| p99.saturating_sub(baseline)),
        waits,
        seconds: cost.seconds,
        cpu_seconds: cost.cpu_seconds,
    })
}

/// Lets the honest Owner renew for some time.
async fn renew(quiet: &mut Process, seconds: u64) -> Result<Waits, Failure> {
    tell(quiet, &Order::Measure { seconds })?;
    match wait_for(quiet, CHILD_TIMEOUT + Duration::from_secs(seconds)).await? {
        Answer::Waited { micros } => {
            Ok(Waits::new(micros.into_iter().map(Duration::from_micros), quiet::INTERVAL))
        }
        other => Err(Failure::from(format!("the honest Owner said {other:?}"))),
    }
}

/// The hostile client's process.
struct Hostile {
    process: Process,
    pieces: usize,
}

impl Hostile {
    /// Starts it and waits until it is prepared.
    async fn start(
        manager: &str,
        kind: Kind,
        pacing: Pacing,
        pieces: Option<usize>,
    ) -> Result<Hostile, Failure> {
        let (kind_name, pacing) = (name_of(kind), name_of(pacing));
        let pieces = kind.pieces(pieces).to_string();
        let role = ["isolation-hostile", "--manager", manager, "--kind", &kind_name];
        let mut process =
            start_behind_others(&[&role[..], &["--pacing", &pacing, "--pieces", &pieces]].concat())?;
        match wait_for(&mut process, CHILD_TIMEOUT).await? {
            Answer::Ready { size } => Ok(Hostile { process, pieces: size }),
            other => Err(Failure::from(format!("the hostile client said {other:?}"))),
        }
    }

    fn begin(&mut self) -> Result<(), Failure> {
        tell(&mut self.process, &Order::Begin)
    }

    /// How many messages it has sent, and how many answers it got.
    async fn end(&mut self) -> Result<(u64, u64), Failure> {
        tell(&mut self.process, &Order::End)?;
        match wait_for(&mut self.process, CHILD_TIMEOUT).await? {
            Answer::Sent { messages, replies } => Ok((messages, replies)),
            other => Err(Failure::from(format!("the hostile client said {other:?}"))),
        }
    }
}

fn loud_settings() -> v1::Settings {
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).ok();
    v1::Settings {
        lease_ms: milliseconds(LOUD_LEASE),
        hold_ms: milliseconds(LOUD_LEASE * 65 / 60),
        ..v1::Settings::default()
    }
}

/// What one case did to the honest Owner.
struct Row {
    case: Case,
    pieces: usize,
    /// Of the hostile client: messages, requests or joins; and how many were answered.
    messages: u64,
    replies: u64,
    waits: Waits,
    p99: Duration,
    /// How much longer than in the baseline; nothing for the baseline.
    above_baseline: Option<Duration>,
    seconds: f64,
    cpu_seconds: f64,
}

impl Row {
    fn is_within_bound(&self) -> Option<bool> {
        self.above_baseline.map(|above| above <= MAX_ABOVE_BASELINE)
    }

    fn json(&self) -> Value {
        let [kind, pacing] = show_case(self.case);
        json!({
            "kind": kind,
            "pacing": pacing,
            "pieces": self.pieces,
            "hostile_messages": self.messages,
            "hostile_replies": self.replies,
            "renewals": self.waits.measured(),
            "p50_us": micros(self.waits.percentile(50)),
            "p99_us": micros(self.p99),
            "max_us": micros(self.waits.percentile(100)),
            "p99_above_baseline_us": self.above_baseline.map(micros),
            "within_10_ms": self.is_within_bound(),
            "seconds": hundredths(self.seconds),
            "cpu_seconds": hundredths(self.cpu_seconds),
        })
    }

    fn cells(&self) -> Vec<String> {
        let [kind, pacing] = show_case(self.case);
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        let verdict = |is_within| if is_within { "yes" } else { "no" };
        vec![
            kind,
            pacing,
            self.pieces.to_string(),
            self.messages.to_string(),
            self.replies.to_string(),
            self.waits.measured().to_string(),
            micros(self.waits.percentile(50)).to_string(),
            micros(self.p99).to_string(),
            micros(self.waits.percentile(100)).to_string(),
            or_dash(self.above_baseline.map(|above| micros(above).to_string())),
            or_dash(self.is_within_bound().map(|is_within| verdict(is_within).to_owned())),
            format!("{:.2}", self.cpu_seconds),
        ]
    }
}

fn show_case(case: Case) -> [String; 2] {
    match case {
        None => ["baseline".to_owned(), "-".to_owned()],
        Some((kind, pacing)) => [name_of(kind), name_of(pacing)],
    }
}

fn show(rows: &[Row]) -> String {
    let head = [
        "kind", "pacing", "pieces", "sent", "answered", "renewals", "p50 us", "p99 us", "max us", "above us",
        "within", "cpu s",
    ];
    let outside = rows.iter().filter(|row| row.is_within_bound() == Some(false)).count();
    let verdict = match outside {
        0 => "the 99th percentile is never more than 10 ms above the baseline's".to_owned(),
        outside => format!("in {outside} cases the 99th percentile is more than 10 ms above the baseline's"),
    };
    format!("{}\n\n{verdict}", table(&head, rows.iter().map(Row::cells)))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
