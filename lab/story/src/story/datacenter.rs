//! The datacenter of a story: a Manager, frontends, and three pools of servers, all as processes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use centrifuge::{Key, Lookup};
use centrifuge_examples::Result;
use centrifuge_examples::shared::call::CallerArgs;
use centrifuge_harness::managers::until;
use centrifuge_harness::{Cluster, Link, LinkMode, Rng, Service, StoreKind, lock};

use super::{Bug, CONNECTIVITY, PUBSUB, QUEUES, Times};
use crate::role;

/// How many servers each pool has, and how many frontends there are.
pub(super) const SERVERS: u32 = 3;
/// Of so many keys every server has one.
const SAMPLES: u32 = 100;
/// The pools.
pub(super) const POOLS: [&str; 3] = [CONNECTIVITY, PUBSUB, QUEUES];

/// Everything that is not a device.
pub(super) struct Datacenter {
    cluster: Cluster,
    bug: Option<Bug>,
    /// The servers of all pools, by name.
    servers: BTreeMap<String, Service>,
    frontends: BTreeMap<String, Service>,
    /// From each frontend to the Manager.
    links: BTreeMap<String, Link>,
    list: Frontends,
    lookups: BTreeMap<&'static str, Lookup>,
}

impl Datacenter {
    /// Starts everything, and waits until every key of every pool has an owner.
    pub(super) async fn start(times: Times, bug: Option<Bug>) -> Result<Datacenter> {
        let cluster = Cluster::start(role::program()?, StoreKind::File, &POOLS, times.lease).await?;
        let (servers, frontends, links) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (list, lookups) = (Frontends::default(), BTreeMap::new());
        let mut datacenter = Datacenter { cluster, bug, servers, frontends, links, list, lookups };
        let (connectivity, pubsub, queues) = tokio::try_join!(
            datacenter.open(CONNECTIVITY),
            datacenter.open(PUBSUB),
            datacenter.open(QUEUES)
        )?;
        datacenter.servers.extend([connectivity, pubsub, queues].into_iter().flatten());
        for pool in POOLS {
            datacenter.at_rest(pool).await?;
            datacenter.lookups.insert(pool, datacenter.cluster.caller::<CallerArgs>()?.lookup(pool).await?);
        }
        for name in datacenter.frontend_names() {
            datacenter.links.insert(name.clone(), Link::to(datacenter.cluster.managers().to_owned()).await?);
            datacenter.start_frontend(&name).await?;
        }
        Ok(datacenter)
    }

    async fn open(&self, pool: &str) -> Result<Vec<(String, Service)>> {
        let mut servers = Vec::new();
        for name in self.server_names(pool) {
            servers.push((name.clone(), self.server(pool, &name).await?));
        }
        Ok(servers)
    }

    /// A server of a pool, as a process of its own.
    async fn server(&self, pool: &str, name: &str) -> Result<Service> {
        let (role, more): (_, &[&str]) = match pool {
            CONNECTIVITY => ("documents server", &["--namespace", CONNECTIVITY, "--pubsub", PUBSUB]),
            PUBSUB => ("pubsub server", &[]),
            _ if self.bug == Some(Bug::DeafQueues) => ("queues server", &[]),
            _ => ("queues server", &["--watches", "connectivity,pubsub"]),
        };
        self.cluster.call(role, name, self.cluster.managers(), more).await
    }

    /// Starts a frontend, be it again: devices find it where it is now.
    pub(super) async fn start_frontend(&mut self, name: &str) -> Result<()> {
        let link = self.links.get(name).ok_or("every frontend has a link")?.address();
        let pools = POOLS.join(",");
        let frontend = self.cluster.call("documents frontend", name, &link, &["--pools", &pools]).await?;
        self.list.list(name, frontend.address());
        self.frontends.insert(name.to_owned(), frontend);
        Ok(())
    }

