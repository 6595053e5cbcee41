//! `centrifuge history`.

use centrifuge_core::key::Key;
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::{Value, json};

use crate::At;
use crate::admin::Admin;
use crate::failure::Failure;
use crate::output::table;
use crate::words::{self, session_in_full, show_range};

#[derive(Args)]
pub(crate) struct HistoryArgs {
    /// Only this pool
    namespace: Option<String>,
    /// Only decisions about ranges with this key: text, or 0x and a point of the key space
    #[arg(long, value_parser = words::key)]
    key: Option<Key>,
    /// The most decisions to show, the latest ones
    #[arg(long, default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    at: At,
}

pub(crate) async fn run(args: HistoryArgs) -> Result<(), Failure> {
    let request = v1::HistoryRequest {
        namespace: args.namespace.clone(),
        key: args.key.map(|key| key.0),
        limit: args.limit,
    };
    let reply =
        Admin::new(&args.at.managers).ask(async |mut admin| admin.history(request.clone()).await).await?;
    let json = json!({ "decisions": reply.decisions.iter().map(object).collect::<Vec<_>>() });
    let head = ["when", "index", "namespace", "what", "range", "lease", "owner", "why"];
    args.at.output.print(&json, || table(&head, reply.decisions.iter().map(row)));
    Ok(())
}

fn row(decision: &v1::Decision) -> Vec<String> {
    let why = match &decision.operator_words {
        Some(words) if !words.is_empty() => format!("{}: {words}", decision.reason),
        _ => decision.reason.clone(),
    };
    vec![
        time(decision.wall_time_ms),
        decision.index.to_string(),
        decision.namespace.clone().unwrap_or_default(),
        decision.kind.clone(),
        show_range(decision.range),
        decision.generation.map_or_else(String::new, |generation| generation.to_string()),
        decision.owner.clone().unwrap_or_default(),
        why,
    ]
}

/// The time of day, in UTC: what a log line beside it would show.
fn time(wall_time_ms: u64) -> String {
    let seconds = wall_time_ms / 1_000;
    let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, wall_time_ms % 1_000)
}

fn object(decision: &v1::Decision) -> Value {
    json!({
        "wall_time_ms": decision.wall_time_ms,
        "index": decision.index,
        "term": decision.term,
        "namespace": decision.namespace,
        "kind": decision.kind,
        "reason": decision.reason,
        "operator_words": decision.operator_words,
        "range": decision.range.map(|range| show_range(Some(range))),
        "generation": decision.generation,
        "session": decision.session.as_ref().map(|session| session_in_full(session)),
        "owner": decision.owner,
        "source": decision.source,
    })
}
