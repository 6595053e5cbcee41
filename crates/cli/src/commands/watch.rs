//! `centrifuge watch`.

use std::pin::pin;
use std::time::Duration;

use centrifuge::affinity::NoRoute;
use centrifuge::lookup::{ConnectError, Loss, LossReason, Losses, Positions};
use centrifuge::{AffinityLookup, Key, Lookup, NoOwner};
use centrifuge_core::key::KeyRange;
use centrifuge_core::namespace_kind::Mode;
use centrifuge_core::range_map::RangeMap;
use clap::Args;
use serde_json::json;

use crate::At;
use crate::admin::namespace;
use crate::failure::Failure;
use crate::logging::escape_json;
use crate::output::{Output, closed, line, shown};
use crate::words::show_mode;

/// How long a leader is looked for.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct WatchArgs {
    /// The namespace; optional if there is only one
    namespace: Option<String>,
    #[command(flatten)]
    at: At,
}

/// What the table says of a range: where it is owned, and under which lease. There is no number in affinity mode.
#[derive(Clone, PartialEq, Eq)]
struct Row {
    url: Option<String>,
    generation: Option<u64>,
    quarantined: bool,
}

/// A Lookup of the mode that the namespace has.
enum Follower {
    Exclusive(Lookup),
    Affinity(AffinityLookup),
}

impl Follower {
    /// Follows the namespace in whichever mode it is.
    async fn connect(at: &At, namespace: &str) -> Result<Follower, Failure> {
        let exclusive = Lookup::builder(at.managers()?, namespace).connect_timeout(PATIENCE).connect();
        match exclusive.await {
            Err(ConnectError::WrongMode { .. }) => {
                let affinity = AffinityLookup::builder(at.managers()?, namespace).connect_timeout(PATIENCE);
                Ok(Follower::Affinity(affinity.connect().await?))
            }
            connected => Ok(Follower::Exclusive(connected?)),
        }
    }

    fn mode(&self) -> Mode {
        match self {
            Follower::Exclusive(_) => Mode::Exclusive,
            Follower::Affinity(_) => Mode::Affinity,
        }
    }

    fn losses(&self) -> Losses {
        match self {
            Follower::Exclusive(lookup) => lookup.losses(),
            Follower::Affinity(lookup) => lookup.losses(),
        }
    }

    fn table_changes(&self) -> Positions {
        match self {
            Follower::Exclusive(lookup) => lookup.table_changes(),
            Follower::Affinity(lookup) => lookup.table_changes(),
        }
    }

    /// What the table says of a key; `None` before there is a table.
    fn row(&self, key: Key) -> Option<(KeyRange, Row)> {
        match self {
            Follower::Exclusive(lookup) => match lookup.lookup(key) {
                Ok(route) => {
                    let (url, generation) = (Some(route.url().to_owned()), Some(route.generation().0));
                    Some((route.range(), Row { url, generation, quarantined: false }))
                }
                Err(NoOwner::Unowned { range, generation }) => {
                    Some((range, Row { url: None, generation: Some(generation.0), quarantined: false }))
                }
                Err(NoOwner::Quarantined { range, generation }) => {
                    Some((range, Row { url: None, generation: Some(generation.0), quarantined: true }))
                }
                Err(NoOwner::NoTable) => None,
            },
            Follower::Affinity(lookup) => match lookup.lookup(key) {
                Ok(route) => {
                    let (url, quarantined) = (Some(route.url().to_owned()), false);
                    let row = Row { url, generation: None, quarantined };
                    Some((route.range(), row))
                }
                Err(NoRoute::Unowned { range }) => {
                    Some((range, Row { url: None, generation: None, quarantined: false }))
                }
                Err(NoRoute::Quarantined { range }) => {
                    Some((range, Row { url: None, generation: None, quarantined: true }))
                }
                Err(NoRoute::NoTable) => None,
            },
        }
    }
}

/// Follows the table as a caller would, until it is interrupted or nobody reads it any more: a line for every range that changed and every loss.
pub(crate) async fn run(args: WatchArgs) -> Result<(), Failure> {
    let namespace = namespace(&args.at, args.namespace).await?;
    let lookup = Follower::connect(&args.at, &namespace).await?;
    let mode = lookup.mode();
    if let (Output::Table, Mode::Affinity) = (args.at.format.output(), mode) {
        line(show_mode(&namespace, mode).trim_end());
    }
    let mut losses = lookup.losses();
    let mut positions = lookup.table_changes();
    let mut known = RangeMap::new();
    let mut closed = pin!(closed());
    loop {
        tokio::select! {
            biased;
            position = positions.next() => {
                let Some(position) = position else { return Ok(()) };
                let table = table(&lookup);
                for (range, row) in table.iter().filter(|(range, row)| !has(&known, *range, row)) {
                    tell_change((args.at.format.output(), mode), position.lsn.0, range, row);
                }
                known = table;
            }
            loss = losses.next() => match loss {
                Some(loss) => tell_loss((args.at.format.output(), mode), &loss),
                None => return Ok(()),
            },
            () = &mut closed => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// The whole table, range by range.
fn table(lookup: &Follower) -> RangeMap<Row> {
    let mut table = RangeMap::new();
    let mut next = lookup.row(Key::MIN);
    while let Some((range, row)) = next {
        table.insert(range, row);
        next = range.last().next().and_then(|key| lookup.row(key));
    }
    table
}

fn has(known: &RangeMap<Row>, range: KeyRange, row: &Row) -> bool {
    known.covers(range) && known.overlapping(range).all(|(_, old)| old == row)
}

fn tell_change((output, mode): (Output, Mode), lsn: u64, range: KeyRange, row: &Row) {
    line(&match output {
        Output::Json => escape_json(
            &json!({
                "event": "change",
                "lsn": lsn,
                "range": range.to_string(),
                "url": row.url,
                "generation": row.generation,
                "quarantined": row.quarantined,
                "mode": mode.as_str(),
            })
            .to_string(),
        ),
        Output::Table => match (&row.url, row.generation) {
            (Some(url), Some(generation)) => format!("{range} is at {} under lease {generation}", shown(url)),
            (Some(url), None) => format!("{range} is probably at {}", shown(url)),
            (None, _) if row.quarantined => format!("{range} is in quarantine"),
            (None, Some(generation)) => format!("{range} has no owner; the last lease was {generation}"),
            (None, None) => format!("{range} has no owner"),
        },
    });
}

fn tell_loss((output, mode): (Output, Mode), loss: &Loss) {
    let words = match loss.why {
        LossReason::StateBeganAnew => "a new owner began without it",
        LossReason::Unowned => "nobody has owned it for too long",
        LossReason::OutOfContact => "no Manager was heard for so long that nobody can know",
        LossReason::NamespaceReplaced => "another namespace has the name now",
        LossReason::Missed => "this reader was too slow to be told which keys",
    };
    let keys: Vec<String> = loss.keys.iter().map(|range| range.to_string()).collect();
    line(&match output {
        Output::Json => {
            let why = loss.why.as_str();
            json!({ "event": "loss", "keys": keys, "why": why, "mode": mode.as_str() }).to_string()
        }
        Output::Table => format!("the state of {} is lost: {words}", keys.join(", ")),
    });
}
