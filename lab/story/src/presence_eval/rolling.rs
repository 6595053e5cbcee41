//! A rolling restart under load: every server in turn moves its state away, ends, comes back and gets it back;
//! if wanted, while the Managers are restarted one after the other as well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::duration;
use centrifuge_harness::{Cluster, Service, StoreKind};
use clap::Args;
use serde::Serialize;

use super::load::{Distribution, Reading};
use super::report::{Phase, Setup, Verdict, table};
use super::{Bench, EvalArgs, at_rest, say, serve};

/// As many servers as the evaluation has unless told otherwise.
const SERVERS: usize = 6;

/// What the rolling restart is told.
#[derive(Args, Clone, Debug)]
pub struct RollingArgs {
    #[command(flatten)]
    common: EvalArgs,
    /// How long the pool rests after each restart; 0s restarts one server after the other without a breath
    #[arg(long, value_parser = duration, default_value = "1s", value_name = "DURATION")]
    rest: Duration,
    /// Where the Managers keep their table: one Manager on a file, or three
    #[arg(long, value_enum, default_value = "file")]
    store: StoreKind,
    /// Restart the Managers too, one after the other by SIGTERM, at the same time
    #[arg(long)]
    with_managers: bool,
}

#[derive(Serialize)]
struct Rolling {
    evaluation: &'static str,
    #[serde(flatten)]
    setup: Setup,
    phases: Vec<Phase>,
    rounds: usize,
    restarts: usize,
    /// Rounds over all Managers, and how many were restarted by SIGTERM.
    manager_rounds: usize,
    manager_restarts: usize,
    rest_ms: u128,
    /// From the word to stop until a process had moved everything away and ended.
    drain: Reading,
    /// From its start until it had its ranges again.
    back: Reading,
    /// From the word to stop until the next Manager of the name took part.
    manager_back: Reading,
    p99_before_ms: f64,
    p99_during_ms: f64,
    p99_after_ms: f64,
    p99_ratio: f64,
    losses_told: u64,
    failed_after_retry: u64,
    wrong: u64,
    passed: bool,
}

/// The restarts so far.
struct Restarts {
    rounds: usize,
    count: usize,
    rest: Duration,
    drain: Distribution,
    back: Distribution,
}

/// The restarts of Managers so far.
struct ManagerRestarts {
    rounds: usize,
    count: usize,
    back: Distribution,
}

/// Restarts every server in turn, for as long as it measured before, and fails if a user lost anything by it.
pub async fn rolling(args: RollingArgs) -> Result<(), Failure> {
    let RollingArgs { common: args, rest, store, with_managers } = args;
    let mut bench = Bench::start(&args, SERVERS, store).await?;
    say(&format!("measuring for {:?} before the restart", args.each));
    bench.turn_to("before").await?;
    tokio::time::sleep(args.each).await;
    let also = if with_managers { ", and one Manager after the other at the same time" } else { "" };
    say(&format!("restarting one server after the other{also}, again until {:?} are over", args.each));
    bench.turn_to("during").await?;
    let (restarts, managers) = restart_all(&mut bench, args.each, rest, with_managers).await?;
    let words = format!("{} restarts of servers and {} of Managers", restarts.count, managers.count);
    say(&format!("measuring for {:?} after {words}", args.each));
    bench.turn_to("after").await?;
    tokio::time::sleep(args.each).await;
    let phases = bench.finish().await?;
    conclude(&args, bench.setup.clone(), phases, &restarts, &managers)
}

/// Restarts servers and, if wanted, Managers, at the same time: each at least once.
async fn restart_all(
    bench: &mut Bench,
    at_least: Duration,
    rest: Duration,
    with_managers: bool,
) -> Result<(Restarts, ManagerRestarts), Failure> {
    let Bench { cluster, servers, .. } = bench;
    let is_over = AtomicBool::new(!with_managers);
    let of_servers = async {
        let restarts = restart_servers(cluster, servers, at_least, rest).await;
        is_over.store(true, Ordering::Relaxed);
        restarts
    };
    let of_managers = restart_managers(cluster, rest, &is_over, with_managers);
    tokio::try_join!(of_servers, of_managers)
}

