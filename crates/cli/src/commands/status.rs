//! `centrifuge status`.

use centrifuge::Managers;
use centrifuge_core::id::ManagerId;
use centrifuge_net::proto::v1;
use serde_json::json;

use crate::At;
use crate::admin::{Admin, probe, read};
use crate::failure::Failure;
use crate::output::table;
use crate::trim;
use crate::words::{show_ms, show_share};

/// Asks every Manager, since each knows about itself, and those that they know of; fails if none of them leads. Then asks the leader how
/// even the load is where Trim divides the keys.
pub(crate) async fn run(at: &At) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut objects = Vec::new();
    let mut problems = Vec::new();
    let mut leads = false;
    let managers = at.managers()?;
    let mut asked: Vec<ManagerId> = read(&managers)?.to_vec();
    let mut next = 0;
    while let Some(manager) = asked.get(next).cloned() {
        next += 1;
        match probe(&managers, &manager).await? {
            Ok(status) => {
                let others = status.managers.iter().map(|manager| ManagerId::from(manager.as_str()));
                // The name that it was asked by may be another than its own.
                let new = |other: &ManagerId| !asked.contains(other) && other.as_str() != status.manager;
                let new: Vec<ManagerId> = others.filter(new).collect();
                asked.extend(new);
                leads |= status.role() == v1::Role::Leader;
                rows.push(row(&status));
                objects.push(object(&status));
            }
            Err(why) => {
                let silence = "unreachable".to_owned();
                rows.push([vec![manager.to_string(), silence], vec![String::new(); 7]].concat());
                objects.push(json!({ "manager": manager.as_str(), "role": "unreachable", "problem": why }));
                problems.push(format!("{manager} {why}"));
            }
        }
    }
    let head = ["manager", "role", "term", "leader", "up", "store", "election", "namespaces", "version"];
    let trimmed = if leads { trimmed(&managers).await } else { Vec::new() };
    let balances: Vec<_> = trimmed.iter().map(balance_object).collect();
    let json = json!({ "managers": objects, "led": leads, "trim": balances });
    at.format.output().print(&json, || [table(&head, rows), balances_table(&trimmed)].concat());
    problems.iter().for_each(|problem| eprintln!("centrifuge: {problem}"));
    if leads {
        return Ok(());
    }
    let next = "start one with `centrifuge manager`, or name others with --managers";
    Err(Failure::no_manager(format!("none of these Managers leads; {next}")))
}

/// The namespaces whose load Trim balances. Whoever may not see any sees none.
async fn trimmed(managers: &Managers) -> Vec<(String, v1::TrimStatus)> {
    let request = v1::ListNamespacesRequest { namespace: None };
    let reply =
        Admin::new(managers).ask(async |mut admin| admin.list_namespaces(request.clone()).await).await;
    let namespaces = reply.map(|reply| reply.namespaces).unwrap_or_default();
    namespaces.into_iter().filter_map(|space| Some((space.name, space.trim?))).collect()
}

fn balances_table(trimmed: &[(String, v1::TrimStatus)]) -> String {
    if trimmed.is_empty() {
        return String::new();
    }
    let head =
        ["namespace", "peak", "floor", "of goal", "ranges/owner", "calm", "relief", "hot keys", "latest"];
    let row = |(name, trim): &(String, v1::TrimStatus)| {
        let left = |tokens: Option<v1::TrimTokens>| show_share(tokens.unwrap_or_default().load);
        vec![
            name.clone(),
            format!("{:.3}", trim.peak),
            format!("{:.3}", trim.floor),
            format!("{:.3}", trim.goal),
            format!("{:.1}", trim.mean_ranges),
            left(trim.calm),
            left(trim.relief),
            trim.hot_key_count.to_string(),
            trim::latest(trim),
        ]
    };
    format!("\n\n{}", table(&head, trimmed.iter().map(row)))
}

fn balance_object((name, trim): &(String, v1::TrimStatus)) -> serde_json::Value {
    let mut object = trim::object(trim);
    object["namespace"] = json!(name);
    object
}

fn row(status: &v1::StatusReply) -> Vec<String> {
    vec![
        status.manager.clone(),
        role(status).to_owned(),
        status.term.to_string(),
        status.leader.clone().unwrap_or_default(),
        show_ms(status.uptime_ms / 1_000 * 1_000),
        status.store.as_ref().map_or_else(String::new, store),
        status.election.clone(),
        status.namespaces.map_or_else(String::new, |count| show_namespaces(count, status)),
        status.version.clone(),
    ]
}

/// How many there are, and how many of them are in affinity mode.
fn show_namespaces(count: u32, status: &v1::StatusReply) -> String {
    match status.affinity_namespaces {
        None | Some(0) => count.to_string(),
        Some(affinity) => format!("{count} ({affinity} affinity)"),
    }
}

fn store(store: &v1::StoreStatus) -> String {
    if store.healthy { store.kind.clone() } else { format!("{}: {}", store.kind, store.problem) }
}

fn role(status: &v1::StatusReply) -> &'static str {
    match status.role() {
        v1::Role::Leader => "leader",
        v1::Role::Loading => "loading",
        v1::Role::Standby => "standby",
        v1::Role::Unspecified => "unknown",
    }
}

fn object(status: &v1::StatusReply) -> serde_json::Value {
    let store = status.store.as_ref();
    json!({
        "manager": status.manager,
        "role": role(status),
        "term": status.term,
        "leader": status.leader,
        "uptime_ms": status.uptime_ms,
        "store": store.map(|store| &store.kind),
        "election": status.election,
        "store_healthy": store.map(|store| store.healthy),
        "store_problem": store.map(|store| &store.problem).filter(|problem| !problem.is_empty()),
        "namespaces": status.namespaces,
        "affinity_namespaces": status.namespaces.map(|_| status.affinity_namespaces.unwrap_or(0)),
        "version": status.version,
        "managers": status.managers,
    })
}
