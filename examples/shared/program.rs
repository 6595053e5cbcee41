//! An application as a program: each of its parts is a subcommand, and runs until it is told to stop.

use std::io;
use std::process::ExitCode;

use centrifuge_server::stop::die_with;
use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::Failure;

/// Runs one part of an application until it is told to stop.
#[derive(Parser, Clone, Debug)]
pub struct Arguments<P: Subcommand> {
    #[command(subcommand)]
    part: P,
    /// End when this process does, which started this one
    #[arg(long, global = true, hide = true)]
    parent: Option<u32>,
}

/// The parts of most applications.
#[derive(Subcommand, Clone, Debug)]
enum Part<S: Args, F: Args> {
    /// A server of the pool
    Server(S),
    /// Passes requests on to the owners of their keys
    Frontend(F),
}

/// The program of an application that has servers and frontends.
pub fn main<S: Args, F: Args>(
    server: impl AsyncFnOnce(S) -> Result<(), Failure>,
    frontend: impl AsyncFnOnce(F) -> Result<(), Failure>,
) -> ExitCode {
    Arguments::parse().run(async |part| match part {
        Part::Server(args) => server(args).await,
        Part::Frontend(args) => frontend(args).await,
    })
}

impl<P: Subcommand> Arguments<P> {
    /// Runs the part that was asked for.
    pub fn run(self, run: impl AsyncFnOnce(P) -> Result<(), Failure>) -> ExitCode {
        let ended = self.parent.map_or(Ok(()), die_with).map_err(Failure::from).and_then(|()| {
            log_to_stderr();
            tokio::runtime::Runtime::new()?.block_on(run(self.part))
        });
        conclude(ended)
    }
}

/// Logs warnings, or what the environment asks for.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false).init();
}

/// The exit code of a program, and what is said about it.
pub fn conclude(ended: Result<(), Failure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
