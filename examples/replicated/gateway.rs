//! The replicated store over HTTP, for callers that do not link its client.

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use clap::Args;
use serde_json::Value;

use super::Versioned;
use super::client::{NoQuorum, Store};
use crate::Result;
use crate::shared::call::{CallerArgs, Pool, duration};
use crate::shared::http::{ListenArgs, Problem, check_name};

/// What a gateway is told.
#[derive(Args, Clone, Debug)]
pub struct GatewayArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// The pool
    #[arg(long, default_value = "replicated")]
    pool: String,
    /// How many copies of each value there are; the same at all gateways
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    copies: u32,
    /// How long a slow copy is waited for
    #[arg(long, value_parser = duration, default_value = "2s", value_name = "DURATION")]
    deadline: Duration,
    #[command(flatten)]
    caller: CallerArgs,
}

/// Serves until it is told to stop.
pub async fn run(args: GatewayArgs) -> Result<()> {
    let pool = Pool::connect(&args.caller, &args.pool).await?;
    let store = Store::new(pool, args.copies, args.deadline, &args.listen.name);
    tokio::spawn(store.clone().repair_what_is_lost());
    let routes =
        Router::new().route(&format!("/{}/{{name}}", args.pool), get(read).put(write)).with_state(store);
    args.listen.serve(routes).await
}

impl From<NoQuorum> for Problem {
    fn from(error: NoQuorum) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, error)
    }
}

async fn read(State(store): State<Store>, Path(name): Path<String>) -> Result<Json<Versioned>, Problem> {
    let nothing = || Problem::new(StatusCode::NOT_FOUND, format!("no copy of {name} has a value"));
    Ok(Json(store.get(&name).await?.ok_or_else(nothing)?))
}

async fn write(
    State(store): State<Store>,
    Path(name): Path<String>,
    Json(value): Json<Value>,
) -> Result<Json<Versioned>, Problem> {
    check_name(&name)?;
    Ok(Json(store.put(&name, value).await?))
}
