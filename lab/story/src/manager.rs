//! A Manager as a process.

use centrifuge_examples::Failure;
use centrifuge_harness::process::announce_ready;
use centrifuge_server::Manager;
use centrifuge_server::config::ConfigArgs;
use centrifuge_server::stop::told_to_stop;

/// Manages until it is told to stop. Says where as soon as it leads or knows who does.
pub(crate) async fn run(args: ConfigArgs) -> Result<(), Failure> {
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
