//! `centrifuge-bench manager`: the testbed of Centrifuge §5.2 over real connections, and what the Manager costs in it.

mod tls;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use centrifuge::{Key, KeyRange};
use centrifuge_harness::Samples;
use centrifuge_net::clock;
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::{Value, json};

use crate::output::{Format, hundredths, micros, table_of};
use crate::testbed::{
    Cost, Kind, NAMESPACE, Order, REST_TIMEOUT, Reading, Share, Testbed, owner_name, owner_url,
};
use crate::{Failure, Result, count, duration};

/// The paper restarts all Owners, and then all Lookups, within this time.
const PAPER_PACE: Duration = Duration::from_secs(32 * 60);

#[derive(Args, Clone)]
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
    /// Measures what TLS costs instead: renewals beside plain text, and many clients that come back after a restart
    #[arg(long)]
    tls: bool,
    /// How many Lookups come back at once after the Manager's restart, with --tls
    #[arg(long, default_value_t = 10_000, value_parser = count, requires = "tls")]
    reconnecting: usize,
    #[command(flatten)]
    format: Format,
}

pub(crate) async fn run(args: ManagerBenchArgs) -> Result<()> {
    match args.tls {
        true => args.format.print(&tls::measure(&args).await?, tls::words),
        false => args.format.print(&measure(&args).await?, words),
    }
    Ok(())
}

async fn measure(args: &ManagerBenchArgs) -> Result<Value> {
    let mut testbed = Testbed::start(&shares(args), all_together(args.owners)).await?;
    let mut phases = Phases { begun: testbed.manager.read_meter().await?, reports: Vec::new() };
    let say = |what: &str| args.format.say(what);

    say("start: all clients join");
    testbed.order(&Order::Start { kind: Kind::Owners }).await?;
    testbed.order(&Order::Start { kind: Kind::Lookups }).await?;
    testbed.await_rest().await?;
    testbed.grant_at_once().await?;
    phases.end("start", &testbed).await?;

    say(&format!("steady: {} s", args.phase_seconds));
    steady(&mut testbed, args).await?;
    let bytes_per_lease_message = phases.end("steady", &testbed).await?.bytes_per_lease_message();

    say("moves: an operator moves ranges");
    testbed.await_rest().await?;
    let bytes_per_range = testbed.bytes_per_range().await?;
    let propagation = measure_moves(&mut testbed, args.owners, args.moves).await?;
    testbed.await_rest().await?;
    let in_moves = phases.end("moves", &testbed).await?.bytes_per_lease_message();

    for (name, kind) in [("owner_restarts", Kind::Owners), ("lookup_restarts", Kind::Lookups)] {
        let within = PAPER_PACE / args.restart_rate;
        say(&format!("{name}: all of them within {within:?}"));
        testbed.order(&Order::Restart { kind, within }).await?;
        testbed.await_rest().await?;
        phases.end(name, &testbed).await?;
    }
    Ok(json!({
        "owners": args.owners,
        "lookups": args.lookups,
        "ranges": testbed.status().await?.ranges,
        "phases": phases.reports,
        "bytes_per_range": bytes_per_range,
        "bytes_per_lease_message": bytes_per_lease_message.or(in_moves).unwrap_or_default(),
        "propagation_us": micros(&propagation.from_commit),
        "propagation_each_lookup_us": micros(&propagation.each_lookup),
        "propagation_from_request_us": micros(&propagation.from_request),
    }))
}

fn words(report: &Value) -> String {
    let columns = [
        ("phase", "/name"),
        ("seconds", "/seconds"),
        ("cpu %", "/cpu_percent"),
        ("resident bytes", "/resident_bytes"),
        ("in/s", "/messages_in_per_second"),
        ("out/s", "/messages_out_per_second"),
        ("bytes in/s", "/bytes_in_per_second"),
        ("bytes out/s", "/bytes_out_per_second"),
    ];
    let phases = report["phases"].as_array().map_or(&[][..], Vec::as_slice);
    format!(
        "{}\n\n{} ranges, {} B a range, {} B a lease message\nfrom commit to the last Lookup, in microseconds: {}",
        table_of(&columns, phases),
        report["ranges"],
        report["bytes_per_range"],
        report["bytes_per_lease_message"],
        report["propagation_us"],
    )
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
        settle_ms: u64::try_from(REST_TIMEOUT.as_millis()).ok(),
        ..v1::Settings::default()
    }
}

async fn steady(testbed: &mut Testbed, args: &ManagerBenchArgs) -> Result<()> {
    let time = Duration::from_secs(args.phase_seconds);
    match args.mean_lifetime {
        Some(mean_lifetime) => testbed.order(&Order::RestartAtRandom { mean_lifetime, time }).await,
        None => {
            tokio::time::sleep(time).await;
            Ok(())
        }
    }
}

