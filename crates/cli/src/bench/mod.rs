//! `centrifuge bench`: measurements, as ratios within one run.

pub(crate) mod commit;
pub(crate) mod flease;
pub(crate) mod hot_path;
pub(crate) mod manager;
mod process;

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
    /// One process of clients of such a measurement
    #[command(hide = true)]
    ManagerClients(manager::ClientsArgs),
}

pub(crate) async fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::HotPath(args) => hot_path::run(&args),
        BenchCommand::Commit(args) => commit::run(args).await,
        BenchCommand::Flease(args) => flease::run(args).await,
        BenchCommand::FleasePeer => flease::run_peer().await,
        BenchCommand::Manager(args) => manager::run(args).await,
        BenchCommand::ManagerClients(args) => manager::run_clients(args).await,
    }
}
