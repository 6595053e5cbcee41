//! Starts the parts of applications as processes, on loopback, and looks after them.

pub mod manager;
mod managers;
mod process;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::{CallerArgs, CallerTimes, managers};
use centrifuge_net::proto::v1;
use tempfile::TempDir;
use tokio::process::Command;

use self::managers::{ManagerGroup, is_whole};

pub use self::managers::StoreKind;
pub use self::process::Process;

/// How long anything may take on a machine that does much else.
const TIMEOUT: Duration = Duration::from_secs(90);
/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The first word of the line that a part prints when it serves.
const READY: &str = "ready";

/// The programs that play parts.
#[derive(Clone, Debug)]
enum Programs {
    /// This very program, as `serve ROLE`.
    This,
    /// The programs in a directory: the first word of a role is the name of one.
    In(PathBuf),
}

impl Programs {
    fn command(&self, words: &[&str]) -> Result<Command, Failure> {
        let (path, words) = match (self, words) {
            (Programs::In(directory), [name, rest @ ..]) => (directory.join(name), rest.to_vec()),
            _ => (std::env::current_exe()?, [&["serve"], words].concat()),
        };
        let mut command = Command::new(path);
        command.args(words);
        Ok(command)
    }
}

/// Managers and whatever is started beside them. Everything ends when it is dropped.
pub struct Cluster {
    programs: Programs,
    lease: Duration,
    managers: ManagerGroup,
    /// Dropped last: the others write to it.
    directory: TempDir,
}

impl Cluster {
    /// Starts Managers on a store, with pools of these names and leases this long. They and all parts are
    /// processes of this very program, which plays a part when its first word is `serve`.
    pub async fn start(store: StoreKind, pools: &[&str], lease: Duration) -> Result<Cluster, Failure> {
        let directory = tempfile::tempdir()?;
        let managers = ManagerGroup::start(store, pools, &settings(lease), directory.path()).await?;
        let cluster = Cluster { programs: Programs::This, lease, managers, directory };
        if store != StoreKind::None {
            cluster.create(pools).await?;
        }
        Ok(cluster)
    }

    /// Starts a Manager on a file, in this process. The parts are `program` and those beside it: the first word
    /// of a role is the name of one.
    pub async fn beside(program: &str, pools: &[&str], lease: Duration) -> Result<Cluster, Failure> {
        let directory = tempfile::tempdir()?;
        let managers = ManagerGroup::start_here(directory.path()).await?;
        let programs = Programs::In(Path::new(program).parent().unwrap_or(Path::new(".")).to_owned());
        let cluster = Cluster { programs, lease, managers, directory };
        cluster.create(pools).await?;
        Ok(cluster)
    }

    async fn create(&self, pools: &[&str]) -> Result<(), Failure> {
        for pool in pools {
            let settings = Some(settings(self.lease));
            let request = v1::CreateNamespaceRequest { namespace: (*pool).to_owned(), settings };
            self.managers
                .ask("create a namespace", async |mut admin| admin.create_namespace(request.clone()).await)
                .await?;
        }
        Ok(())
    }

    /// Where the Managers keep their table.
    pub fn store(&self) -> StoreKind {
        self.managers.store()
    }

    /// How many Managers there are.
    pub fn manager_count(&self) -> usize {
        self.managers.count()
    }

    /// Restarts a Manager by SIGTERM, and waits until its next process takes part.
    pub async fn restart_manager(&self, number: usize) -> Result<(), Failure> {
        self.managers.restart(number).await
    }

    /// Starts a server of a pool: `role` is its part, `more` what it is told beyond its name and its Managers.
    pub async fn serve(&self, role: &str, name: &str, more: &[&str]) -> Result<Process, Failure> {
        self.play(role, name, self.managers(), more).await
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
        self.play(role, name, address, &[&times, more].concat()).await
    }

    async fn play(&self, role: &str, name: &str, managers: &str, more: &[&str]) -> Result<Process, Failure> {
        self.run(role, name, &[&["--managers", managers], more].concat()).await
    }

    /// Starts any part.
    pub async fn run(&self, role: &str, name: &str, arguments: &[&str]) -> Result<Process, Failure> {
        let words: Vec<&str> =
            role.split(' ').chain(["--name", name]).chain(arguments.iter().copied()).collect();
        Process::start(self.programs.command(&words)?, name, self.directory.path()).await
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
    pub fn managers(&self) -> &str {
        self.managers.addresses()
    }

    /// How long leases are.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// A place for files, which goes with the cluster. What the parts print on their standard error is here, a
    /// file for each.
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
        if since.elapsed() > TIMEOUT {
            return Err(format!("not within {TIMEOUT:?}: {what}").into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
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