async fn restart_servers(
    cluster: &Cluster,
    servers: &mut Vec<Service>,
    at_least: Duration,
    rest: Duration,
) -> Result<Restarts, Failure> {
    let (drain, back) = (Distribution::new()?, Distribution::new()?);
    let mut restarts = Restarts { rounds: 0, count: 0, rest, drain, back };
    let began = Instant::now();
    while restarts.rounds == 0 || began.elapsed() < at_least {
        for _ in 0..servers.len() {
            restart_first(cluster, servers, &mut restarts).await?;
            tokio::time::sleep(rest).await;
        }
        restarts.rounds += 1;
    }
    Ok(restarts)
}

async fn restart_first(
    cluster: &Cluster,
    servers: &mut Vec<Service>,
    restarts: &mut Restarts,
) -> Result<(), Failure> {
    let count = servers.len();
    let server = servers.remove(0);
    let name = server.name().to_owned();
    let stopping = Instant::now();
    let status = server.stop().await?;
    if !status.success() {
        return Err(format!("{name} did not leave in good order: {status}").into());
    }
    restarts.drain.add(stopping.elapsed());
    at_rest(cluster, count - 1).await?;
    let starting = Instant::now();
    servers.push(serve(cluster, &name).await?);
    at_rest(cluster, count).await?;
    restarts.back.add(starting.elapsed());
    restarts.count += 1;
    Ok(())
}

/// One round at least, and more until the servers are through.
async fn restart_managers(
    cluster: &Cluster,
    rest: Duration,
    is_over: &AtomicBool,
    is_wanted: bool,
) -> Result<ManagerRestarts, Failure> {
    let mut restarts = ManagerRestarts { rounds: 0, count: 0, back: Distribution::new()? };
    while is_wanted && (restarts.rounds == 0 || !is_over.load(Ordering::Relaxed)) {
        let managers = cluster.manager_processes();
        for number in 0..managers.count() {
            let stopping = Instant::now();
            managers.restart(number).await?;
            restarts.back.add(stopping.elapsed());
            restarts.count += 1;
            tokio::time::sleep(rest).await;
        }
        restarts.rounds += 1;
    }
    Ok(restarts)
}

fn conclude(
    args: &EvalArgs,
    setup: Setup,
    phases: Vec<Phase>,
    restarts: &Restarts,
    managers: &ManagerRestarts,
) -> Result<(), Failure> {
    let [p99_before_ms, p99_during_ms, p99_after_ms] =
        [0, 1, 2].map(|phase: usize| phases[phase].latency.p99_ms);
    let p99_ratio = p99_during_ms / p99_before_ms;
    let losses_told = phases.iter().map(|phase| phase.losses_told).sum();
    let mut verdict = Verdict::default();
    verdict.no_failures_in(&phases);
    verdict.must(losses_told == 0, format!("{losses_told} losses were told, though all state moved"));
    verdict.must(phases[1].moved_ranges != Some(0), "nothing moved: the restart was none");
    table(&setup, &phases);
    println!();
    println!(
        "p99 was {p99_before_ms:.2} ms before the restart, {p99_during_ms:.2} ms during it, which is {p99_ratio:.2} times as much, and {p99_after_ms:.2} ms after it"
    );
    let (drain, back) = (restarts.drain.reading(), restarts.back.reading());
    println!(
        "{} restarts: moved away and ended in {:.0} ms at p50 and {:.0} ms at most, back in {:.0} ms and {:.0} ms",
        restarts.count, drain.p50_ms, drain.max_ms, back.p50_ms, back.max_ms
    );
    let manager_back = managers.back.reading();
    if managers.count > 0 {
        println!(
            "{} restarts of Managers by SIGTERM in {} rounds: back in {:.0} ms at p50 and {:.0} ms at most",
            managers.count, managers.rounds, manager_back.p50_ms, manager_back.max_ms
        );
    }
    println!("losses told: {losses_told}");
    let report = Rolling {
        evaluation: "rolling",
        setup,
        rounds: restarts.rounds,
        restarts: restarts.count,
        manager_rounds: managers.rounds,
        manager_restarts: managers.count,
        rest_ms: restarts.rest.as_millis(),
        drain,
        back,
        manager_back,
        p99_before_ms,
        p99_during_ms,
        p99_after_ms,
        p99_ratio,
        losses_told,
        failed_after_retry: phases.iter().map(|phase| phase.counts.failed_after_retry).sum(),
        wrong: phases.iter().map(|phase| phase.counts.wrong).sum(),
        passed: verdict.failures.is_empty(),
        phases,
    };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    verdict.conclude()
}
