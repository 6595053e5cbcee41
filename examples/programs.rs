//! The programs of the applications: which parts each has, as subcommands of a command line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::shared::frontend;
use crate::shared::program::Arguments;
use crate::tasks::{TasksArgs, sink};
use crate::{Failure, cache, documents, feeds, presence, pubsub, queues, replicated, tasks};

/// The words of a command line, the first of which is the program's name.
type Words = Vec<OsString>;

/// Memory in front of a database.
pub fn cache(words: Words) -> ExitCode {
    run(words, cache::run, frontend::run)
}

/// Sectioned documents.
pub fn documents(words: Words) -> ExitCode {
    run(words, documents::run, frontend::run)
}

/// A feed processor.
pub fn feeds(words: Words) -> ExitCode {
    run(words, feeds::run, feeds::frontend::run)
}

/// Who is online, and where.
pub fn presence(words: Words) -> ExitCode {
    run(words, presence::run, presence::frontend::run)
}

/// Publish-subscribe.
pub fn pubsub(words: Words) -> ExitCode {
    run(words, pubsub::run, frontend::run)
}

/// Message queues.
pub fn queues(words: Words) -> ExitCode {
    run(words, queues::run, frontend::run)
}

/// A replicated store.
pub fn replicated(words: Words) -> ExitCode {
    run(words, replicated::run, replicated::gateway::run)
}

/// Periodic tasks.
pub fn tasks(words: Words) -> ExitCode {
    Arguments::parse_from(words).run(async |part| match part {
        TasksPart::Server(args) => tasks::run(args).await,
        TasksPart::Sink(args) => sink::run(args).await,
    })
}

#[derive(Subcommand)]
enum TasksPart {
    /// A server of the pool
    Server(TasksArgs),
    /// Where the effects of periodic tasks go
    Sink(sink::SinkArgs),
}

/// The parts of all other applications.
#[derive(Subcommand)]
enum Part<S: Args, F: Args> {
    /// A server of the pool
    Server(S),
    /// Passes requests on to the owners of their keys
    Frontend(F),
}

fn run<S: Args, F: Args>(
    words: Words,
    server: impl AsyncFnOnce(S) -> Result<(), Failure>,
    frontend: impl AsyncFnOnce(F) -> Result<(), Failure>,
) -> ExitCode {
    Arguments::parse_from(words).run(async |part| match part {
        Part::Server(args) => server(args).await,
        Part::Frontend(args) => frontend(args).await,
    })
}
