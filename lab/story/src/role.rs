//! The parts that processes of these programs play: `story serve queues`, so that one `cargo run` has everything.

use std::process::ExitCode;

use centrifuge_examples::Failure;
use centrifuge_examples::shared::frontend::{self, FrontendArgs};
use centrifuge_examples::shared::program::Arguments;
use centrifuge_examples::{documents, presence, pubsub, queues};
use clap::Subcommand;

use crate::launch::manager::{self, ManagerArgs};

/// A part, and who wants it.
pub type RoleArgs = Arguments<Role>;

/// A part of an application.
#[derive(Subcommand, Clone, Debug)]
pub enum Role {
    /// A Manager
    Manager(ManagerArgs),
    /// Passes requests on to the owners of their keys
    Frontend(FrontendArgs),
    /// A server of documents
    Documents(documents::DocumentsArgs),
    /// A server of publish-subscribe
    #[command(name = "pubsub")]
    PubSub(pubsub::PubSubArgs),
    /// A server of message queues
    Queues(queues::QueuesArgs),
    /// A server of presence
    Presence(presence::PresenceArgs),
}

/// Plays a part until it is told to stop.
pub fn play(args: RoleArgs) -> ExitCode {
    args.run(run)
}

async fn run(role: Role) -> Result<(), Failure> {
    match role {
        Role::Manager(args) => manager::run(args).await,
        Role::Frontend(args) => frontend::run(args).await,
        Role::Documents(args) => documents::run(args).await,
        Role::PubSub(args) => pubsub::run(args).await,
        Role::Queues(args) => queues::run(args).await,
        Role::Presence(args) => presence::run(args).await,
    }
}
