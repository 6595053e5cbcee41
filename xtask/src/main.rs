//! Developer commands of the workspace: `cargo xtask ci`, `test`, `walls`, `product`, `claims`, `tidy`, `lines`, `picture`, `tools`, `fuzz`, `chaos`, `failover`, `key-of-death`, `bench`, `etcd-churn`.

mod ci;
mod claims;
mod etcd_churn;
mod lab;
mod lines;
mod numbers;
mod picture;
mod product;
mod programs;
mod source;
mod tidy;
mod together;
mod tools;
mod walls;
mod workspace;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

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
    /// Runs every test, several test programs at a time
    Test,
    /// Runs the short campaigns of real processes, several at a time, and exhausts small worlds beside them
    Real,
    /// Checks what core and sim must not depend on or mention
    Walls,
    /// Builds the product as users do, and checks that nothing is in it that only tests may have
    Product,
    /// Lists the papers' claims and checks that a test that cites it stands behind each
    Claims {
        /// Prints one line of JSON instead of the list
        #[arg(long)]
        json: bool,
    },
    /// Checks that ARCHITECTURE.md, the README, the decision records and the protocol's numbers are true to the tree
    Tidy,
    /// Runs `centrifuge dev` and draws what it prints as docs/pictures/dev.svg
    Picture,
    /// Counts the lines of the applications in `examples`, and those that concern distribution
    Lines,
    /// Installs what the tests need beside Rust, where it is missing: Debian's etcd
    Tools,
    /// Commits to a store on etcd again and again, and shows how much of etcd's file is in use before and after
    EtcdChurn {
        /// How many commits
        #[arg(long, default_value_t = 100_000)]
        commits: u64,
        /// Prints one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Puts changed and random tokens, keys, policies and certificates into whatever reads them
    Fuzz {
        /// How many of each
        #[arg(long, default_value_t = 200_000)]
        cases: u32,
    },
    /// Runs a pool of real processes under faults and checks that every promise was kept; `--help` lists what can be set
    #[command(disable_help_flag = true)]
    Chaos(Forwarded),
    /// Measures: hot-path, manager, commit, flease, isolation or joins; `--help` lists what can be set
    #[command(disable_help_flag = true)]
    Bench(Forwarded),
    /// Kills the leader of real Managers again and again under load, and measures how soon another answers
    #[command(disable_help_flag = true)]
    Failover(Forwarded),
    /// Sends a request that aborts its server, again and again, and sees that it takes down few servers
    #[command(disable_help_flag = true)]
    KeyOfDeath(Forwarded),
}

#[derive(Args)]
struct Forwarded {
    /// What the program of the lab is told
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
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
        Command::Test => programs::run(&workspace),
        Command::Real => ci::real(&workspace),
        Command::Walls => walls::run(&workspace),
        Command::Product => product::run(&workspace),
        Command::Claims { json } => claims::run(&workspace, json),
        Command::Tidy => tidy::run(&workspace),
        Command::Picture => picture::run(&workspace),
        Command::Lines => lines::run(&workspace),
        Command::Tools => tools::run(),
        Command::EtcdChurn { commits, json } => etcd_churn::run(&workspace, commits, json),
        Command::Fuzz { cases } => lab::fuzz(&workspace, cases),
        Command::Chaos(forwarded) => lab::chaos(&workspace, "chaos", &forwarded.arguments),
        Command::Bench(forwarded) => lab::bench(&workspace, &forwarded.arguments),
        Command::Failover(forwarded) => lab::chaos(&workspace, "failover", &forwarded.arguments),
        Command::KeyOfDeath(forwarded) => lab::chaos(&workspace, "key-of-death", &forwarded.arguments),
    }
}
