//! Documents over HTTP.

use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use centrifuge::leased_map::Leased;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Service;
use super::document::{self, Condition, Mismatch};
use crate::shared::http::{Problem, Reply, answer, check_name, judge};
use crate::shared::stamp::Stamp;

/// The most that a section may have: with what is wrapped around it, it can still be published.
const LARGEST: usize = 1 << 20;

type Shared = State<Service>;

/// What is served below the pool's name.
pub(super) fn routes(pool: &str, service: Service) -> Router {
    let routes = Router::new()
        .route("/{name}", get(read).delete(|state, Path(name), query| remove(state, name, None, query)))
        .route(
            "/{name}/sections/{section}",
            put(write).get(read_section).delete(remove_section).layer(DefaultBodyLimit::max(LARGEST)),
        )
        .route("/{name}/refresh", post(refresh))
        .with_state(service);
    Router::new().nest(&format!("/{pool}"), routes)
}

#[derive(Deserialize)]
struct Conditional {
    if_version: Option<String>,
}

impl Conditional {
    fn read(&self) -> Result<Condition, Problem> {
        let refuse = |error| Problem::new(StatusCode::BAD_REQUEST, format!("if_version: {error}, or `none`"));
        Condition::read(self.if_version.as_deref()).map_err(refuse)
    }
}

/// What subscribers are told.
#[derive(Serialize)]
struct Written<'a> {
    document: &'a str,
    section: Option<&'a str>,
    version: Stamp,
    #[serde(flatten)]
    what: What<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum What<'a> {
    Value(&'a Value),
    Deleted(bool),
}

async fn write(
    State(service): Shared,
    Path((name, section)): Path<(String, String)>,
    Query(condition): Query<Conditional>,
    Json(value): Json<Value>,
) -> Reply {
    check_name(&name)?;
    let condition = condition.read()?;
    let written = service.documents.with_lease(&name, |slot, lease| {
        let version = service.stamps.next(lease.generation);
        document::write(slot, condition, version, section.clone(), value.clone())
    })?;
    let written = judge(written, |written| written.map_err(Problem::from))?;
    service.finish(&name, Some(&section), What::Value(&value), &written).await
}

async fn read(State(service): Shared, Path(name): Path<String>) -> Reply {
    let read = service.documents.get(&name)?;
    let read = judge(read, |document| document.ok_or_else(nothing))?;
    answer(&service.documents, &read)
}

async fn read_section(State(service): Shared, Path((name, section)): Path<(String, String)>) -> Reply {
    let read = service.documents.get(&name)?;
    let read = judge(read, |document| {
        document.and_then(|mut document| document.sections.remove(&section)).ok_or_else(nothing)
    })?;
    answer(&service.documents, &read)
}

async fn remove_section(
    state: Shared,
    Path((name, section)): Path<(String, String)>,
    query: Query<Conditional>,
) -> Reply {
    remove(state, name, Some(section), query).await
}

async fn remove(
    State(service): Shared,
    name: String,
    section: Option<String>,
    Query(condition): Query<Conditional>,
) -> Reply {
    let (condition, section) = (condition.read()?, section.as_deref());
    let removed = service.documents.with_lease(&name, |slot, lease| {
        document::remove(slot, condition, service.stamps.next(lease.generation), section)
    })?;
    let removed = judge(removed, |removed| removed.map_err(Problem::from))?;
    service.finish(&name, section, What::Deleted(true), &removed).await
}

/// Every request but a read makes a document live longer; this one does nothing else.
async fn refresh(State(service): Shared, Path(name): Path<String>) -> Reply {
    let refreshed = service.documents.with(&name, |slot| slot.as_ref().map(|document| document.version))?;
    let refreshed = judge(refreshed, |version| Ok(json!({ "version": version.ok_or_else(nothing)? })))?;
    answer(&service.documents, &refreshed)
}

impl Service {
    /// Publishes a write, and only then answers its writer.
    async fn finish(
        &self,
        document: &str,
        section: Option<&str>,
        what: What<'_>,
        outcome: &Leased<Stamp>,
    ) -> Reply {
        let version = outcome.value;
        if let Some(publisher) = &self.publisher {
            let message = Written { document, section, version, what };
            publisher.publish(document, outcome.generation, &message).await?;
        }
        let Leased { key, generation, .. } = *outcome;
        answer(&self.documents, &Leased { value: json!({ "version": version }), key, generation })
    }
}

impl From<Mismatch> for Problem {
    fn from(mismatch: Mismatch) -> Problem {
        let version = mismatch.version.map_or(Value::Null, |version| version.to_string().into());
        let words = "the document is not at that version: read it, and write on condition of what it is now";
        Problem::new(StatusCode::PRECONDITION_FAILED, words).with("version", version)
    }
}

fn nothing() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is nothing: it was never written, or expired, or is lost")
}
