//! A server of a pool: joins, serves over HTTP, moves its state away when it is told to stop.

use std::hash::Hash;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use centrifuge::leased_map::LeasedKey;
use centrifuge::owner::{BoxError, OwnerBuilder};
use centrifuge::{LeasedMap, Managers, Owner};
use centrifuge_server::stop::told_to_stop;
use clap::Args;
use tokio::net::TcpListener;

use crate::Failure;
use crate::shared::call::{CallerArgs, CallerTimes, managers};
use crate::shared::http::{ListenArgs, say_ready};

/// How long moving everything away may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often memory is freed that is of no use.
const SWEEP: Duration = Duration::from_secs(5);
/// Where servers of a pool send each other the state of ranges that move.
const TRANSFER: &str = "/transfer";
/// The most that one part of a moving range may have.
const LARGEST_PART: usize = 64 << 20;

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
    #[must_use]
    pub fn pool(&self, service: &str) -> String {
        self.namespace.clone().unwrap_or_else(|| service.to_owned())
    }

    /// How this server calls other pools of the same Managers.
    #[must_use]
    pub fn caller(&self, times: &CallerTimes) -> CallerArgs {
        CallerArgs { managers: self.managers.clone(), times: times.clone() }
    }
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A server that listens, and has not joined yet.
pub struct Member {
    name: String,
    listener: TcpListener,
    url: String,
    builder: OwnerBuilder,
    /// Known once it has joined.
    owner: Arc<OnceLock<Owner>>,
    transfer: Router,
    chores: Vec<Work>,
}

impl Member {
    /// Listens, so that the pool can be told where.
    pub async fn bind(args: &MemberArgs, service: &str) -> Result<Member, Failure> {
        let (listener, url) = args.listen.bind().await?;
        let namespace = args.namespace.as_deref().unwrap_or(service);
        let builder = Owner::builder(args.managers.clone(), namespace)
            .name(&args.listen.name)
            .url(&url)
            .wait_for_name();
        let name = args.listen.name.clone();
        let (owner, transfer, chores) = (Arc::default(), Router::new(), Vec::new());
        Ok(Member { name, listener, url, builder, owner, transfer, chores })
    }

    /// The server's state is in `map`: it moves with its ranges, from server to server over HTTP.
    #[must_use]
    pub fn state<K, V>(mut self, map: &LeasedMap<K, V>) -> Member
    where
        K: LeasedKey + Eq + Hash + Clone + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let http = reqwest::Client::new();
        self.builder = self.builder.state(map, move |url, bytes| carry(http.clone(), url, bytes));
        let (arriving, owner) = (map.clone(), Arc::clone(&self.owner));
        let take = move |part: Bytes| async move {
            match owner.get() {
                Some(owner) => arriving.handle(owner, &part).await,
                // The sender does not understand this, and sends it again.
                None => Vec::new(),
            }
        };
        let limit = DefaultBodyLimit::max(LARGEST_PART);
        self.transfer = self.transfer.route(TRANSFER, post(take).layer(limit));
        self.chores.push(Box::pin(sweep(map.clone())));
        self
    }

    /// Says more about the Owner before it joins.
    #[must_use]
    pub fn owner(mut self, describe: impl FnOnce(OwnerBuilder) -> OwnerBuilder) -> Member {
        self.builder = describe(self.builder);
        self
    }

    /// Joins the pool.
    pub async fn join(self) -> Result<Joined, Failure> {
        let owner = self.builder.join().await?;
        // It was empty: nobody else has this Member.
        let _ = self.owner.set(owner.clone());
        let Member { name, listener, url, transfer, chores, .. } = self;
        Ok(Joined { name, listener, url, owner, transfer, chores })
    }
}

/// A server that is a member of its pool, and does not answer yet.
pub struct Joined {
    name: String,
    listener: TcpListener,
    url: String,
    owner: Owner,
    transfer: Router,
    chores: Vec<Work>,
}

impl Joined {
    /// Its leases.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Where it serves.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers until it is told to stop; then it moves its state away, answering meanwhile, and goes.
    pub async fn serve(self, routes: Router) -> Result<(), Failure> {
        let Joined { name, listener, url, owner, transfer, chores } = self;
        let chores: Vec<_> = chores.into_iter().map(tokio::spawn).collect();
        let served = axum::serve(listener, routes.merge(transfer));
        say_ready(&name, &url);
        let ended = tokio::select! {
            served = served => served.map_err(Failure::from),
            why = gone(&owner) => Err(format!("{name} is not a member of its pool any more: {why}").into()),
            left = async { told_to_stop().await; owner.shutdown(PATIENCE).await } => left.map_err(Failure::from),
        };
        chores.iter().for_each(tokio::task::JoinHandle::abort);
        ended
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
        tokio::time::sleep(SWEEP).await;
        map.sweep();
    }
}

/// Brings a part of a moving range to the server that gets it, and its answer back.
async fn carry(http: reqwest::Client, url: String, part: Vec<u8>) -> Result<Vec<u8>, BoxError> {
    let answer = http.post(format!("{url}{TRANSFER}")).body(part).send().await?.error_for_status()?;
    Ok(answer.bytes().await?.to_vec())
}
