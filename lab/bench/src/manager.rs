//! `centrifuge-bench manager`: the testbed of Centrifuge §5.2 over real connections, and what the Manager costs in it.

mod propagation;

use std::io::IsTerminal;
use std::time::Duration;

use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::{Value, json};

use self::propagation::Propagation;
use crate::output::{Format, table};
use crate::testbed::{Cost, Kind, Meter, Order, REST_TIMEOUT, Reading, Share, Testbed};
use crate::{Failure, count, duration, hundredths, milliseconds};

/// The paper restarts all Owners, and then all Lookups, within this time.
const PAPER_PACE: Duration = Duration::from_secs(32 * 60);

#[derive(Args)]
pub(crate) struct ManagerBenchArgs {
    /// How many Owners
    #[arg(long, default_value_t = 200, value_parser = count)]
    owners: usize,
    /// How many Lookups
    #[arg(long, default_value_t = 2_016, value_parser = count)]
    lookups: usize,
    /// How much faster than in the paper they restart, all of them within 32 minutes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    restart_rate: u32,
    /// How long the steady phase is, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    phase_seconds: u64,
    /// In the steady phase every client restarts at random, after so long on average
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    mean_lifetime: Option<Duration>,
    /// How many ranges are moved, and moved back, to measure how fast all Lookups know
    #[arg(long, default_value_t = 20)]
    moves: usize,
    /// How many processes the clients are divided among
    #[arg(long, default_value_t = 4, value_parser = count)]
    processes: usize,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(args: ManagerBenchArgs) -> Result<(), Failure> {
    let report = measure(&args).await?;
    args.format.print(&report.json(), || report.words());
    Ok(())
}

async fn measure(args: &ManagerBenchArgs) -> Result<Report, Failure> {
    let mut testbed = Testbed::start(&shares(args), all_together(args.owners)).await?;
    let mut phases =
        Phases::new(testbed.meter(), !args.format.is_json() && std::io::stderr().is_terminal()).await?;

    phases.say("start: all clients join");
    testbed.order(&Order::Start { kind: Kind::Owners }).await?;
    testbed.order(&Order::Start { kind: Kind::Lookups }).await?;
    testbed.await_rest().await?;
    testbed.grant_at_once().await?;
    phases.end("start").await?;

    phases.say(&format!("steady: {} s", args.phase_seconds));
    steady(&mut testbed, args).await?;
    let bytes_per_lease_message = phases.end("steady").await?.bytes_per_lease_message;

    phases.say("moves: an operator moves ranges");
    testbed.await_rest().await?;
    let bytes_per_range = testbed.bytes_per_range().await?;
    let propagation = propagation::measure(&mut testbed, args.owners, args.moves).await?;
    testbed.await_rest().await?;
    let in_moves = phases.end("moves").await?.bytes_per_lease_message;

    for (name, kind) in [("owner_restarts", Kind::Owners), ("lookup_restarts", Kind::Lookups)] {
        let within = PAPER_PACE / args.restart_rate;
        phases.say(&format!("{name}: all of them within {within:?}"));
        testbed.order(&Order::Restart { kind, within_ms: milliseconds(within) }).await?;
        testbed.await_rest().await?;
        phases.end(name).await?;
    }
    Ok(Report {
        owners: args.owners,
        lookups: args.lookups,
        ranges: testbed.namespace().await?.ranges,
        phases: phases.costs,
        bytes_per_range,
        bytes_per_lease_message: bytes_per_lease_message.or(in_moves).unwrap_or_default(),
        propagation,
    })
}

/// The Owners have a process of their own, where nothing else delays their renewals.
fn shares(args: &ManagerBenchArgs) -> Vec<Share> {
    let others = args.processes - 1;
    let lookups_of = |number: usize| match number.checked_sub(1) {
        None => args.lookups * usize::from(others == 0),
        Some(number) => args.lookups * (number + 1) / others - args.lookups * number / others,
    };
    let share = |number| Share {
        first_owner: 0,
        owners: args.owners * usize::from(number == 0),
        lookups: lookups_of(number),
    };
    (0..args.processes).map(share).collect()
}

/// The first ranges are granted when all Owners are there: else they would move with every one that joins.
fn all_together(owners: usize) -> v1::Settings {
    v1::Settings {
        min_owners: Some(u32::try_from(owners).unwrap_or(u32::MAX)),
        settle_ms: Some(milliseconds(REST_TIMEOUT)),
        ..v1::Settings::default()
    }
}

async fn steady(testbed: &mut Testbed, args: &ManagerBenchArgs) -> Result<(), Failure> {
    let length = Duration::from_secs(args.phase_seconds);
    match args.mean_lifetime {
        Some(lifetime) => {
            let order = Order::RestartAtRandom {
                mean_lifetime_ms: milliseconds(lifetime),
                for_ms: milliseconds(length),
            };
            testbed.order(&order).await?;
        }
        None => tokio::time::sleep(length).await,
    }
    Ok(())
}

/// What each phase cost; the next begins where one ends.
struct Phases {
    meter: Meter,
    begun: Reading,
    costs: Vec<(&'static str, Cost)>,
    speaks: bool,
}

impl Phases {
    async fn new(meter: Meter, speaks: bool) -> Result<Phases, Failure> {
        let begun = meter.read().await?;
        Ok(Phases { meter, begun, costs: Vec::new(), speaks })
    }

