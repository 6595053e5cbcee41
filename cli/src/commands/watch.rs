//! `centrifuge watch`.

use centrifuge::lookup::{Loss, LossWhy};
use centrifuge::{Key, Lookup, Managers, NoOwner};
use centrifuge_core::key::KeyRange;
use centrifuge_core::range_map::RangeMap;
use clap::Args;
use serde_json::json;

use crate::At;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Args)]
pub(crate) struct WatchArgs {
    /// The pool
    namespace: String,
    #[command(flatten)]
    at: At,
}

/// What the table says of a range: where it is owned, and under which lease.
#[derive(Clone, PartialEq, Eq)]
struct Row {
    url: Option<String>,
    generation: u64,
}

/// Follows the table as a caller would, until interrupted: a line for every range that changed and every loss.
pub(crate) async fn run(args: WatchArgs) -> Result<(), Failure> {
    let managers = Managers::list(&args.at.managers).map_err(|error| Failure::usage(error.to_string()))?;
    let lookup = Lookup::builder(managers, &args.namespace)
        .connect()
        .await
        .map_err(|error| Failure::no_manager(error.to_string()))?;
    let mut losses = lookup.losses();
    let mut positions = lookup.table_changes();
    let mut known = RangeMap::new();
    loop {
        tokio::select! {
            biased;
            position = positions.next() => {
                let Some(position) = position else { return Ok(()) };
                let table = table(&lookup);
                for (range, row) in table.iter().filter(|(range, row)| !has(&known, *range, row)) {
                    tell_change(args.at.output, position.lsn.0, range, row);
                }
                known = table;
            }
            loss = losses.next() => match loss {
                Some(loss) => tell_loss(args.at.output, &loss),
                None => return Ok(()),
            },
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
            Err(NoOwner::NoTable) => break,
        };
        table.insert(range, row);
        next = range.last().next();
    }
    table
}

fn has(known: &RangeMap<Row>, range: KeyRange, row: &Row) -> bool {
    known.covers(range) && known.overlapping(range).all(|(_, old)| old == row)
}

fn tell_change(output: Output, lsn: u64, range: KeyRange, row: &Row) {
    match output {
        Output::Json => println!(
            "{}",
            json!({ "event": "change", "lsn": lsn, "range": range.to_string(), "url": row.url, "generation": row.generation })
        ),
        Output::Table => match &row.url {
            Some(url) => println!("{range} is at {url} under lease {}", row.generation),
            None => println!("{range} has no owner; the last lease was {}", row.generation),
        },
    }
}

fn tell_loss(output: Output, loss: &Loss) {
    let why = match loss.why {
        LossWhy::StateBeganAnew => "state-began-anew",
        LossWhy::Unowned => "unowned",
        LossWhy::OutOfContact => "out-of-contact",
        LossWhy::Missed => "missed",
    };
    let keys: Vec<String> = loss.keys.iter().map(|range| range.to_string()).collect();
    match output {
        Output::Json => println!("{}", json!({ "event": "loss", "keys": keys, "why": why })),
        Output::Table => println!("state of {} is lost: {}", keys.join(", "), why.replace('-', " ")),
    }
}
