//! `centrifuge lookup`.

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::namespace_kind::{Mode, NamespaceKind};
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::{Value, json};

use super::leases;
use crate::At;
use crate::admin::namespace;
use crate::failure::Failure;
use crate::keys::{KeyArg, kind_of};
use crate::output::shown;
use crate::words::show_range;

#[derive(Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct LookupArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    /// The key: text, or 0x and a point of the key space in hexadecimal. Ordered keys may have escapes, as 'user/\\xff'
    key: KeyArg,
    #[command(flatten)]
    at: At,
}

pub(crate) async fn run(args: LookupArgs) -> Result<(), Failure> {
    let namespace = namespace(&args.at, args.namespace).await?;
    let kind = kind_of(&args.at, &namespace).await?;
    let key = args.key.of_kind(&kind)?;
    let (leases, _) = leases::list(&args.at, &namespace, Some(KeyRange::one(key)), None).await?;
    let lease =
        leases.first().ok_or_else(|| Failure::failed("the Manager's table does not have this key"))?;
    let mut json = leases::object(lease);
    json["key"] = json!(format!("{:016x}", key.0));
    json["mode"] = json!(kind.mode.as_str());
    json["application_keys"] = interval_json(&kind, lease);
    args.at.format.output().print(&json, || describe(key, &kind, lease));
    match lease.owner {
        Some(_) => Ok(()),
        None if lease.quarantined => Err(Failure::not_found(
            "the key is in quarantine; `centrifuge quarantine list` shows why and until when",
        )),
        None => Err(Failure::not_found("the key has no owner now; `centrifuge history` says why")),
    }
}

fn describe(key: Key, kind: &NamespaceKind, lease: &v1::Lease) -> String {
    let range = show_range(lease.range);
    let names = interval(kind, lease).map_or_else(String::new, |(from, to)| match to {
        Some(to) => format!("\n  all keys from '{from}' up to '{to}'"),
        None => format!("\n  all keys from '{from}' on"),
    });
    let probably = if kind.mode == Mode::Affinity { "probably " } else { "" };
    match &lease.owner {
        Some(owner) => format!(
            "{probably}{} at {}\n  key {:016x} in {range}, {} lease {}, state since {}{names}",
            shown(&owner.name),
            shown(&owner.url),
            key.0,
            kind.mode.as_str(),
            lease.generation,
            lease.state_since
        ),
        None if lease.quarantined => format!("nobody: in quarantine\n  key {:016x} in {range}{names}", key.0),
        None => format!("nobody\n  key {:016x} in {range}{names}", key.0),
    }
}

/// The application keys of a lease, with escapes: from one on, and up to but without the other; `None` if they have no order.
fn interval(kind: &NamespaceKind, lease: &v1::Lease) -> Option<(String, Option<String>)> {
    let range = KeyRange::try_from(lease.range?).ok()?;
    let interval = kind.keys.prefix()?.interval_of(range);
    let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
    Some((show(&interval.from), interval.to.as_deref().map(show)))
}

fn interval_json(kind: &NamespaceKind, lease: &v1::Lease) -> Value {
    interval(kind, lease).map_or(Value::Null, |(from, to)| json!({ "from": from, "to": to }))
}
