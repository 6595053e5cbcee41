//! Real processes under kills, stops, cuts, lost messages and wrong clocks, and a checker of what they wrote down.
//!
//! `cargo xtask chaos`, `cargo xtask failover` and `cargo xtask key-of-death` build and run this. All processes of a run but etcd are this binary
//! again.

mod bug;
mod checker;
mod failover;
mod key_of_death;
mod lines;
mod observer;
mod plan;
mod pool;
mod proxy;
mod report;
mod roles;
mod run;
mod run_environment;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

/// Real processes under faults, and a checker of what they wrote down.
#[derive(Parser)]
#[command(name = "centrifuge-chaos")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a pool under faults and checks that every promise was kept
    Chaos(run::RunArgs),
    /// Kills the leader again and again under load, and measures how soon another answers
    Failover(failover::FailoverArgs),
    /// Sends a request that aborts its server, again and again, and sees that it takes down few servers
    KeyOfDeath(key_of_death::KeyOfDeathArgs),
    /// Checks the journals of a run that were kept
    Check {
        /// Where they are
        directory: PathBuf,
    },
    /// Plays a part in a run
    #[command(hide = true)]
    Play {
        /// What to do, as JSON
        part: String,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Chaos(args) => run::run(&args),
        Command::Failover(args) => failover::run(&args),
        Command::KeyOfDeath(args) => key_of_death::run(&args),
        Command::Check { directory } => check(&directory),
        Command::Play { part } => roles::play(&part).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn check(directory: &std::path::Path) -> Result<bool, Box<dyn Error>> {
    let verdict = checker::check(directory)?;
    println!("{verdict:#?}");
    Ok(verdict.is_clean())
}

/// Reads a length of time with its unit.
fn length(text: &str) -> Result<Duration, String> {
    centrifuge_server::config::read_duration(text)
        .ok_or_else(|| format!("{text:?} is no length of time: write 90s, 2m or 1h"))
}