    fn say(&self, what: &str) {
        if self.speaks {
            eprintln!("{what}");
        }
    }

    async fn end(&mut self, name: &'static str) -> Result<Cost, Failure> {
        let now = self.meter.read().await?;
        let cost = self.begun.cost_until(&now);
        self.begun = now;
        self.costs.push((name, cost));
        Ok(cost)
    }
}

struct Report {
    owners: usize,
    lookups: usize,
    ranges: u32,
    phases: Vec<(&'static str, Cost)>,
    bytes_per_range: u64,
    bytes_per_lease_message: u64,
    propagation: Propagation,
}

impl Report {
    fn json(&self) -> Value {
        let phase = |(name, cost): &(&str, Cost)| {
            json!({
                "name": name,
                "seconds": hundredths(cost.seconds),
                "cpu_percent": hundredths(cost.cpu_percent),
                "resident_bytes": cost.resident_bytes,
                "messages_in_per_second": cost.messages_in_per_second,
                "messages_out_per_second": cost.messages_out_per_second,
                "bytes_in_per_second": cost.bytes_in_per_second,
                "bytes_out_per_second": cost.bytes_out_per_second,
            })
        };
        json!({
            "owners": self.owners,
            "lookups": self.lookups,
            "ranges": self.ranges,
            "phases": self.phases.iter().map(phase).collect::<Vec<_>>(),
            "bytes_per_range": self.bytes_per_range,
            "bytes_per_lease_message": self.bytes_per_lease_message,
            "propagation_us": self.propagation.since_commit(),
            "propagation_each_lookup_us": self.propagation.to_each(),
            "propagation_from_request_us": self.propagation.since_request(),
        })
    }

    fn words(&self) -> String {
        let head = ["phase", "seconds", "cpu %", "resident MB", "in/s", "out/s", "KB in/s", "KB out/s"];
        let row = |(name, cost): &(&str, Cost)| {
            vec![
                (*name).to_owned(),
                format!("{:.1}", cost.seconds),
                format!("{:.2}", cost.cpu_percent),
                format!("{:.1}", cost.resident_bytes as f64 / 1e6),
                cost.messages_in_per_second.to_string(),
                cost.messages_out_per_second.to_string(),
                format!("{:.1}", cost.bytes_in_per_second as f64 / 1e3),
                format!("{:.1}", cost.bytes_out_per_second as f64 / 1e3),
            ]
        };
        format!(
            "{}\n\n{} ranges, {} B a range, {} B a lease message\nfrom commit to the last Lookup, in microseconds: {}",
            table(&head, self.phases.iter().map(row)),
            self.ranges,
            self.bytes_per_range,
            self.bytes_per_lease_message,
            self.propagation.since_commit(),
        )
    }
}
