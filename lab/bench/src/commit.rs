//! `centrifuge-bench commit`: what a commit and a join cost on etcd and on the embedded store, in one run.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use centrifuge::{Key, Managers, Owner};
use centrifuge_harness::Samples;
use centrifuge_net::dial::Channel;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::Code;

use crate::output::{Format, Rate, cell, hundredths, micros, table};
use crate::process::start_etcd;
use crate::testbed::MeasuredManager;
use crate::{Failure, Result};

/// The nodes of etcd.
const NODES: usize = 3;
/// The stores take turns, so that what else the machine does meets both.
const ROUNDS: u32 = 4;
/// Where Owners join.
const POOL: &str = "joined";
/// The one key that is looked at: an Owner alone gets all.
const KEY: Key = Key(0);
/// How long an Owner may take to get its leases or to go.
const OWNER_TIMEOUT: Duration = Duration::from_secs(60);

/// The figures that are compared: where each is in a store's report, the name of the ratio, and words for both.
const FIGURES: [(&str, &str, &str); 6] = [
    ("/one_in_flight/changes_per_second", "changes_per_second_one_in_flight", "changes/s, one at a time"),
    ("/many_in_flight/changes_per_second", "changes_per_second_many_in_flight", "changes/s, many at a time"),
    ("/one_in_flight/latency_us/p50", "latency_p50", "a change, p50, us"),
    ("/one_in_flight/latency_us/p99", "latency_p99", "a change, p99, us"),
    ("/join_us/p50", "join_p50", "a join, p50, us"),
    ("/join_us/p99", "join_p99", "a join, p99, us"),
];

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

pub(crate) async fn run(args: CommitArgs) -> Result<()> {
    args.format.print(&measure(&args).await?, words);
    Ok(())
}

async fn measure(args: &CommitArgs) -> Result<Value> {
    let (nodes, folder) = start_etcd(NODES, args.dir.as_deref()).await?;
    let file = folder.path().join("centrifuge.db").display().to_string();
    let operators = usize::from(args.in_flight);
    let endpoints = nodes.endpoints().join(",");
    let mut embedded = Place::start(&["--store", &file], operators).await?;
    let mut etcd = Place::start(&["--store", "etcd", "--etcd-endpoints", &endpoints], operators).await?;
    let (time, joins) = (Duration::from_secs(args.seconds) / ROUNDS, args.joins.div_ceil(ROUNDS));
    for _ in 0..ROUNDS {
        for place in [&mut embedded, &mut etcd] {
            place.measure(operators, time, joins).await?;
        }
    }
    let (embedded, etcd) = (embedded.json(), etcd.json());
    let ratio = |(pointer, name, _): (&str, &str, &str)| {
        let figure = |store: &Value| store.pointer(pointer).and_then(Value::as_f64).unwrap_or_default();
        (name.to_owned(), hundredths(figure(&etcd) / figure(&embedded).max(f64::MIN_POSITIVE)).into())
    };
    let ratios: serde_json::Map<String, Value> = FIGURES.map(ratio).into_iter().collect();
    Ok(json!({
        "in_flight": args.in_flight,
        "etcd_nodes": NODES,
        "embedded": embedded,
        "etcd": etcd,
        "etcd_to_embedded": ratios,
    }))
}

fn words(report: &Value) -> String {
    let many = format!("{} at a time", report["in_flight"]);
    let row = |(pointer, ratio, words): (&str, &str, &str)| {
        let figure = |store: &str| cell(report[store].pointer(pointer));
        let ratio = report["etcd_to_embedded"][ratio].to_string();
        vec![words.replace("many at a time", &many), figure("embedded"), figure("etcd"), ratio]
    };
    table(&["", "embedded", &format!("etcd, {NODES} nodes"), "ratio"], FIGURES.map(row))
}

/// A Manager on a store, and what that costs.
struct Place {
    manager: MeasuredManager,
    one: Commits,
    many: Commits,
    /// From the call of `join` to the first lease.
    joins: Samples,
}

/// Changes that were committed, each from an operator's request to its answer.
#[derive(Default)]
struct Commits {
    changes: Rate,
    /// Batches of the log that they took: changes that come together are committed together.
    batches: u64,
}

