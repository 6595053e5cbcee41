//! Every part that can be a process, and how one is run.

use std::io;
use std::process::ExitCode;

use centrifuge_harness::signals::end_with;
use centrifuge_server::Manager;
use centrifuge_server::config::ConfigArgs;
use centrifuge_server::stop::told_to_stop;
use clap::{Args, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::frontend::FrontendArgs;
use crate::{
    Failure, cache, documents, feeds, frontend, launch, presence, pubsub, queues, replicated, tasks,
};

/// A part of an application.
#[derive(Subcommand, Clone, Debug)]
pub enum Role {
    /// A Manager
    Manager(ManagerArgs),
    /// Passes requests on to the owners of their keys
    Frontend(FrontendArgs),
    /// Sectioned documents
    Documents(documents::DocumentsArgs),
    /// Publish-subscribe
    #[command(name = "pubsub")]
    PubSub(pubsub::PubSubArgs),
    /// Message queues
    Queues(queues::QueuesArgs),
    /// Feeds
    Feeds(feeds::FeedsArgs),
    /// Passes requests on to the owners of feeds, a few at a time to each
    FeedsFrontend(feeds::frontend::FeedsFrontendArgs),
    /// Presence
    Presence(presence::PresenceArgs),
    /// A frontend of presence, where users sign in
    PresenceFrontend(presence::frontend::PresenceFrontendArgs),
    /// A replicated store
    Replicated(replicated::ReplicatedArgs),
    /// A replicated store for callers that do not link its client
    ReplicatedFrontend(replicated::gateway::GatewayArgs),
    /// Periodic tasks
    Tasks(tasks::TasksArgs),
    /// Where the effects of periodic tasks go
    Sink(tasks::sink::SinkArgs),
    /// A cache over a database
    Cache(cache::CacheArgs),
}

/// What a Manager is told; `centrifuge manager` has more to set.
#[derive(Args, Clone, Debug)]
pub struct ManagerArgs {
    /// Where it listens for Owners and Lookups
    #[arg(long, default_value = "127.0.0.1:7600")]
    pub listen: String,
    /// The file of its store; or etcd, or none, with what these need in the file of settings
    #[arg(long, default_value = "centrifuge.db")]
    pub store: std::path::PathBuf,
    /// A file of settings, as `centrifuge manager` reads it
    #[arg(long)]
    pub config: Option<std::path::PathBuf>,
}

/// A part and who wants it.
#[derive(Args, Clone, Debug)]
pub struct RoleArgs {
    #[command(subcommand)]
    role: Role,
    /// End when this process does, which started this one
    #[arg(long, global = true, hide = true)]
    parent: Option<u32>,
}

/// Runs a part until it is told to stop.
#[must_use]
pub fn play(args: RoleArgs) -> ExitCode {
    let played = args.parent.map_or(Ok(()), end_with).map_err(Failure::from).and_then(|()| {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false).init();
        tokio::runtime::Runtime::new()?.block_on(run(args.role))
    });
    conclude(played)
}

/// The exit code of a program, and what is said about it.
#[must_use]
pub fn conclude(ended: Result<(), Failure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(role: Role) -> Result<(), Failure> {
    match role {
        Role::Manager(args) => manage(args).await,
        Role::Frontend(args) => frontend::run(args).await,
        Role::Documents(args) => documents::run(args).await,
        Role::PubSub(args) => pubsub::run(args).await,
        Role::Queues(args) => queues::run(args).await,
        Role::Feeds(args) => feeds::run(args).await,
        Role::FeedsFrontend(args) => feeds::frontend::run(args).await,
        Role::Presence(args) => presence::run(args).await,
        Role::PresenceFrontend(args) => presence::frontend::run(args).await,
        Role::Replicated(args) => replicated::run(args).await,
        Role::ReplicatedFrontend(args) => replicated::gateway::run(args).await,
        Role::Tasks(args) => tasks::run(args).await,
        Role::Sink(args) => tasks::sink::run(args).await,
        Role::Cache(args) => cache::run(args).await,
    }
}

async fn manage(args: ManagerArgs) -> Result<(), Failure> {
    // Alone on a file it need not wait for long; others have their defaults.
    let is_alone = !["etcd", "none"].map(std::path::Path::new).contains(&args.store.as_path());
    let alone = |time: &str| is_alone.then(|| time.to_owned());
    let wanted = ConfigArgs {
        config: args.config,
        store: Some(args.store),
        grpc_listen: Some(args.listen),
        http_listen: Some("127.0.0.1:0".to_owned()),
        leader_lease: alone("2s"),
        campaign_interval: alone("500ms"),
        ..ConfigArgs::default()
    };
    let config = wanted.resolve()?;
    let store = config.store.clone();
    let manager = Manager::start(config, store).await?;
    // A standby is ready when it knows who leads. The view lives as long as the Manager, so that its sender is never gone.
    let _ = manager.view().roles().wait_for(|role| role.is_ready()).await;
    launch::say_ready("manager", &manager.grpc_addr().to_string());
    told_to_stop().await;
    manager.shutdown().await;
    Ok(())
}
