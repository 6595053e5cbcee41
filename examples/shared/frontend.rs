//! A frontend: passes requests on to the owners of their keys, and sends its clients away when it cannot know
//! who they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode, Uri};
use axum::routing::any;
use clap::Args;

use crate::Result;
use crate::shared::call::{Answer, Call, CallerArgs, Pool};
use crate::shared::http::{ListenArgs, Problem};

/// How often it is looked whether the Manager was lost.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// As long as a request may wait for news at an owner.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// What a frontend is told.
#[derive(Args, Clone, Debug)]
pub struct FrontendArgs {
    /// Its name and where it listens
    #[command(flatten)]
    pub listen: ListenArgs,
    /// The pools that it passes requests on to; the first part of a path names one
    #[arg(long, value_delimiter = ',', required = true)]
    pub pools: Vec<String>,
    /// How it finds them
    #[command(flatten)]
    pub caller: CallerArgs,
}

type Pools = Arc<BTreeMap<String, Pool>>;

/// Serves until it is told to stop. It has no state: its clients can go to any other.
pub async fn run(args: FrontendArgs) -> Result<()> {
    let mut pools = BTreeMap::new();
    for name in &args.pools {
        pools.insert(name.clone(), Pool::connect(&args.caller, name).await?);
    }
    args.listen.serve(routes(Arc::new(pools))).await
}

/// `/POOL/NAME` and all below it belong to NAME's owner in POOL.
fn routes(pools: Pools) -> Router {
    Router::new()
        .route(
            "/{pool}/{name}",
            any(|state, Path((pool, name)), uri, method, body| pass(state, (pool, name), uri, method, body)),
        )
        .route(
            "/{pool}/{name}/{*rest}",
            any(|state, Path((pool, name, _)): Path<(String, String, String)>, uri, method, body| {
                pass(state, (pool, name), uri, method, body)
            }),
        )
        .with_state(pools)
}

async fn pass(
    State(pools): State<Pools>,
    (pool, name): (String, String),
    uri: Uri,
    method: Method,
    body: Bytes,
) -> Result<Answer, Problem> {
    let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("there is no pool {pool} here"));
    let pool = pools.get(&pool).ok_or_else(unknown)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let call = Call::new(method, path, body).wait(MAX_WAIT);
    let answer = tokio::select! {
        biased;
        () = out_of_contact(pool) => return Err(lost_the_manager()),
        answer = pool.ask(&name, &call) => answer,
    };
    answer.map_err(|error| Problem::new(StatusCode::GATEWAY_TIMEOUT, error))
}

/// Waits until the table is too old to be believed: whoever is asking then would ask in vain, or be answered by chance.
async fn out_of_contact(pool: &Pool) {
    while pool.lookup().in_contact() {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn lost_the_manager() -> Problem {
    let words = "this frontend has lost the Manager: go to another one, and publish your state again there";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, words)
}
