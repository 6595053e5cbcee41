//! `centrifuge-bench commit`: what a commit and a join cost on etcd and on the embedded store, in one run.

mod place;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use self::place::Place;
use crate::Failure;
use crate::output::{Format, table};
use crate::process::start_etcd;

/// The nodes of etcd.
const NODES: usize = 3;
/// The stores take turns, so that what else the machine does meets both.
const ROUNDS: u32 = 4;

#[derive(Args)]
pub(crate) struct CommitArgs {
    /// How long changes are committed on each store, once one at a time and once many at a time, in seconds
    #[arg(long, default_value_t = 8, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How many operators want changes at the same time in the second case
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=200))]
    in_flight: u16,
    /// How many Owners join each store, one after the other
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    joins: u32,
    /// The folder in which both stores keep their data for the time of the run [default: the system's for such files]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(args: CommitArgs) -> Result<(), Failure> {
    let report = measure(&args).await?;
    args.format.print(&report.json(), || report.words());
    Ok(())
}

async fn measure(args: &CommitArgs) -> Result<Report, Failure> {
    let (nodes, folder) = start_etcd(NODES, args.dir.as_deref()).await?;
    let file = folder.path().join("centrifuge.db").display().to_string();
    let operators = usize::from(args.in_flight);
    let mut embedded = Place::start(&["--store", &file], operators).await?;
    let endpoints = nodes.endpoints().join(",");
    let mut etcd = Place::start(&["--store", "etcd", "--etcd-endpoints", &endpoints], operators).await?;
    let mut report = Report { in_flight: args.in_flight, embedded: Cost::new()?, etcd: Cost::new()? };
    let (time, joins) = (Duration::from_secs(args.seconds) / ROUNDS, args.joins.div_ceil(ROUNDS));
    for _ in 0..ROUNDS {
        for (place, cost) in [(&mut embedded, &mut report.embedded), (&mut etcd, &mut report.etcd)] {
            place.commit(1, time, &mut cost.one).await?;
            place.commit(operators, time, &mut cost.many).await?;
            place.join(joins, &mut cost.join).await?;
        }
    }
    Ok(report)
}

/// Changes that were committed, each from an operator's request to its answer.
struct Commits {
    changes: u64,
    /// Batches of the log that they took: changes that come together are committed together.
    batches: u64,
    time: Duration,
    micros: Histogram<u64>,
}

/// What one store costs.
struct Cost {
    one: Commits,
    many: Commits,
    /// From the call of `join` to the first lease, in microseconds.
    join: Histogram<u64>,
}

fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new(3).map_err(Failure::from)
}

impl Commits {
    fn new() -> Result<Commits, Failure> {
        Ok(Commits { changes: 0, batches: 0, time: Duration::ZERO, micros: histogram()? })
    }

    fn per_second(&self) -> f64 {
        self.changes as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn json(&self) -> Value {
        json!({
            "changes": self.changes,
            "changes_per_second": self.per_second().round(),
            "changes_per_commit": hundredths(self.changes as f64 / self.batches.max(1) as f64),
            "latency_us": percentiles(&self.micros),
        })
    }
}

impl Cost {
    fn new() -> Result<Cost, Failure> {
        Ok(Cost { one: Commits::new()?, many: Commits::new()?, join: histogram()? })
    }

    fn json(&self) -> Value {
        json!({
            "one_in_flight": self.one.json(),
            "many_in_flight": self.many.json(),
            "joins": self.join.len(),
            "join_us": percentiles(&self.join),
        })
    }
}

fn percentiles(micros: &Histogram<u64>) -> Value {
    json!({
        "p50": micros.value_at_quantile(0.5),
        "p99": micros.value_at_quantile(0.99),
        "max": micros.max(),
    })
}

struct Report {
    in_flight: u16,
    embedded: Cost,
    etcd: Cost,
}

impl Report {
    /// How often the embedded store's figure is contained in etcd's.
    fn ratio(&self, figure: impl Fn(&Cost) -> f64) -> f64 {
        hundredths(figure(&self.etcd) / figure(&self.embedded).max(f64::MIN_POSITIVE))
    }

    fn json(&self) -> Value {
        json!({
            "in_flight": self.in_flight,
            "etcd_nodes": NODES,
            "embedded": self.embedded.json(),
            "etcd": self.etcd.json(),
            "etcd_to_embedded": {
                "changes_per_second_one_in_flight": self.ratio(|cost| cost.one.per_second()),
                "changes_per_second_many_in_flight": self.ratio(|cost| cost.many.per_second()),
                "latency_p50": self.ratio(|cost| cost.one.micros.value_at_quantile(0.5) as f64),
                "latency_p99": self.ratio(|cost| cost.one.micros.value_at_quantile(0.99) as f64),
                "join_p50": self.ratio(|cost| cost.join.value_at_quantile(0.5) as f64),
                "join_p99": self.ratio(|cost| cost.join.value_at_quantile(0.99) as f64),
            },
        })
    }

    fn words(&self) -> String {
        let head = ["", "embedded", &format!("etcd, {NODES} nodes"), "ratio"];
        let row = |name: &str, figure: &dyn Fn(&Cost) -> f64| {
            let show = |cost: &Cost| format!("{:.0}", figure(cost));
            vec![
                name.to_owned(),
                show(&self.embedded),
                show(&self.etcd),
                format!("{:.2}", self.ratio(figure)),
            ]
        };
        let at = |quantile: f64| move |micros: &Histogram<u64>| micros.value_at_quantile(quantile) as f64;
        let many = format!("changes/s, {} at a time", self.in_flight);
        let rows = [
            row("changes/s, one at a time", &|cost| cost.one.per_second()),
            row(&many, &|cost| cost.many.per_second()),
            row("a change, p50, us", &|cost| at(0.5)(&cost.one.micros)),
            row("a change, p99, us", &|cost| at(0.99)(&cost.one.micros)),
            row("a join, p50, us", &|cost| at(0.5)(&cost.join)),
            row("a join, p99, us", &|cost| at(0.99)(&cost.join)),
        ];
        table(&head, rows)
    }
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
