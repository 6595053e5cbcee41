//! A rolling restart under load: every server in turn moves its state away, ends, comes back and gets it back;
//! if wanted, while the Managers are restarted one after the other as well.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use centrifuge_examples::Result;
use centrifuge_examples::shared::call::duration;
use centrifuge_harness::{Cluster, Samples, Service, StoreKind};
use clap::Args;
use serde_json::json;

use super::load::Reading;
use super::report::{Verdict, print_json, table};
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

/// The restarts of servers or of Managers so far.
#[derive(Default)]
struct Restarts {
    rounds: usize,
    count: usize,
    /// From the word to stop until a server had moved everything away and ended.
    drain: Samples,
    /// From its start until a server had its ranges again; from the word to stop until the next Manager of the name
    /// took part.
    back: Samples,
}

/// Restarts every server in turn, for as long as it measured before, and fails if a user lost anything by it.
pub async fn rolling(args: RollingArgs) -> Result<()> {
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
    bench.finish().await?;
    conclude(&args, rest, &bench, &restarts, &managers)
}

/// Restarts servers and, if wanted, Managers, at the same time: each at least once.
async fn restart_all(
    bench: &mut Bench,
    at_least: Duration,
    rest: Duration,
    with_managers: bool,
) -> Result<(Restarts, Restarts)> {
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
) -> Result<Restarts> {
    let mut restarts = Restarts::default();
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

async fn restart_first(cluster: &Cluster, servers: &mut Vec<Service>, restarts: &mut Restarts) -> Result<()> {
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
) -> Result<Restarts> {
    let mut restarts = Restarts::default();
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
    rest: Duration,
    bench: &Bench,
    restarts: &Restarts,
    managers: &Restarts,
) -> Result<()> {
    let Bench { setup, phases, .. } = bench;
    let [before, during, after] = [0, 1, 2].map(|phase: usize| phases[phase].latency.p99_ms);
    let ratio = during / before;
    let losses_told: u64 = phases.iter().map(|phase| phase.losses_told).sum();
    let mut verdict = Verdict::default();
    verdict.no_failures_in(phases);
    verdict.must(losses_told == 0, format!("{losses_told} losses were told, though all state moved"));
    verdict.must(phases[1].moved_ranges != Some(0), "nothing moved: the restart was none");
    table(setup, phases);
    println!(
        "\np99 was {before:.2} ms before the restart, {during:.2} ms during it, which is {ratio:.2} times as much, and {after:.2} ms after it"
    );
    let [drain, back, manager_back] = [&restarts.drain, &restarts.back, &managers.back].map(Reading::of);
    println!(
        "{} restarts: moved away and ended in {:.0} ms at p50 and {:.0} ms at most, back in {:.0} ms and {:.0} ms",
        restarts.count, drain.p50_ms, drain.max_ms, back.p50_ms, back.max_ms
    );
    if managers.count > 0 {
        println!(
            "{} restarts of Managers by SIGTERM in {} rounds: back in {:.0} ms at p50 and {:.0} ms at most",
            managers.count, managers.rounds, manager_back.p50_ms, manager_back.max_ms
        );
    }
    println!("losses told: {losses_told}");
    let report = json!({
        "evaluation": "rolling",
        "rounds": restarts.rounds,
        "restarts": restarts.count,
        "manager_rounds": managers.rounds,
        "manager_restarts": managers.count,
        "rest_ms": rest.as_millis(),
        "drain": drain,
        "back": back,
        "manager_back": manager_back,
        "p99_before_ms": before,
        "p99_during_ms": during,
        "p99_after_ms": after,
        "p99_ratio": ratio,
        "losses_told": losses_told,
    });
    if args.json {
        print_json(report, setup, phases, verdict.failures.is_empty())?;
    }
    verdict.conclude()
}
