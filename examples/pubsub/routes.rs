//! Topics over HTTP.

use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::{Json, Router};
use centrifuge::Generation;
use centrifuge::leased_map::Leased;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Service, Topic};
use crate::shared::http::{Problem, Reply, answer, check_name, judge, lease_of, under_lease};
use crate::shared::stamp::{Stamp, in_ms, wall_ms};

/// The most that a message may have: with what is wrapped around it a queue still takes it.
const MAX_MESSAGE_BYTES: usize = 3 << 19;

type Shared = State<Service>;

/// What is served below the pool's name.
pub(super) fn routes(pool: &str, service: Service) -> Router {
    let routes = Router::new()
        .route("/{topic}/subscribe", post(subscribe))
        .route("/{topic}/unsubscribe", post(unsubscribe))
        .route("/{topic}/publish", post(publish).layer(DefaultBodyLimit::max(MAX_MESSAGE_BYTES)))
        .with_state(service);
    Router::new().nest(&format!("/{pool}"), routes)
}

#[derive(Deserialize)]
struct Subscriber {
    queue: String,
    /// The subscription that the subscriber had until now.
    subscription: Option<Stamp>,
}

/// The four steps of an operation on state under a lease.
async fn subscribe(
    State(service): Shared,
    Path(topic): Path<String>,
    Json(subscriber): Json<Subscriber>,
) -> Reply {
    check_name(&subscriber.queue)?;
    // (1) Is the topic this server's? The map asks for the lease; if there is none the request ends here, and
    // its sender looks for the owner again.
    let subscribed = service.topics.with_lease(&topic, |slot, lease| {
        // (2) The map has discarded what was left of another lease: `slot` is what is true under this one, or nothing.
        let topic: &mut Topic = slot.get_or_insert_default();
        // (3) Operate. Nothing else happens to the topic meanwhile.
        let fresh = service.stamps.next(lease.generation);
        topic.subscribe(subscriber.queue, subscriber.subscription, fresh, wall_ms(), in_ms(service.ttl))
    })?;
    // (4) Was the lease held until now? Otherwise the subscription is worth nothing, and nobody may count on it.
    answer(&service.topics, &subscribed)
}

async fn unsubscribe(
    State(service): Shared,
    Path(topic): Path<String>,
    Json(subscriber): Json<Subscriber>,
) -> Reply {
    let done = service.topics.with(&topic, |slot| {
        if let Some(topic) = slot {
            topic.unsubscribe(&subscriber.queue, subscriber.subscription);
        }
        json!({})
    })?;
    answer(&service.topics, &done)
}

#[derive(Deserialize)]
struct From {
    /// What the publisher's lease is on.
    from: Option<String>,
}

/// Reads the list of subscribers once, under a valid lease, and then checks no more, however long the delivery takes.
///
/// The one check is needed: at the topic's next owner there may be subscribers that this server does not know
/// of, who subscribed before the message and would neither get it nor know. After it no check is needed: a
/// subscription does not change once it is made, and whoever subscribes later reads what the publisher wrote
/// before. What leaves carries the topic's lease, and the queue that receives it refuses it if it has heard
/// from a later owner of the topic.
async fn publish(
    State(service): Shared,
    Path(topic): Path<String>,
    Query(From { from }): Query<From>,
    headers: HeaderMap,
    Json(message): Json<Value>,
) -> Reply {
    let publisher = match from {
        Some(about) => Some((about, lease_of(&headers).ok_or_else(no_lease)?)),
        None => None,
    };
    let queues = service.topics.with(&topic, |slot| queues_for(slot, publisher.as_ref()))?;
    let Leased { value: queues, key, generation } = judge(queues, |queues| queues)?;
    let delivered = service.delivery.deliver(queues, &topic, generation, &message).await?;
    Ok(under_lease(&Leased { value: delivered, key, generation }))
}

/// The queues that a message of this publisher goes to.
fn queues_for(
    slot: &mut Option<Topic>,
    publisher: Option<&(String, Generation)>,
) -> Result<Vec<String>, Problem> {
    if let Some((about, lease)) = publisher {
        let refuse = |stale| Problem::new(StatusCode::CONFLICT, stale);
        slot.get_or_insert_default().admit(about, *lease).map_err(refuse)?;
    }
    Ok(slot.as_mut().map(|topic| topic.subscribers(wall_ms())).unwrap_or_default())
}

fn no_lease() -> Problem {
    let words =
        "`from` says what the publisher holds a lease on: send its number in the header centrifuge-lease";
    Problem::new(StatusCode::BAD_REQUEST, words)
}
