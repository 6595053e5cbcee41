//! What operators do to a pool: `drain`, `undrain`, `freeze`, `unfreeze`, `move`, `evict`.

use std::time::Duration;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::At;
use crate::admin::{self, Admin};
use crate::failure::Failure;
use crate::words::{self, count};

/// How often it is looked how far a drain is.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Args)]
pub(crate) struct PoolArgs {
    /// The pool; may be left out where there is only one
    namespace: Option<String>,
    /// Why, for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    why: String,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct OwnerArgs {
    /// The pool; may be left out where there is only one
    namespace: Option<String>,
    /// The Owner's name
    owner: String,
    /// Why, for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    why: String,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    /// Wait until it has no range left, and say how many are left meanwhile
    #[arg(long)]
    wait: bool,
    /// How long to wait before giving up with exit code 5; the drain goes on
    #[arg(long, requires = "wait", value_parser = words::duration, value_name = "DURATION", default_value = "10m")]
    timeout: Duration,
}

#[derive(Args)]
pub(crate) struct MoveArgs {
    /// The pool; may be left out where there is only one
    namespace: Option<String>,
    /// The keys: FIRST-LAST in hexadecimal, or all
    #[arg(long, value_parser = words::range, required_unless_present = "key", conflicts_with = "key")]
    range: Option<KeyRange>,
    /// One key: text, or 0x and a point of the key space
    #[arg(long, value_parser = words::key)]
    key: Option<Key>,
    /// The Owner that should have them
    #[arg(long, required_unless_present = "anywhere", conflicts_with = "anywhere")]
    to: Option<String>,
    /// Take earlier moves of these keys back: they go where the partitioner says
    #[arg(long)]
    anywhere: bool,
    /// Why, for the history
    #[arg(long, default_value = "", hide_default_value = true)]
    why: String,
    #[command(flatten)]
    at: At,
}

fn done(at: &At, words: &str) -> Result<(), Failure> {
    at.format.output().print(&json!({ "done": true }), || words.to_owned());
    Ok(())
}

pub(crate) async fn drain(args: DrainArgs) -> Result<(), Failure> {
    let DrainArgs { owner: OwnerArgs { namespace, owner, why, at }, wait, timeout } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::DrainRequest { namespace, owner, why };
    Admin::new(&at.managers).ask(async |mut admin| admin.drain(request.clone()).await).await?;
    let v1::DrainRequest { namespace, owner, .. } = &request;
    if wait {
        await_empty(&at, namespace, owner, timeout).await?;
        return done(
            &at,
            &format!("{owner} is empty; `centrifuge undrain {namespace} {owner}` lets it in again"),
        );
    }
    let more = "`centrifuge owners` shows how far it is, `centrifuge undrain` ends it";
    done(&at, &format!("{owner} is being emptied; {more}"))
}

/// Waits until an Owner that is being drained has no range left. A leader that changes meanwhile is waited for too.
async fn await_empty(at: &At, namespace: &str, owner: &str, timeout: Duration) -> Result<(), Failure> {
    let give_up_at = Instant::now() + timeout;
    let request = v1::ListOwnersRequest { namespace: namespace.to_owned() };
    let mut told = None;
    loop {
        let reply =
            Admin::new(&at.managers).ask(async |mut admin| admin.list_owners(request.clone()).await).await;
        let problem = match reply {
            Ok(reply) => {
                let processes: Vec<_> =
                    reply.owners.into_iter().filter(|other| other.name == owner).collect();
                let left: u32 = processes.iter().map(|process| process.ranges).sum();
                if left == 0 {
                    return Ok(());
                }
                if !processes.iter().any(|process| process.draining) {
                    let words = format!("somebody has ended the drain of {owner}, which has {left} ranges");
                    return Err(Failure::failed(words));
                }
                if told.replace(left) != Some(left) && !at.format.is_json() {
                    eprintln!("{} left", count(left as usize, "range"));
                }
                format!("{owner} still has {}", count(left as usize, "range"))
            }
            Err(failure) if failure.is_no_manager() => failure.to_string(),
            Err(failure) => return Err(failure),
        };
        if Instant::now() + POLL_INTERVAL > give_up_at {
            let next = "it goes on; see that another Owner can take them, and `centrifuge history`, or end it with `centrifuge undrain`";
            return Err(Failure::not_yet(format!("{problem}; {next}")));
        }
        sleep(POLL_INTERVAL).await;
    }
}

pub(crate) async fn undrain(args: OwnerArgs) -> Result<(), Failure> {
    let OwnerArgs { namespace, owner, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::UndrainRequest { namespace, owner, why };
    Admin::new(&at.managers).ask(async |mut admin| admin.undrain(request.clone()).await).await?;
    done(&at, &format!("no operator drains {} any more; it gets its share of the keys again", request.owner))
}

pub(crate) async fn evict(args: OwnerArgs) -> Result<(), Failure> {
    let OwnerArgs { namespace, owner, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::EvictRequest { namespace, owner, why };
    Admin::new(&at.managers).ask(async |mut admin| admin.evict(request.clone()).await).await?;
    done(
        &at,
        &format!(
            "{} loses everything at once, and this process of it is refused from now on; a new one may join",
            request.owner
        ),
    )
}

pub(crate) async fn freeze(args: PoolArgs) -> Result<(), Failure> {
    let PoolArgs { namespace, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::FreezeRequest { namespace, why };
    Admin::new(&at.managers).ask(async |mut admin| admin.freeze(request.clone()).await).await?;
    done(&at, &format!("no range of {} moves until `centrifuge unfreeze`", request.namespace))
}

pub(crate) async fn unfreeze(args: PoolArgs) -> Result<(), Failure> {
    let PoolArgs { namespace, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::UnfreezeRequest { namespace, why };
    Admin::new(&at.managers).ask(async |mut admin| admin.unfreeze(request.clone()).await).await?;
    done(&at, &format!("ranges of {} move again", request.namespace))
}

pub(crate) async fn move_range(args: MoveArgs) -> Result<(), Failure> {
    let MoveArgs { namespace, range, key, to, why, at, .. } = args;
    let range = range.or(key.map(KeyRange::one)).map(v1::KeyRange::from);
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::MoveRequest { namespace, range, to, why };
    Admin::new(&at.managers).ask(async |mut admin| admin.r#move(request.clone()).await).await?;
    match &request.to {
        Some(to) => done(
            &at,
            &format!("the range belongs at {to} from now on; `centrifuge leases` shows when it is there"),
        ),
        None => done(&at, "the range goes where the partitioner says"),
    }
}
