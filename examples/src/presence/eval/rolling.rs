//! A rolling restart under load: every server in turn moves its state away, ends, comes back and gets it back.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::report::{Phase, Setup, Verdict, table};
use super::{Bench, EvalArgs, say, serve};
use crate::Failure;
use crate::call::duration;
use crate::presence::load::{Distribution, Reading};

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
}

#[derive(Serialize)]
struct Rolling {
    evaluation: &'static str,
    #[serde(flatten)]
    setup: Setup,
    phases: Vec<Phase>,
    rounds: usize,
    restarts: usize,
    rest_ms: u128,
    /// From the word to stop until a process had moved everything away and ended.
    drain: Reading,
    /// From its start until it had its ranges again.
    back: Reading,
    p99_before_ms: f64,
    p99_during_ms: f64,
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

/// Restarts every server in turn, for as long as it measured before, and fails if a user lost anything by it.
pub async fn rolling(args: RollingArgs) -> Result<(), Failure> {
    let RollingArgs { common: args, rest } = args;
    let mut bench = Bench::start(&args, SERVERS).await?;
    say(&format!("measuring for {:?} before the restart", args.each));
    bench.turn_to("before").await?;
    tokio::time::sleep(args.each).await;
    say(&format!("restarting one server after the other, and again until {:?} are over", args.each));
    bench.turn_to("during").await?;
    let restarts = restart_for(&mut bench, args.each, rest).await?;
    say(&format!("measuring for {:?} after {} restarts", args.each, restarts.count));
    bench.turn_to("after").await?;
    tokio::time::sleep(args.each).await;
    let phases = bench.finish().await?;
    conclude(&args, bench.setup.clone(), phases, &restarts)
}

async fn restart_for(bench: &mut Bench, at_least: Duration, rest: Duration) -> Result<Restarts, Failure> {
    let (drain, back) = (Distribution::new()?, Distribution::new()?);
    let mut restarts = Restarts { rounds: 0, count: 0, rest, drain, back };
    let began = Instant::now();
    while restarts.rounds == 0 || began.elapsed() < at_least {
        for _ in 0..bench.servers.len() {
            restart_first(bench, &mut restarts).await?;
            tokio::time::sleep(rest).await;
        }
        restarts.rounds += 1;
    }
    Ok(restarts)
}

async fn restart_first(bench: &mut Bench, restarts: &mut Restarts) -> Result<(), Failure> {
    let count = bench.servers.len();
    let server = bench.servers.remove(0);
    let name = server.name().to_owned();
    let stopping = Instant::now();
    let status = server.stop().await?;
    if !status.success() {
        return Err(format!("{name} did not leave in good order: {status}").into());
    }
    restarts.drain.add(stopping.elapsed());
    bench.at_rest(count - 1).await?;
    let starting = Instant::now();
    bench.servers.push(serve(&bench.cluster, &name).await?);
    bench.at_rest(count).await?;
    restarts.back.add(starting.elapsed());
    restarts.count += 1;
    Ok(())
}

fn conclude(args: &EvalArgs, setup: Setup, phases: Vec<Phase>, restarts: &Restarts) -> Result<(), Failure> {
    let [p99_before_ms, p99_during_ms] = [&phases[0], &phases[1]].map(|phase| phase.latency.p99_ms);
    let p99_ratio = p99_during_ms / p99_before_ms;
    let losses_told = phases.iter().map(|phase| phase.losses_told).sum();
    let mut verdict = Verdict::default();
    verdict.no_failures_in(&phases);
    verdict.must(losses_told == 0, format!("{losses_told} losses were told, though all state moved"));
    verdict.must(phases[1].moved_ranges > 0, "nothing moved: the restart was none");
    table(&setup, &phases);
    println!();
    println!(
        "p99 was {p99_before_ms:.2} ms before the restart and {p99_during_ms:.2} ms during it: {p99_ratio:.2} times"
    );
    let (drain, back) = (restarts.drain.reading(), restarts.back.reading());
    println!(
        "{} restarts: moved away and ended in {:.0} ms at p50 and {:.0} ms at most, back in {:.0} ms and {:.0} ms",
        restarts.count, drain.p50_ms, drain.max_ms, back.p50_ms, back.max_ms
    );
    println!("losses told: {losses_told}");
    let report = Rolling {
        evaluation: "rolling",
        setup,
        rounds: restarts.rounds,
        restarts: restarts.count,
        rest_ms: restarts.rest.as_millis(),
        drain,
        back,
        p99_before_ms,
        p99_during_ms,
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
