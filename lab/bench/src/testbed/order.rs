//! What the measuring process and its processes of clients say to each other: a line of JSON each, one answer to an
//! order.

use serde::{Deserialize, Serialize};

/// Which clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Those that hold leases.
    Owners,
    /// Those that follow the table.
    Lookups,
}

/// What a process of clients should do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Start all of a kind.
    Start { kind: Kind },
    /// Restart all of a kind, spread evenly over this time.
    Restart { kind: Kind, within_ms: u64 },
    /// For some time, restart each client after a random lifetime.
    RestartAtRandom { mean_lifetime_ms: u64, for_ms: u64 },
    /// Say how far the clients are; a Lookup is up to date at this position of the change log.
    Count { lsn: u64 },
    /// Note from now on when each Lookup routes the key to this address.
    Expect { key: u64, url: String },
    /// Wait until each has, and say when.
    Collect,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// It was done.
    Done,
    /// How many Owners hold leases, and how many Lookups are up to date.
    Counted { owners: usize, lookups: usize },
    /// When each Lookup routed the key to the expected address: nanoseconds of the boot-time clock.
    Seen { at: Vec<u64> },
    /// It cannot be done.
    Failed { why: String },
}
