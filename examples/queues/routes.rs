//! Queues over HTTP.

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use centrifuge::NotOwner;
use centrifuge::leased_map::{Leased, LeasedKey};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::futures::Notified;
use tokio::time::{Instant, timeout};

use super::Service;
use super::queue::{self, Interests, NeverThere, NotTaken};
use crate::shared::http::{Problem, Reply, answer, check_name, judge, lease_of};
use crate::shared::stamp::{Stamp, wall_ms};

/// How often it is looked whether a waiting reader still waits at the right place.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

type Shared = State<Service>;

/// What is served below the pool's name.
pub(super) fn routes(pool: &str, service: Service) -> Router {
    let routes = Router::new()
        .route("/{name}/open", post(open))
        .route("/{name}/enqueue", post(enqueue))
        .route("/{name}/messages", get(messages))
        .with_state(service);
    Router::new().nest(&format!("/{pool}"), routes)
}

#[derive(Deserialize)]
struct Opening {
    interests: Interests,
    /// What the client knew until now.
    incarnation: Option<Stamp>,
}

async fn open(State(service): Shared, Path(name): Path<String>, Json(opening): Json<Opening>) -> Reply {
    check_name(&name)?;
    let is_watched = |pool: &&String| service.watches.pools().any(|watched| watched == *pool);
    if let Some(pool) = opening.interests.keys().find(|pool| !is_watched(pool)) {
        let words =
            format!("losses of {pool} are not watched here: add it to --watches of every queue server");
        return Err(Problem::new(StatusCode::BAD_REQUEST, words));
    }
    let opened = service.queues.with_lease(&name, |slot, lease| {
        let fresh = service.stamps.next(lease.generation);
        let sight = (&*service.watches, wall_ms());
        queue::open(slot, opening.incarnation, fresh, opening.interests, sight)
    })?;
    answer(&service.queues, &opened)
}

#[derive(Deserialize)]
struct Delivery {
    topic: String,
    message: Value,
}

async fn enqueue(
    State(service): Shared,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(Delivery { topic, message }): Json<Delivery>,
) -> Reply {
    let lease = lease_of(&headers).ok_or_else(no_lease)?;
    let taken = service.queues.with(&name, |slot| {
        let sight = (&*service.watches, wall_ms());
        queue::enqueue(slot, &topic, lease, message, service.limits, sight)
    })?;
    let taken = judge(taken, |taken| Ok(json!({ "number": taken? })))?;
    service.wakers.wake(taken.key);
    answer(&service.queues, &taken)
}

#[derive(Deserialize)]
struct Reading {
    incarnation: Option<Stamp>,
    #[serde(default)]
    after: u64,
    #[serde(default)]
    wait_ms: u64,
}

/// A long poll: waits for something to read, for as long as the reader wants.
async fn messages(
    State(service): Shared,
    Path(name): Path<String>,
    Query(Reading { incarnation, after, wait_ms }): Query<Reading>,
) -> Reply {
    let until = Instant::now() + Duration::from_millis(wait_ms).min(service.max_wait);
    loop {
        // Before the queue is looked at, so that nothing comes unheard in between.
        let waker = service.wakers.listen(name.key());
        let read = service.queues.with(&name, |slot| {
            let sight = (&*service.watches, wall_ms());
            queue::read(slot, incarnation, after, service.limits, sight)
        })?;
        let read = judge(read, |read| Ok(read?))?;
        if read.value.is_news() || Instant::now() >= until {
            return answer(&service.queues, &read);
        }
        service.wait(waker, until, &read).await?;
    }
}

impl Service {
    /// Waits until the reader is woken or time is up. The queue may move meanwhile, and what comes then wakes
    /// readers elsewhere: the lease is looked at again and again, and no event is trusted to say that it ended.
    async fn wait<T>(&self, waker: Notified<'_>, until: Instant, read: &Leased<T>) -> Result<(), NotOwner> {
        tokio::pin!(waker);
        while timeout(POLL_INTERVAL, &mut waker).await.is_err() {
            self.queues.recheck(read)?;
            if Instant::now() >= until {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl From<NotTaken> for Problem {
    fn from(why: NotTaken) -> Problem {
        match why {
            NotTaken::NoQueue => {
                Problem::new(StatusCode::NOT_FOUND, "there is no queue: its client knows when it comes back")
            }
            NotTaken::Stale(stale) => Problem::new(StatusCode::CONFLICT, stale),
        }
    }
}

impl From<NeverThere> for Problem {
    fn from(NeverThere: NeverThere) -> Problem {
        let words = "`after` is higher than any number of this incarnation: begin with 0 at each incarnation";
        Problem::new(StatusCode::BAD_REQUEST, words)
    }
}

fn no_lease() -> Problem {
    let words =
        "send the number of the topic's lease in the header centrifuge-lease: publish through the topic";
    Problem::new(StatusCode::BAD_REQUEST, words)
}
