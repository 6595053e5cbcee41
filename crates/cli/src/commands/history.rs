//! `centrifuge history`.

use centrifuge_core::namespace_kind::Mode;
use centrifuge_net::proto::v1;
use clap::Args;
use serde_json::{Value, json};

use super::quarantine::deaths;
use crate::At;
use crate::admin::Admin;
use crate::failure::Failure;
use crate::keys::KeyArg;
use crate::output::table_or;
use crate::words::{mode, session_in_full, show_range};

#[derive(Args)]
pub(crate) struct HistoryArgs {
    /// Only this namespace
    namespace: Option<String>,
    /// Only decisions about ranges with this key: text, or 0x and a point of the key space
    #[arg(long)]
    key: Option<KeyArg>,
    /// How many of the latest decisions to show
    #[arg(long, default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    at: At,
}

pub(crate) async fn run(args: HistoryArgs) -> Result<(), Failure> {
    let key = match (&args.key, &args.namespace) {
        (None, _) => None,
        (Some(key), Some(namespace)) => Some(key.in_namespace(&args.at, namespace).await?.0),
        (Some(key), None) => Some(key.anywhere(&args.at).await?.0),
    };
    let request = v1::HistoryRequest { namespace: args.namespace.clone(), key, limit: args.limit };
    let reply =
        Admin::new(&args.at.managers()?).ask(async |mut admin| admin.history(request.clone()).await).await?;
    let json = json!({ "decisions": reply.decisions.iter().map(object).collect::<Vec<_>>() });
    let head = ["when", "index", "namespace", "what", "range", "lease", "owner", "why"];
    let nothing = "nothing that was asked for was decided lately";
    args.at.format.output().print(&json, || table_or(nothing, &head, reply.decisions.iter().map(row)));
    Ok(())
}

fn row(decision: &v1::Decision) -> Vec<String> {
    let why = match &decision.operator_words {
        Some(words) if !words.is_empty() => format!("{}: {words}", decision.reason),
        _ if !decision.deaths.is_empty() => {
            let died: Vec<&str> = decision.deaths.iter().map(|death| death.owner.as_str()).collect();
            format!("{}: {}", decision.reason, died.join(", "))
        }
        _ => decision.reason.clone(),
    };
    vec![
        time(decision.wall_time_ms),
        decision.index.to_string(),
        show_namespace(decision),
        decision.kind.clone(),
        show_range(decision.range),
        decision.generation.map_or_else(String::new, |generation| generation.to_string()),
        decision.owner.clone().unwrap_or_default(),
        why,
    ]
}

/// The name of the namespace, marked if it is in affinity mode.
fn show_namespace(decision: &v1::Decision) -> String {
    let name = decision.namespace.clone().unwrap_or_default();
    if mode(decision.mode) == Mode::Affinity { format!("{name} (affinity)") } else { name }
}

/// The date and the time of day, in UTC: what a log line beside it would show.
fn time(wall_time_ms: u64) -> String {
    let seconds = wall_time_ms / 1_000;
    let (year, month, day) = date(seconds / 86_400);
    let (hours, minutes) = (seconds / 3_600 % 24, seconds / 60 % 60);
    let (seconds, millis) = (seconds % 60, wall_time_ms % 1_000);
    format!("{year}-{month:02}-{day:02} {hours:02}:{minutes:02}:{seconds:02}.{millis:03}")
}

/// The year, month and day that are so many days after the first of January 1970.
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Four hundred years are always as long, so that no loop is.
    let (mut year, mut rest) = (1970 + days / 146_097 * 400, days % 146_097);
    while rest >= 365 + u64::from(is_leap(year)) {
        rest -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    (year, month, rest + 1)
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
        "mode": decision.mode.map(|said| mode(Some(said)).as_str()),
        "deaths": deaths(&decision.deaths),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_too() {
        assert_eq!(time(0), "1970-01-01 00:00:00.000");
        assert_eq!(time(951_782_400_000), "2000-02-29 00:00:00.000");
        assert_eq!(time(1_794_799_725_590), "2026-11-16 03:28:45.590");
        assert_eq!(time(4_107_542_399_999), "2100-02-28 23:59:59.999");
        assert_eq!(time(4_107_542_400_000), "2100-03-01 00:00:00.000");
    }
}
