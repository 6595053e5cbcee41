//! A cache over a database: a granted range is claimed there and prefetched, writes go through and are fenced there.
//!
//! The database is one SQLite file that all servers of the pool share. It has the items, and a table of *claims*: which
//! range of keys was last claimed under which lease. Two rules make it the judge of who may write:
//!
//! 1. A server that was granted a range claims it, in one transaction that fails if any of these keys was
//!    claimed under a newer lease. Only after that does it read, cache or write anything of the range under
//!    that lease.
//! 2. A write is one transaction that fails unless the claim over its key is the writer's own.
//!
//! So a former owner that was paused with a write on its way can neither overwrite nor insert once the next
//! owner has claimed the range: its number is not the claim's any more, and a name that does not exist yet lies
//! in the range just as well. If the late write comes before the claim it is simply an earlier write: the next
//! owner reads the range after its claim, in the same transaction, and so sees it. A column with a lease in
//! each item would not do: a new name has no such column to compare.
//!
//! Memory never says what the database does not:
//!
//! - A write removes the entry from memory first, then writes, then puts the new value into memory. However the
//!   write ends, even if nobody knows how, there is no entry that could be wrong, and the next read asks the
//!   database.
//! - Operations on one name take turns from the first look at the database to the change of the memory.
//! - No operation begins on a range before its prefetch is over, so that a prefetch cannot bring back what was
//!   just deleted.
//! - An operation holds a guard until it is over, and ends even if its caller has gone: a range that moves
//!   waits for it, and what moves is the truth.
//!
//! The numbers of leases are those of one pool: a database is of no use to a pool whose Managers began anew.
//! And SQLite's lock is of the whole file: a server that is paused within a transaction holds up all the
//! others. A database on a server of its own would end that server's transaction.

mod database;
mod routes;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use centrifuge::leased_map::Json;
use centrifuge::owner::{Change, Changes};
use centrifuge::{LeasedMap, Owner};
use clap::Args;

use self::database::Database;
use self::store::Store;
use crate::Result;
use crate::shared::call::duration;
use crate::shared::member::{Member, MemberArgs};

/// What a server of this pool is told.
#[derive(Args, Clone, Debug)]
pub struct CacheArgs {
    #[command(flatten)]
    member: MemberArgs,
    /// The file of the database, which all servers of the pool share
    #[arg(long, value_name = "FILE")]
    database: PathBuf,
    /// How many items of a granted range are read before anyone asks for them
    #[arg(long, default_value_t = 10_000)]
    prefetch: u32,
    /// How long an item stays in memory after it was read from the database or written
    #[arg(long, value_parser = duration, default_value = "1h", value_name = "DURATION")]
    ttl: Duration,
    /// Wait so long between a write's last check and the write, so that a test can pause the server there
    #[arg(long, value_parser = duration, default_value = "0ms", hide = true)]
    stall: Duration,
}

/// Serves until it is told to stop.
pub async fn run(args: CacheArgs) -> Result<()> {
    let database = Database::open(&args.database)
        .map_err(|error| format!("cannot open the database {}: {error}", args.database.display()))?;
    let map = LeasedMap::with_ttl(Json, args.ttl);
    let member = Member::join(&args.member, "cache", &map).await?;
    let owner = member.owner().clone();
    let changes = owner.changes();
    let store = Store::new(owner.clone(), map, database, args.prefetch, args.stall);
    tokio::spawn(prefetch(owner, changes, store.clone()));
    member.serve(routes::routes(&args.member.pool("cache"), store)).await
}

/// Claims and prefetches what is granted. A request that comes earlier does so itself.
async fn prefetch(owner: Owner, mut changes: Changes, store: Store) {
    let mut granted = owner.leases();
    loop {
        for lease in granted.drain(..) {
            if let Err(error) = store.prepare(lease).await {
                tracing::info!(range = %lease.range, %error, "not prefetched");
            }
        }
        match changes.next().await {
            Some(Change::Granted(lease)) => granted.push(lease),
            Some(Change::Missed(_)) => granted = owner.leases(),
            Some(_) => {}
            None => return,
        }
    }
}
