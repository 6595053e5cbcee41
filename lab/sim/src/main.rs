//! The simulator's commands.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use centrifuge_core::injected_bug::Bug;
use centrifuge_sim::campaign::bugs::{self, Found, Search};
use centrifuge_sim::campaign::{self, Campaign, GapLengths, Summary, WorldKind};
use centrifuge_sim::load_world::LoadArgs;
use centrifuge_sim::trace::Trace;
use centrifuge_sim::world::{Failure, Outcome, Size, drift_control};
use centrifuge_sim::{bench, check, load_world, replay};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::json;

/// How many failing seeds are listed.
const MOST_LISTED: usize = 20;

/// Runs the real machines in seeded worlds that try to break them.
#[derive(Parser)]
#[command(name = "centrifuge-sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds, or replay one.
    Run(RunArgs),
    /// Inject every known bug in turn and see that it is found.
    Bugs(BugsArgs),
    /// Visit every state of small worlds.
    Check {
        /// A bug to inject: then some world must find it.
        #[arg(long, value_parser = plant_named)]
        bug: Option<Bug>,
        /// Only this world; may be given several times.
        #[arg(long = "model", value_parser = clap::builder::PossibleValuesParser::new(check::names()))]
        models: Vec<String>,
        /// Also the worlds that take minutes.
        #[arg(long)]
        long: bool,
        /// Print one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Feed a recording of a real process to the same machine again, and compare.
    Replay {
        /// What a process wrote with `--record`.
        file: PathBuf,
        /// Print one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measure, as ratios within one run.
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
}

#[derive(Args)]
struct RunArgs {
    /// How many seeds; 1,000 unless given, and one where partitioners are measured.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How many threads; as many as there are cores unless given.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// A bug to inject into the machines, by name.
    #[arg(long, value_parser = plant_named)]
    bug: Option<Bug>,
    /// Only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Print a line for every event of the seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run every seed twice and compare.
    #[arg(long)]
    twice: bool,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
    /// Which world.
    #[arg(long, value_enum, default_value_t = WorldName::Manager)]
    world: WorldName,
    #[command(flatten)]
    load: LoadArgs,
}

impl RunArgs {
    /// The seeds, if so many are usual.
    fn seeds(&self, usual: u64) -> Range<u64> {
        let first = self.seed.unwrap_or(self.first);
        let count = if self.seed.is_some() { 1 } else { self.seeds.unwrap_or(usual) };
        first..first.saturating_add(count)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WorldName {
    /// Managers, Owners and Lookups under faults.
    Manager,
    /// 250 Owners that lose racks of 50 (PRS §7.2); slow.
    Rack,
    /// Skewed load under the load policy (PRS §7.3).
    Load,
    /// Clock rates at the drift bound and beyond it: the negative control.
    Drift,
    /// The peers of Flease under faults.
    Flease,
    /// Managers that have no store, Owners and Lookups under faults.
    Diskless,
    /// Owners under load that Trim balances, and under faults.
    Trim,
    /// A key that kills whoever has it, alone and among other faults.
    Death,
}

impl WorldName {
    fn kind(self) -> WorldKind {
        match self {
            WorldName::Flease => WorldKind::Flease,
            WorldName::Rack => WorldKind::Managers(Size::Rack),
            WorldName::Diskless => WorldKind::Managers(Size::Diskless),
            WorldName::Trim => WorldKind::Managers(Size::Trim),
            WorldName::Death => WorldKind::Managers(Size::Death),
            _ => WorldKind::Managers(Size::Usual),
        }
    }
}

#[derive(Args)]
struct BugsArgs {
    /// How many seeds to try for each fault; 4,000 unless given, and as many as its bound says for a rare one.
    #[arg(long)]
    seeds: Option<u64>,
    /// Only this fault.
    #[arg(long, value_parser = plant_named)]
    bug: Option<Bug>,
    /// How many threads; as many as there are cores unless given.
    #[arg(long)]
    jobs: Option<NonZeroUsize>,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Bench {
    /// What an assignment costs beside a sort of as many numbers.
    Partition {
        /// Print one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// What one report costs a leader, by the number of leases that it speaks of.
    Report {
        /// Print a line of JSON for each kind of report.
        #[arg(long)]
        json: bool,
        /// Only this kind.
        #[arg(long)]
        kind: Option<String>,
    },
    /// What a renewal waits for while an Owner of another namespace sends the largest messages it can.
    Isolation {
        /// How many pieces the messages have; as many as are accepted unless given.
        #[arg(long)]
        pieces: Option<u64>,
        /// Print a line of JSON for each kind of message.
        #[arg(long)]
        json: bool,
    },
    /// How long the largest decision of Trim takes, and its longest slice.
    Trim {
        /// Print one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// What it costs a leader when many Owners join under new names.
    Joins {
        /// How many.
        #[arg(long, default_value_t = 2_000)]
        owners: u64,
        /// Print one line of JSON.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let well = match Cli::parse().command {
        Command::Run(args) => match args.world {
            WorldName::Load => load(&args),
            WorldName::Drift => drift(&args),
            _ if args.trace => trace(&args),
            _ => run(&args),
        },
        Command::Bugs(args) => bugs(&args),
        Command::Check { bug, models, long, json } => check::run(json, bug, &models, long),
        Command::Replay { file, json } => replay::run(&file, json),
        Command::Bench { what } => {
            measure(what);
            true
        }
    };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(what: Bench) {
    match what {
        Bench::Partition { json } => bench::partition(json),
        Bench::Report { json, kind } => bench::report::run(json, kind.as_deref()),
        Bench::Isolation { pieces, json } => bench::isolation::run(json, pieces),
        Bench::Trim { json } => bench::trim::run(json),
        Bench::Joins { owners, json } => bench::joins::run(json, owners),
    }
}

/// The rounds of PRS §7.3, or the given partitioners side by side.
fn load(args: &RunArgs) -> bool {
    if args.load.partitioner.is_empty() {
        load_world::prs_rounds::run(args.seed.unwrap_or(args.first), args.json);
        return true;
    }
    load_world::run(&args.load, args.seeds(1), args.json)
}

fn run(args: &RunArgs) -> bool {
    campaign::catch_panics_quietly();
    let seeds = args.seeds(1_000);
    let campaign = Campaign {
        first: seeds.start,
        seeds: seeds.end - seeds.start,
        jobs: threads(args.jobs),
        bug: args.bug,
        world: args.world.kind(),
        twice: args.twice,
        until_failure: false,
        progress: !args.json && campaign::somebody_watches(),
    };
    let summary = campaign.run();
    if let Some((seed, failure)) = &summary.first_failure {
        eprintln!("{}", explain(*seed, failure, args));
    }
    if args.json {
        println!("{}", run_json(&campaign, &summary));
    } else {
        print_summary(&campaign, &summary);
    }
    summary.violations() == 0
}

fn run_json(campaign: &Campaign, summary: &Summary) -> serde_json::Value {
    let mut line = json!({
        "seeds": summary.seeds,
        "first_seed": campaign.first,
        "simulated_seconds": summary.simulated.as_secs(),
        "events": summary.events,
        "faults": summary.faults,
        "keys_without_owner_seconds": summary.gap_lengths().iter().map(gap_json).collect::<serde_json::Map<_, _>>(),
        "violations": summary.violations(),
        "seeds_per_second": summary.seeds_per_second(),
    });
    if let Some((seed, failure)) = &summary.first_failure {
        line["first_violation"] = json!({
            "seed": seed,
            "invariant": failure.violation.invariant,
            "at": failure.violation.at.to_string(),
            "what": failure.violation.what,
        });
    }
    line
}

fn gap_json((why, gaps): (&&'static str, &GapLengths)) -> (String, serde_json::Value) {
    let [p50, p99, max] = gaps.seconds();
    ((*why).to_owned(), json!({ "count": gaps.count, "p50": p50, "p99": p99, "max": max }))
}

fn print_summary(campaign: &Campaign, summary: &Summary) {
    let hours = summary.simulated.as_secs() / 3_600;
    println!("{} seeds from {}, {} a second", summary.seeds, campaign.first, summary.seeds_per_second());
    println!("  {hours} simulated hours, {} events", summary.events);
    for (fault, count) in &summary.faults {
        println!("  {count:>12} {fault}");
    }
    println!("  keys without an owner, in seconds:");
    for (why, gaps) in summary.gap_lengths() {
        let [p50, p99, max] = gaps.seconds();
        println!("  {:>12} {why}: p50 {p50:.3}, p99 {p99:.3}, max {max:.3}", gaps.count);
    }
    println!("  {} violations", summary.violations());
    for (seed, invariant) in summary.failed.iter().take(MOST_LISTED) {
        println!("  {invariant} by seed {seed}");
    }
}

/// The seed, the sentence that does not hold, what led to it, and how to see it again.
fn explain(seed: u64, failure: &Failure, args: &RunArgs) -> String {
    let violation = &failure.violation;
    let bug = args.bug.map_or(String::new(), |bug| format!(" --bug {}", bug.name()));
    let world = match args.world {
        WorldName::Manager => String::new(),
        world => {
            world.to_possible_value().map_or(String::new(), |name| format!(" --world {}", name.get_name()))
        }
    };
    format!(
        "seed {seed} violates {} at {}: {}\n{}replay: cargo run --release -p centrifuge-sim -- run{world} --seed {seed}{bug} --trace",
        violation.invariant, violation.at, violation.what, failure.history
    )
}

fn trace(args: &RunArgs) -> bool {
    let seed = args.seed.unwrap_or(args.first);
    let outcome = campaign::run_one(seed, args.bug, args.world.kind(), Trace::Print);
    match &outcome.failure {
        Some(failure) => eprintln!("{}", explain(seed, failure, args)),
        None => eprintln!("seed {seed} holds: {} events, digest {:016x}", outcome.events, outcome.digest),
    }
    outcome.failure.is_none()
}

fn drift(args: &RunArgs) -> bool {
    campaign::catch_panics_quietly();
    let seeds = args.seeds(1_000).take(20);
    let outcomes: Vec<_> = seeds.map(|seed| (seed, drift_control(seed))).collect();
    let wrong: Vec<_> = outcomes.iter().filter(|(_, outcome)| !outcome.is_as_expected()).collect();
    let found = |outcome: &Outcome| outcome.failure.as_ref().map(|failure| failure.violation.invariant);
    for (seed, outcome) in &wrong {
        let [at_bound, beyond] =
            [&outcome.at_bound, &outcome.beyond].map(|half| found(half).unwrap_or("nothing"));
        eprintln!(
            "seed {seed}: found {at_bound} at the bound, where nothing is wrong, and {beyond} beyond it, where S1 is"
        );
    }
    let runs = outcomes.len();
    let breaches = outcomes.iter().filter(|(_, outcome)| found(&outcome.beyond).is_some()).count();
    let false_alarms = outcomes.iter().filter(|(_, outcome)| found(&outcome.at_bound).is_some()).count();
    if args.json {
        println!(
            "{}",
            json!({ "runs": runs, "breaches_beyond_bound": breaches, "breaches_at_bound": false_alarms })
        );
    } else {
        println!("clock rates 1 % beyond the bound break S1 in {breaches} of {runs} runs,");
        println!("clock rates at the bound break something in {false_alarms} of {runs} runs");
    }
    wrong.is_empty()
}

fn bugs(args: &BugsArgs) -> bool {
    campaign::catch_panics_quietly();
    let wanted = |bug: &&Bug| args.bug.is_none_or(|only| only == **bug);
    let progress = !args.json && campaign::somebody_watches();
    let mut searches = Vec::new();
    for bug in Bug::ALL.iter().filter(wanted) {
        let search = bugs::search(*bug, args.seeds, threads(args.jobs), progress);
        if !args.json {
            println!("{}", describe_search(&search));
        }
        searches.push(search);
    }
    if args.json {
        let list: Vec<_> = searches.iter().map(search_json).collect();
        println!("{}", json!({ "bugs": list }));
    } else if let Some(slowest) = searches.iter().max_by_key(|search| search.seeds) {
        println!("{} bugs, the slowest after {} seeds", searches.len(), slowest.seeds);
    }
    searches.iter().all(Search::is_well)
}

fn describe_search(search: &Search) -> String {
    let Search { bug, seeds, bound, found } = search;
    let (name, breaks) = (bug.name(), bug.invariant());
    let late = if search.is_well() { String::new() } else { format!(", but must be within {bound}") };
    match found {
        Some(Found::Seed(_, failure)) => {
            let found_as = failure.violation.invariant;
            format!("{name:<30} breaks {breaks}: found as {found_as} after {seeds} seeds{late}")
        }
        Some(Found::Model { model, sentence, steps }) => {
            format!("{name:<30} breaks {breaks}: found as {sentence} in {steps} steps by model {model}")
        }
        None => format!("{name:<30} breaks {breaks}: NOT FOUND in {seeds} seeds"),
    }
}

fn search_json(search: &Search) -> serde_json::Value {
    json!({
        "name": search.bug.name(),
        "invariant": search.bug.invariant(),
        "found": search.found.is_some(),
        "found_as": search.found.as_ref().map(Found::invariant),
        "model": match &search.found {
            Some(Found::Model { model, .. }) => Some(*model),
            _ => None,
        },
        "seeds": search.seeds,
        "bound": search.bound,
    })
}

fn plant_named(name: &str) -> Result<Bug, String> {
    let named = |bug: &&Bug| bug.name() == name;
    Bug::ALL.iter().find(named).copied().ok_or_else(|| {
        let names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        format!("there is no such fault; choose one of {}", names.join(", "))
    })
}

fn threads(jobs: Option<NonZeroUsize>) -> usize {
    jobs.or_else(|| std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}
