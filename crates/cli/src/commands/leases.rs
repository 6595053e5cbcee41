//! `centrifuge leases`.

use centrifuge_core::key::KeyRange;
use centrifuge_core::namespace_kind::Mode;
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::{Value, json};

use crate::At;
use crate::admin::{Admin, namespace};
use crate::failure::Failure;
use crate::output::table_or;
use crate::words::{self, mode, session_in_full, show_mode, show_range};

#[derive(Args)]
pub(crate) struct LeasesArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    /// Only leases of this Owner
    #[arg(long)]
    owner: Option<String>,
    /// Only ranges that overlap this one: FIRST-LAST in hexadecimal
    #[arg(long, value_parser = words::range)]
    range: Option<KeyRange>,
    #[command(flatten)]
    at: At,
}

pub(crate) async fn run(args: LeasesArgs) -> Result<(), Failure> {
    let namespace = namespace(&args.at, args.namespace).await?;
    let (leases, mode) = list(&args.at, &namespace, args.range, args.owner).await?;
    let json = json!({ "mode": mode.as_str(), "leases": leases.iter().map(object).collect::<Vec<_>>() });
    let head = ["range", "owner", "url", "lease", "state since", "moving to"];
    args.at.format.output().print(&json, || {
        show_mode(&namespace, mode) + &table_or("no lease is as asked for", &head, leases.iter().map(row))
    });
    Ok(())
}

/// The requested part of a table, and the mode of its namespace.
pub(crate) async fn list(
    at: &At,
    namespace: &str,
    range: Option<KeyRange>,
    owner: Option<String>,
) -> Result<(Vec<v1::Lease>, Mode), Failure> {
    let range = range.map(v1::KeyRange::from);
    let request = v1::ListLeasesRequest { namespace: namespace.to_owned(), range, owner };
    let reply =
        Admin::new(&at.managers()?).ask(async |mut admin| admin.list_leases(request.clone()).await).await?;
    Ok((reply.leases, mode(reply.mode)))
}

fn row(lease: &v1::Lease) -> Vec<String> {
    let moving = lease.recall.as_ref().map_or_else(String::new, |recall| {
        recall.to.as_ref().map_or_else(|| "nobody yet".to_owned(), |to| to.name.clone())
    });
    vec![
        show_range(lease.range),
        lease.owner.as_ref().map_or_else(|| nobody(lease).to_owned(), |owner| owner.name.clone()),
        lease.owner.as_ref().map_or_else(String::new, |owner| owner.url.clone()),
        lease.generation.to_string(),
        lease.state_since.to_string(),
        moving,
    ]
}

fn nobody(lease: &v1::Lease) -> &'static str {
    if lease.quarantined { "nobody: in quarantine" } else { "nobody" }
}

/// A lease as scripts see it.
pub(crate) fn object(lease: &v1::Lease) -> Value {
    let end = |owner: &v1::LeaseOwner| json!({ "name": owner.name, "url": owner.url, "session": session_in_full(&owner.session) });
    json!({
        "range": show_range(lease.range),
        "owner": lease.owner.as_ref().map(end),
        "generation": lease.generation,
        "state_since": lease.state_since,
        "recalled": lease.recall.is_some(),
        "quarantined": lease.quarantined,
        "moving_to": lease.recall.as_ref().and_then(|recall| recall.to.as_ref()).map(end),
    })
}
