//! A Manager's process.

use std::error::Error;
use std::sync::Arc;

use centrifuge_core::manager::DeclaredNamespace;
use centrifuge_net::convert::read_settings;
use centrifuge_server::Manager;
use centrifuge_server::config::ConfigArgs;
use clap::{Args, Command, FromArgMatches};

use super::{Part, told_to_stop};

/// Serves until it is told to stop; then it resigns.
pub(super) async fn run(part: &Part, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let command = ConfigArgs::augment_args(Command::new("manager").no_binary_name(true));
    let wanted = ConfigArgs::from_arg_matches(&command.try_get_matches_from(arguments)?)?;
    let mut config = wanted.resolve()?;
    for DeclaredNamespace { settings, .. } in config.namespaces.values_mut() {
        *settings = Arc::new(read_settings(&part.times.settings(), settings)?);
    }
    if let Some(bug) = part.bug {
        bug.inject();
    }
    let store = config.store.clone();
    let manager = Manager::start(config, store).await?;
    told_to_stop().await;
    manager.shutdown().await;
    Ok(())
}
