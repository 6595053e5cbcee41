//! `cargo xtask bench`: measurements of the product, as ratios within one run.

mod commit;
mod flease;
mod hot_path;
mod isolation;
mod joins;
mod manager;
mod output;
mod process;
mod testbed;

use std::process::ExitCode;
use std::time::Duration;

use centrifuge_server::config::{ConfigArgs, read_duration};
use centrifuge_server::stop::told_to_stop;
use clap::{Parser, Subcommand};

/// Why a measurement came to no end.
type Failure = Box<dyn std::error::Error + Send + Sync>;
/// What comes of a part of a measurement.
type Result<T, E = Failure> = std::result::Result<T, E>;

/// Measurements of Centrifuge, as ratios within one run.
#[derive(Parser)]
#[command(name = "centrifuge-bench", bin_name = "cargo xtask bench", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// What a lookup and a lease check cost, beside a clock read and other crates' rings
    HotPath(hot_path::HotPathArgs),
    /// What a commit and a join cost on etcd and on the embedded store
    Commit(commit::CommitArgs),
    /// What leases among peers cost, beside leases of etcd
    #[command(long_about = flease::ABOUT)]
    Flease(flease::FleaseBenchArgs),
    /// What a Manager costs with many Owners and Lookups, at rest and while they restart
    Manager(manager::ManagerBenchArgs),
    /// What a renewal waits for while somebody in another namespace does the worst that is legal
    #[command(long_about = isolation::ABOUT)]
    Isolation(isolation::IsolationArgs),
    /// What it costs a Manager when many Owners join under new names
    #[command(long_about = joins::ABOUT)]
    Joins(joins::JoinsArgs),
    /// The Manager that is measured
    #[command(hide = true)]
    ManagerProcess(Box<ConfigArgs>),
    /// Another process of a measurement
    #[command(hide = true)]
    Play {
        /// What it is, as JSON
        part: String,
    },
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // The Manager's threads are as many as in the product.
    let runtime = match centrifuge_server::runtime() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    // Either way every process that it started ends.
    let measured = runtime.block_on(async {
        tokio::select! {
            // The hot path never waits, and is not interrupted.
            biased;
            measured = run(command) => measured,
            () = told_to_stop() => Err("stopped before the end".into()),
        }
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    eprintln!("centrifuge-bench: {failure}");
    ExitCode::FAILURE
}

async fn run(command: BenchCommand) -> Result<()> {
    match command {
        BenchCommand::HotPath(args) => hot_path::run(&args),
        BenchCommand::Commit(args) => commit::run(args).await,
        BenchCommand::Flease(args) => flease::run(args).await,
        BenchCommand::Manager(args) => manager::run(args).await,
        BenchCommand::Isolation(args) => isolation::run(args).await,
        BenchCommand::Joins(args) => joins::run(args).await,
        BenchCommand::ManagerProcess(args) => process::run_manager(*args).await,
        BenchCommand::Play { part } => process::play(&part).await,
    }
}

/// A number of things, of which there is at least one.
fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "write a number above zero".to_owned())
}

/// A duration: a whole number with ms, s, m or h.
fn duration(text: &str) -> Result<Duration, String> {
    read_duration(text)
        .ok_or_else(|| "write a whole number with ms, s, m or h, such as 500ms or 60s".to_owned())
}
