//! The parts that processes of these programs play: `story serve queues server`, so that one `cargo run` has
//! everything.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use centrifuge_examples::shared::program::{self, Arguments};
use centrifuge_examples::{Result, programs};
use centrifuge_harness::Program;
use centrifuge_harness::process::announce_ready;
use centrifuge_server::Manager;
use centrifuge_server::config::ConfigArgs;
use centrifuge_server::stop::told_to_stop;
use clap::Subcommand;

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
        Role::Manager(manager) => return program::play(args.parent, manage(*manager)),
        Role::Application(words) => words,
    };
    let application = words.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    programs::run(&application, words)
}

/// Manages until it is told to stop. Says where as soon as it leads or knows who does.
async fn manage(args: ConfigArgs) -> Result<()> {
    let config = args.resolve()?;
    let store = config.store.clone();
    let manager = Manager::start(config, store).await?;
    // The view lives as long as the Manager, so that its sender is never gone.
    let _ = manager.view().roles().wait_for(|role| role.is_ready()).await;
    announce_ready(&manager.grpc_addr().to_string());
    told_to_stop().await;
    manager.shutdown().await;
    Ok(())
}
