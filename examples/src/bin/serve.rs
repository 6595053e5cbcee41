//! One part of an example as a process: `serve documents --name a`, `serve --help` for all of them.

use std::process::ExitCode;

use centrifuge_examples::role::{self, RoleArgs};
use clap::Parser;

/// Runs one part of an example until it is told to stop.
#[derive(Parser)]
#[command(name = "serve")]
struct Arguments {
    #[command(flatten)]
    role: RoleArgs,
}

fn main() -> ExitCode {
    role::play(Arguments::parse().role)
}
