//! `centrifuge watch`.

use std::pin::pin;
use std::time::Duration;

use centrifuge::hot::Slice;
use centrifuge::keys::{KeyKind, KeyOrder};
use centrifuge::lookup::{Loss, LossReason};
use centrifuge::{Key, Lookup, NoOwner, Ordered};
use centrifuge_core::key::KeyRange;
use centrifuge_core::range_map::RangeMap;
use clap::Args;
use serde_json::json;

use crate::At;
use crate::admin::namespace;
use crate::failure::Failure;
use crate::keys::kind_of;
use crate::logging::escape_json;
use crate::output::{Output, closed, line, shown};

/// How long a leader is looked for.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct WatchArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    #[command(flatten)]
    at: At,
}

/// What the table says of a range: where it is owned, and under which lease.
#[derive(Clone, PartialEq, Eq)]
struct Row {
    url: Option<String>,
    generation: u64,
}

/// Follows the table as a caller would, until it is interrupted or nobody reads it any more: a line for every range that changed and every loss.
pub(crate) async fn run(args: WatchArgs) -> Result<(), Failure> {
    let namespace = namespace(&args.at, args.namespace).await?;
    let (managers, kind) = (args.at.managers()?, kind_of(&args.at, &namespace).await?);
    match kind.keys.kind() {
        KeyKind::Hashed => {
            let lookup = Lookup::builder(managers, &namespace).connect_timeout(PATIENCE).connect().await?;
            follow(&args.at, &lookup, table).await
        }
        KeyKind::Ordered => {
            let lookup = Lookup::ordered(managers, &namespace).connect_timeout(PATIENCE).connect().await?;
            follow(&args.at, &lookup, ordered_table).await
        }
    }
}

async fn follow<K: KeyOrder>(
    at: &At,
    lookup: &Lookup<K>,
    table: impl Fn(&Lookup<K>) -> RangeMap<Row>,
) -> Result<(), Failure> {
    let mut losses = lookup.losses();
    let mut positions = lookup.table_changes();
    let mut known = RangeMap::new();
    let mut closed = pin!(closed());
    loop {
        tokio::select! {
            biased;
            position = positions.next() => {
                let Some(position) = position else { return Ok(()) };
                let table = table(lookup);
                for (range, row) in table.iter().filter(|(range, row)| !has(&known, *range, row)) {
                    tell_change(at.format.output(), position.lsn.0, range, row);
                }
                known = table;
            }
            loss = losses.next() => match loss {
                Some(loss) => tell_loss(at.format.output(), &loss),
                None => return Ok(()),
            },
            () = &mut closed => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// The whole table, range by range.
fn table(lookup: &Lookup) -> RangeMap<Row> {
    let mut table = RangeMap::new();
    let mut next = Some(Key::MIN);
    while let Some(key) = next {
        let (range, row) = match lookup.lookup(key) {
            Ok(route) => {
                let row = Row { url: Some(route.url().to_owned()), generation: route.generation().0 };
                (route.range(), row)
            }
            Err(NoOwner::Unowned { range, generation }) => {
                (range, Row { url: None, generation: generation.0 })
            }
            Err(NoOwner::NoTable | NoOwner::Replaced) => break,
        };
        table.insert(range, row);
        next = range.last().next();
    }
    table
}

/// The same of ordered keys.
fn ordered_table(lookup: &Lookup<Ordered>) -> RangeMap<Row> {
    let slices = lookup.scan::<&str>(..).unwrap_or_default();
    let row = |slice: Slice| {
        let url = slice.owner.as_ref().map(|route| route.url().to_owned());
        (slice.range, Row { url, generation: slice.generation.0 })
    };
    slices.into_iter().map(row).collect()
}

fn has(known: &RangeMap<Row>, range: KeyRange, row: &Row) -> bool {
    known.covers(range) && known.overlapping(range).all(|(_, old)| old == row)
}

fn tell_change(output: Output, lsn: u64, range: KeyRange, row: &Row) {
    line(&match output {
        Output::Json => escape_json(
            &json!({
                "event": "change",
                "lsn": lsn,
                "range": range.to_string(),
                "url": row.url,
                "generation": row.generation,
            })
            .to_string(),
        ),
        Output::Table => match &row.url {
            Some(url) => format!("{range} is at {} under lease {}", shown(url), row.generation),
            None => format!("{range} has no owner; the last lease was {}", row.generation),
        },
    });
}

fn tell_loss(output: Output, loss: &Loss) {
    let words = match loss.why {
        LossReason::StateBeganAnew => "a new owner began without it",
        LossReason::Unowned => "nobody has owned it for too long",
        LossReason::OutOfContact => "no Manager was heard for so long that nobody can know",
        LossReason::NamespaceReplaced => "another namespace has the name now",
        LossReason::Missed => "this reader was too slow to be told which keys",
    };
    let keys: Vec<String> = loss.keys.iter().map(|range| range.to_string()).collect();
    line(&match output {
        Output::Json => json!({ "event": "loss", "keys": keys, "why": loss.why.as_str() }).to_string(),
        Output::Table => format!("the state of {} is lost: {words}", keys.join(", ")),
    });
}
