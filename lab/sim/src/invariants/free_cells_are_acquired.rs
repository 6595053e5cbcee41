//! L3: with a majority of Flease peers up, a free cell is acquired; and who holds it then keeps it.

use std::collections::BTreeSet;

use centrifuge_core::flease::Cell;

use super::{TrueTime, Verdict, Violation};

/// Watches a calm world: from some instant on every cell must be held, and no lease may run out.
#[derive(Debug, Default)]
pub struct FreeCellsAreAcquired {
    is_settled: bool,
}

impl FreeCellsAreAcquired {
    /// The time has come by which every cell must be held; `held` are those that are.
    pub fn settle(&mut self, at: TrueTime, cells: &[Cell], held: &BTreeSet<Cell>) -> Verdict {
        self.is_settled = true;
        match cells.iter().find(|cell| !held.contains(cell)) {
            Some(cell) => {
                violation(at, format!("nobody has acquired {cell}, though nothing stands in the way"))
            }
            None => Ok(()),
        }
    }

    /// A lease ended that its holder wanted to keep.
    pub fn lost(&self, at: TrueTime, cell: &Cell, peer: usize) -> Verdict {
        if self.is_settled {
            return violation(at, format!("peer {peer} loses {cell}, though nothing stands in its way"));
        }
        Ok(())
    }
}

fn violation(at: TrueTime, what: String) -> Verdict {
    Err(Violation::new("L3", at, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calm_world_has_a_holder_for_every_cell() {
        let cells = ["a", "b"].map(|name| Cell::new(name).expect("a name"));
        let held = |count: usize| cells.iter().take(count).cloned().collect();
        let mut watch = FreeCellsAreAcquired::default();
        assert!(watch.lost(TrueTime(1), &cells[0], 0).is_ok(), "there are faults");
        assert!(watch.settle(TrueTime(2), &cells, &held(2)).is_ok());
        assert!(watch.lost(TrueTime(3), &cells[0], 0).is_err());
        assert!(FreeCellsAreAcquired::default().settle(TrueTime(2), &cells, &held(1)).is_err());
    }
}
