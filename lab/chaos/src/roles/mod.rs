//! The processes of a run: this binary again, with a part to play.

mod caller;
mod etcd;
mod lookup_fleet;
mod manager;
mod owner;
mod peer;
mod probe;
mod stretch;
mod wire;

pub(crate) use stretch::LONGEST_PAUSE;
pub(crate) use wire::{read_name, set_weight};

use std::io;
use std::path::PathBuf;

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
    /// How wrong its clock is.
    pub(crate) ppm: i32,
    /// How it wanders.
    pub(crate) wander: Option<Wander>,
    pub(crate) times: Times,
    pub(crate) bug: Option<Bug>,
    pub(crate) role: Role,
}

/// The part to play.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    Etcd(EtcdRole),
    Manager(ManagerRole),
    Owner(OwnerRole),
    Caller(CallerRole),
    LookupFleet(LookupFleetRole),
    Peer(PeerRole),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct EtcdRole {
    pub(crate) arguments: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ManagerRole {
    pub(crate) grpc: String,
    pub(crate) http: String,
    pub(crate) store: ManagerStore,
    pub(crate) leader_lease: Option<String>,
    pub(crate) campaign_interval: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ManagerStore {
    File(PathBuf),
    Etcd(Vec<String>),
    None {
        /// All of them.
        peers: String,
        /// Which of them this is.
        me: u16,
        /// Where their secret is.
        key: PathBuf,
        /// Whether Flease's times are those of a run with faults.
        is_short: bool,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OwnerRole {
    pub(crate) name: String,
    pub(crate) managers: Vec<String>,
    pub(crate) listen: String,
    /// Where others reach it, which may be a relay.
    pub(crate) url: String,
    pub(crate) keys: u32,
    /// It moves state; otherwise a recall loses it.
    pub(crate) migrates: bool,
    /// It knows that the process before it is gone.
    pub(crate) takes_over: bool,
    pub(crate) journal: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CallerRole {
    pub(crate) name: String,
    pub(crate) managers: Vec<String>,
    /// Every key is watched, and these are written.
    pub(crate) keys: u32,
    pub(crate) writes: Vec<u32>,
    pub(crate) journal: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LookupFleetRole {
    pub(crate) managers: Vec<String>,
    pub(crate) lookups: u32,
    pub(crate) journal: PathBuf,
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
    pub(crate) journal: PathBuf,
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
    if let Role::Etcd(role) = &part.role {
        return Err(etcd::become_etcd(role).into());
    }
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match &part.role {
            Role::Etcd(_) => Ok(()),
            Role::Manager(role) => manager::run(&part, role).await,
            Role::Owner(role) => owner::run(&part, role).await,
            Role::Caller(role) => caller::run(&part, role).await,
            Role::LookupFleet(role) => lookup_fleet::run(role).await,
            Role::Peer(role) => peer::run(&part, role).await,
        }
    })
}
