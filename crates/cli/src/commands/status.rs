//! `centrifuge status`.

use centrifuge_core::id::ManagerId;
use centrifuge_net::proto::v1;
use serde_json::json;

use crate::At;
use crate::admin::{probe, read};
use crate::failure::Failure;
use crate::output::table;
use crate::words::show_ms;

/// Asks every Manager, since each knows about itself, and those that they know of; fails if none of them leads.
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
    at.format.output().print(&json!({ "managers": objects, "led": leads }), || table(&head, rows));
    problems.iter().for_each(|problem| eprintln!("centrifuge: {problem}"));
    if leads {
        return Ok(());
    }
    let next = "start one with `centrifuge manager`, or name others with --managers";
    Err(Failure::no_manager(format!("none of these Managers leads; {next}")))
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
