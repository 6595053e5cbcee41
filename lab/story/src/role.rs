//! The parts that processes of these programs play: `story serve queues server`, so that one `cargo run` has
//! everything.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use centrifuge_examples::programs;
use centrifuge_examples::shared::program::{self, Arguments};
use centrifuge_harness::Program;
use centrifuge_server::config::ConfigArgs;
use clap::Subcommand;

use crate::manager;

/// A part, and who wants it.
pub type RoleArgs = Arguments<Role>;

/// A Manager, or the program of an application.
#[derive(Subcommand, Clone, Debug)]
pub enum Role {
    /// A Manager
    Manager(Box<ConfigArgs>),
    /// The words of the application's command line
    #[command(external_subcommand)]
    Application(Vec<OsString>),
}

/// Starts this program in a part.
pub(crate) fn program() -> io::Result<Program> {
    Program::this("serve")
}

/// Plays a part until it is told to stop.
pub fn play(args: RoleArgs) -> ExitCode {
    let words = match args.part {
        Role::Manager(manager) => return program::play(args.parent, manager::run(*manager)),
        Role::Application(words) => words,
    };
    match words.first().and_then(|name| name.to_str()) {
        Some("documents") => programs::documents(words),
        Some("pubsub") => programs::pubsub(words),
        Some("queues") => programs::queues(words),
        Some("presence") => programs::presence(words),
        _ => program::conclude(Err(format!("there is no program for {words:?}").into())),
    }
}
