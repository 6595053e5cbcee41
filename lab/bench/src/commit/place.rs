//! A store, the Manager on it in a process of its own, and clients that make it commit.

use std::time::{Duration, Instant};

use centrifuge::{Key, Managers, Owner};
use centrifuge_core::id::ManagerId;
use centrifuge_harness::Process;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::Channel;

use super::Commits;
use crate::Failure;
use crate::process::start_manager;

/// Where Owners join.
const POOL: &str = "joined";
/// The one key that is looked at: an Owner alone gets all.
const KEY: Key = Key(0);
/// How long an Owner may take to get its leases or to go.
const OWNER_TIMEOUT: Duration = Duration::from_secs(60);

/// A Manager on a store; it ends when this is dropped.
pub(super) struct Place {
    manager: Process,
    address: String,
    admin: AdminClient<Channel>,
}

impl Place {
    /// Starts a Manager with these arguments, and makes a namespace for each operator and one for Owners.
    pub(super) async fn start(store: &[&str], operators: usize) -> Result<Place, Failure> {
        // An operator more than there are has room: whoever just got an answer may not be gone yet.
        let limits = ["--max-namespaces", "1000", "--max-admin-requests", "1000"];
        let (manager, address, _) = start_manager(&[store, &limits].concat()).await?;
        let admin = Dialer::new().admin(&ManagerId::from(address.as_str()));
        let admin = admin?;
        let mut place = Place { manager, address, admin };
        for namespace in (0..operators).map(namespace_of).chain([POOL.to_owned()]) {
            place.admin.create_namespace(v1::CreateNamespaceRequest { namespace, settings: None }).await?;
        }
        Ok(place)
    }

    /// So many operators change namespaces of their own, each as soon as its last change is answered, for some time.
    pub(super) async fn commit(
        &mut self,
        operators: usize,
        time: Duration,
        commits: &mut Commits,
    ) -> Result<(), Failure> {
        let before = self.last_index().await?;
        let since = Instant::now();
        let mut all = JoinSet::new();
        for operator in 0..operators {
            all.spawn(change(self.admin.clone(), namespace_of(operator), since + time));
        }
        while let Some(operator) = all.join_next().await {
            for micros in operator?? {
                commits.changes += 1;
                note(&mut commits.micros, micros);
            }
        }
        commits.time += since.elapsed();
        commits.batches += self.last_index().await?.saturating_sub(before);
        Ok(self.manager.check()?)
    }

    /// The place of the last batch in the log.
    async fn last_index(&mut self) -> Result<u64, Failure> {
        let request = v1::HistoryRequest { namespace: None, key: None, limit: 1 };
        let history = self.admin.history(request).await?.into_inner();
        Ok(history.decisions.last().map_or(0, |decision| decision.index))
    }

    /// So many times an Owner joins a pool that has none, gets every key, and leaves again.
    pub(super) async fn join(&mut self, times: u32, joins: &mut Histogram<u64>) -> Result<(), Failure> {
        let managers = Managers::list([self.address.as_str()]);
        let managers = managers?;
        for _ in 0..times {
            let since = Instant::now();
            let owner = Owner::builder(managers.clone(), POOL)
                .name("joiner")
                .url("http://joiner.example:8080")
                .join()
                .await?;
            let leased = tokio::time::timeout(OWNER_TIMEOUT, first_lease(&owner)).await;
            leased.map_err(|_| Failure::from("an Owner that joined got no lease"))?;
            note(joins, since.elapsed());
            let left = owner.leave(OWNER_TIMEOUT).await;
            left?;
        }
        Ok(self.manager.check()?)
    }
}

fn namespace_of(operator: usize) -> String {
    format!("changed-{operator}")
}

fn note(histogram: &mut Histogram<u64>, time: Duration) {
    // It grows with its values: nothing that is measured here is too large for it.
    let _ = histogram.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

async fn first_lease(owner: &Owner) {
    let mut changes = owner.changes();
    while owner.check_lease_now(KEY).is_err() && changes.next().await.is_some() {}
}

/// Freezes and unfreezes a namespace until it is time: a change that is committed each time, and leaves no trace.
async fn change(
    mut admin: AdminClient<Channel>,
    namespace: String,
    until: Instant,
) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::new();
    let why = String::new();
    while Instant::now() < until {
        let since = Instant::now();
        let answer = if times.len().is_multiple_of(2) {
            let request = v1::FreezeRequest { namespace: namespace.clone(), why: why.clone() };
            admin.freeze(request).await.map(drop)
        } else {
            let request = v1::UnfreezeRequest { namespace: namespace.clone(), why: why.clone() };
            admin.unfreeze(request).await.map(drop)
        };
        match answer {
            Ok(()) => times.push(since.elapsed()),
            Err(status) if status.code() == Code::Unavailable => {
                return Err(Failure::from("the Manager stopped leading: the machine is too busy to measure"));
            }
            Err(status) => return Err(status.into()),
        }
    }
    Ok(times)
}
