//! What tests read off a pool.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Operator, Process};

/// Owner and lease of every range.
pub(crate) type Leases = BTreeMap<String, (String, u64)>;

/// A namespace of short leases.
pub(crate) const SHORT: &str =
    "--lease 3s --hold 3300ms --renewal 700ms --answer-allowance 500ms --settle 500ms --virtual-nodes 16";

/// Every range with its owner and its lease.
pub(crate) fn leases(pool: &impl Operator) -> Leases {
    let table = pool.ask(&["leases", "dev"]);
    let rows = table["leases"].as_array().expect("a list").iter();
    rows.filter(|lease| !lease["owner"].is_null())
        .map(|lease| {
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let generation = lease["generation"].as_u64().expect("a number");
            (text(&lease["range"]), (text(&lease["owner"]["name"]), generation))
        })
        .collect()
}

/// Whether so many Owners have every key and nothing moves.
pub(crate) fn is_at_rest(pool: &impl Operator, owners: u64) -> bool {
    let space = pool.ask(&["namespace", "show", "dev"]);
    space["owners"] == owners && space["unowned_ranges"] == 0 && space["moving_ranges"] == 0
}

/// Whether the leader has heard from that many Owners in its own life.
pub(crate) fn has_heard(pool: &impl Operator, count: usize) -> bool {
    let owners = pool.ask(&["owners", "dev"]);
    owners["owners"].as_array().is_some_and(|owners| {
        owners.len() == count && owners.iter().all(|owner| !owner["heard_seconds_ago"].is_null())
    })
}

/// Whether every Owner has requests to serve.
pub(crate) fn are_served(pool: &impl Operator) -> bool {
    let owners = pool.ask(&["owners", "dev"]);
    owners["owners"].as_array().is_some_and(|owners| owners.iter().all(|owner| owner["load"] != 0))
}

/// How many losses a watch was told of.
pub(crate) fn losses(watch: &Process) -> usize {
    watch.lines().iter().filter(|line| line.contains("\"loss\"")).count()
}

/// What one server has.
pub(crate) fn of<'a>(
    leases: &'a Leases,
    server: &'a str,
) -> impl Iterator<Item = (&'a String, &'a (String, u64))> {
    leases.iter().filter(move |(_, (owner, _))| owner == server)
}
