//! F1: two peers never both hold a valid lease on a cell.

use std::fmt;

use centrifuge_core::flease::{Ballot, Cell};

use super::{TrueTime, Verdict, Violation};

/// A process that holds a cell at some instant, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The peer's place.
    pub peer: usize,
    /// Which of its processes.
    pub life: u32,
    /// The lease's epoch.
    pub epoch: Ballot,
}

impl fmt::Display for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {} (life {}) under epoch {}", self.peer, self.life, self.epoch)
    }
}

/// Judges all who hold a cell at one instant of real time. It is enough to ask when somebody began to: holders become
/// fewer by themselves, since clocks never go back.
pub fn judge(at: TrueTime, cell: &Cell, holders: &[Holding]) -> Verdict {
    let [one, other, ..] = holders else { return Ok(()) };
    let what = format!("{cell} is held by {one} and by {other}");
    Err(Violation::new("F1", at, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_are_one_too_many() {
        let cell = Cell::new("cell").expect("a name");
        let holding = |peer| Holding { peer, life: 1, epoch: Ballot::ZERO };
        assert!(judge(TrueTime(1), &cell, &[]).is_ok());
        assert!(judge(TrueTime(1), &cell, &[holding(0)]).is_ok());
        let violation = judge(TrueTime(1), &cell, &[holding(0), holding(2)]).expect_err("two");
        assert_eq!(violation.invariant, "F1");
        assert!(violation.what.contains("peer 0") && violation.what.contains("peer 2"), "{}", violation.what);
    }
}
