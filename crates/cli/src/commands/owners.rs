//! `centrifuge owners`.

use centrifuge_core::id::LoadDimension;
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::{Value, json};

use crate::At;
use crate::admin::{Admin, namespace};
use crate::failure::Failure;
use crate::output::table_or;
use crate::words::{mode, session_in_full, show_mode, show_session, show_share};

#[derive(Args)]
pub(crate) struct OwnersArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    #[command(flatten)]
    at: At,
}

pub(crate) async fn run(args: OwnersArgs) -> Result<(), Failure> {
    let namespace = namespace(&args.at, args.namespace).await?;
    let request = v1::ListOwnersRequest { namespace };
    let reply = Admin::new(&args.at.managers()?)
        .ask(async |mut admin| admin.list_owners(request.clone()).await)
        .await?;
    let mode = mode(reply.mode);
    let owners = reply.owners.iter().map(object).collect::<Vec<_>>();
    let json = json!({ "mode": mode.as_str(), "owners": owners });
    let head = ["owner", "url", "state", "heard", "ranges", "share", "load", "weight", "nodes", "process"];
    let nothing = format!("{} has no Owners", request.namespace);
    args.at.format.output().print(&json, || {
        show_mode(&request.namespace, mode) + &table_or(&nothing, &head, reply.owners.iter().map(row))
    });
    Ok(())
}

fn state(owner: &v1::OwnerStatus) -> &'static str {
    match owner {
        owner if owner.evicted => "evicted",
        owner if owner.draining => "draining",
        owner if owner.heard_seconds_ago.is_none() => "not heard yet",
        _ => "live",
    }
}

/// What the load is counted in.
fn dimension(owner: &v1::OwnerStatus) -> &str {
    if owner.load_dimension.is_empty() { LoadDimension::REQUESTS } else { &owner.load_dimension }
}

fn row(owner: &v1::OwnerStatus) -> Vec<String> {
    vec![
        owner.name.clone(),
        owner.url.clone(),
        state(owner).to_owned(),
        owner.heard_seconds_ago.map_or_else(String::new, |seconds| format!("{seconds:.0}s ago")),
        owner.ranges.to_string(),
        show_share(owner.key_share),
        format!("{} {}", owner.load, dimension(owner)).trim_end_matches(" requests").to_owned(),
        format!("{}%", owner.weight),
        owner.virtual_nodes.to_string(),
        show_session(&owner.session),
    ]
}

fn object(owner: &v1::OwnerStatus) -> Value {
    json!({
        "name": owner.name,
        "session": session_in_full(&owner.session),
        "url": owner.url,
        "state": state(owner).replace(' ', "-"),
        "draining": owner.draining,
        "drain_ordered": owner.drain_ordered,
        "evicted": owner.evicted,
        "heard_seconds_ago": owner.heard_seconds_ago,
        "ranges": owner.ranges,
        "key_share": owner.key_share,
        "load": owner.load,
        "load_dimension": dimension(owner),
        "weight": owner.weight,
        "virtual_nodes": owner.virtual_nodes,
    })
}
