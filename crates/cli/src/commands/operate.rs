//! What operators do to a pool: `drain`, `undrain`, `freeze`, `unfreeze`, `move`, `evict`.

use std::time::Duration;

use centrifuge_core::key::KeyRange;
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::At;
use crate::admin::{self, Admin};
use crate::failure::Failure;
use crate::keys::KeyArg;
use crate::words::{self, count};

/// How often it is looked how far a drain is.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Args)]
pub(crate) struct PoolArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    /// Reason, shown by `centrifuge history`
    #[arg(long, default_value = "", hide_default_value = true)]
    why: String,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct OwnerArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    /// The Owner's name
    owner: String,
    /// Reason, shown by `centrifuge history`
    #[arg(long, default_value = "", hide_default_value = true)]
    why: String,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    owner: OwnerArgs,
    /// Wait until it has no range left, and print how many remain
    #[arg(long)]
    wait: bool,
    /// How long to wait before giving up with exit code 5; the drain continues
    #[arg(long, requires = "wait", value_parser = words::duration, value_name = "DURATION", default_value = "10m")]
    timeout: Duration,
}

#[derive(Args)]
pub(crate) struct MoveArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    /// The keys: FIRST-LAST in hexadecimal, or all
    #[arg(long, value_parser = words::range, required_unless_present = "key", conflicts_with = "key")]
    range: Option<KeyRange>,
    /// One key: text, or 0x and a point of the key space
    #[arg(long)]
    key: Option<KeyArg>,
    /// The Owner to move them to
    #[arg(long, required_unless_present = "anywhere", conflicts_with = "anywhere")]
    to: Option<String>,
    /// Cancel earlier moves of these keys: the partitioner decides again
    #[arg(long)]
    anywhere: bool,
    /// Reason, shown by `centrifuge history`
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
    Admin::new(&at.managers()?).ask(async |mut admin| admin.drain(request.clone()).await).await?;
    let v1::DrainRequest { namespace, owner, .. } = &request;
    if wait {
        await_empty(&at, namespace, owner, timeout).await?;
        return done(
            &at,
            &format!("{owner} is empty; after `centrifuge undrain {namespace} {owner}` it gets keys again"),
        );
    }
    let more = "`centrifuge owners` shows its progress, `centrifuge undrain` ends the drain";
    done(&at, &format!("{owner} is draining; {more}"))
}

/// Waits until an Owner that is being drained has no range left, across changes of leader.
async fn await_empty(at: &At, namespace: &str, owner: &str, timeout: Duration) -> Result<(), Failure> {
    let give_up_at = Instant::now() + timeout;
    let request = v1::ListOwnersRequest { namespace: namespace.to_owned() };
    let mut told = None;
    loop {
        let reply =
            Admin::new(&at.managers()?).ask(async |mut admin| admin.list_owners(request.clone()).await).await;
        let problem = match reply {
            Ok(reply) => {
                let processes: Vec<_> =
                    reply.owners.into_iter().filter(|other| other.name == owner).collect();
                let left: u32 = processes.iter().map(|process| process.ranges).sum();
                if left == 0 {
                    return Ok(());
                }
                if !processes.iter().any(|process| process.draining) {
                    let words =
                        format!("an operator ended the drain of {owner}, which still has {left} ranges");
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
            let next = "the drain continues: check `centrifuge history` and that another Owner can take the ranges, or end it with `centrifuge undrain`";
            return Err(Failure::not_yet(format!("{problem}; {next}")));
        }
        sleep(POLL_INTERVAL).await;
    }
}

pub(crate) async fn undrain(args: OwnerArgs) -> Result<(), Failure> {
    let OwnerArgs { namespace, owner, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::UndrainRequest { namespace, owner, why };
    Admin::new(&at.managers()?).ask(async |mut admin| admin.undrain(request.clone()).await).await?;
    done(&at, &format!("the drain of {} has ended; it gets its share of the keys again", request.owner))
}

pub(crate) async fn evict(args: OwnerArgs) -> Result<(), Failure> {
    let OwnerArgs { namespace, owner, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::EvictRequest { namespace, owner, why };
    Admin::new(&at.managers()?).ask(async |mut admin| admin.evict(request.clone()).await).await?;
    done(
        &at,
        &format!(
            "{} is evicted: its leases are revoked and its process is locked out; a new process of that name may join",
            request.owner
        ),
    )
}

pub(crate) async fn freeze(args: PoolArgs) -> Result<(), Failure> {
    let PoolArgs { namespace, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::FreezeRequest { namespace, why };
    Admin::new(&at.managers()?).ask(async |mut admin| admin.freeze(request.clone()).await).await?;
    done(&at, &format!("no range of {} moves until `centrifuge unfreeze`", request.namespace))
}

pub(crate) async fn unfreeze(args: PoolArgs) -> Result<(), Failure> {
    let PoolArgs { namespace, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::UnfreezeRequest { namespace, why };
    Admin::new(&at.managers()?).ask(async |mut admin| admin.unfreeze(request.clone()).await).await?;
    done(&at, &format!("ranges of {} move again", request.namespace))
}

pub(crate) async fn move_range(args: MoveArgs) -> Result<(), Failure> {
    let MoveArgs { namespace, range, key, to, why, at, .. } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let key = match key {
        Some(key) => Some(KeyRange::one(key.in_namespace(&at, &namespace).await?)),
        None => None,
    };
    let range = range.or(key).map(v1::KeyRange::from);
    let request = v1::MoveRequest { namespace, range, to, why };
    Admin::new(&at.managers()?).ask(async |mut admin| admin.r#move(request.clone()).await).await?;
    match &request.to {
        Some(to) => {
            done(&at, &format!("the range will move to {to}; `centrifuge leases` shows when it has arrived"))
        }
        None => done(&at, "earlier moves of the range are cancelled; the partitioner decides again"),
    }
}
