//! Every check of the project, in order, each with a headline and its time.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::together::Task;
use crate::workspace::{Result, Workspace};
use crate::{claims, product, programs, tidy, together, tools, walls};

/// The short campaigns of the simulator. Long ones are run by hand; these are here to catch a break early.
const CAMPAIGNS: &[(&str, &str)] = &[
    // Seeded worlds of Managers, Owners and Lookups under faults; fails on a violated invariant.
    ("simulate", "run --release -p centrifuge-sim -- run --seeds 1000"),
    // Seeded worlds of Flease: peers that crash, clocks that slew; fails on a violated invariant.
    ("flease", "run --release -p centrifuge-sim -- run --world flease --seeds 1000"),
    // Seeded worlds of a key that kills whoever has it; fails on a violated invariant.
    ("death", "run --release -p centrifuge-sim -- run --world death --seeds 200"),
    // Seeded worlds of Managers that have no store; fails on a violated invariant.
    ("diskless", "run --release -p centrifuge-sim -- run --world diskless --seeds 500"),
    // Seeded worlds whose load Trim balances, under faults; fails on a violated invariant.
    ("trim", "run --release -p centrifuge-sim -- run --world trim --seeds 500"),
    // The same seed gives the same run.
    ("determinism", "run --release -p centrifuge-sim -- run --first 5000 --seeds 50 --twice"),
    // 250 Owners that lose racks of 50.
    ("rack", "run --release -p centrifuge-sim -- run --world rack --seeds 10"),
    // The negative control: clock rates at the drift bound pass, rates beyond it are found to break S1.
    ("drift", "run --release -p centrifuge-sim -- run --world drift"),
    // Every injected bug must be found; fails if one escapes.
    ("bugs", "run --release -p centrifuge-sim -- bugs"),
];

/// The short campaigns of real processes, several at a time: most of the time they wait. They are run from the build of the tests.
const REAL: &[(&str, &str)] = &[
    // Real processes under faults for two minutes; fails on a broken promise.
    ("chaos", "chaos --for 2m"),
    // Certificates, authorities and policies are rotated: at first alone, where no lease may be lost, then under faults.
    ("chaos-tls", "chaos --for 30s --tls"),
    // The checker of the real processes is not blind: it must find an Owner that does not check its leases.
    ("chaos-bug", "chaos --for 30s --bug unchecked-owner"),
    // ... and leaders that go on when their leader lease is over.
    ("chaos-leader", "chaos --for 45s --bug deposed-leader-renews"),
    // Flease peers in processes of their own, whose clocks wander within epsilon; fails on a broken promise.
    ("chaos-flease", "chaos --world flease --for 40s"),
    // ... and the checker must find peers that take a refusal for a vote.
    ("chaos-flease-bug", "chaos --world flease --for 20s --bug flease-nack-swallowed"),
    // Managers without a store, which learn the table from their Owners; fails on a broken promise.
    ("chaos-diskless", "chaos --world diskless --for 50s"),
    // A request that aborts its server: few of the pool may die of it.
    ("key-of-death", "key-of-death --store file"),
];

/// One check.
struct Step {
    name: &'static str,
    work: Work,
}

