//! What the measuring process and its clients say to each other, and which hostile clients there are.

use std::time::Duration;

use centrifuge_harness::Process;
use centrifuge_net::limits;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::process::hear;

/// What the hostile client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// An Owner reports its one lease in pieces
    HeldPieces,
    /// An Owner gives its leases back in pieces
    ReleasedPieces,
    /// An Owner gives back leases that it does not have
    ReleasedOfOthers,
    /// An Owner refuses its leases in pieces
    RefusedPieces,
    /// An Owner says that it has copies of state that nobody moved
    Imports,
    /// An Owner renews many leases
    Renewals,
    /// Owners join under new names
    Joins,
    /// A Lookup asks for snapshots of a large table
    Lookups,
}

/// When the hostile client's next message goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Pacing {
    /// When the one before is answered
    InTurn,
    /// As soon as the stream takes it
    Flood,
}

impl Kind {
    pub(super) const ALL: [Kind; 8] = [
        Kind::HeldPieces,
        Kind::ReleasedPieces,
        Kind::ReleasedOfOthers,
        Kind::RefusedPieces,
        Kind::Imports,
        Kind::Renewals,
        Kind::Joins,
        Kind::Lookups,
    ];

    /// How many pieces, leases or ranges it has: as many as are legal, or fewer if so many are wanted. For joins, how
    /// many Owners.
    pub(super) fn pieces(self, wanted: Option<usize>) -> usize {
        let most = match self {
            Kind::HeldPieces | Kind::Renewals | Kind::Lookups => limits::MOST_ITEMS,
            Kind::ReleasedPieces | Kind::ReleasedOfOthers | Kind::RefusedPieces | Kind::Imports => {
                limits::MOST_CHANGES
            }
            Kind::Joins => 500,
        };
        wanted.unwrap_or(most).min(most)
    }
}

impl Pacing {
    pub(super) const ALL: [Pacing; 2] = [Pacing::InTurn, Pacing::Flood];
}

/// A value as it is written on the command line.
pub(super) fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// What a client should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// The honest Owner: renew for so long, and say how long each renewal waited.
    Measure { seconds: u64 },
    /// The hostile client: begin.
    Begin,
    /// The hostile client: say what you sent.
    End,
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It is prepared; its messages have so many pieces.
    Ready { size: usize },
    /// How long each renewal waited, in microseconds.
    Waited { micros: Vec<u64> },
    /// How many messages it has sent, and how many answers it got.
    Sent { messages: u64, replies: u64 },
}

/// Waits for what a client says.
pub(super) async fn wait_for(client: &mut Process, timeout: Duration) -> Result<Answer, Failure> {
    let late = |_| {
        Err(format!("a client said nothing for {timeout:?}: the Manager may not answer it any more").into())
    };
    tokio::time::timeout(timeout, hear(client)).await.unwrap_or_else(late)
}
