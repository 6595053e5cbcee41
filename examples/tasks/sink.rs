//! Where the effects of runs go: takes one run of a task at a time, each period once, and only from the task's owner.
//!
//! What it knows, its fence too, is in this process alone: after a restart it would take anything. A real sink
//! keeps these numbers where it keeps the effects, and changes both in one transaction; the cache's database is
//! an example.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use centrifuge::Generation;
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ledger::{Event, Ledger, Refused, Run};
use crate::Result;
use crate::shared::call::{Answer, Call};
use crate::shared::http::{ListenArgs, Problem, Reply, lease_of};

/// What a sink is told.
#[derive(Args, Clone, Debug)]
pub struct SinkArgs {
    #[command(flatten)]
    listen: ListenArgs,
}

/// Serves until it is told to stop.
pub async fn run(args: SinkArgs) -> Result<()> {
    let routes = Router::new()
        .route("/runs", get(runs))
        .route("/runs/{task}/begin", post(|run, headers, Json(said)| take(Ledger::begin, run, headers, said)))
        .route("/runs/{task}/end", post(|run, headers, Json(said)| take(Ledger::end, run, headers, said)))
        .with_state(Arc::<Mutex<Ledger>>::default());
    args.listen.serve(routes).await
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Problem {
        let problem = Problem::new(StatusCode::CONFLICT, &refused);
        match refused {
            Refused::IsDone(period) => problem.with("done", period),
            _ => problem,
        }
    }
}

/// What a server says of a run; its lease is in the header.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Said {
    pub(super) period: u64,
    pub(super) server: String,
}

type Shared = State<Arc<Mutex<Ledger>>>;

/// Tells the ledger of the beginning or the end of a run.
async fn take(
    deed: fn(&mut Ledger, &str, Run, &str) -> Result<(), Refused>,
    (State(ledger), Path(task)): (Shared, Path<String>),
    headers: HeaderMap,
    said: Said,
) -> Reply {
    let words = "say under which lease, in the header centrifuge-lease";
    let lease = lease_of(&headers).ok_or_else(|| Problem::new(StatusCode::BAD_REQUEST, words))?;
    let run = Run { period: said.period, lease: lease.0 };
    deed(&mut ledger.lock().unwrap_or_else(PoisonError::into_inner), &task, run, &said.server)?;
    Ok(Json(json!({})).into_response())
}

async fn runs(State(ledger): Shared) -> Json<Vec<Event>> {
    Json(ledger.lock().unwrap_or_else(PoisonError::into_inner).events.clone())
}

/// The sink as servers of the pool see it.
#[derive(Clone, Debug)]
pub(super) struct Sink {
    url: String,
    http: reqwest::Client,
}

/// How the sink takes the beginning of a run.
#[derive(Debug)]
pub(super) enum Begun {
    Yes,
    /// The period is done; this is the last one that is.
    IsDone(u64),
}

impl Sink {
    pub(super) fn at(url: &str) -> Sink {
        Sink { url: url.to_owned(), http: reqwest::Client::new() }
    }

    pub(super) async fn begin(&self, task: &str, said: &Said, lease: Generation) -> Result<Begun> {
        let answer = self.tell(format!("/runs/{task}/begin"), said, lease).await?;
        if answer.status == StatusCode::CONFLICT {
            let problem: Value = serde_json::from_slice(&answer.body)?;
            if let Some(done) = problem["done"].as_u64() {
                return Ok(Begun::IsDone(done));
            }
        }
        answer.read::<Value>().map(|_| Begun::Yes)
    }

    pub(super) async fn end(&self, task: &str, said: &Said, lease: Generation) -> Result<()> {
        self.tell(format!("/runs/{task}/end"), said, lease).await?.read::<Value>().map(|_| ())
    }

    async fn tell(&self, path: String, said: &Said, lease: Generation) -> Result<Answer> {
        let call = Call::post(path, said).under(lease);
        let unreachable = |refusal| format!("the sink at {} does not answer: {refusal:?}", self.url).into();
        call.attempt(&self.http, &self.url).await.map_err(unreachable)
    }
}
