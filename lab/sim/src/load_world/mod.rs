//! Worlds of load: what partitioners make of skewed and changing load, and what that costs them.
//!
//! The partitioners of the product are driven as real machines: a Manager, and Owners that renew, migrate and crash. The rivals'
//! rules run in the same world, with an ideal executor. Keys, their load, the Owners and what happens to them depend on the seed alone.

mod environment;
mod floor;
mod keys;
mod load;
mod machines;
mod metrics;
mod observation;
mod ordered;
mod poisson;
pub mod prs_rounds;
mod report;
mod rivals;
mod sketch;

use std::ops::Range;

use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::partition::PartitionerKind;
use clap::{Args, ValueEnum};
use serde_json::json;

pub use environment::Scenario;
pub use ordered::ApplicationKeys;

use environment::{Environment, Incident, Size};
use machines::{MachineOptions, Machines};
use metrics::{Recorder, Table, Tally};
use report::Row;
use rivals::dicer::Dicer;
use rivals::executor::{Executor, Pace, Rule};
use rivals::slicer::Slicer;

/// A second, in nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// The time at the start that does not count.
const WARM_UP: u64 = 900 * SECOND;
/// How often Owners report.
const REPORT_INTERVAL: u64 = 15 * SECOND;
/// How often samples are taken.
const SAMPLE_INTERVAL: u64 = 5 * SECOND;

/// What a world of load is asked for.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// The load world's partitioners, each of which gets a row; the rounds of PRS §7.3 unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub partitioner: Vec<Partitioner>,
    /// Take Dicer with the least tolerance, as `dicer-tightest`.
    #[arg(long)]
    pub tightest: bool,
    /// The load policy of the product's partitioners.
    #[arg(long, default_value = "ten-percent")]
    pub load_policy: LoadPolicyKind,
    /// What happens in the load world.
    #[arg(long, value_enum, default_value_t = Scenario::Mixed)]
    pub scenario: Scenario,
    /// How many Owners the load world has at the start.
    #[arg(long, default_value_t = 100)]
    pub owners: usize,
    /// The exponent of Zipf's law.
    #[arg(long, default_value_t = 0.99)]
    pub zipf: f64,
    /// Requests per second and unit of weight.
    #[arg(long, default_value_t = 1_000.0)]
    pub rate: f64,
    /// How many hours of the load world are measured.
    #[arg(long, default_value_t = 1.0)]
    pub hours: f64,
    /// How many keys the load world has.
    #[arg(long, default_value_t = 1_000_000)]
    pub keys: usize,
    /// What the application of the load world calls its keys.
    #[arg(long, value_enum, default_value_t = ApplicationKeys::Hashed)]
    pub application_keys: ApplicationKeys,
    /// How much Trim may move, in percent of the usual.
    #[arg(long, default_value_t = 100)]
    pub churn_budget: u32,
    /// How many migrations in a thousand fail, and are tried again.
    #[arg(long, default_value_t = 20)]
    pub failing_migrations: u64,
    /// Say on standard error what happens in the load world, who has too much, and what the Manager decides.
    #[arg(long)]
    pub explain: bool,
}

/// Who decides where ranges are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Partitioner {
    /// The product's balancer of load.
    Trim,
    /// The papers' partitioner, with the load policy.
    ConsistentHash,
    /// Slicer's weighted move.
    Slicer,
    /// Dicer as shipped.
    Dicer,
    /// Dicer with the least tolerance, deciding at every report.
    DicerTightest,
}

impl Partitioner {
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The product's partitioner of this name, if it has one.
    fn of_product(self) -> Result<Option<PartitionerKind>, String> {
        match self {
            Partitioner::Trim | Partitioner::ConsistentHash => {
                let kind = self.name().parse().map_err(|_| format!("this build has no {}", self.name()))?;
                Ok(Some(kind))
            }
            Partitioner::Slicer | Partitioner::Dicer | Partitioner::DicerTightest => Ok(None),
        }
    }
}

/// Somebody who decides where ranges are, and does so.
trait Contender {
    /// Time passes, and this has just happened.
    fn advance(&mut self, now: u64, incidents: &[Incident], environment: &Environment);

    /// Who has what.
    fn table(&self) -> Table;
}

/// Runs the seeds and prints a row for each partitioner; says whether it could.
pub fn run(args: &LoadArgs, seeds: Range<u64>, json: bool) -> bool {
    let rows = match args.check().and_then(|()| rows(args, seeds.clone())) {
        Ok(rows) => rows,
        Err(error) => {
            eprintln!("{error}");
            return false;
        }
    };
    let input = json!({
        "scenario": args.scenario.to_possible_value().map(|value| value.get_name().to_owned()),
        "owners": args.owners, "keys": args.keys, "zipf": args.zipf, "rate": args.rate, "hours": args.hours,
        "application_keys": args.application_keys.to_possible_value().map(|value| value.get_name().to_owned()),
        "churn_budget": args.churn_budget,
        "failing_migrations_per_mille": args.failing_migrations,
        "first_seed": seeds.start, "seeds": seeds.end - seeds.start,
    });
    report::print(&input, &rows, json);
    true
}