#[derive(Clone, Copy)]
enum Work {
    /// A check of this crate.
    Here(fn(&Workspace) -> Result<()>),
    /// A cargo command that comes with every toolchain.
    Cargo(&'static str),
    /// A cargo command that may have to be installed; skipped with a word if it is not.
    Optional { command: &'static str, install: &'static str },
}

/// A cargo command that may have to be installed, and how.
const fn optional(command: &'static str, install: &'static str) -> Work {
    Work::Optional { command, install }
}

/// The checks of the source.
const SOURCE: &[(&str, Work)] = &[
    ("format", optional("fmt --all --check", "rustup component add rustfmt")),
    ("clippy", optional("clippy --workspace --all-targets -- -D warnings", "rustup component add clippy")),
    ("walls", Work::Here(walls::run)),
    ("product", Work::Here(product::run)),
    ("tidy", Work::Here(tidy::run)),
    ("tools", Work::Here(|_| tools::run())),
    ("test", Work::Here(programs::run)),
    ("claims", Work::Here(|workspace| claims::run(workspace, false))),
];

/// What takes long comes last.
const LAST: &[(&str, Work)] = &[
    ("real", Work::Here(real)),
    // The advisories need a database that is fetched; the rest is in the lock file.
    ("deny", optional("deny check bans licenses sources", "cargo install --locked cargo-deny")),
];

fn steps() -> Vec<Step> {
    let campaigns = CAMPAIGNS.iter().map(|(name, command)| (*name, Work::Cargo(command)));
    let all = SOURCE.iter().copied().chain(campaigns).chain(LAST.iter().copied());
    all.map(|(name, work)| Step { name, work }).collect()
}

/// Runs the campaigns of real processes and, on the core that they leave idle, exhausts small worlds: that fails if one is not exhausted, or
/// on a violation where none is expected.
pub(crate) fn real(workspace: &Workspace) -> Result<()> {
    tools::ensure()?;
    workspace.run_cargo("test --workspace --no-run --quiet".split(' '))?;
    workspace.run_cargo("build --release --quiet -p centrifuge-sim".split(' '))?;
    let built = workspace.target_directory()?;
    let task = |name: &str, program: &str, arguments: &str| {
        let mut command = Command::new(built.join(program));
        command.args(arguments.split(' ')).current_dir(workspace.locate("."));
        Task { name: name.to_owned(), command }
    };
    let campaigns = REAL.iter().map(|(name, how)| task(name, "debug/centrifuge-chaos", how));
    let mut tasks = vec![task("check", "release/centrifuge-sim", "check")];
    tasks.extend(campaigns);
    together::run(tasks, 4)
}

/// Runs every step up to the first that fails, and prints how long each took.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut times = Vec::new();
    let mut result = Ok(());
    for step in steps() {
        println!("\n== {}: {}", step.name, step.title());
        let start = Instant::now();
        let outcome = step.work.perform(workspace);
        let verdict = match &outcome {
            Ok(Outcome::Passed) => "ok".to_owned(),
            Ok(Outcome::Skipped(why)) => format!("skipped: {why}"),
            Err(_) => "FAILED".to_owned(),
        };
        times.push((step.name, start.elapsed(), verdict));
        if let Err(message) = outcome {
            result = Err(format!("{}: {message}", step.name));
            break;
        }
    }
    print_times(&times);
    result
}

enum Outcome {
    Passed,
    Skipped(String),
}

impl Step {
    /// The command that does the same alone.
    fn title(&self) -> String {
        match self.work {
            Work::Here(_) => format!("cargo xtask {}", self.name),
            Work::Cargo(command) | Work::Optional { command, .. } => format!("cargo {command}"),
        }
    }
}

impl Work {
    fn perform(&self, workspace: &Workspace) -> Result<Outcome> {
        match self {
            Work::Here(check) => check(workspace).map(|()| Outcome::Passed),
            Work::Cargo(command) => workspace.run_cargo(command.split(' ')).map(|()| Outcome::Passed),
            Work::Optional { command, install } => {
                if installed(workspace, command) {
                    return Work::Cargo(command).perform(workspace);
                }
                let why = format!("not installed; `{install}`");
                println!("{why}");
                Ok(Outcome::Skipped(why))
            }
        }
    }
}

/// Whether cargo knows the command: it tells its version.
fn installed(workspace: &Workspace, command: &str) -> bool {
    let subcommand = command.split(' ').next().unwrap_or_default();
    let mut probe = workspace.cargo([subcommand, "--version"]);
    probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn print_times(times: &[(&str, Duration, String)]) {
    println!("\n== times");
    for (name, time, verdict) in times {
        println!("{name:<10} {:>8.1} s  {verdict}", time.as_secs_f64());
    }
    let total: Duration = times.iter().map(|(_, time, _)| *time).sum();
    println!("{:<10} {:>8.1} s", "total", total.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cargo_command_that_nobody_has_is_skipped() {
        let workspace = Workspace::find().expect("tests run inside the workspace");
        let work = Work::Optional { command: "no-such-command --check", install: "nothing" };
        assert!(matches!(work.perform(&workspace), Ok(Outcome::Skipped(_))));
    }

    #[test]
    fn the_checks_of_the_source_come_before_the_campaigns() {
        let names: Vec<&str> = steps().iter().map(|step| step.name).collect();
        let source = ["format", "clippy", "walls", "product", "tidy", "tools", "test", "claims"];
        let campaigns: Vec<&str> = CAMPAIGNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [&source[..], &campaigns, &["real", "deny"]].concat());
    }
}
