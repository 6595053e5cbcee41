//! Starts the parts of an example as processes, on loopback, and looks after them.

mod process;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use centrifuge_core::id::ManagerId;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::Failure;
use crate::call::{CallerArgs, CallerTimes, managers};

pub use self::process::Process;

/// How long anything may take on a machine that does much else.
const BOUND: Duration = Duration::from_secs(90);
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The first word of the line that a part prints when it serves.
const READY: &str = "ready";

/// Tells whoever started this process that it serves, and where.
pub fn say_ready(name: &str, address: &str) {
    println!("{READY} {name} {address}");
}

/// How parts are started: this program, and the words before the part's name.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    words: Vec<String>,
}

impl Program {
    /// A program that plays the part which its first word names.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Program {
        Program { path: path.into(), words: Vec::new() }
    }

    /// This very program, which plays a part when its first word is `serve`.
    pub fn this() -> Result<Program, Failure> {
        Ok(Program { path: std::env::current_exe()?, words: vec!["serve".to_owned()] })
    }
}

/// A Manager and whatever is started beside it. Everything ends when it is dropped.
pub struct Cluster {
    program: Program,
    lease: Duration,
    directory: TempDir,
    admin: AdminClient<Channel>,
    manager: Process,
}

impl Cluster {
    /// Starts a Manager, with pools of these names and leases this long.
    pub async fn start(program: Program, pools: &[&str], lease: Duration) -> Result<Cluster, Failure> {
        let directory = tempfile::tempdir()?;
        let store = directory.path().join("centrifuge.db");
        let store = store.to_str().ok_or("the directory of temporary files has a strange name")?.to_owned();
        let arguments = ["manager", "--listen", "127.0.0.1:0", "--store", &store];
        let manager = Process::start(&program, "manager", &arguments, directory.path()).await?;
        let admin = Dialer::new().admin(&ManagerId::from(manager.address()))?;
        let mut cluster = Cluster { program, lease, directory, admin, manager };
        for pool in pools {
            cluster.create(pool).await?;
        }
        Ok(cluster)
    }

    async fn create(&mut self, pool: &str) -> Result<(), Failure> {
        let settings = Some(settings(self.lease));
        let request = v1::CreateNamespaceRequest { namespace: pool.to_owned(), settings };
        self.admin.create_namespace(request).await?;
        Ok(())
    }

    /// Starts a server of a pool: `role` is its part, `more` what it is told beyond its name and its Managers.
    pub async fn serve(&self, role: &str, name: &str, more: &[&str]) -> Result<Process, Failure> {
        let common = [role, "--name", name, "--managers", self.manager.address()];
        self.run(name, &[&common[..], more].concat()).await
    }

    /// Starts a caller of pools, which finds the Managers at `address`: they, or something between.
    pub async fn call(
        &self,
        role: &str,
        name: &str,
        address: &str,
        more: &[&str],
    ) -> Result<Process, Failure> {
        let times =
            self.caller_times().map(|(flag, time)| [format!("--{flag}"), format!("{}ms", time.as_millis())]);
        let times = times.concat();
        let times: Vec<&str> = times.iter().map(String::as_str).collect();
        let common = [role, "--name", name, "--managers", address];
        self.run(name, &[&common[..], &times, more].concat()).await
    }

    /// Starts any part.
    pub async fn run(&self, name: &str, arguments: &[&str]) -> Result<Process, Failure> {
        Process::start(&self.program, name, arguments, self.directory.path()).await
    }

    /// How a caller is told to find the pools, with times that fit the leases.
    pub fn caller(&self) -> Result<CallerArgs, Failure> {
        let [(_, poll), (_, contact_timeout), (_, unowned_delay), (_, silence), (_, patience)] =
            self.caller_times();
        let managers = managers(self.manager.address())?;
        let times = CallerTimes { poll, contact_timeout, unowned_delay, silence, patience };
        Ok(CallerArgs { managers, times })
    }

    fn caller_times(&self) -> [(&'static str, Duration); 5] {
        let lease = self.lease;
        [
            ("poll", lease),
            ("contact-timeout", lease * 3),
            ("unowned-delay", lease * 3 / 2),
            ("silence", lease / 3),
            ("patience", lease * 10),
        ]
    }

    /// Where the Manager is.
    #[must_use]
    pub fn managers(&self) -> &str {
        self.manager.address()
    }

    /// How long leases are.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// A place for files, which goes with the cluster. What the parts print on their standard error is here, a file for each.
    #[must_use]
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// What the Manager says of a pool.
    pub async fn sight(&self, pool: &str) -> Result<v1::NamespaceStatus, Failure> {
        let request = v1::ListNamespacesRequest { namespace: Some(pool.to_owned()) };
        let reply = self.admin.clone().list_namespaces(request).await?.into_inner();
        reply.namespaces.into_iter().next().ok_or_else(|| format!("there is no pool {pool}").into())
    }

    /// The servers of a pool, as the Manager knows them.
    pub async fn owners(&self, pool: &str) -> Result<Vec<v1::OwnerStatus>, Failure> {
        let request = v1::ListOwnersRequest { namespace: pool.to_owned() };
        Ok(self.admin.clone().list_owners(request).await?.into_inner().owners)
    }

    /// Waits until so many servers of a pool have every key and nothing moves.
    pub async fn at_rest(&self, pool: &str, servers: u32) -> Result<(), Failure> {
        let what = format!("{servers} servers of {pool} have every key, and nothing moves");
        until(&what, async || {
            let sight = self.sight(pool).await?;
            Ok(sight.owners == servers && sight.unowned_ranges == 0 && sight.moving_ranges == 0)
        })
        .await
    }
}

/// Waits until a condition holds.
pub async fn until(
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let since = Instant::now();
    while !condition().await? {
        if since.elapsed() > BOUND {
            return Err(format!("not within {BOUND:?}: {what}").into());
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// The times of a pool with leases this long.
fn settings(lease: Duration) -> v1::Settings {
    let ms = |time: Duration| u64::try_from(time.as_millis()).ok();
    v1::Settings {
        lease_ms: ms(lease),
        hold_ms: ms(lease + lease / 10),
        renewal_ms: ms(lease / 5),
        answer_allowance_ms: ms(lease / 6),
        migration_timeout_ms: ms(lease * 2),
        recall_timeout_ms: ms(lease / 3),
        settle_ms: Some(500),
        virtual_nodes: Some(16),
        heartbeat_ms: ms(lease / 3),
        ..v1::Settings::default()
    }
}
