//! The processes of a run: this binary again, with a part to play.

mod caller;
mod lookup_fleet;
mod manager;
mod owner;
mod peer;
mod probe;
mod stretch;
mod wire;

pub(crate) use stretch::LONGEST_PAUSE;
pub(crate) use wire::{abort_server, read_name, set_weight};

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use centrifuge::{Managers, ManagersError, Security, Tls};
use centrifuge_harness::etcd::explained;
use centrifuge_harness::signals::end_with;
use centrifuge_net::clock::Wander;
use centrifuge_server::stop::told_to_stop;
use serde::{Deserialize, Serialize};

use crate::bug::Bug;
use crate::plan::Times;

/// What a process is told, as its one argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The process that started it: when that is gone, so is this.
    pub(crate) parent: u32,
    pub(crate) name: String,
    /// The Managers, where it finds them.
    pub(crate) managers: Vec<String>,
    /// What it shows them and trusts, if they use TLS.
    pub(crate) tls: Option<TlsFiles>,
    /// How many keys are watched.
    pub(crate) keys: u32,
    pub(crate) journal: PathBuf,
    /// How wrong its clock is.
    pub(crate) ppm: i32,
    /// How it wanders.
    pub(crate) wander: Option<Wander>,
    pub(crate) times: Times,
    pub(crate) bug: Option<Bug>,
    pub(crate) role: Role,
}

impl Part {
    /// The Managers, as this process reaches them.
    fn managers(&self) -> Result<Managers, ManagersError> {
        let managers = Managers::list(&self.managers)?;
        Ok(match &self.tls {
            Some(files) => managers.tls(files.tls()),
            None => managers,
        })
    }
}

/// The files of a client under TLS.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TlsFiles {
    pub(crate) ca: PathBuf,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl TlsFiles {
    pub(crate) fn tls(&self) -> Tls {
        Tls::files(&self.ca, &self.cert, &self.key)
    }

    pub(crate) fn security(&self) -> Security {
        Security { tls: Some(self.tls()), ..Security::default() }
    }
}

/// The part to play.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// A node of etcd, from the system's package, with these arguments.
    Etcd(Vec<String>),
    /// A Manager with these arguments.
    Manager(Vec<String>),
    Owner(OwnerRole),
    /// Who asks for these keys.
    Caller {
        writes: Vec<u32>,
    },
    /// So many Lookups.
    LookupFleet {
        lookups: u32,
    },
    Peer(PeerRole),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OwnerRole {
    pub(crate) listen: String,
    /// Where others reach it, which may be a relay.
    pub(crate) url: String,
    /// It moves state; otherwise a recall loses it.
    pub(crate) migrates: bool,
    /// It knows that the process before it is gone.
    pub(crate) takes_over: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerRole {
    /// Its number among the peers.
    pub(crate) id: u16,
    /// All peers, where it finds them; itself where it listens.
    pub(crate) peers: Vec<(u16, String)>,
    /// The cells that it wants, each with its members; none: all peers.
    pub(crate) cells: Vec<(u32, Vec<u16>)>,
    /// What it wants when is drawn from this.
    pub(crate) seed: u64,
}

/// Plays a part until it is over, or its parent is gone.
pub(crate) fn play(text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let part: Part = serde_json::from_str(text)?;
    end_with(part.parent)?;
    if part.ppm != 0 {
        centrifuge_net::clock::set_rate(part.ppm);
    }
    if let Some(wander) = part.wander {
        centrifuge_net::clock::set_wander(wander);
    }
    if let Role::Etcd(arguments) = &part.role {
        // The process stays the same, and with it the wish to die with its parent.
        return Err(explained(Command::new("etcd").args(arguments).exec()).into());
    }
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match &part.role {
            Role::Etcd(_) => Ok(()),
            Role::Manager(arguments) => manager::run(&part, arguments).await,
            Role::Owner(role) => owner::run(&part, role).await,
            Role::Caller { writes } => caller::run(&part, writes).await,
            Role::LookupFleet { lookups } => lookup_fleet::run(&part, *lookups).await,
            Role::Peer(role) => peer::run(&part, role).await,
        }
    })
}