/// What each phase cost; the next begins where one ends.
struct Phases {
    begun: Reading,
    reports: Vec<Value>,
}

impl Phases {
    async fn end(&mut self, name: &str, testbed: &Testbed) -> Result<Cost> {
        let now = testbed.manager.read_meter().await?;
        let cost = self.begun.cost_until(&now);
        self.begun = now;
        self.reports.push(json!({
            "name": name,
            "seconds": hundredths(cost.seconds),
            "cpu_percent": hundredths(cost.cpu_seconds / cost.seconds * 100.0),
            "resident_bytes": cost.resident_bytes,
            "messages_in_per_second": cost.rate(cost.counts.messages_in),
            "messages_out_per_second": cost.rate(cost.counts.messages_out),
            "bytes_in_per_second": cost.rate(cost.counts.bytes_in),
            "bytes_out_per_second": cost.rate(cost.counts.bytes_out),
        }));
        Ok(cost)
    }
}

/// How long moves took to reach Lookups.
#[derive(Default)]
struct Propagation {
    /// To the last Lookup, from the commit that gave the range to its new owner.
    from_commit: Samples,
    /// To the last Lookup, from before the operator's request went out: the recall from the old owner included.
    from_request: Samples,
    /// To every Lookup, from the commit.
    each_lookup: Samples,
}

impl Propagation {
    fn note(&mut self, requested: u64, committed: u64, seen_at: &[u64]) {
        let passed = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
        self.each_lookup.extend(seen_at.iter().map(|seen| passed(committed, *seen)));
        self.from_commit.extend(seen_at.iter().max().map(|last| passed(committed, *last)));
        self.from_request.extend(seen_at.iter().max().map(|last| passed(requested, *last)));
    }
}

/// Moves so many ranges to another Owner, each of them back as well.
async fn measure_moves(testbed: &mut Testbed, owners: usize, moves: usize) -> Result<Propagation> {
    let mut propagation = Propagation::default();
    for number in 0..moves {
        let key = Key::of(&number.to_le_bytes());
        let lease = lease_of(testbed, key).await?;
        let from = lease.owner.map(|owner| owner.name).unwrap_or_default();
        let next = (0..owners).map(owner_name).find(|name| *name != from);
        let (Some(to), Some(range)) = (next, lease.range) else { continue };
        move_once(testbed, &mut propagation, key, range, Some(&to), &to).await?;
        move_once(testbed, &mut propagation, key, range, None, &from).await?;
    }
    Ok(propagation)
}

/// Moves a range to the Owner `pinned`, or where the partitioner wants it, and waits until all Lookups see it at
/// `owner`.
async fn move_once(
    testbed: &mut Testbed,
    propagation: &mut Propagation,
    key: Key,
    range: v1::KeyRange,
    pinned: Option<&str>,
    owner: &str,
) -> Result<()> {
    testbed.order(&Order::Expect { key: key.0, url: owner_url(owner) }).await?;
    let request = v1::MoveRequest {
        namespace: NAMESPACE.to_owned(),
        range: Some(range),
        to: pinned.map(str::to_owned),
        why: "measuring".to_owned(),
    };
    let mut admin = testbed.manager.admin()?;
    let requested = clock::now().0;
    admin.r#move(request).await?;
    let seen_at: Vec<Vec<u64>> = testbed.ask(&Order::Collect).await?;
    let committed = commit_of(testbed, key, owner).await?.max(requested);
    propagation.note(requested, committed, &seen_at.concat());
    Ok(())
}

async fn lease_of(testbed: &Testbed, key: Key) -> Result<v1::Lease> {
    let request = v1::ListLeasesRequest {
        namespace: NAMESPACE.to_owned(),
        range: Some(KeyRange::one(key).into()),
        owner: None,
    };
    let reply = testbed.manager.admin()?.list_leases(request).await?.into_inner();
    reply.leases.into_iter().next().ok_or_else(|| Failure::from("a key is in no range"))
}

/// When the key was last granted to an Owner, by the boot-time clock in nanoseconds. The Manager's history has whole
/// milliseconds, rounded down.
async fn commit_of(testbed: &Testbed, key: Key, owner: &str) -> Result<u64> {
    let request = v1::HistoryRequest { namespace: Some(NAMESPACE.to_owned()), key: Some(key.0), limit: 100 };
    let reply = testbed.manager.admin()?.history(request).await?.into_inner();
    let is_grant =
        |decision: &&v1::Decision| decision.kind == "granted" && decision.owner.as_deref() == Some(owner);
    let grant = reply.decisions.iter().rev().find(is_grant);
    let grant = grant.ok_or_else(|| Failure::from("the Manager's history has no such move"))?;
    let boot = clock::now().0;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ago =
        u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX).saturating_sub(grant.wall_time_ms * 1_000_000);
    Ok(boot.saturating_sub(ago))
}