impl Commits {
    fn json(&self) -> Value {
        let mut value = self.changes.json("changes");
        let per_commit = self.changes.count as f64 / self.batches.max(1) as f64;
        value["changes_per_commit"] = hundredths(per_commit).into();
        value
    }
}

impl Place {
    /// Starts a Manager with these arguments, and makes a namespace for each operator and one for Owners.
    async fn start(store: &[&str], operators: usize) -> Result<Place> {
        // An operator more than there are has room: whoever just got an answer may not be gone yet.
        let limits = ["--max-namespaces", "1000", "--max-admin-requests", "1000"];
        let manager = MeasuredManager::start_on(&[store, &limits].concat()).await?;
        for namespace in (0..operators).map(namespace_of).chain([POOL.to_owned()]) {
            manager.create_namespace(&namespace, None).await?;
        }
        Ok(Place { manager, one: Commits::default(), many: Commits::default(), joins: Samples::default() })
    }

    async fn measure(&mut self, operators: usize, time: Duration, joins: u32) -> Result<()> {
        commit(&self.manager, 1, time, &mut self.one).await?;
        commit(&self.manager, operators, time, &mut self.many).await?;
        self.join(joins).await?;
        self.manager.check()
    }

    /// So many times an Owner joins a pool that has none, gets every key, and leaves again.
    async fn join(&mut self, times: u32) -> Result<()> {
        let managers = Managers::list([self.manager.address()])?;
        for _ in 0..times {
            let since = Instant::now();
            let owner = Owner::builder(managers.clone(), POOL)
                .name("joiner")
                .url("http://joiner.example:8080")
                .join()
                .await?;
            let leased = tokio::time::timeout(OWNER_TIMEOUT, first_lease(&owner)).await;
            leased.map_err(|_| Failure::from("an Owner that joined got no lease"))?;
            self.joins.add(since.elapsed());
            owner.leave(OWNER_TIMEOUT).await?;
        }
        Ok(())
    }

    fn json(&self) -> Value {
        json!({
            "one_in_flight": self.one.json(),
            "many_in_flight": self.many.json(),
            "joins": self.joins.count(),
            "join_us": micros(&self.joins),
        })
    }
}

/// So many operators change namespaces of their own, each as soon as its last change is answered, for some time.
async fn commit(
    manager: &MeasuredManager,
    operators: usize,
    time: Duration,
    commits: &mut Commits,
) -> Result<()> {
    let before = last_index(manager).await?;
    let since = Instant::now();
    let mut all = JoinSet::new();
    for operator in 0..operators {
        all.spawn(change(manager.admin()?, namespace_of(operator), since + time));
    }
    while let Some(operator) = all.join_next().await {
        operator??.into_iter().for_each(|took| commits.changes.note(took));
    }
    commits.changes.time += since.elapsed();
    commits.batches += last_index(manager).await?.saturating_sub(before);
    Ok(())
}

/// The place of the last batch in the log.
async fn last_index(manager: &MeasuredManager) -> Result<u64> {
    let request = v1::HistoryRequest { namespace: None, key: None, limit: 1 };
    let history = manager.admin()?.history(request).await?.into_inner();
    Ok(history.decisions.last().map_or(0, |decision| decision.index))
}

fn namespace_of(operator: usize) -> String {
    format!("changed-{operator}")
}

async fn first_lease(owner: &Owner) {
    let mut changes = owner.changes();
    while owner.check_lease_now(KEY).is_err() && changes.next().await.is_some() {}
}

/// Freezes and unfreezes a namespace until it is time: a change that is committed each time, and leaves no trace.
async fn change(mut admin: AdminClient<Channel>, namespace: String, until: Instant) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    while Instant::now() < until {
        let (since, namespace, why) = (Instant::now(), namespace.clone(), String::new());
        let answer = if times.len().is_multiple_of(2) {
            admin.freeze(v1::FreezeRequest { namespace, why }).await.map(drop)
        } else {
            admin.unfreeze(v1::UnfreezeRequest { namespace, why }).await.map(drop)
        };
        match answer {
            Ok(()) => times.push(since.elapsed()),
            Err(status) if status.code() == Code::Unavailable => {
                return Err("the Manager stopped leading: the machine is too busy to measure".into());
            }
            Err(status) => return Err(status.into()),
        }
    }
    Ok(times)
}
