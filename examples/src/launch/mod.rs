//! Starts the parts of an example as processes, on loopback, and looks after them.

mod managers;
mod process;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use centrifuge_net::proto::v1;
use tempfile::TempDir;

use self::managers::{ManagerGroup, is_whole};
use crate::Failure;
use crate::call::{CallerArgs, CallerTimes, managers};

pub use self::managers::StoreKind;
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

/// Managers and whatever is started beside them. Everything ends when it is dropped.
pub struct Cluster {
    program: Program,
    lease: Duration,
    managers: ManagerGroup,
    /// Dropped last: the others write to it.
    directory: TempDir,
}

impl Cluster {
    /// Starts a Manager on a file, with pools of these names and leases this long.
    pub async fn start(program: Program, pools: &[&str], lease: Duration) -> Result<Cluster, Failure> {
        Cluster::start_on(StoreKind::File, program, pools, lease).await
    }

    /// The same, on another store.
    pub async fn start_on(
        store: StoreKind,
        program: Program,
        pools: &[&str],
        lease: Duration,
    ) -> Result<Cluster, Failure> {
        let directory = tempfile::tempdir()?;
        let settings = settings(lease);
        let managers = ManagerGroup::start(&program, store, pools, &settings, directory.path()).await?;
        let cluster = Cluster { program, lease, managers, directory };
        if store != StoreKind::None {
            for pool in pools {
                cluster.create(pool).await?;
            }
        }
        Ok(cluster)
    }

    async fn create(&self, pool: &str) -> Result<(), Failure> {
        let settings = Some(settings(self.lease));
        let request = v1::CreateNamespaceRequest { namespace: pool.to_owned(), settings };
        self.managers
            .ask("create a namespace", async |mut admin| admin.create_namespace(request.clone()).await)
            .await?;
        Ok(())
    }

    /// Where the Managers keep their table.
    #[must_use]
    pub fn store(&self) -> StoreKind {
        self.managers.store()
    }

    /// How many Managers there are.
    #[must_use]
    pub fn manager_count(&self) -> usize {
        self.managers.count()
    }

    /// Restarts a Manager by SIGTERM, and waits until its next process takes part.
    pub async fn restart_manager(&self, number: usize) -> Result<(), Failure> {
        self.managers.restart(number).await
    }

    /// Starts a server of a pool: `role` is its part, `more` what it is told beyond its name and its Managers.
    pub async fn serve(&self, role: &str, name: &str, more: &[&str]) -> Result<Process, Failure> {
        let common = [role, "--name", name, "--managers", self.managers()];
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
        let managers = managers(self.managers())?;
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

    /// Where the Managers are, with commas between them.
    #[must_use]
    pub fn managers(&self) -> &str {
        self.managers.addresses()
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

    /// What the leading Manager says of a pool.
    pub async fn sight(&self, pool: &str) -> Result<v1::NamespaceStatus, Failure> {
        let request = v1::ListNamespacesRequest { namespace: Some(pool.to_owned()) };
        let reply = self
            .managers
            .ask("list namespaces", async |mut admin| admin.list_namespaces(request.clone()).await)
            .await?;
        reply.namespaces.into_iter().next().ok_or_else(|| format!("there is no pool {pool}").into())
    }

    /// The servers of a pool, as the Manager knows them.
    pub async fn owners(&self, pool: &str) -> Result<Vec<v1::OwnerStatus>, Failure> {
        let request = v1::ListOwnersRequest { namespace: pool.to_owned() };
        let reply = self
            .managers
            .ask("list owners", async |mut admin| admin.list_owners(request.clone()).await)
            .await?;
        Ok(reply.owners)
    }

    /// Waits until so many servers of a pool have every key and nothing moves.
    pub async fn at_rest(&self, pool: &str, servers: u32) -> Result<(), Failure> {
        let what = format!("{servers} servers of {pool} have every key, and nothing moves");
        until(&what, async || {
            let sight = self.sight(pool).await?;
            Ok(is_whole(&sight) && sight.owners == servers && sight.moving_ranges == 0)
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
