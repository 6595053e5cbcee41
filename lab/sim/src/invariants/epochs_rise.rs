//! F2: the epoch of a cell's lease rises with every acquisition, and stays while the lease is held without a gap.

use std::collections::BTreeMap;

use centrifuge_core::flease::{Ballot, Cell};

use super::at_most_one_holder::Holding;
use super::{TrueTime, Verdict, Violation};

/// The highest epoch of each cell.
#[derive(Debug, Default)]
pub struct EpochsRise {
    highest: BTreeMap<Cell, Ballot>,
}

impl EpochsRise {
    /// Sees what a process holds after a step, and the epoch under which it held the cell right before, if it did.
    pub fn see(&mut self, at: TrueTime, cell: &Cell, before: Option<Ballot>, after: Holding) -> Verdict {
        if before == Some(after.epoch) {
            return Ok(());
        }
        match self.highest.insert(cell.clone(), after.epoch) {
            Some(highest) if after.epoch <= highest => {
                let what = format!("{cell} is acquired by {after}, which is not above {highest}");
                Err(Violation::new("F2", at, what))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use centrifuge_core::flease::PeerId;
    use centrifuge_core::time::Instant;

    #[test]
    fn an_epoch_is_for_one_stretch_of_time() {
        let cell = Cell::new("cell").expect("a name");
        let epoch = |time| Ballot { time: Instant(time), peer: PeerId(1) };
        let holding = |time| Holding { peer: 0, life: 1, epoch: epoch(time) };
        let mut rise = EpochsRise::default();
        assert!(rise.see(TrueTime(1), &cell, None, holding(5)).is_ok());
        assert!(rise.see(TrueTime(2), &cell, Some(epoch(5)), holding(5)).is_ok(), "a renewal");
        assert!(rise.see(TrueTime(3), &cell, None, holding(5)).is_err(), "there was a gap");
        assert!(rise.see(TrueTime(4), &cell, None, holding(6)).is_ok());
        assert!(rise.see(TrueTime(5), &cell, None, holding(4)).is_err());
    }
}
