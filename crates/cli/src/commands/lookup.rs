//! `centrifuge lookup`.

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::namespace_kind::Mode;
use clap::Args;
use serde_json::json;

use super::leases;
use crate::At;
use crate::admin::namespace;
use crate::failure::Failure;
use crate::output::shown;
use crate::words::{self, show_range};

#[derive(Args)]
#[command(allow_missing_positional = true)]
pub(crate) struct LookupArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    /// The key: text, or 0x and a point of the key space in hexadecimal
    #[arg(value_parser = words::key)]
    key: Key,
    #[command(flatten)]
    at: At,
}

pub(crate) async fn run(args: LookupArgs) -> Result<(), Failure> {
    let namespace = namespace(&args.at, args.namespace).await?;
    let (leases, mode) = leases::list(&args.at, &namespace, Some(KeyRange::one(args.key)), None).await?;
    let lease =
        leases.first().ok_or_else(|| Failure::failed("the Manager's table does not have this key"))?;
    let mut json = leases::object(lease);
    json["key"] = json!(format!("{:016x}", args.key.0));
    json["mode"] = json!(mode.as_str());
    let probably = if mode == Mode::Affinity { "probably " } else { "" };
    args.at.format.output().print(&json, || match &lease.owner {
        Some(owner) => format!(
            "{probably}{} at {}\n  key {:016x} in {}, {} lease {}, state since {}",
            shown(&owner.name),
            shown(&owner.url),
            args.key.0,
            show_range(lease.range),
            mode.as_str(),
            lease.generation,
            lease.state_since
        ),
        None if lease.quarantined => {
            format!("nobody: in quarantine\n  key {:016x} in {}", args.key.0, show_range(lease.range))
        }
        None => format!("nobody\n  key {:016x} in {}", args.key.0, show_range(lease.range)),
    });
    match lease.owner {
        Some(_) => Ok(()),
        None if lease.quarantined => Err(Failure::not_found(
            "the key is in quarantine; `centrifuge quarantine list` shows why and until when",
        )),
        None => Err(Failure::not_found("the key has no owner now; `centrifuge history` says why")),
    }
}
