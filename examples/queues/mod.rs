//! Queues: what subscribers receive, also while they are away, and what they must know.
//!
//! **The guarantee.** Once a message is in a queue, its client receives it or knows that it missed some.
//!
//! - *One queue.* A lease makes sure that a client never reads another copy than the one that publishers write
//!   to. A queue that moves takes everything along; a waiting reader is sent to the new place.
//! - *Incarnations.* A queue that was lost or expired and is made anew has another stamp. The client hands back
//!   the one it knows with every request, and is told that it missed something if that is not the queue's.
//!   Nothing is forgotten but what the client says it has, of this incarnation: lost answers and requests that
//!   come twice do no harm.
//! - *What is dropped*, for its age or because there is too much, leaves a word behind, until the client has read that.
//! - *Stale publishers.* A [`Fence`](centrifuge::Fence) refuses what comes under an earlier lease on a topic
//!   than it has heard of. It is a part of the queue, and moves with it.
//! - *Losses of other pools.* What the client published or subscribed to elsewhere may be lost there. A queue
//!   keeps, for each name that interests its client, when the name's state began, and compares with the table
//!   whenever it is touched. So it misses none: not while its client is away for long, and not when it moves
//!   between servers that hear of the loss at different times. Losses are told from the time a queue is opened
//!   with an interest: open first, then publish and subscribe. A server that has lost the Manager, and cannot
//!   know, says that all may be lost.

mod queue;
mod routes;
mod wakers;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use centrifuge::LeasedMap;
use centrifuge::leased_map::Json;
use clap::Args;

use self::queue::Limits;
pub use self::queue::Queue;
use self::wakers::Wakers;
use self::watch::Watches;
use crate::Result;
use crate::shared::call::{CallerTimes, duration};
use crate::shared::member::{Member, MemberArgs};
use crate::shared::stamp::{Stamps, in_ms};

/// As long as a reader is kept waiting, whatever it asks for: callers do not wait much longer.
const MAX_WAIT: Duration = Duration::from_secs(50);

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct QueuesArgs {
    #[command(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    times: CallerTimes,
    /// How long a queue lives after its last request
    #[arg(long, value_parser = duration, default_value = "1h", value_name = "DURATION")]
    ttl: Duration,
    /// How long a message waits for its reader
    #[arg(long, value_parser = duration, default_value = "1h", value_name = "DURATION")]
    message_ttl: Duration,
    /// How many messages a queue holds
    #[arg(long, default_value_t = 1000)]
    most: usize,
    /// How many bytes of messages a queue holds: one that grew without end could not move to another server
    #[arg(long, default_value_t = 8 << 20)]
    most_bytes: usize,
    /// The pools whose losses are told, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMESPACES")]
    watches: Vec<String>,
}

/// What the handlers share.
#[derive(Clone)]
struct Service {
    queues: LeasedMap<String, Queue>,
    stamps: Arc<Stamps>,
    watches: Arc<Watches>,
    wakers: Arc<Wakers>,
    limits: Limits,
    max_wait: Duration,
}

/// Serves until it is told to stop.
pub async fn run(args: QueuesArgs) -> Result<()> {
    let wakers = Arc::new(Wakers::new());
    let caller = args.member.caller(&args.times);
    let watches = Arc::new(Watches::connect(&caller, &args.watches, &wakers).await?);
    let queues = LeasedMap::with_ttl(Json, args.ttl);
    let member = Member::join(&args.member, "queues", &queues).await?;
    let limits = Limits { ttl_ms: in_ms(args.message_ttl), most: args.most, most_bytes: args.most_bytes };
    // A queue does not end while its reader waits.
    let max_wait = MAX_WAIT.min(args.ttl / 2);
    let service = Service { queues, stamps: Arc::default(), watches, wakers, limits, max_wait };
    member.serve(routes::routes(&args.member.pool("queues"), service)).await
}
