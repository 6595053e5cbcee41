//! Feeds over HTTP, at a server of the pool. There is no 421: whoever is asked answers with what it has, under
//! its lease if the user is its own. The lease is not checked again: the answer may be old, and that is
//! allowed.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::feed::Item;
use super::{Feeds, xml};
use crate::shared::http::{Problem, Reply, with_lease};
use crate::shared::stamp::wall_ms;

/// Something that happened to a user, from outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Event {
    /// What to say after the user's name.
    pub(super) text: String,
    /// The same if the same event is sent again; a frontend makes one up.
    pub(super) id: Option<String>,
    /// When it was, in milliseconds since 1970.
    pub(super) at_ms: Option<u64>,
}

type Shared = State<(Feeds, Duration)>;

pub(super) fn routes(pool: &str, feeds: Feeds, window: Duration) -> Router {
    let routes = Router::new()
        .route("/{user}", get(read))
        .route("/{user}/import", post(import))
        .route("/{user}/events", post(event))
        .with_state((feeds, window));
    Router::new().nest(&format!("/{pool}"), routes)
}

async fn read(State((feeds, window)): Shared, Path(user): Path<String>) -> Response {
    let (feed, lease) = feeds.read(&user);
    let document = xml::write(&user, &feed.coalesced(window));
    with_lease(([("content-type", "application/rss+xml")], document).into_response(), lease)
}

async fn import(State((feeds, _)): Shared, Path(user): Path<String>, document: Bytes) -> Reply {
    let unreadable = |error| Problem::new(StatusCode::BAD_REQUEST, error);
    let items = xml::read(&document, wall_ms()).map_err(unreadable)?;
    let lease = feeds.change(&user, |feed| items.iter().for_each(|item| feed.add(item.clone())));
    Ok(with_lease(Json(json!({ "items": items.len() })).into_response(), lease))
}

async fn event(State((feeds, _)): Shared, Path(user): Path<String>, Json(event): Json<Event>) -> Response {
    let at_ms = event.at_ms.unwrap_or_else(wall_ms);
    let id = event.id.unwrap_or_else(|| format!("{user}/{at_ms}/{}", event.text));
    let title = format!("{user} {}", event.text);
    let item = Item { id, author: user.clone(), title, link: None, at_ms };
    let lease = feeds.change(&user, |feed| feed.add(item.clone()));
    with_lease(Json(json!({ "items": 1 })).into_response(), lease)
}
