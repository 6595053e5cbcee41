//! The programs of the applications: which parts each has, as subcommands of a command line.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::shared::frontend;
use crate::shared::program::{Arguments, conclude};
use crate::tasks::{TasksArgs, sink};
use crate::{Result, cache, documents, feeds, presence, pubsub, queues, replicated, tasks};

/// Runs an application with the words of a command line, the first of which is the program's name.
pub fn run(application: &str, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words = words.into_iter().collect();
    match application {
        "cache" => run_part(words, cache::run, frontend::run),
        "documents" => run_part(words, documents::run, frontend::run),
        "feeds" => run_part(words, feeds::run, feeds::frontend::run),
        "presence" => run_part(words, presence::run, presence::frontend::run),
        "pubsub" => run_part(words, pubsub::run, frontend::run),
        "queues" => run_part(words, queues::run, frontend::run),
        "replicated" => run_part(words, replicated::run, replicated::gateway::run),
        "tasks" => Arguments::parse_from(words).run(async |part| match part {
            TasksPart::Server(args) => tasks::run(args).await,
            TasksPart::Sink(args) => sink::run(args).await,
        }),
        _ => conclude(Err(format!("there is no application {application:?}").into())),
    }
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

fn run_part<S: Args, F: Args>(
    words: Vec<OsString>,
    server: impl AsyncFnOnce(S) -> Result<()>,
    frontend: impl AsyncFnOnce(F) -> Result<()>,
) -> ExitCode {
    Arguments::parse_from(words).run(async |part| match part {
        Part::Server(args) => server(args).await,
        Part::Frontend(args) => frontend(args).await,
    })
}
