//! Runs one part of an application, a subcommand of its program, until it is told to stop.

use std::io;
use std::process::ExitCode;

use centrifuge_harness::signals::end_with;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::{Failure, Result};

/// Runs one part of an application until it is told to stop.
#[derive(Parser, Clone, Debug)]
pub struct Arguments<P: Subcommand> {
    /// Which part
    #[command(subcommand)]
    pub part: P,
    /// End when this process does, which started this one
    #[arg(long, global = true, hide = true)]
    pub parent: Option<u32>,
}

impl<P: Subcommand> Arguments<P> {
    /// Runs the part that was asked for.
    pub fn run(self, run: impl AsyncFnOnce(P) -> Result<()>) -> ExitCode {
        play(self.parent, run(self.part))
    }
}

/// Does the work of a part, and ends with the process that started this one, if one did.
pub fn play(parent: Option<u32>, work: impl Future<Output = Result<()>>) -> ExitCode {
    let ended = parent.map_or(Ok(()), end_with).map_err(Failure::from).and_then(|()| {
        log_to_stderr();
        tokio::runtime::Runtime::new()?.block_on(work)
    });
    conclude(ended)
}

/// Logs warnings, or what the environment asks for.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false).init();
}

/// The exit code of a program, and what is said about it.
pub fn conclude(ended: Result<()>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
