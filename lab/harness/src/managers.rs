//! Managers as processes: one on a file, or three on etcd or without a store, each of which can be restarted.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_net::dial::Channel;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use clap::ValueEnum;
use serde::Serialize;
use tokio::sync::Mutex;
use tonic::{Code, Response, Status};

use crate::EtcdNodes;
use crate::ports::{free_addresses, numbered};
use crate::service::{Program, Service};
use crate::wait::{POLL_INTERVAL, TIMEOUT, poll};

/// Why Managers do not do what they should.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What comes of asking them for something.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// How many Managers there are where one can follow another.
const SEVERAL: usize = 3;
/// How many nodes of etcd.
const ETCD_NODES: usize = 3;
/// How long one Manager may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The times of Managers without a store, short because everything is on one machine.
const FLEASE_LEASE: Duration = Duration::from_millis(2_000);
const FLEASE_EPSILON: Duration = Duration::from_millis(200);
const FLEASE_ROUND: Duration = Duration::from_millis(500);

/// Where Managers keep their table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// One Manager on a file
    #[default]
    File,
    /// Managers on nodes of etcd, three of each unless given
    Etcd,
    /// Managers that keep nothing and choose their leader among themselves, three unless given
    None,
}

/// The Managers of a cluster.
pub struct ManagerProcesses {
    store: StoreKind,
    places: Vec<Place>,
    /// Where they are, with commas between them.
    addresses: String,
    /// `None` while one is being restarted.
    processes: Mutex<Vec<Option<Service>>>,
    logs: PathBuf,
    /// Ends with the Managers.
    _etcd: Option<EtcdNodes>,
}

/// One Manager through all its processes.
struct Place {
    name: String,
    /// `None` if it was not started here.
    start: Option<(Program, Vec<String>)>,
    admin: AdminClient<Channel>,
}

impl Place {
    fn command(&self) -> Result<Command> {
        let (program, arguments) =
            self.start.as_ref().ok_or_else(|| format!("{} was not started here", self.name))?;
        Ok(program.command(arguments))
    }
}

impl ManagerProcesses {
    /// Starts them, and waits until each leads or knows who does. The program is told `manager`, and then what
    /// `centrifuge manager` can be told. Without a store they need to know their pools from the start.
    pub async fn start(
        program: &Program,
        store: StoreKind,
        pools: &[&str],
        settings: &v1::Settings,
        directory: &Path,
    ) -> Result<ManagerProcesses> {
        let etcd = match store {
            StoreKind::Etcd => Some(EtcdNodes::launch(ETCD_NODES, directory).await?),
            StoreKind::File | StoreKind::None => None,
        };
        let listen = free_addresses(if store == StoreKind::File { 1 } else { SEVERAL })?;
        let listed: Vec<String> = listen.iter().map(ToString::to_string).collect();
        let mut places = Vec::new();
        for (number, address) in listed.iter().enumerate() {
            let name = if listed.len() == 1 { "manager".to_owned() } else { format!("manager-{number}") };
            let mut told = vec![("grpc-listen", address.clone()), ("http-listen", "127.0.0.1:0".to_owned())];
            told.extend(match (store, &etcd) {
                (StoreKind::Etcd, Some(nodes)) => {
                    vec![("store", "etcd".to_owned()), ("etcd-endpoints", nodes.endpoints().join(","))]
                }
                (StoreKind::None, _) => diskless(number, &numbered(&listen), pools, settings, directory)?,
                // It need not wait for long.
                _ => vec![
                    ("store", path_text(&directory.join("centrifuge.db"))?),
                    ("leader-lease", "2s".to_owned()),
                    ("campaign-interval", "500ms".to_owned()),
                ],
            });
            let told = told.into_iter().map(|(name, value)| format!("--{name}={value}"));
            let arguments = ["manager".to_owned()].into_iter().chain(told).collect();
            let start = Some((program.clone(), arguments));
            places.push(Place { name, start, admin: admin(address)? });
        }
        let group = ManagerProcesses {
            store,
            addresses: listed.join(","),
            processes: Mutex::new(places.iter().map(|_| None).collect()),
            places,
            logs: directory.to_owned(),
            _etcd: etcd,
        };
        group.start_all().await?;
        Ok(group)
    }

    /// One on a file that runs already, in this process for example. It can be asked, and not be restarted.
    pub fn running_at(address: &str) -> Result<ManagerProcesses> {
        let place = Place { name: "manager".to_owned(), start: None, admin: admin(address)? };
        Ok(ManagerProcesses {
            store: StoreKind::File,
            places: vec![place],
            addresses: address.to_owned(),
            processes: Mutex::new(Vec::new()),
            logs: PathBuf::new(),
            _etcd: None,
        })
    }

    /// All at once: without a store none of them is ready before the others are there.
    async fn start_all(&self) -> Result<()> {
        let mut starts = tokio::task::JoinSet::new();
        for (number, place) in self.places.iter().enumerate() {
            let (command, name, logs) = (place.command()?, place.name.clone(), self.logs.clone());
            starts.spawn(async move { (number, Service::start(command, &name, &logs).await) });
        }
        while let Some(started) = starts.join_next().await {
            let (number, process) = started?;
            self.processes.lock().await[number] = Some(process?);
        }
        Ok(())
    }

