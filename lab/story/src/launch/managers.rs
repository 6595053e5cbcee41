//! The Managers of a cluster as processes: one on a file, or three on etcd or without a store, each of which
//! can be restarted.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use centrifuge_core::id::ManagerId;
use centrifuge_examples::Failure;
use centrifuge_harness::EtcdNodes;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use centrifuge_server::RunningManager;
use clap::ValueEnum;
use serde::Serialize;
use tokio::sync::Mutex;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::manager::{self, ManagerArgs};
use super::{Process, Programs, until};

/// How many Managers there are where one can follow another.
const MANAGERS: usize = 3;
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
    /// Three Managers on three nodes of etcd
    Etcd,
    /// Three Managers that keep nothing and choose their leader among themselves
    None,
}

/// The Managers of a cluster.
pub(super) struct ManagerGroup {
    store: StoreKind,
    places: Vec<Place>,
    /// Where they are, with commas between them.
    addresses: String,
    /// `None` while one is being restarted.
    processes: Mutex<Vec<Option<Process>>>,
    logs: PathBuf,
    /// The one that is in this process, if there is one.
    _here: Option<RunningManager>,
    /// Ends with the Managers.
    _etcd: Option<EtcdNodes>,
}

/// One Manager through all its processes.
struct Place {
    name: String,
    arguments: Vec<String>,
    admin: AdminClient<Channel>,
}

impl ManagerGroup {
    /// Starts them, and waits until each leads or knows who does. Without a store they need to know their pools
    /// from the start.
    pub(super) async fn start(
        store: StoreKind,
        pools: &[&str],
        settings: &v1::Settings,
        directory: &Path,
    ) -> Result<ManagerGroup, Failure> {
        let etcd = match store {
            StoreKind::Etcd => Some(start_etcd(directory.to_owned()).await?),
            StoreKind::File | StoreKind::None => None,
        };
        let listen = free_addresses(if store == StoreKind::File { 1 } else { MANAGERS })?;
        let mut places = Vec::new();
        for (number, address) in listen.iter().enumerate() {
            let name = if listen.len() == 1 { "manager".to_owned() } else { format!("manager-{number}") };
            let (store, config) = match (store, &etcd) {
                (StoreKind::Etcd, Some(nodes)) => ("etcd".to_owned(), etcd_config(nodes)),
                (StoreKind::None, _) => {
                    ("none".to_owned(), diskless_config(number, &listen, pools, settings, directory)?)
                }
                _ => (path_text(&directory.join("centrifuge.db"))?, String::new()),
            };
            let file = directory.join(format!("{name}.toml"));
            fs::write(&file, config)?;
            let arguments =
                ["manager", "--listen", address, "--store", &store, "--config", &path_text(&file)?];
            let arguments = arguments.map(str::to_owned).to_vec();
            let admin = Dialer::new().admin(&ManagerId::from(address.as_str()))?;
            places.push(Place { name, arguments, admin });
        }
        let group = ManagerGroup {
            store,
            addresses: listen.join(","),
            processes: Mutex::new(places.iter().map(|_| None).collect()),
            places,
            logs: directory.to_owned(),
            _here: None,
            _etcd: etcd,
        };
        group.start_all().await?;
        Ok(group)
    }

    /// Starts one on a file, in this process.
    pub(super) async fn start_here(directory: &Path) -> Result<ManagerGroup, Failure> {
        let listen = "127.0.0.1:0".to_owned();
        let manager =
            manager::start(ManagerArgs { listen, store: directory.join("centrifuge.db"), config: None })
                .await?;
        let admin = Dialer::new().admin(&manager.id())?;
        Ok(ManagerGroup {
            store: StoreKind::File,
            addresses: manager.grpc_addr().to_string(),
            processes: Mutex::default(),
            places: vec![Place { name: "manager".to_owned(), arguments: Vec::new(), admin }],
            logs: directory.to_owned(),
            _here: Some(manager),
            _etcd: None,
        })
    }

    /// All at once: without a store none of them is ready before the others are there.
    async fn start_all(&self) -> Result<(), Failure> {
        let mut starts = tokio::task::JoinSet::new();
        for (number, place) in self.places.iter().enumerate() {
            let (name, arguments, logs) = (place.name.clone(), place.arguments.clone(), self.logs.clone());
            starts.spawn(async move { (number, start_process(&name, &arguments, &logs).await) });
        }
        while let Some(started) = starts.join_next().await {
            let (number, process) = started?;
            self.processes.lock().await[number] = Some(process?);
        }
        Ok(())
    }

    pub(super) fn addresses(&self) -> &str {
        &self.addresses
    }

    pub(super) fn store(&self) -> StoreKind {
        self.store
    }

    pub(super) fn count(&self) -> usize {
        self.places.len()
    }

