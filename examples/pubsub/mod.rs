//! Publish-subscribe: subscriptions that end unless they are renewed, and messages that go to the queues of
//! subscribers.
//!
//! **The guarantee.** Once a message is accepted, each subscriber receives it or knows that it missed some.
//!
//! - *Who subscribed before the message* is in the list that a publish reads, under a lease that is valid then.
//!   The message is accepted only when every queue of the list has taken it or is gone; whose queue is gone
//!   knows when it comes back. Where one queue cannot be reached it is not accepted, and the publisher tries
//!   again: queues may get it twice.
//! - *Who subscribed after it*, be it at the topic's next owner while the message is still on its way, is told that its
//!   subscription is new, and reads the present state, which a publisher changes before it publishes.
//! - *Whose subscription expired or was lost* is told so when it renews: a renewal names the subscription that
//!   it means by its stamp. An answer can be lost and the request come again; without the stamp the second try
//!   would find what the first made, and call it the old one. A loss is told sooner, through the subscriber's
//!   queue.
//! - *A topic that moves* takes its subscriptions and its fence along; none is made or renewed while they are
//!   under way.
//! - *Publishers and topics that have lost their lease*, and do not know it yet, are refused by the fences of
//!   whom they send to, once these have heard of a later lease. A fence is lost with its state; versions in
//!   messages are not, and readers compare them.

mod delivery;
mod routes;
mod topic;

use std::sync::Arc;
use std::time::Duration;

use centrifuge::LeasedMap;
use centrifuge::leased_map::Json;
use clap::Args;

use self::delivery::Delivery;
pub use self::topic::Topic;
use crate::Result;
use crate::shared::call::{CallerTimes, duration};
use crate::shared::member::{Member, MemberArgs};
use crate::shared::stamp::Stamps;

/// As long as a publish waits for a queue that cannot be reached. Its callers wait for as long.
pub const PUBLISH_TIMEOUT: Duration = Duration::from_secs(20);

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct PubSubArgs {
    #[command(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    times: CallerTimes,
    /// How long a subscription lives after it was last renewed
    #[arg(long, value_parser = duration, default_value = "1h", value_name = "DURATION")]
    ttl: Duration,
    /// The pool of subscribers' queues
    #[arg(long, default_value = "queues", value_name = "NAMESPACE")]
    queues: String,
}

/// What the handlers share.
#[derive(Clone)]
struct Service {
    topics: LeasedMap<String, Topic>,
    stamps: Arc<Stamps>,
    delivery: Delivery,
    ttl: Duration,
}

/// Serves until it is told to stop.
pub async fn run(args: PubSubArgs) -> Result<()> {
    let delivery =
        Delivery::connect(&args.member.caller(&args.times), &args.queues, &args.member.pool("pubsub"))
            .await?;
    // Subscriptions end by themselves; a topic only when nothing is left of it.
    let topics = LeasedMap::with_ttl(Json, args.ttl * 2);
    let member = Member::join(&args.member, "pubsub", &topics).await?;
    let service = Service { topics, stamps: Arc::default(), delivery, ttl: args.ttl };
    member.serve(routes::routes(&args.member.pool("pubsub"), service)).await
}