    /// Where they are, with commas between them.
    #[must_use]
    pub fn addresses(&self) -> &str {
        &self.addresses
    }

    /// Where they keep their table.
    #[must_use]
    pub fn store(&self) -> StoreKind {
        self.store
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Tells a Manager to end, which resigns if it leads, and starts the next process of its name when it is gone.
    /// Waits until that one is ready. Without a store it then votes: before its recovery is over it does not know who
    /// leads, and another that ended meanwhile would leave no majority. And then a leader has learned the table: if
    /// the next one ended before, what nobody claimed would wait for another hold.
    pub async fn restart(&self, number: usize) -> Result<()> {
        let place = &self.places[number];
        let old = self.processes.lock().await.get_mut(number).and_then(Option::take);
        let status = old
            .ok_or_else(|| format!("{} does not run here, or is being restarted", place.name))?
            .stop()
            .await?;
        if !status.success() {
            return Err(format!("{} did not end in good order: {status}", place.name).into());
        }
        let new = Service::start(place.command()?, &place.name, &self.logs).await?;
        self.processes.lock().await[number] = Some(new);
        if self.store == StoreKind::None { self.until_rebuilt().await } else { Ok(()) }
    }

    /// Waits until a leader knows every pool's table.
    async fn until_rebuilt(&self) -> Result<()> {
        until("a leader has learned the table from the servers", async || {
            let request = v1::ListNamespacesRequest { namespace: None };
            let list = async |mut admin: AdminClient<Channel>| admin.list_namespaces(request.clone()).await;
            Ok(self.ask("list namespaces", list).await?.namespaces.iter().all(is_whole))
        })
        .await
    }

    /// Asks whichever Manager leads, and waits until one does.
    pub async fn ask<R>(
        &self,
        what: &str,
        call: impl AsyncFn(AdminClient<Channel>) -> Result<Response<R>, Status>,
    ) -> Result<R> {
        let look = async || {
            for place in &self.places {
                match tokio::time::timeout(ANSWER_TIMEOUT, call(place.admin.clone())).await {
                    Ok(Ok(reply)) => return Some(Ok(reply.into_inner())),
                    Ok(Err(status)) if is_final(&status) => return Some(Err(status.into())),
                    // It does not lead, or is being restarted.
                    _ => {}
                }
            }
            None
        };
        let nobody = || format!("no Manager leads and answers within {TIMEOUT:?}: {what}");
        poll(POLL_INTERVAL, TIMEOUT, look).await.ok_or_else(nobody)?
    }
}

fn admin(address: &str) -> Result<AdminClient<Channel>> {
    Ok(Dialer::new().admin(&ManagerId::from(address))?)
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let look = async || condition().await.map(|holds| holds.then_some(())).transpose();
    poll(POLL_INTERVAL, TIMEOUT, look).await.ok_or_else(|| format!("not within {TIMEOUT:?}: {what}"))?
}

/// Whether the leader knows who has each key of a pool, and each has an owner.
#[must_use]
pub fn is_whole(pool: &v1::NamespaceStatus) -> bool {
    pool.rebuilding.is_none() && pool.unowned_ranges == 0
}

/// Whether another Manager, or the same one later, would say nothing else.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::NotFound | Code::AlreadyExists | Code::PermissionDenied
    )
}

/// What a Manager without a store is told. Its namespaces have settings, and so are in a file.
fn diskless(
    number: usize,
    peers: &str,
    pools: &[&str],
    settings: &v1::Settings,
    directory: &Path,
) -> Result<Vec<(&'static str, String)>> {
    let (key, file) = (directory.join("peers.key"), directory.join("namespaces.toml"));
    fs::write(&key, "the secret of this cluster")?;
    let pool = |pool: &&str| format!("[namespaces.{pool}]\n{}", namespace_config(settings));
    fs::write(&file, pools.iter().map(pool).collect::<String>())?;
    let ms = |time: Duration| format!("{}ms", time.as_millis());
    Ok(vec![
        ("store", "none".to_owned()),
        ("config", path_text(&file)?),
        ("peers", peers.to_owned()),
        ("peer-id", (number + 1).to_string()),
        ("peer-key-file", path_text(&key)?),
        ("flease-lease", ms(FLEASE_LEASE)),
        ("flease-epsilon", ms(FLEASE_EPSILON)),
        ("flease-round", ms(FLEASE_ROUND)),
    ])
}

/// The settings that this program sets, as they stand in a Manager's file.
fn namespace_config(settings: &v1::Settings) -> String {
    let times = [
        ("lease", settings.lease_ms),
        ("hold", settings.hold_ms),
        ("renewal", settings.renewal_ms),
        ("answer_allowance", settings.answer_allowance_ms),
        ("migration_timeout", settings.migration_timeout_ms),
        ("recall_timeout", settings.recall_timeout_ms),
        ("settle", settings.settle_ms),
        ("heartbeat", settings.heartbeat_ms),
    ];
    let mut config = String::new();
    for (name, time) in times {
        config.extend(time.map(|time| format!("{name} = \"{time}ms\"\n")));
    }
    config.extend(settings.virtual_nodes.map(|count| format!("virtual_nodes = {count}\n")));
    config
}

fn path_text(path: &Path) -> Result<String> {
    Ok(path.to_str().ok_or("the directory of temporary files has a strange name")?.to_owned())
}
