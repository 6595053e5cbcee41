//! `centrifuge watch`.

use std::pin::pin;
use std::time::Duration;

use centrifuge::affinity::{AffinityRoute, NoRoute};
use centrifuge::hot::Route;
use centrifuge::keys::{KeyKind, KeyPrefix};
use centrifuge::lookup::{Loss, LossReason, Losses, Positions};
use centrifuge::{AffinityLookup, Key, Lookup, NoOwner};
use centrifuge_core::key::KeyRange;
use centrifuge_core::namespace_kind::{Mode, NamespaceKind};
use centrifuge_core::range_map::RangeMap;
use clap::Args;
use serde_json::json;

use crate::At;
use crate::admin::namespace;
use crate::failure::Failure;
use crate::keys::kind_of;
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

/// A Lookup of the kind that the namespace is of: the hashed and the ordered ones, exclusive and by affinity, are of four types.
struct Follower {
    losses: Losses,
    positions: Positions,
    /// What the table says of a key; `None` before there is a table.
    row: Box<dyn Fn(Key) -> Option<(KeyRange, Row)>>,
}

/// A Lookup that has a table, and how it is asked for the row of a key.
macro_rules! follower {
    ($builder:expr, |$lookup:ident, $key:ident| $row:expr) => {{
        let $lookup = $builder.connect_timeout(PATIENCE).connect().await?;
        let (losses, positions) = ($lookup.losses(), $lookup.table_changes());
        Follower { losses, positions, row: Box::new(move |$key| $row) }
    }};
}

impl Follower {
    async fn connect(at: &At, namespace: &str, kind: &NamespaceKind) -> Result<Follower, Failure> {
        let managers = at.managers()?;
        Ok(match (kind.mode, kind.keys.kind()) {
            (Mode::Exclusive, KeyKind::Hashed) => {
                follower!(Lookup::builder(managers, namespace), |lookup, key| exclusive(lookup.lookup(key)))
            }
            (Mode::Affinity, KeyKind::Hashed) => {
                follower!(AffinityLookup::builder(managers, namespace), |lookup, key| affinity(
                    lookup.lookup(key)
                ))
            }
            (Mode::Exclusive, KeyKind::Ordered) => {
                follower!(Lookup::ordered(managers, namespace), |lookup, key| {
                    exclusive(lookup.lookup(lookup.key_of(name_of(lookup.prefix()?, key)).ok()?))
                })
            }
            (Mode::Affinity, KeyKind::Ordered) => {
                follower!(AffinityLookup::ordered(managers, namespace), |lookup, key| {
                    affinity(lookup.lookup(lookup.key_of(name_of(lookup.prefix()?, key)).ok()?))
                })
            }
        })
    }

    /// The whole table, range by range.
    fn table(&self) -> RangeMap<Row> {
        let mut table = RangeMap::new();
        let mut next = (self.row)(Key::MIN);
        while let Some((range, row)) = next {
            table.insert(range, row);
            next = range.last().next().and_then(&self.row);
        }
        table
    }
}

/// The first application key that has this key.
fn name_of(prefix: KeyPrefix, key: Key) -> Vec<u8> {
    prefix.interval_of(KeyRange::one(key)).from
}

fn exclusive(found: Result<Route, NoOwner>) -> Option<(KeyRange, Row)> {
    let (range, url, generation, quarantined) = match found {
        Ok(route) => (route.range(), Some(route.url().to_owned()), route.generation(), false),
        Err(NoOwner::Unowned { range, generation }) => (range, None, generation, false),
        Err(NoOwner::Quarantined { range, generation }) => (range, None, generation, true),
        Err(NoOwner::NoTable | NoOwner::Replaced) => return None,
    };
    Some((range, Row { url, generation: Some(generation.0), quarantined }))
}

fn affinity(found: Result<AffinityRoute, NoRoute>) -> Option<(KeyRange, Row)> {
    let (range, url, quarantined) = match found {
        Ok(route) => (route.range(), Some(route.url().to_owned()), false),
        Err(NoRoute::Unowned { range }) => (range, None, false),
        Err(NoRoute::Quarantined { range }) => (range, None, true),
        Err(NoRoute::NoTable | NoRoute::Replaced) => return None,
    };
    Some((range, Row { url, generation: None, quarantined }))
}

/// Follows the table as a caller would, until it is interrupted or nobody reads it any more: a line for every range that changed and every loss.
pub(crate) async fn run(args: WatchArgs) -> Result<(), Failure> {
    let namespace = namespace(&args.at, args.namespace).await?;
    let kind = kind_of(&args.at, &namespace).await?;
    let mut lookup = Follower::connect(&args.at, &namespace, &kind).await?;
    let (output, mode) = (args.at.format.output(), kind.mode);
    if let (Output::Table, Mode::Affinity) = (output, mode) {
        line(show_mode(&namespace, mode).trim_end());
    }
    let mut known = RangeMap::new();
    let mut closed = pin!(closed());
    loop {
        tokio::select! {
            biased;
            position = lookup.positions.next() => {
                let Some(position) = position else { return Ok(()) };
                let table = lookup.table();
                for (range, row) in table.iter().filter(|(range, row)| !has(&known, *range, row)) {
                    tell_change((output, mode), position.lsn.0, range, row);
                }
                known = table;
            }
            loss = lookup.losses.next() => match loss {
                Some(loss) => tell_loss((output, mode), &loss),
                None => return Ok(()),
            },
            () = &mut closed => return Ok(()),
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
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