    /// Tells a Manager to end, which resigns if it leads, and starts the next process of its name when it is
    /// gone. Waits until that one is ready. Without a store it then votes: before its recovery is over it does
    /// not know who leads, and another that ended meanwhile would leave no majority. And then a leader has
    /// learned the table: if the next one ended before, what nobody claimed would wait for another hold.
    pub(super) async fn restart(&self, number: usize) -> Result<(), Failure> {
        let place = &self.places[number];
        let old = self.processes.lock().await[number].take();
        let status = old.ok_or_else(|| format!("{} is being restarted", place.name))?.stop().await?;
        if !status.success() {
            return Err(format!("{} did not end in good order: {status}", place.name).into());
        }
        let new = start_process(&place.name, &place.arguments, &self.logs).await?;
        self.processes.lock().await[number] = Some(new);
        if self.store == StoreKind::None { self.until_rebuilt().await } else { Ok(()) }
    }

    /// Waits until a leader knows every pool's table.
    async fn until_rebuilt(&self) -> Result<(), Failure> {
        until("a leader has learned the table from the servers", async || {
            let request = v1::ListNamespacesRequest { namespace: None };
            let list = async |mut admin: AdminClient<Channel>| admin.list_namespaces(request.clone()).await;
            Ok(self.ask("list namespaces", list).await?.namespaces.iter().all(is_whole))
        })
        .await
    }

    /// Asks whichever Manager leads, and waits until one does.
    pub(super) async fn ask<R>(
        &self,
        what: &str,
        call: impl AsyncFn(AdminClient<Channel>) -> Result<Response<R>, Status>,
    ) -> Result<R, Failure> {
        let mut answer = None;
        until(&format!("a Manager leads and answers: {what}"), async || {
            for place in &self.places {
                match tokio::time::timeout(ANSWER_TIMEOUT, call(place.admin.clone())).await {
                    Ok(Ok(reply)) => {
                        answer = Some(reply.into_inner());
                        return Ok(true);
                    }
                    Ok(Err(status)) if is_final(&status) => return Err(status.into()),
                    // It does not lead, or is being restarted.
                    _ => {}
                }
            }
            Ok(false)
        })
        .await?;
        answer.ok_or_else(|| "nobody answered".into())
    }
}

/// Whether the leader knows who has each key of a pool, and each has an owner.
pub(super) fn is_whole(pool: &v1::NamespaceStatus) -> bool {
    pool.rebuilding.is_none() && pool.unowned_ranges == 0
}

/// Whether another Manager, or the same one later, would say nothing else.
fn is_final(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::InvalidArgument | Code::NotFound | Code::AlreadyExists | Code::PermissionDenied
    )
}

async fn start_process(name: &str, arguments: &[String], logs: &Path) -> Result<Process, Failure> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Process::start(Programs::This.command(&arguments)?, name, logs).await
}

async fn start_etcd(directory: PathBuf) -> Result<EtcdNodes, Failure> {
    Ok(tokio::task::spawn_blocking(move || EtcdNodes::start(ETCD_NODES, &directory)).await??)
}

/// Free ports, for TCP and for the datagrams of Managers without a store. All at once, so that none is given twice.
fn free_addresses(count: usize) -> Result<Vec<String>, Failure> {
    let mut bound = Vec::new();
    while bound.len() < count {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        if let Ok(socket) = UdpSocket::bind(listener.local_addr()?) {
            bound.push((listener, socket));
        }
    }
    bound.iter().map(|(listener, _)| Ok(listener.local_addr()?.to_string())).collect()
}

fn etcd_config(nodes: &EtcdNodes) -> String {
    format!("[etcd]\nendpoints = {:?}\n", nodes.endpoints().join(","))
}

fn diskless_config(
    number: usize,
    listen: &[String],
    pools: &[&str],
    settings: &v1::Settings,
    directory: &Path,
) -> Result<String, Failure> {
    let key = directory.join("peers.key");
    fs::write(&key, "the secret of this cluster")?;
    let peer = |(number, address): (usize, &String)| format!("{}={address}", number + 1);
    let peers: Vec<String> = listen.iter().enumerate().map(peer).collect();
    let mut config = format!(
        "[flease]\npeers = {:?}\npeer_id = {}\nkey_file = {:?}\nlease = \"{}ms\"\nepsilon = \"{}ms\"\nround = \"{}ms\"\n",
        peers.join(","),
        number + 1,
        path_text(&key)?,
        FLEASE_LEASE.as_millis(),
        FLEASE_EPSILON.as_millis(),
        FLEASE_ROUND.as_millis()
    );
    for pool in pools {
        config.push_str(&format!("[namespaces.{pool}]\n{}", namespace_config(settings)));
    }
    Ok(config)
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

fn path_text(path: &Path) -> Result<String, Failure> {
    Ok(path.to_str().ok_or("the directory of temporary files has a strange name")?.to_owned())
}
