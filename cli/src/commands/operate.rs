//! What operators do to a pool: `drain`, `undrain`, `freeze`, `unfreeze`, `move`, `evict`.

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::json;

use crate::At;
use crate::admin::{self, Admin};
use crate::failure::Failure;
use crate::words;

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
    at.output.print(&json!({ "done": true }), || words.to_owned());
    Ok(())
}

pub(crate) async fn drain(args: OwnerArgs) -> Result<(), Failure> {
    let OwnerArgs { namespace, owner, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let request = v1::DrainRequest { namespace, owner, why };
    Admin::new(&at.managers).ask(async |mut admin| admin.drain(request.clone()).await).await?;
    done(&at, &format!("{} is being emptied; `centrifuge owners` shows how far it is", request.owner))
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
