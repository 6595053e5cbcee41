//! `centrifuge quarantine`.

use centrifuge_core::key::KeyRange;
use centrifuge_net::proto::v1;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::At;
use crate::admin::{self, Admin};
use crate::failure::Failure;
use crate::keys::KeyArg;
use crate::output::table_or;
use crate::words::{self, session_in_full, show_ms, show_range, show_session};

#[derive(Subcommand)]
pub(crate) enum QuarantineCommand {
    /// List the ranges that are granted to nobody, and the Owners that died of them
    List(ListArgs),
    /// End quarantines: their ranges may have an owner again
    Release(ReleaseArgs),
}

#[derive(Args)]
pub(crate) struct ListArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
pub(crate) struct ReleaseArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    /// Every quarantine with one of these keys: FIRST-LAST in hexadecimal, or all
    #[arg(long, value_parser = words::range, required_unless_present = "key", conflicts_with = "key")]
    range: Option<KeyRange>,
    /// The quarantine with this key: text, or 0x and a point of the key space
    #[arg(long)]
    key: Option<KeyArg>,
    /// Reason, shown by `centrifuge history`
    #[arg(long, default_value = "", hide_default_value = true)]
    why: String,
    #[command(flatten)]
    at: At,
}

pub(crate) async fn run(command: QuarantineCommand) -> Result<(), Failure> {
    match command {
        QuarantineCommand::List(args) => list(args).await,
        QuarantineCommand::Release(args) => release(args).await,
    }
}

async fn list(args: ListArgs) -> Result<(), Failure> {
    let namespace = admin::namespace(&args.at, args.namespace).await?;
    let request = v1::ListQuarantinesRequest { namespace };
    let reply = Admin::new(&args.at.managers()?)
        .ask(async |mut admin| admin.list_quarantines(request.clone()).await)
        .await?;
    let json = json!({ "quarantines": reply.quarantines.iter().map(object).collect::<Vec<_>>() });
    let head =
        ["range", "keys", "ends in", "owner", "session", "lease", "died after", "before the quarantine"];
    let nothing = format!("nothing of {} is in quarantine", request.namespace);
    args.at
        .format
        .output()
        .print(&json, || table_or(&nothing, &head, reply.quarantines.iter().flat_map(rows)));
    Ok(())
}

async fn release(args: ReleaseArgs) -> Result<(), Failure> {
    let ReleaseArgs { namespace, range, key, why, at } = args;
    let namespace = admin::namespace(&at, namespace).await?;
    let range = match key {
        Some(key) => Some(KeyRange::one(key.in_namespace(&at, &namespace).await?)),
        None => range,
    };
    let range = range.map(v1::KeyRange::from);
    let request = v1::ReleaseQuarantineRequest { namespace, range, why };
    Admin::new(&at.managers()?)
        .ask(async |mut admin| admin.release_quarantine(request.clone()).await)
        .await?;
    at.format.output().print(&json!({ "done": true }), || {
        "the quarantine is over; an Owner gets the range, and may die of it if its keys still kill".to_owned()
    });
    Ok(())
}

/// A line for each death, the range before the first.
fn rows(quarantine: &v1::Quarantine) -> Vec<Vec<String>> {
    let ends_in = quarantine.ends_in_ms.map_or_else(|| "soon known".to_owned(), in_seconds);
    let keys = format!("{:.4}%", quarantine.key_share * 100.0);
    let mut about = [show_range(quarantine.range), keys, ends_in];
    let mut rows = Vec::new();
    for death in &quarantine.deaths {
        let mut row = std::mem::take(&mut about).to_vec();
        row.extend([
            death.owner.clone(),
            show_session(&death.session),
            death.generation.to_string(),
            show_ms(death.held_ms),
            in_seconds(death.ago_ms),
        ]);
        rows.push(row);
    }
    if rows.is_empty() {
        rows.push(about.to_vec());
    }
    rows
}

fn in_seconds(ms: u64) -> String {
    show_ms(ms / 1_000 * 1_000)
}

fn object(quarantine: &v1::Quarantine) -> Value {
    json!({
        "range": show_range(quarantine.range),
        "key_share": quarantine.key_share,
        "known_for_ms": quarantine.known_for_ms,
        "ends_in_ms": quarantine.ends_in_ms,
        "deaths": deaths(&quarantine.deaths),
    })
}

/// Deaths as scripts see them.
pub(crate) fn deaths(deaths: &[v1::Death]) -> Vec<Value> {
    let death = |death: &v1::Death| {
        json!({
            "owner": death.owner,
            "session": session_in_full(&death.session),
            "generation": death.generation,
            "held_ms": death.held_ms,
            "ago_ms": death.ago_ms,
        })
    };
    deaths.iter().map(death).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn death(owner: &str, generation: u64, held_ms: u64) -> v1::Death {
        v1::Death { owner: owner.into(), session: vec![7; 16].into(), generation, held_ms, ago_ms: 61_500 }
    }

    fn quarantine(deaths: Vec<v1::Death>) -> v1::Quarantine {
        v1::Quarantine {
            range: Some(v1::KeyRange { first: 0x10 << 56, last: (0x11 << 56) - 1 }),
            key_share: 0.0025,
            known_for_ms: Some(5_000),
            ends_in_ms: Some(3_595_000),
            deaths,
        }
    }

    #[test]
    fn operators_see_who_died_of_a_range_and_how_soon() {
        let known = quarantine(vec![death("a", 9, 100), death("b", 12, 2_000)]);
        let rows = rows(&known);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0][1], "0.2500%");
        assert_eq!([&rows[0][3], &rows[0][5], &rows[1][3], &rows[1][5]], ["a", "9", "b", "12"]);
        assert!(rows[0][6].contains("100") && rows[1][0].is_empty(), "{rows:?}");
        let json = object(&known);
        assert_eq!(json["deaths"][1]["owner"], "b");
        assert_eq!(json["deaths"][1]["held_ms"], 2_000);
    }

    #[test]
    fn a_range_is_listed_though_no_evidence_is_left() {
        assert_eq!(rows(&quarantine(Vec::new())).len(), 1);
    }
}
