//! `centrifuge manager`.

use std::io::IsTerminal;

use centrifuge_server::config::{Config, ConfigArgs, LogFormat};
use centrifuge_server::manager::Manager;
use centrifuge_server::store::Backend;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

#[derive(Args)]
pub(crate) struct ManagerArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs a Manager until it is told to stop; then it resigns, so that the next leader need not wait.
pub(crate) async fn run(args: ManagerArgs) -> Result<(), Failure> {
    let config = args.config.resolve().map_err(|error| Failure::usage(error.to_string()))?;
    start_logging(&config)?;
    let store = Backend::File(config.store.clone());
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|error| Failure::failed(format!("no signals: {error}")))?;
    let manager = Manager::start(config, store).await.map_err(|error| Failure::failed(error.to_string()))?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    manager.shutdown().await;
    Ok(())
}

fn start_logging(config: &Config) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&config.log_level).map_err(|error| {
        Failure::usage(format!("log_level: {error}; write info, or info,centrifuge_server=debug"))
    })?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match config.log_format {
        LogFormat::Json => lines.json().init(),
        LogFormat::Text => lines.init(),
    }
    Ok(())
}
