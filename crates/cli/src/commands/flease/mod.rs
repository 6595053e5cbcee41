//! `centrifuge flease`: leases among peers, for people and scripts.

mod control;
mod hold;
mod peer;
mod status;
mod stop;
mod tied;

use std::path::PathBuf;
use std::time::Duration;

use centrifuge::flease::{AcquireError, Cell, CellError, Change, Flease, Peers, StartError};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tracing_subscriber::EnvFilter;

use self::control::Control;
use crate::failure::Failure;
use crate::output::Format;
use crate::words;

#[derive(Subcommand)]
pub(crate) enum FleaseCommand {
    /// Run a peer that votes and holds nothing, until it is told to stop
    Peer(peer::RunArgs),
    /// Run a command while this peer holds a cell, and stop it when the lease is lost
    #[command(after_long_help = hold::EXIT_CODES)]
    Hold(Box<hold::HoldArgs>),
    /// Show the state of a running peer
    Status(status::StatusArgs),
    /// Print changes of holders, as a running peer sees them
    Watch(status::WatchArgs),
    /// Become a command that ends with the process that started it
    #[command(hide = true)]
    Tied(tied::TiedArgs),
}

/// Which peer this is, and what it shares with the others.
#[derive(Args, Debug)]
pub(crate) struct PeerArgs {
    /// All peers including this one: number=host:port, separated by commas. The same numbers at all peers
    #[arg(long, env = "CENTRIFUGE_PEERS")]
    peers: Peers,
    /// The number of this peer. No two processes may use the same number at one time
    #[arg(long, visible_alias = "id", env = "CENTRIFUGE_PEER_ID")]
    peer_id: u16,
    /// A file with the secret that all peers share, at least 16 bytes; reloaded when it changes. A second line can have
    /// another secret that is accepted, too: the first one signs. Blank lines and lines that begin with # are ignored
    #[arg(long, env = "CENTRIFUGE_KEY_FILE")]
    key_file: PathBuf,
    /// Address to listen on for datagrams [default: this peer's address in --peers]
    #[arg(long, env = "CENTRIFUGE_BIND")]
    bind: Option<String>,
    /// How long a lease lasts unless it is renewed; the same at all peers
    #[arg(long, env = "CENTRIFUGE_LEASE", default_value = "10s", value_parser = words::duration)]
    lease: Duration,
    /// Largest difference between two peers' clocks; the same at all peers
    #[arg(long, env = "CENTRIFUGE_EPSILON", default_value = "500ms", value_parser = words::duration)]
    epsilon: Duration,
    /// How long two round trips between peers may take; the same at all peers
    #[arg(long, env = "CENTRIFUGE_ROUND", default_value = "2s", value_parser = words::duration)]
    round: Duration,
    /// How long the peer stays passive after its start [default: lease + 3 x epsilon + round]
    #[arg(long, env = "CENTRIFUGE_RECOVERY", value_parser = words::duration)]
    recovery: Option<Duration>,
    /// Unix socket to create, to which `flease status` and `flease watch` connect
    #[arg(long, env = "CENTRIFUGE_CONTROL")]
    control: Option<PathBuf>,
    /// Log level: error, warn, info, debug, trace, or a filter
    #[arg(long, env = "CENTRIFUGE_LOG_LEVEL", default_value = "warn")]
    log_level: String,
    #[command(flatten)]
    format: Format,
}

impl PeerArgs {
    /// Starts the peer, and answers questions about it for as long as the second part lives.
    async fn start(&self) -> Result<(Flease, Option<Control>), Failure> {
        start_logging(&self.log_level)?;
        let mut builder = Flease::builder(self.peers.clone(), self.peer_id)
            .key_file(&self.key_file)
            .lease(self.lease)
            .epsilon(self.epsilon)
            .round(self.round);
        if let Some(bind) = &self.bind {
            builder = builder.bind(bind);
        }
        if let Some(recovery) = self.recovery {
            builder = builder.recovery(recovery);
        }
        let flease = builder.start().await?;
        let control = self.control.as_deref().map(|path| Control::serve(path, &flease)).transpose()?;
        Ok((flease, control))
    }
}

fn start_logging(level: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(level).map_err(|_| {
        Failure::usage(format!("log_level {level:?} is none: use error, warn, info, debug or trace"))
    })?;
    crate::logging::text(filter);
    Ok(())
}

fn cell(flease: &Flease, name: &str, among: &[u16]) -> Result<Cell, Failure> {
    let cell = if among.is_empty() { flease.cell(name) } else { flease.cell_among(name, among) };
    Ok(cell?)
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        let what = error.to_string();
        match error {
            StartError::Socket(_) | StartError::Randomness(_) => Failure::failed(what),
            _ => Failure::usage(what),
        }
    }
}

impl From<CellError> for Failure {
    fn from(error: CellError) -> Failure {
        Failure::usage(error.to_string())
    }
}

impl From<AcquireError> for Failure {
    fn from(error: AcquireError) -> Failure {
        Failure::failed(error.to_string())
    }
}

/// A change as an event for scripts, and in words.
fn tell(change: &Change) -> (Value, String) {
    match change {
        Change::Acquired { cell, epoch } => (
            json!({ "event": "acquired", "cell": cell, "epoch": epoch.to_string() }),
            format!("{cell} is held under epoch {epoch}"),
        ),
        Change::Ended { cell, epoch, why } => (
            json!({ "event": "ended", "cell": cell, "epoch": epoch.to_string(), "why": format!("{why:?}").to_lowercase() }),
            format!("the lease on {cell} under epoch {epoch} has ended: {why}"),
        ),
        Change::HeldByOther { cell, peer, epoch } => (
            json!({ "event": "held-by-other", "cell": cell, "peer": peer, "epoch": epoch.to_string() }),
            format!("{cell} is held by peer {peer} under epoch {epoch}; waiting"),
        ),
        Change::ClockApart { from } => (
            json!({ "event": "clock-apart", "from": from }),
            format!(
                "this peer's clock is apart from that of peers {from:?}: it steps down; set the clock right"
            ),
        ),
        Change::ClockAgrees => {
            (json!({ "event": "clock-agrees" }), "this peer's clock agrees again; it recovers".to_owned())
        }
        Change::Stopped => (json!({ "event": "stopped" }), "the peer has ended".to_owned()),
        Change::Missed(count) => {
            (json!({ "event": "missed", "count": count }), format!("{count} changes were missed"))
        }
    }
}

pub(crate) async fn run(command: FleaseCommand) -> Result<(), Failure> {
    match command {
        FleaseCommand::Peer(args) => peer::run(args).await,
        FleaseCommand::Hold(args) => hold::run(*args).await,
        FleaseCommand::Status(args) => status::run(&args),
        FleaseCommand::Watch(args) => status::watch(&args).await,
        FleaseCommand::Tied(args) => Err(tied::run(&args)),
    }
}