    /// The servers of a pool, running or not.
    pub(super) fn server_names(&self, pool: &str) -> Vec<String> {
        (1..=SERVERS).map(|number| format!("{pool}-{number}")).collect()
    }

    /// The frontends, running or not.
    pub(super) fn frontend_names(&self) -> Vec<String> {
        self.server_names("frontend")
    }

    /// Where devices find frontends.
    pub(super) fn frontends(&self) -> &Frontends {
        &self.list
    }

    /// What the processes printed on their standard error is in files here.
    pub(super) fn logs(&self) -> &std::path::Path {
        self.cluster.directory()
    }

    /// Which of these names a server of a pool owns.
    pub(super) fn owned(&self, pool: &str, server: &str, names: &[String]) -> Vec<String> {
        let (Some(lookup), Some(server)) = (self.lookups.get(pool), self.servers.get(server)) else {
            return Vec::new();
        };
        let owner = |name: &String| lookup.lookup(Key::of(name.as_bytes())).ok();
        let is_owner = |name: &&String| owner(name).is_some_and(|route| route.url() == server.address());
        names.iter().filter(is_owner).cloned().collect()
    }

    /// `kill -9`.
    pub(super) async fn kill_server(&mut self, name: &str) -> Result<()> {
        Ok(self.servers.remove(name).ok_or_else(|| format!("{name} does not run"))?.kill().await?)
    }

    /// `kill -9`.
    pub(super) async fn kill_frontend(&mut self, name: &str) -> Result<()> {
        Ok(self.frontends.remove(name).ok_or_else(|| format!("{name} does not run"))?.kill().await?)
    }

    /// Cuts a frontend off from the Manager, or reconnects it.
    pub(super) fn link(&self, frontend: &str, mode: LinkMode) {
        if let Some(link) = self.links.get(frontend) {
            link.set(mode);
        }
    }

    /// Starts a server that is gone under its name, and waits until it has its share of the keys.
    pub(super) async fn bring_back(&mut self, pool: &str, name: &str) -> Result<()> {
        let server = self.server(pool, name).await?;
        self.servers.insert(name.to_owned(), server);
        let samples: Vec<String> = (0..SAMPLES).map(|number| format!("sample-{number}")).collect();
        until(&format!("{name} has some keys"), async || Ok(!self.owned(pool, name, &samples).is_empty()))
            .await?;
        self.at_rest(pool).await
    }

    /// Tells a server to stop: it moves its state away first. Then starts it again.
    pub(super) async fn restart(&mut self, pool: &str, name: &str) -> Result<()> {
        let server = self.servers.remove(name).ok_or_else(|| format!("{name} does not run"))?;
        let ended = server.stop().await?;
        if !ended.success() {
            return Err(format!("{name} was told to stop and failed at it: {ended}").into());
        }
        self.bring_back(pool, name).await
    }

    async fn at_rest(&self, pool: &str) -> Result<()> {
        self.cluster.at_rest(pool, SERVERS).await
    }
}

/// The frontends by name. Cheap to clone; clones share the list.
#[derive(Clone, Debug, Default)]
pub(super) struct Frontends {
    list: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Frontends {
    /// A frontend is here from now on.
    pub(super) fn list(&self, name: &str, url: &str) {
        lock(&self.list).insert(name.to_owned(), url.to_owned());
    }

    /// One of them, but not this one: its name and where it is.
    pub(super) fn choose(&self, but: Option<&str>, rng: &mut Rng) -> (String, String) {
        let list = lock(&self.list);
        let others: Vec<_> = list.iter().filter(|(name, _)| Some(name.as_str()) != but).collect();
        rng.pick(others).map(|(name, url)| ((*name).clone(), (*url).clone())).unwrap_or_default()
    }

    /// Where a frontend is.
    pub(super) fn url(&self, name: &str) -> String {
        lock(&self.list).get(name).cloned().unwrap_or_default()
    }
}
