//! A load shift: most requests are for the users of one small part of the key space, and then for those of another. Trim splits what is
//! hot and moves it; nobody may notice.

use std::time::{Duration, Instant};

use centrifuge::Key;
use centrifuge_examples::Result;
use centrifuge_examples::presence::SERVICE;
use centrifuge_examples::shared::call::duration;
use centrifuge_harness::StoreKind;
use centrifuge_net::proto::v1;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::report::{Verdict, print_json, table};
use super::{Bench, EvalArgs, say};

/// As many servers as the evaluation has unless told otherwise.
const SERVERS: usize = 4;
/// How often it is looked how even the load is.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// So many looks in a row must find the load even.
const SETTLED_SAMPLES: usize = 5;

/// What the load shift is told.
#[derive(Args, Clone, Debug)]
pub struct ShiftArgs {
    #[command(flatten)]
    common: EvalArgs,
    /// The exponent of Zipf's law: how much more popular than others the popular are
    #[arg(long, default_value_t = 0.99)]
    zipf: f64,
    /// How often other users become popular
    #[arg(long, default_value_t = 1)]
    shifts: u32,
    /// The load is even if the fullest server has at most so much of its goal
    #[arg(long, default_value_t = 1.2)]
    even: f64,
    /// How long it may take until the load is even again
    #[arg(long, value_parser = duration, default_value = "180s", value_name = "DURATION")]
    settle: Duration,
    /// The churn budget of the namespace, in percent of what is usual
    #[arg(long, default_value_t = 1_000)]
    churn_budget: u32,
}

/// How even the load was at a time.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    /// Since the beginning.
    seconds: f64,
    /// The load of the fullest server to an even share.
    peak: f64,
    /// The lowest that this can be.
    floor: f64,
    /// The load of the fullest server to the least that it can have.
    goal: f64,
    /// Ranges that are on their way.
    moving: u32,
    /// Ranges of the table.
    ranges: u32,
    /// Leases granted so far: what moved.
    grants: u64,
}

/// A shift, and how long it took until the load was even again.
#[derive(Clone, Copy, Debug, Serialize)]
struct Settled {
    /// The highest ratio to the goal that was seen after it.
    worst: f64,
    /// The ratio in the end.
    goal: f64,
    seconds: f64,
    /// Leases granted meanwhile.
    moves: u64,
}

/// Makes users popular, then others, and fails if the load does not become even, or if a user noticed anything.
pub async fn shift(args: ShiftArgs) -> Result<()> {
    if !args.zipf.is_finite() || args.zipf < 0.0 {
        return Err("--zipf must be a number that is not below zero".into());
    }
    let common = EvalArgs { skew: Some(args.zipf), ..args.common.clone() };
    let settings = v1::Settings {
        partitioner: Some(v1::Partitioner::Trim.into()),
        churn_budget: Some(args.churn_budget),
        ..v1::Settings::default()
    };
    let mut bench = Bench::start_with(&common, SERVERS, StoreKind::File, Some(settings)).await?;
    let mut watch = Watch { began: Instant::now(), samples: Vec::new() };
    say("users behind one point of the key space are popular; waiting until the load is even");
    bench.turn_to("before").await?;
    let mut settled = vec![watch.until_even(&bench, &args).await?];
    bench.turn_to("during").await?;
    for number in 1..=args.shifts {
        // Every shift goes to another part of the key space, far from all before.
        let hot = Key(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        say(&format!("users behind {hot} are popular from now on"));
        bench.load.shift_to(hot);
        settled.push(watch.until_even(&bench, &args).await?);
    }
    bench.turn_to("after").await?;
    tokio::time::sleep(common.each).await;
    bench.finish().await?;
    conclude(&args, &bench, &watch, &settled)
}

/// Looks at the load as time passes.
struct Watch {
    began: Instant,
    samples: Vec<Sample>,
}

impl Watch {
    /// Waits until the load is even and nothing moves.
    async fn until_even(&mut self, bench: &Bench, args: &ShiftArgs) -> Result<Settled> {
        let (began, first) = (Instant::now(), self.samples.len());
        let before = bench.cluster.status(SERVICE).await?.last_generation;
        loop {
            tokio::time::sleep(SAMPLE_INTERVAL).await;
            let sample = self.look(bench).await?;
            let seen = &self.samples[first..];
            let is_even =
                |sample: &Sample| sample.goal <= args.even && sample.moving == 0 && sample.goal > 0.0;
            // The first reports after a shift still speak of the time before it.
            let rest = seen.iter().rev().take_while(|sample| is_even(sample)).count();
            let has_begun = began.elapsed() > bench.cluster.lease();
            if has_begun && rest >= SETTLED_SAMPLES {
                let worst = seen.iter().map(|sample| sample.goal).fold(0.0, f64::max);
                let (seconds, moves) = (began.elapsed().as_secs_f64(), sample.grants - before);
                say(&format!(
                    "even after {seconds:.0} s and {moves} moves: {worst:.2} at worst, {:.2} now",
                    sample.goal
                ));
                return Ok(Settled { worst, goal: sample.goal, seconds, moves });
            }
            if began.elapsed() > args.settle {
                let words = format!("the load is not even after {:?}: {sample:?}", args.settle);
                return Err(words.into());
            }
        }
    }

    async fn look(&mut self, bench: &Bench) -> Result<Sample> {
        let status = bench.cluster.status(SERVICE).await?;
        let trim = status.trim.unwrap_or_default();
        let sample = Sample {
            seconds: self.began.elapsed().as_secs_f64(),
            peak: trim.peak,
            floor: trim.floor,
            goal: if trim.loads_known { trim.goal } else { 0.0 },
            moving: status.moving_ranges,
            ranges: status.ranges,
            grants: status.last_generation,
        };
        self.samples.push(sample);
        Ok(sample)
    }
}

fn conclude(args: &ShiftArgs, bench: &Bench, watch: &Watch, settled: &[Settled]) -> Result<()> {
    let Bench { setup, phases, .. } = bench;
    let losses_told: u64 = phases.iter().map(|phase| phase.losses_told).sum();
    let mut verdict = Verdict::default();
    verdict.no_failures_in(phases);
    verdict.must(losses_told == 0, format!("{losses_told} losses were told, though all state moved"));
    let shifts = &settled[1..];
    verdict.must(shifts.iter().all(|shift| shift.moves > 0), "nothing moved: the shift was none");
    table(setup, phases);
    println!("\n       s    peak   floor    goal  moving  ranges   moves");
    for sample in watch.samples.iter().step_by(5) {
        let Sample { seconds, peak, floor, goal, moving, ranges, grants } = sample;
        println!("{seconds:8.1} {peak:7.2} {floor:7.2} {goal:7.2} {moving:7} {ranges:7} {grants:7}");
    }
    for (number, shift) in shifts.iter().enumerate() {
        println!(
            "shift {}: {:.2} at worst, {:.2} after {:.0} s and {} moves",
            number + 1,
            shift.worst,
            shift.goal,
            shift.seconds,
            shift.moves
        );
    }
    println!("losses told: {losses_told}");
    if args.common.json {
        let report = json!({
            "evaluation": "shift",
            "zipf": args.zipf,
            "churn_budget": args.churn_budget,
            "even": args.even,
            "at_first": settled[0],
            "shifts": shifts,
            "samples": watch.samples,
            "losses_told": losses_told,
        });
        print_json(report, setup, phases, verdict.failures.is_empty())?;
    }
    verdict.conclude()
}
