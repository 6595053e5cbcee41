//! Presence: where users can be reached, in memory only, because their frontends publish it again when it is lost.
//!
//! Everything that a user publishes has a number, and a server keeps what has the highest. So it does not
//! matter in which order publications arrive, or how often: a frontend may publish again at any time, and never
//! puts back what is older.

pub mod frontend;
pub mod republish;

use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use centrifuge::LeasedMap;
use centrifuge::leased_map::{self, Leased};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::shared::call::duration;
use crate::shared::http::{Problem, Reply, under_lease};
use crate::shared::member::{Member, MemberArgs};

/// The service's name, and its pool's unless another is given.
pub const SERVICE: &str = "presence";

/// How a user can be reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Presence {
    /// Whether the user wants to be: "online", "busy", any words.
    pub status: String,
    /// Where messages go.
    pub address: String,
    /// Where the user was last.
    pub ip: IpAddr,
}

/// What a user said at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// Rises with everything that the user says.
    pub number: u64,
    /// Nothing: the user has signed off. That is kept for a while as well, so that what is late does not undo it.
    pub presence: Option<Presence>,
}

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct PresenceArgs {
    #[command(flatten)]
    member: MemberArgs,
    /// How long after a user's last word the user is forgotten
    #[arg(long, value_parser = duration, default_value = "1h", value_name = "DURATION")]
    ttl: Duration,
}

type Users = LeasedMap<String, Publication>;

type Shared = State<Users>;

/// Serves until it is told to stop.
pub async fn run(args: PresenceArgs) -> Result<()> {
    let users: Users = LeasedMap::with_ttl(leased_map::Json, args.ttl);
    let pool = args.member.pool(SERVICE);
    let member = Member::join(&args.member, SERVICE, &users).await?;
    member.serve(routes(&pool, users)).await
}

fn routes(pool: &str, users: Users) -> Router {
    Router::new().route(&format!("/{pool}/{{user}}"), get(show).put(put).delete(sign_off)).with_state(users)
}

async fn show(State(users): Shared, Path(user): Path<String>) -> Reply {
    let found = users.get(&user)?;
    users.recheck(&found)?;
    match &found.value {
        Some(Publication { presence: Some(_), .. }) => Ok(under_lease(&found)),
        _ => Err(Problem::new(StatusCode::NOT_FOUND, format!("{user} is not signed in"))),
    }
}

async fn put(State(users): Shared, Path(user): Path<String>, Json(publication): Json<Publication>) -> Reply {
    publish(&users, &user, publication)
}

/// The number of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
}

async fn sign_off(
    State(users): Shared,
    Path(user): Path<String>,
    Query(Numbered { number }): Query<Numbered>,
) -> Reply {
    publish(&users, &user, Publication { number, presence: None })
}

fn publish(users: &Users, user: &String, publication: Publication) -> Reply {
    let outcome = users.with(user, |slot| keep_newest(slot, publication))?;
    users.recheck(&outcome)?;
    let Leased { key, generation, .. } = outcome;
    match outcome.value {
        Ok(value) => Ok(under_lease(&Leased { value, key, generation })),
        Err(Newer(number)) => {
            let words = format!("{user} has published something newer: use a number above {number}");
            Err(Problem::new(StatusCode::CONFLICT, words).with("number", number))
        }
    }
}

/// Something newer is there, with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Newer(u64);

/// Takes a publication in, unless what is there is newer. The same one may come again.
fn keep_newest(slot: &mut Option<Publication>, publication: Publication) -> Result<Numbered, Newer> {
    let number = publication.number;
    match slot {
        Some(there) if there.number > number => Err(Newer(there.number)),
        // Two frontends chose the same number: the first stays.
        Some(there) if there.number == number && *there != publication => Err(Newer(number)),
        _ => {
            *slot = Some(publication);
            Ok(Numbered { number })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn says(number: u64, status: &str) -> Publication {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let presence = Presence { status: status.to_owned(), address: "im:ada".to_owned(), ip };
        Publication { number, presence: Some(presence) }
    }

    #[test]
    fn the_newest_stays_in_whatever_order_publications_come() {
        let (first, second) = (says(1, "online"), says(2, "busy"));
        let mut slot = None;
        assert_eq!(keep_newest(&mut slot, second.clone()), Ok(Numbered { number: 2 }));
        assert_eq!(keep_newest(&mut slot, first), Err(Newer(2)));
        assert_eq!(keep_newest(&mut slot, second.clone()), Ok(Numbered { number: 2 }), "it may come again");
        assert_eq!(slot, Some(second));
    }

    #[test]
    fn what_is_late_does_not_undo_a_sign_off() {
        let mut slot = Some(says(1, "online"));
        assert_eq!(
            keep_newest(&mut slot, Publication { number: 2, presence: None }),
            Ok(Numbered { number: 2 })
        );
        assert_eq!(keep_newest(&mut slot, says(1, "online")), Err(Newer(2)));
        assert_eq!(slot, Some(Publication { number: 2, presence: None }));
    }

    #[test]
    fn of_two_with_one_number_the_first_stays() {
        let mut slot = Some(says(7, "online"));
        assert_eq!(keep_newest(&mut slot, says(7, "busy")), Err(Newer(7)));
        assert_eq!(slot, Some(says(7, "online")));
    }
}
