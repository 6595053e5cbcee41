//! What tests of documents, publish-subscribe and queues share: they call each other.

use axum::http::StatusCode;
use centrifuge::Key;
use centrifuge_core::range_set::RangeSet;
use centrifuge_examples::Failure;
use centrifuge_examples::shared::call::{Answer, Call, Pool};
use centrifuge_harness::managers::until;
use centrifuge_harness::{Cluster, Service};
use serde_json::Value;

use crate::support::LossRecorder;

/// Starts a server that calls other pools, and knows how patient to be with them.
pub(crate) async fn start(
    cluster: &Cluster,
    role: &str,
    name: &str,
    more: &[&str],
) -> Result<Service, Failure> {
    cluster.call(role, name, cluster.managers(), more).await
}

/// Asks, and says how it went. Every answer that depends on state carries the lease it is true under.
pub(crate) async fn ask(pool: &Pool, name: &str, call: Call) -> Result<(StatusCode, Value), Failure> {
    let Answer { status, lease, body, .. } = pool.ask(name, &call).await?;
    let depends_on_state = status.is_success()
        || [StatusCode::NOT_FOUND, StatusCode::PRECONDITION_FAILED, StatusCode::CONFLICT].contains(&status);
    assert_eq!(lease.is_some(), depends_on_state, "{status} {}", String::from_utf8_lossy(&body));
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

/// Asks for what goes well.
pub(crate) async fn get(pool: &Pool, name: &str, call: Call) -> Result<Value, Failure> {
    let (status, body) = ask(pool, name, call).await?;
    assert_eq!(status, StatusCode::OK, "{name}: {body}");
    Ok(body)
}

/// So many names.
pub(crate) fn names(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{what}-{number}")).collect()
}

/// Those of the names that a server owns, as a caller sees it.
pub(crate) fn owned(pool: &Pool, server: &Service, names: &[String]) -> Vec<String> {
    let is_here =
        |name: &&String| pool.lookup().lookup(key(name)).is_ok_and(|route| route.url() == server.address());
    names.iter().filter(is_here).cloned().collect()
}

/// Waits until losses of all these names were heard of, and says which keys were lost.
pub(crate) async fn await_losses(losses: &LossRecorder, names: &[String]) -> Result<RangeSet, Failure> {
    let mut lost = RangeSet::new();
    until("every loss is told", async || {
        for loss in losses.take() {
            lost = lost.union(&loss.keys);
        }
        Ok(names.iter().all(|name| lost.contains(key(name))))
    })
    .await?;
    Ok(lost)
}

/// The key of a name.
pub(crate) fn key(name: &str) -> Key {
    Key::of(name.as_bytes())
}
