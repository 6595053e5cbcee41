//! Health, readiness, metrics and status over HTTP.

mod room;

use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

pub(crate) use room::{Room, Visitor};
use tonic::Code;

use crate::access::{Access, Gate, gate};
use crate::shared::Shared;
use crate::status::{Status, scrape};

/// The pages of one Manager.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/status", get(status))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), authorize))
        .with_state(shared)
}

/// Lets through whoever may see a page. What does not exist looks like what is forbidden.
async fn authorize(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(visitor): ConnectInfo<Visitor>,
    request: Request,
    next: Next,
) -> Response {
    let access = match gate(request.uri().path()) {
        Some(Gate::Public) => return next.run(request).await,
        Some(Gate::Needs(access)) => access,
        None => Access::Anything,
    };
    let who = shared.identify(request.headers(), visitor.identity.as_ref(), visitor.address, &access);
    match who.and_then(|who| shared.authorize(who.as_deref(), &visitor.address, &access)) {
        Ok(()) => next.run(request).await,
        Err(status) => {
            let code = match status.code() {
                Code::Unauthenticated => StatusCode::UNAUTHORIZED,
                _ => StatusCode::FORBIDDEN,
            };
            (code, format!("{}\n", status.message())).into_response()
        }
    }
}

/// The process runs and answers: restart it if it does not.
async fn health() -> &'static str {
    "ok\n"
}

/// Asking this Manager gets somewhere: it leads and can commit, or can say who does.
async fn ready(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    if let Some(problem) = shared.view.cannot_commit() {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("leads and cannot commit: {problem}\n"));
    }
    let (code, words) = match shared.view.role() {
        role if role.is_leading() => (StatusCode::OK, "leader\n"),
        role if role.is_ready() => (StatusCode::OK, "standby\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "neither leads nor knows who does\n"),
    };
    (code, words.to_owned())
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    (kind, scrape(&shared)).into_response()
}

async fn status(State(shared): State<Arc<Shared>>) -> Json<Status> {
    Json(Status::of(&shared))
}
