//! `centrifuge bench`: measurements, as ratios within one run.

pub(crate) mod hot_path;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// What a lookup and a lease check cost, beside a clock read and other crates' rings
    HotPath(hot_path::HotPathArgs),
}

pub(crate) fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::HotPath(args) => hot_path::run(&args),
    }
}
