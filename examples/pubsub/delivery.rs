//! Brings a message to the queues of subscribers.

use std::sync::Arc;

use axum::http::StatusCode;
use centrifuge::{Generation, NotOwner};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::PUBLISH_TIMEOUT;
use crate::Result;
use crate::shared::call::{Call, CallerArgs, Pool};
use crate::shared::http::Problem;

/// The pool of queues.
#[derive(Clone)]
pub(super) struct Delivery {
    pool: Pool,
    /// The pool of topics.
    from: Arc<str>,
}

/// Where an accepted message went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Delivered {
    /// So many queues took it.
    delivered: u32,
    /// So many queues are gone, and their clients know when they come back.
    gone: u32,
}

/// What a queue made of a message.
enum Fate {
    Taken,
    Gone,
    /// The queue has heard from a later owner of the topic.
    Stale,
    Unreached(String),
}

impl Delivery {
    /// For the topics of the pool `from`.
    pub(super) async fn connect(args: &CallerArgs, namespace: &str, from: &str) -> Result<Delivery> {
        let patience = args.times.patience.min(PUBLISH_TIMEOUT);
        let pool = Pool::connect(args, namespace).await?.patience(patience);
        Ok(Delivery { pool, from: from.into() })
    }

    /// Sends a message to each queue, all at once, under the topic's lease. It is accepted if none remains that
    /// might be there and did not take it.
    pub(super) async fn deliver(
        &self,
        queues: Vec<String>,
        topic: &str,
        lease: Generation,
        message: &Value,
    ) -> Result<Delivered, Problem> {
        // Leases of different pools cannot be compared, so that the queue's fence must know of which pool this one is.
        let topic = format!("{}/{topic}", self.from);
        let body = Arc::new(json!({ "topic": topic, "message": message }));
        let mut under_way = JoinSet::new();
        for queue in queues {
            let (delivery, body) = (self.clone(), Arc::clone(&body));
            under_way.spawn(async move { delivery.enqueue(&queue, lease, &body).await });
        }
        let mut delivered = Delivered::default();
        let (mut is_stale, mut unreached) = (false, None);
        for fate in under_way.join_all().await {
            match fate {
                Fate::Taken => delivered.delivered += 1,
                Fate::Gone => delivered.gone += 1,
                Fate::Stale => is_stale = true,
                Fate::Unreached(why) => unreached = Some(why),
            }
        }
        match unreached {
            // The publisher finds the topic's owner, and publishes there.
            _ if is_stale => Err(NotOwner::NoLease.into()),
            Some(why) => Err(not_accepted(&why)),
            None => Ok(delivered),
        }
    }

    async fn enqueue(&self, queue: &str, lease: Generation, body: &Value) -> Fate {
        let call = Call::post(format!("{}/enqueue", self.pool.path_of(queue)), body).under(lease);
        match self.pool.ask(queue, &call).await {
            Ok(answer) if answer.status.is_success() => Fate::Taken,
            // Only the owner knows that there is none, and says so under its lease.
            Ok(answer) if answer.status == StatusCode::NOT_FOUND && answer.lease.is_some() => Fate::Gone,
            Ok(answer) if answer.status == StatusCode::CONFLICT => Fate::Stale,
            Ok(answer) => Fate::Unreached(format!("{queue}: {}", answer.status)),
            Err(error) => Fate::Unreached(format!("{queue}: {error}")),
        }
    }
}

fn not_accepted(why: &str) -> Problem {
    let words = format!("not accepted, publish it again: a subscriber's queue did not take it ({why})");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, words)
}
