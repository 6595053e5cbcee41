//! A server of a pool: joins, serves over HTTP, moves its state away when it is told to stop.

use std::hash::Hash;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use centrifuge::leased_map::LeasedKey;
use centrifuge::owner::BoxError;
use centrifuge::{LeasedMap, Managers, Owner};
use centrifuge_server::stop::told_to_stop;
use clap::Args;
use tokio::net::TcpListener;

use crate::shared::call::{CallerArgs, CallerTimes, managers};
use crate::shared::http::{ListenArgs, say_ready};
use crate::{Failure, Result};

/// How long moving everything away may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How often memory is freed that is of no use.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Where servers of a pool send each other the state of ranges that move.
const TRANSFER: &str = "/transfer";
/// The most that one part of a moving range may have.
const MAX_PART_BYTES: usize = 64 << 20;

/// What every server of a pool is told.
#[derive(Args, Clone, Debug)]
pub struct MemberArgs {
    /// Its name and where it listens
    #[command(flatten)]
    pub listen: ListenArgs,
    /// The Managers as host:port, separated by commas
    #[arg(long, env = "CENTRIFUGE_MANAGERS", default_value = "127.0.0.1:7600", value_parser = managers)]
    pub managers: Managers,
    /// The pool; its service's name unless given
    #[arg(long)]
    pub namespace: Option<String>,
}

impl MemberArgs {
    /// The pool, which is also the first part of every path: a frontend knows no other name for it.
    pub fn pool(&self, service: &str) -> String {
        self.namespace.clone().unwrap_or_else(|| service.to_owned())
    }

    /// How this server calls other pools of the same Managers.
    pub fn caller(&self, times: &CallerTimes) -> CallerArgs {
        CallerArgs { managers: self.managers.clone(), times: times.clone() }
    }
}

/// A server that is a member of its pool, and does not answer yet.
pub struct Member {
    name: String,
    listener: TcpListener,
    url: String,
    owner: Owner,
    transfer: Router,
}

impl Member {
    /// Listens, and joins the pool. The server's state is in `map`: it moves with its ranges, from server to
    /// server over HTTP.
    pub async fn join<K, V>(args: &MemberArgs, service: &str, map: &LeasedMap<K, V>) -> Result<Member>
    where
        K: LeasedKey + Eq + Hash + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let (listener, url) = args.listen.bind().await?;
        let (name, http) = (args.listen.name.clone(), reqwest::Client::new());
        let builder = Owner::builder(args.managers.clone(), &args.pool(service)).name(&name).url(&url);
        let carry = move |url, part| carry(http.clone(), url, part);
        let owner = builder.wait_for_name().state(map, carry).join().await?;
        let (arriving, arriving_at) = (map.clone(), owner.clone());
        let take = async move |part: Bytes| arriving.handle(&arriving_at, &part).await;
        let limit = DefaultBodyLimit::max(MAX_PART_BYTES);
        let transfer = Router::new().route(TRANSFER, post(take).layer(limit));
        tokio::spawn(sweep(map.clone()));
        Ok(Member { name, listener, url, owner, transfer })
    }

    /// Its leases.
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Answers until it is told to stop; then it moves its state away, answering meanwhile, and goes.
    pub async fn serve(self, routes: Router) -> Result<()> {
        let Member { name, listener, url, owner, transfer } = self;
        let served = axum::serve(listener, routes.merge(transfer));
        say_ready(&name, &url);
        tokio::select! {
            served = served => served.map_err(Failure::from),
            why = gone(&owner) => Err(format!("{name} is not a member of its pool any more: {why}").into()),
            left = async { told_to_stop().await; owner.shutdown(DRAIN_TIMEOUT).await } => left.map_err(Failure::from),
        }
    }
}

/// Waits until the Owner has left through no wish of this server, and says why.
async fn gone(owner: &Owner) -> centrifuge::owner::LeftReason {
    let mut changes = owner.changes();
    loop {
        match owner.left() {
            Some(centrifuge::owner::LeftReason::Asked) => std::future::pending().await,
            Some(why) => return why,
            None => {
                changes.next().await;
            }
        }
    }
}

async fn sweep<K: LeasedKey + Eq + Hash + Clone, V>(map: LeasedMap<K, V>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        map.sweep();
    }
}

/// Brings a part of a moving range to the server that gets it, and its answer back.
async fn carry(http: reqwest::Client, url: String, part: Vec<u8>) -> Result<Vec<u8>, BoxError> {
    let answer = http.post(format!("{url}{TRANSFER}")).body(part).send().await?.error_for_status()?;
    Ok(answer.bytes().await?.to_vec())
}
