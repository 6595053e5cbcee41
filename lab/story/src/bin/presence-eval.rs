//! Measures a presence pool under load: a rolling restart, the death of a rack, and a load shift.

use std::process::ExitCode;

use centrifuge_examples::shared::program::conclude;
use centrifuge_examples::{Failure, Result};
use centrifuge_story::presence_eval::{EvalArgs, RollingArgs, ShiftArgs, rack, rolling, shift};
use centrifuge_story::role::{self, RoleArgs};
use clap::{Parser, Subcommand};

/// Measures what a rolling restart, the death of a rack and a load shift cost the users of a presence pool.
///
/// Starts a Manager and the servers as processes on loopback, and frontends with users in this process. Says
/// what it does on the standard error, prints a table, and ends with 1 if a user was left wrong. A release
/// build measures better.
#[derive(Parser)]
#[command(name = "presence-eval")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Restarts every server in turn: no loss may be told, no request may fail
    Rolling(RollingArgs),
    /// Kills a fifth of the servers at once and starts them again when their leases have run out: everything
    /// that was lost must be told to every frontend and published again
    Rack(EvalArgs),
    /// Makes other users popular, by Zipf's law, in a pool whose load Trim balances: the load must become even, no loss may
    /// be told, no request may fail
    Shift(ShiftArgs),
    /// Plays one part of it
    #[command(hide = true)]
    Serve(RoleArgs),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Rolling(args) => measure(rolling(args)),
        Command::Rack(args) => measure(rack(args)),
        Command::Shift(args) => measure(shift(args)),
        Command::Serve(args) => role::play(args),
    }
}

fn measure(evaluation: impl Future<Output = Result<()>>) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::from);
    conclude(runtime.and_then(|runtime| runtime.block_on(evaluation)))
}
