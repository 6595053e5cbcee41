//! Tells a publish-subscribe pool of writes.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use centrifuge::{Generation, NotOwner};
use serde::Serialize;

use crate::Result;
use crate::pubsub;
use crate::shared::call::{Call, CallerArgs, Pool, segment};
use crate::shared::http::Problem;

/// How long a write waits to be published. Shorter than its writer waits for an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The pool that subscribers are served by.
#[derive(Clone)]
pub(super) struct Publisher {
    pool: Pool,
    /// The pool of the documents. Leases of different pools cannot be compared, so that the topic must know
    /// which it is.
    documents: Arc<str>,
}

impl Publisher {
    pub(super) async fn connect(args: &CallerArgs, namespace: &str, documents: &str) -> Result<Publisher> {
        let patience = args.times.patience.min(WRITE_TIMEOUT);
        let pool = Pool::connect(args, namespace).await?.patience(patience);
        Ok(Publisher { pool, documents: documents.into() })
    }

    /// Tells everyone who subscribed to the document, under the lease it was written under: the topic refuses a
    /// writer that has lost the document since to one that has written it.
    pub(super) async fn publish(
        &self,
        document: &str,
        lease: Generation,
        message: &impl Serialize,
    ) -> Result<(), Problem> {
        let about = segment(&format!("{}/{document}", self.documents));
        let path = format!("{}/publish?from={about}", self.pool.path_of(document));
        let call = Call::post(path, message).under(lease).wait(pubsub::PUBLISH_TIMEOUT);
        let words = match self.pool.ask(document, &call).await {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            Ok(answer) if answer.status == StatusCode::CONFLICT => return Err(NotOwner::NoLease.into()),
            Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
            Err(error) => error.to_string(),
        };
        let words = format!("it may be written, but was not published: write it again ({words})");
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, words))
    }
}
