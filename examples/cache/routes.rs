//! The cache over HTTP.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use centrifuge::leased_map::Leased;
use serde_json::{Value, json};

use super::database::DatabaseError;
use super::store::{Store, StoreError};
use crate::shared::http::{Problem, Reply, under_lease};

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match error {
            StoreError::NotOwner(why) => why.into(),
            // Another server has the key by now: callers find it as they would after any other move.
            StoreError::Database(DatabaseError::Stale(_)) => {
                Problem::new(StatusCode::MISDIRECTED_REQUEST, error)
            }
            error => Problem::new(StatusCode::SERVICE_UNAVAILABLE, error),
        }
    }
}

pub(super) fn routes(pool: &str, store: Store) -> Router {
    Router::new()
        .route(&format!("/{pool}/{{name}}"), get(read).put(write).delete(delete))
        .route("/cache-stats", get(stats))
        .with_state(store)
}

async fn read(State(store): State<Store>, Path(name): Path<String>) -> Reply {
    let Leased { value, key, generation } = store.get(name.clone()).await?;
    let nothing = || Problem::new(StatusCode::NOT_FOUND, format!("there is no {name}"));
    Ok(under_lease(&Leased { value: value.ok_or_else(nothing)?, key, generation }))
}

async fn write(State(store): State<Store>, Path(name): Path<String>, Json(value): Json<Value>) -> Reply {
    let Leased { value: replaced, key, generation } = store.write(name, Some(value)).await?;
    Ok(under_lease(&Leased { value: json!({ "replaced": replaced }), key, generation }))
}

async fn delete(State(store): State<Store>, Path(name): Path<String>) -> Reply {
    let Leased { value: deleted, key, generation } = store.write(name, None).await?;
    Ok(under_lease(&Leased { value: json!({ "deleted": deleted }), key, generation }))
}

async fn stats(State(store): State<Store>) -> Response {
    Json(store.counts()).into_response()
}
