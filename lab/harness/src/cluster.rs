//! A cluster of an application: Managers with pools whose times fit each other, and the servers and callers of these.

use std::any::Any;
use std::path::Path;
use std::time::Duration;

use centrifuge_net::proto::v1;
use tempfile::TempDir;

use crate::managers::{ManagerProcesses, Result, StoreKind, is_whole, until};
use crate::service::{Program, Service};

/// Managers and whatever is started beside them. Everything ends when it is dropped.
pub struct Cluster {
    program: Program,
    lease: Duration,
    managers: ManagerProcesses,
    /// A Manager in this process.
    _here: Box<dyn Any + Send + Sync>,
    /// Dropped last: the others write to it.
    directory: TempDir,
}

impl Cluster {
    /// Starts Managers on a store, with pools of these names and leases this long. They and all parts are processes of
    /// one program.
    pub async fn start(
        program: Program,
        store: StoreKind,
        pools: &[&str],
        lease: Duration,
    ) -> Result<Cluster> {
        let directory = tempfile::tempdir()?;
        let settings = settings(lease);
        let managers = ManagerProcesses::start(&program, store, pools, &settings, directory.path()).await?;
        let cluster = Cluster { program, lease, managers, _here: Box::new(()), directory };
        // Without a store they know their pools from the start.
        cluster.create(if store == StoreKind::None { &[] } else { pools }).await?;
        Ok(cluster)
    }

    /// The same around a Manager that leads already, at `address` in this process. It ends with the cluster.
    pub async fn around(
        manager: impl Any + Send + Sync,
        address: &str,
        program: Program,
        pools: &[&str],
        lease: Duration,
    ) -> Result<Cluster> {
        let (managers, directory) = (ManagerProcesses::running_at(address)?, tempfile::tempdir()?);
        let cluster = Cluster { program, lease, managers, _here: Box::new(manager), directory };
        cluster.create(pools).await?;
        Ok(cluster)
    }

    async fn create(&self, pools: &[&str]) -> Result<()> {
        for pool in pools {
            let settings = Some(settings(self.lease));
            let request = v1::CreateNamespaceRequest { namespace: (*pool).to_owned(), settings, kind: None };
            self.managers
                .ask("create a namespace", async |mut admin| admin.create_namespace(request.clone()).await)
                .await?;
        }
        Ok(())
    }

    /// Changes settings of a pool; those that are absent stay as they are.
    pub async fn configure(&self, pool: &str, settings: v1::Settings) -> Result<()> {
        let (namespace, settings) = (pool.to_owned(), Some(settings));
        let request = v1::ConfigureNamespaceRequest { namespace, settings, expected: None, kind: None };
        self.managers
            .ask("configure a namespace", async |mut admin| admin.configure_namespace(request.clone()).await)
            .await?;
        Ok(())
    }

    /// Where the Managers are, with commas between them.
    #[must_use]
    pub fn managers(&self) -> &str {
        self.managers.addresses()
    }

    /// Its Managers.
    #[must_use]
    pub fn manager_processes(&self) -> &ManagerProcesses {
        &self.managers
    }

    /// How long leases are.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// A place for files, which goes with the cluster. What the parts print on their standard error is here, a file for
    /// each.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a server of a pool: `role` is its part, `more` what it is told beyond its name and its Managers.
    pub async fn serve(&self, role: &str, name: &str, more: &[&str]) -> Result<Service> {
        self.run(role, name, &[&["--managers", self.managers()], more].concat()).await
    }

    /// Starts a caller of pools, be it a server of another, which finds the Managers at `address`: they, or something
    /// between.
    pub async fn call(&self, role: &str, name: &str, address: &str, more: &[&str]) -> Result<Service> {
        let flags = self.caller_flags(address);
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.run(role, name, &flags).await
    }

    /// Starts any part.
    pub async fn run(&self, role: &str, name: &str, arguments: &[&str]) -> Result<Service> {
        let words: Vec<&str> =
            role.split(' ').chain(["--name", name]).chain(arguments.iter().copied()).collect();
        Ok(Service::start(self.program.command(&words), name, self.directory.path()).await?)
    }

    /// How a caller in this process is told to find the pools: as one in another process.
    pub fn caller<A: clap::Args>(&self) -> Result<A> {
        let command = A::augment_args(clap::Command::new("caller").no_binary_name(true));
        let matches = command.try_get_matches_from(self.caller_flags(self.managers()))?;
        Ok(A::from_arg_matches(&matches)?)
    }

    /// Where the Managers are, and times that fit the leases.
    fn caller_flags(&self, address: &str) -> Vec<String> {
        let lease = self.lease;
        let times = [
            ("--poll", lease),
            ("--contact-timeout", lease * 3),
            ("--unowned-delay", lease * 3 / 2),
            ("--silence", lease / 3),
            ("--patience", lease * 10),
        ];
        let times = times.map(|(flag, time)| [flag.to_owned(), format!("{}ms", time.as_millis())]);
        [["--managers".to_owned(), address.to_owned()]].into_iter().chain(times).flatten().collect()
    }

    /// What the leading Manager says of a pool.
    pub async fn status(&self, pool: &str) -> Result<v1::NamespaceStatus> {
        let request = v1::ListNamespacesRequest { namespace: Some(pool.to_owned()) };
        let reply = self
            .managers
            .ask("list namespaces", async |mut admin| admin.list_namespaces(request.clone()).await)
            .await?;
        reply.namespaces.into_iter().next().ok_or_else(|| format!("there is no pool {pool}").into())
    }

    /// The servers of a pool, as the Manager knows them.
    pub async fn owners(&self, pool: &str) -> Result<Vec<v1::OwnerStatus>> {
        let request = v1::ListOwnersRequest { namespace: pool.to_owned() };
        let reply = self
            .managers
            .ask("list owners", async |mut admin| admin.list_owners(request.clone()).await)
            .await?;
        Ok(reply.owners)
    }

    /// Waits until so many servers of a pool have every key and nothing moves.
    pub async fn at_rest(&self, pool: &str, servers: u32) -> Result<()> {
        let what = format!("{servers} servers of {pool} have every key, and nothing moves");
        until(&what, async || {
            let status = self.status(pool).await?;
            Ok(is_whole(&status) && status.owners == servers && status.moving_ranges == 0)
        })
        .await
    }
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
