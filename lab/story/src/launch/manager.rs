//! One Manager: as a process, or in the process of a test.

use std::path::PathBuf;

use centrifuge_examples::Failure;
use centrifuge_examples::shared::http::say_ready;
use centrifuge_server::config::ConfigArgs;
use centrifuge_server::stop::told_to_stop;
use centrifuge_server::{Manager, RunningManager};
use clap::Args;

/// What a Manager is told; `centrifuge manager` has more to set.
#[derive(Args, Clone, Debug)]
pub struct ManagerArgs {
    /// Where it listens for Owners and Lookups
    #[arg(long)]
    pub listen: String,
    /// The file of its store; or etcd, or none, with what these need in the file of settings
    #[arg(long)]
    pub store: PathBuf,
    /// A file of settings, as `centrifuge manager` reads it
    #[arg(long)]
    pub config: Option<PathBuf>,
}

/// Manages until it is told to stop.
pub async fn run(args: ManagerArgs) -> Result<(), Failure> {
    let manager = start(args).await?;
    say_ready("manager", &manager.grpc_addr().to_string());
    told_to_stop().await;
    manager.shutdown().await;
    Ok(())
}

/// Starts a Manager in this process, and waits until it leads or knows who does.
pub(super) async fn start(args: ManagerArgs) -> Result<RunningManager, Failure> {
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
    // The view lives as long as the Manager, so that its sender is never gone.
    let _ = manager.view().roles().wait_for(|role| role.is_ready()).await;
    Ok(manager)
}
