//! `centrifuge bench`: measurements, as ratios within one run.

pub(crate) mod commit;
pub(crate) mod flease;
pub(crate) mod hot_path;
pub(crate) mod isolation;
pub(crate) mod joins;
pub(crate) mod manager;
mod process;
mod testbed;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// What a lookup and a lease check cost, beside a clock read and other crates' rings
    HotPath(hot_path::HotPathArgs),
    /// What a commit and a join cost on etcd and on the embedded store
    Commit(commit::CommitArgs),
    /// What leases among peers cost, beside leases of etcd
    #[command(long_about = flease::ABOUT)]
    Flease(flease::FleaseBenchArgs),
    /// One peer of such a measurement
    #[command(hide = true)]
    FleasePeer,
    /// What a Manager costs with many Owners and Lookups, at rest and while they restart
    Manager(manager::ManagerBenchArgs),
    /// What a renewal waits for while somebody in another namespace does the worst that is legal
    #[command(long_about = isolation::ABOUT)]
    Isolation(isolation::IsolationArgs),
    /// The honest Owner of such a measurement
    #[command(hide = true)]
    IsolationQuiet(isolation::QuietArgs),
    /// The hostile client of such a measurement
    #[command(hide = true)]
    IsolationHostile(isolation::HostileArgs),
    /// What it costs a Manager when many Owners join under new names
    #[command(long_about = joins::ABOUT)]
    Joins(joins::JoinsArgs),
    /// One process of clients of such measurements
    #[command(hide = true)]
    ManagerClients(testbed::ClientsArgs),
}

pub(crate) async fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::HotPath(args) => hot_path::run(&args),
        BenchCommand::Commit(args) => commit::run(args).await,
        BenchCommand::Flease(args) => flease::run(args).await,
        BenchCommand::FleasePeer => flease::run_peer().await,
        BenchCommand::Manager(args) => manager::run(args).await,
        BenchCommand::Isolation(args) => isolation::run(args).await,
        BenchCommand::IsolationQuiet(args) => isolation::run_quiet(args).await,
        BenchCommand::IsolationHostile(args) => isolation::run_hostile(args).await,
        BenchCommand::Joins(args) => joins::run(args).await,
        BenchCommand::ManagerClients(args) => testbed::run_clients(args).await,
    }
}

/// A number of things, of which there is at least one.
fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "write a number above zero".to_owned())
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}
