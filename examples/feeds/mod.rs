//! A feed processor: collects items from RSS and Atom documents for each user and gives them out as one feed.
//!
//! It is weakly consistent on purpose. A server that does not own a user processes the request all the same,
//! with what it has, instead of sending the caller elsewhere: a person reads the feed, and an item that is
//! missing or comes twice costs less than a feed that is not there. Centrifuge still says where a user's feed
//! is, moves it when servers come and go, and tells the [`frontend`] when it is lost.
//!
//! What concerns distribution is in this file and in the frontend; `feed` and `xml` are the application.

pub mod admission;
mod feed;
pub mod frontend;
mod misrouted;
mod posts;
mod routes;
mod xml;

use std::time::Duration;

use centrifuge::leased_map::Json;
use centrifuge::{Generation, LeasedMap};
use clap::Args;

use self::feed::Feed;
use self::misrouted::Misrouted;
use crate::Result;
use crate::shared::call::duration;
use crate::shared::member::{Member, MemberArgs};

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct FeedsArgs {
    #[command(flatten)]
    member: MemberArgs,
    /// How long a feed is kept after something was last added to it
    #[arg(long, value_parser = duration, default_value = "24h", value_name = "DURATION")]
    ttl: Duration,
    /// Items of one author that are not further apart than this become one item
    #[arg(long, value_parser = duration, default_value = "10m", value_name = "DURATION")]
    window: Duration,
}

/// Serves until it is told to stop.
pub async fn run(args: FeedsArgs) -> Result<()> {
    let feeds = Feeds::new(args.ttl);
    let member = Member::join(&args.member, "feeds", &feeds.own).await?;
    member.serve(routes::routes(&args.member.pool("feeds"), feeds, args.window)).await
}

/// The feeds that this server has. Cheap to clone.
#[derive(Clone)]
struct Feeds {
    /// Those of users that it owns.
    own: LeasedMap<String, Feed>,
    /// What came here for users that it does not own.
    misrouted: Misrouted,
}

impl Feeds {
    fn new(ttl: Duration) -> Feeds {
        Feeds { own: LeasedMap::with_ttl(Json, ttl), misrouted: Misrouted::new(ttl) }
    }

    /// Changes the feed of a user, or the misrouted one if the user is not ours. Names the lease if it was the
    /// real one.
    fn change(&self, user: &String, change: impl Fn(&mut Feed)) -> Option<Generation> {
        let changed = self.own.with(user, |slot| {
            let feed = slot.get_or_insert_default();
            // The user may have become ours after something came here to the wrong server.
            feed.merge(self.misrouted.take(user));
            change(feed);
        });
        match changed {
            Ok(changed) => Some(changed.generation),
            Err(_) => {
                self.misrouted.change(user, change);
                None
            }
        }
    }

    /// The feed of a user as far as this server knows it.
    fn read(&self, user: &String) -> (Feed, Option<Generation>) {
        let own = self.own.get(user);
        let lease = own.as_ref().ok().map(|leased| leased.generation);
        let mut feed = own.ok().and_then(|leased| leased.value).unwrap_or_default();
        feed.merge(self.misrouted.get(user));
        (feed, lease)
    }
}
