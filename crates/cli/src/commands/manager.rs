//! `centrifuge manager`.

use std::pin::pin;

use centrifuge_server::Manager;
use centrifuge_server::config::{Config, ConfigArgs, ConfigError, LOG_LEVELS, LogFormat};
use clap::{ArgMatches, Args};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::output::Format;
use crate::{logging, sources};

#[derive(Args)]
pub(crate) struct ManagerArgs {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    format: Format,
}

/// Runs a Manager until it is told to stop; then it resigns, so that the next leader need not wait.
pub(crate) async fn run(args: ManagerArgs, matches: Option<&ArgMatches>) -> Result<(), Failure> {
    let file = args.config.config.clone();
    let source = |setting: &str| sources::of(setting, matches, file.as_deref());
    let mut config = args.config.resolve().map_err(|error| refused(&error, source))?;
    if args.format.is_json() {
        config.log_format = LogFormat::Json;
    }
    check_ports(&config, source)?;
    start_logging(&config).map_err(|error| refused(&error, source))?;
    let store = config.store.clone();
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|error| Failure::failed(format!("no signals: {error}")))?;
    let mut told_to_stop = pin!(async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    });
    let manager = tokio::select! {
        started = Manager::start(config, store) => started.map_err(|error| Failure::failed(error.to_string()))?,
        // Nothing was begun that would have to be ended well: it waits for its store.
        () = &mut told_to_stop => return Ok(()),
    };
    told_to_stop.await;
    manager.shutdown().await;
    Ok(())
}

/// Two services on one port would look as if another Manager had it.
fn check_ports(config: &Config, source: impl Fn(&str) -> String) -> Result<(), Failure> {
    let (grpc, http) = (config.grpc_listen, config.http_listen);
    let meet = grpc.ip() == http.ip() || grpc.ip().is_unspecified() || http.ip().is_unspecified();
    if grpc.port() == 0 || grpc.port() != http.port() || !meet {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "grpc_listen {grpc}{} and http_listen {http}{} name one port: give each a port of its own",
        source("grpc_listen"),
        source("http_listen")
    )))
}

/// The refusal, and where the setting was set.
fn refused(error: &ConfigError, source: impl Fn(&str) -> String) -> Failure {
    let source = match error {
        ConfigError::Value { setting, .. } | ConfigError::NotLoopback { setting, .. } => source(setting),
        ConfigError::NothingToDial(_) => source("grpc_listen"),
        ConfigError::Namespace { namespace, .. } => source(&format!("namespaces.{namespace}")),
        ConfigError::Unreadable { .. }
        | ConfigError::File { .. }
        | ConfigError::NoStore { .. }
        | ConfigError::NoPolicy => String::new(),
    };
    Failure::usage(format!("{error}{source}"))
}

fn start_logging(config: &Config) -> Result<(), ConfigError> {
    let filter = EnvFilter::try_new(&config.log_level).map_err(|_| ConfigError::Value {
        setting: "log_level",
        value: config.log_level.clone(),
        allowed: LOG_LEVELS.to_owned(),
    })?;
    match config.log_format {
        LogFormat::Json => logging::json(filter),
        LogFormat::Text => logging::text(filter),
    }
    Ok(())
}
