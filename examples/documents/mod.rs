//! Sectioned documents: named sections, versions, conditional updates, and an end unless someone refreshes them.
//!
//! Distribution is a [`LeasedMap`] and the lease that each answer carries; everything else is the application.
//!
//! **Versions.** A version is a [`Stamp`](crate::shared::stamp::Stamp), given when a document is written. No
//! two writes have the same one, not even when the document was lost, deleted or expired in between: a
//! condition on a version can only be met by the very document it was read from. A document that moved to
//! another server keeps its versions.
//!
//! **Publishing.** Subscribers are told of a write before its writer is: a 200 means that the publish-subscribe
//! pool has accepted it. Without a 200 the write may have happened or not, and subscribers may know of it or
//! not; the writer writes again. That is harmless, because readers compare versions: for each section the
//! highest they saw is the latest. A conditional write that comes again finds its own first try, and fails:
//! read, and write on condition of what is there. That a document ended by itself is not published: its writer
//! is gone, and what it wrote is worth nothing.

mod document;
mod publisher;
mod routes;

use std::sync::Arc;
use std::time::Duration;

use centrifuge::LeasedMap;
use centrifuge::leased_map::Json;
use clap::Args;

pub use self::document::{Document, Section};
use self::publisher::Publisher;
use crate::Result;
use crate::shared::call::{CallerTimes, duration};
use crate::shared::member::{Member, MemberArgs};
use crate::shared::stamp::Stamps;

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct DocumentsArgs {
    #[command(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    times: CallerTimes,
    /// How long a document lives after it was last written or refreshed
    #[arg(long, value_parser = duration, default_value = "1h", value_name = "DURATION")]
    ttl: Duration,
    /// The publish-subscribe pool that is told of every write; none unless given
    #[arg(long, value_name = "NAMESPACE")]
    pubsub: Option<String>,
}

/// What the handlers share.
#[derive(Clone)]
struct Service {
    documents: LeasedMap<String, Document>,
    stamps: Arc<Stamps>,
    publisher: Option<Publisher>,
}

/// Serves until it is told to stop.
pub async fn run(args: DocumentsArgs) -> Result<()> {
    let pool = args.member.pool("documents");
    let publisher = match &args.pubsub {
        Some(pubsub) => Some(Publisher::connect(&args.member.caller(&args.times), pubsub, &pool).await?),
        None => None,
    };
    let documents = LeasedMap::with_ttl(Json, args.ttl);
    let member = Member::join(&args.member, "documents", &documents).await?;
    let service = Service { documents, stamps: Arc::default(), publisher };
    member.serve(routes::routes(&pool, service)).await
}
