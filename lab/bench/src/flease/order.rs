//! What the measuring process and its peers say to each other: a line of JSON each, one answer to an order.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The times of a group of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Times {
    pub(super) lease: Duration,
    pub(super) epsilon: Duration,
    pub(super) round: Duration,
}

impl Times {
    /// In the proportions of the default times, in which a lease has ten seconds.
    pub(super) fn of(lease: Duration) -> Times {
        Times { lease, epsilon: lease / 20, round: lease / 5 }
    }

    /// When a cell comes free, each peer that waits for it tries after a random time of at most this, by default.
    pub(super) fn window(&self) -> Duration {
        (self.epsilon * 2).min(self.lease / 8)
    }

    /// How long a peer takes no part after its start.
    pub(super) fn recovery(&self) -> Duration {
        self.lease + self.epsilon * 3 + self.round
    }
}

/// What a peer should do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Start.
    Start { peers: String, me: u16, key: String, times: Times },
    /// Say when it takes part.
    Ready,
    /// Acquire so many cells from this one on, some at a time, and keep them.
    Acquire { first: usize, count: usize, in_flight: usize },
    /// Give back all that is held.
    Release,
    /// Acquire the first cell and give it back, so many times.
    Cycle { times: usize },
    /// Want some cells again and again, for some time, with a random pause after each that was had.
    Contend { cells: usize, time: Duration, pause: Duration },
    /// Say what has been counted.
    Count,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It was done.
    Done,
    /// How long each acquisition took, and when the first began and the last ended; all in nanoseconds, of boot time.
    Acquired { nanos: Vec<u64>, from: u64, until: u64 },
    /// How long each acquisition and each release took, in nanoseconds.
    Cycled { acquire: Vec<u64>, release: Vec<u64> },
    /// How often it had one of the cells.
    Contended { had: u64 },
    /// What has been counted since the start.
    Counted(Counts),
    /// It cannot be done.
    Failed { why: String },
}

/// What a peer has counted since its start; of several peers, what all have.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    /// Requests and replies in the datagrams.
    pub(super) messages: u64,
    pub(super) renewed: u64,
    pub(super) lost: u64,
    /// Rounds that renewed a lease since this was last asked: so many nanoseconds, so many times.
    pub(super) renewals: Vec<(u64, u64)>,
}

impl Counts {
    pub(super) fn add(&mut self, other: Counts) {
        self.datagrams += other.datagrams;
        self.bytes += other.bytes;
        self.messages += other.messages;
        self.renewed += other.renewed;
        self.lost += other.lost;
        self.renewals.extend(other.renewals);
    }
}
