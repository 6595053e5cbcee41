//! One peer's part of a cell's register: what it promised, and what was last written (Flease Alg. 1).

use std::time::Duration;

use super::message::{Ballot, Lease};
use crate::time::Instant;

/// One peer's part of the register. Two requests of one round are as good as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Register {
    promised: Ballot,
    written: Ballot,
    lease: Option<Lease>,
}

impl Register {
    /// Promises to take part in no lower round, and tells what was last written; or tells what was promised already.
    pub fn read(&mut self, ballot: Ballot) -> Result<(Ballot, Option<Lease>), Ballot> {
        if self.promised.is_above(ballot) {
            return Err(self.promised);
        }
        self.promised = ballot;
        Ok((self.written, self.lease))
    }

    /// Writes, unless a higher round was there first. A write is a promise too.
    pub fn write(&mut self, ballot: Ballot, lease: Option<Lease>) -> Result<(), Ballot> {
        if self.promised.is_above(ballot) {
            return Err(self.promised);
        }
        (self.promised, self.written, self.lease) = (ballot, ballot, lease);
        Ok(())
    }

    /// The highest round that it takes part in.
    #[must_use]
    pub fn promised(&self) -> Ballot {
        self.promised
    }

    /// The ballot that wrote last.
    #[must_use]
    pub fn written(&self) -> Ballot {
        self.written
    }

    /// What was last written; it need not have committed.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        self.lease
    }

    /// Whether an empty register would do the same from now on: requests of its rounds come too late, and its lease is over
    /// for everybody.
    #[must_use]
    pub fn is_forgettable(&self, now: Instant, oldest: Duration, epsilon: Duration) -> bool {
        let is_over = |lease: Lease| lease.until + epsilon < now;
        self.promised.time + oldest < now && self.lease.is_none_or(is_over)
    }
}