/// The row of each partitioner, with the figures of all seeds together.
fn rows(args: &LoadArgs, seeds: Range<u64>) -> Result<Vec<Row>, String> {
    let row = |partitioner: Partitioner| {
        let mut tally = Tally::default();
        for seed in seeds.clone() {
            tally.add(play(args, partitioner, seed)?);
        }
        Ok(Row::new(args.row_name(partitioner), &tally))
    };
    args.partitioners().into_iter().map(row).collect()
}

impl LoadArgs {
    /// Refuses worlds in which nobody could serve, or nothing would be measured.
    fn check(&self) -> Result<(), String> {
        if self.owners < 2 || self.keys < 1_000 {
            return Err("--owners must be at least 2, and --keys at least 1000".into());
        }
        let is_positive = |value: f64| value.is_finite() && value > 0.0;
        if ![self.rate, self.hours].into_iter().all(is_positive) || !self.zipf.is_finite() {
            return Err("--rate and --hours must be above zero, and --zipf a number".into());
        }
        if self.application_keys == ApplicationKeys::Timeline && self.hours > 7.0 {
            return Err("--hours must be at most 7 with a timeline, which ends then".into());
        }
        Ok(())
    }

    fn size(&self) -> Size {
        let LoadArgs { keys, owners, zipf, rate, application_keys, .. } = *self;
        Size { keys, owners, zipf, rate, application_keys }
    }

    fn partitioners(&self) -> Vec<Partitioner> {
        let tightest = |partitioner: &Partitioner| match partitioner {
            Partitioner::Dicer if self.tightest => Partitioner::DicerTightest,
            other => *other,
        };
        self.partitioner.iter().map(tightest).collect()
    }

    fn row_name(&self, partitioner: Partitioner) -> String {
        let uses_policy = partitioner == Partitioner::ConsistentHash;
        let off = uses_policy && self.load_policy == LoadPolicyKind::Off;
        partitioner.name() + if off { ", off" } else { "" }
    }

    fn contender(
        &self,
        partitioner: Partitioner,
        environment: &Environment,
    ) -> Result<Box<dyn Contender>, String> {
        if let Some(kind) = partitioner.of_product()? {
            let options = MachineOptions {
                partitioner: kind,
                load_policy: self.load_policy,
                failing_migrations: self.failing_migrations,
                explains: self.explain,
                churn_budget: self.churn_budget,
            };
            return Ok(Box::new(Machines::new(options, environment)));
        }
        let (rule, pace) = rival(partitioner);
        Ok(Box::new(Executor::new(rule, pace, environment)))
    }
}

/// The rule of a rival, how often it decides, and how much of a report it believes.
fn rival(partitioner: Partitioner) -> (Rule, Pace) {
    let minute = 60 * SECOND;
    // A half-life of 120 s.
    let smoothed = 1.0 - 0.5f64.powf(REPORT_INTERVAL as f64 / (120 * SECOND) as f64);
    let (rule, decides_every, believes) = match partitioner {
        Partitioner::Slicer => (Rule::Slicer(Slicer::default()), minute, 1.0),
        Partitioner::DicerTightest => (Rule::Dicer(Dicer::tightest()), REPORT_INTERVAL, 0.5),
        _ => (Rule::Dicer(Dicer::shipped()), minute, smoothed),
    };
    (rule, Pace { decides_every, believes })
}

/// One seed with one partitioner.
fn play(args: &LoadArgs, partitioner: Partitioner, seed: u64) -> Result<Tally, String> {
    let environment = Environment::new(seed, args.scenario, args.size());
    let mut contender = args.contender(partitioner, &environment)?;
    let end = WARM_UP + (args.hours * 3_600.0) as u64 * SECOND;
    Ok(watch(environment, &mut *contender, Recorder::new(args.explain), end))
}

/// Lets a contender work until a time, and measures it.
fn watch(
    mut environment: Environment,
    contender: &mut dyn Contender,
    mut recorder: Recorder,
    end: u64,
) -> Tally {
    let mut now = 0;
    while now < end {
        now += SAMPLE_INTERVAL;
        let incidents = environment.step(now);
        incidents.iter().for_each(|incident| recorder.disturbed(now, *incident));
        contender.advance(now, &incidents, &environment);
        recorder.observe(now, &environment, &contender.table());
    }
    recorder.finish()
}

#[cfg(test)]
mod ordered_tests;
#[cfg(test)]
mod tests;
