//! Developer commands of the workspace: `cargo xtask ci`, `walls`, `claims`, `tidy`.

mod ci;
mod claims;
mod source;
mod tidy;
mod walls;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::{Result, Workspace};

/// Developer commands of the Centrifuge workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs every check in order and stops at the first that fails
    Ci,
    /// Checks what core and sim must not depend on or mention
    Walls,
    /// Lists the papers' claims and checks that a test that cites it stands behind each
    Claims {
        /// Prints one line of JSON instead of the list
        #[arg(long)]
        json: bool,
    },
    /// Checks that ARCHITECTURE.md, the README and the decision records are true to the tree
    Tidy,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let workspace = Workspace::find()?;
    match command {
        Command::Ci => ci::run(&workspace),
        Command::Walls => walls::run(&workspace),
        Command::Claims { json } => claims::run(&workspace, json),
        Command::Tidy => tidy::run(&workspace),
    }
}
