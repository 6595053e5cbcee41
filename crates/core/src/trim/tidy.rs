//! Keeps the table small: cold slivers go home, and cold neighbours are joined.

use crate::key::KeyRange;
use crate::trim::TrimReason;
use crate::trim::board::{Board, Piece, part_of};
use crate::trim::budget::Bucket;
use crate::trim::plan::Plan;

/// A sliver is smaller than this part of the key space.
const SLIVER_PARTS: u128 = 100_000;
/// A sliver has less than this part of a share, in permille.
const SLIVER_OF_SHARE: u64 = 3;
/// Where the table is almost full, a sliver goes to whoever has a neighbour of it if both have less than this part of a share, in permille.
const CROWDED_SLIVER_OF_SHARE: u64 = 100;
/// Neighbours are joined if together they have less than this part of a share, in permille.
const COLD_OF_SHARE: u64 = 150;
/// The most merges of one decision.
const MAX_MERGES: usize = 64;
/// How many pieces one step looks at.
const PIECES_PER_STEP: usize = 512;

impl Plan {
    /// Sends some slivers back to the Owner of both their neighbours.
    pub(super) fn send_some_home(&mut self) -> Option<u64> {
        let pieces = self.next_pieces()?;
        for piece in pieces.clone() {
            let home = self.board.home_of_sliver(piece);
            if let Some(home) = home.filter(|_| self.moves_left > 0) {
                let range = self.board.pieces[piece].range;
                self.move_part(piece, range, home, TrimReason::ColdKeyHome, Bucket::Calm);
            }
        }
        Some(pieces.len() as u64)
    }

    /// Offers to join some neighbours.
    pub(super) fn merge_some(&mut self) -> Option<u64> {
        let pieces = self.next_pieces()?;
        for piece in pieces.clone() {
            let Some(keys) = self.board.merge_with_above(piece) else { continue };
            let is_apart = self.decision.merges.last().is_none_or(|last| !last.overlaps(keys));
            if is_apart && self.decision.merges.len() < MAX_MERGES {
                self.decision.merges.push(keys);
            }
        }
        Some(pieces.len() as u64)
    }

    /// The next pieces to look at, while the table is more than half full.
    fn next_pieces(&mut self) -> Option<std::ops::Range<usize>> {
        let count = self.board.pieces.len();
        if count <= self.board.max_pieces / 2 || self.cursor >= count {
            return None;
        }
        let first = self.cursor;
        self.cursor = (first + PIECES_PER_STEP).min(count);
        Some(first..self.cursor)
    }
}

impl Board {
    fn home_of_sliver(&self, piece: usize) -> Option<usize> {
        let state = &self.pieces[piece];
        if state.is_fixed || !state.is_long_rested || state.range.key_count() > (1 << 64) / SLIVER_PARTS {
            return None;
        }
        let owner = self.eligible_owner(Some(piece))?;
        let below = self.eligible_owner(state.below)?;
        let above = self.eligible_owner(state.above)?;
        let is_cold = state.load < part_of(self.owners[owner].share, SLIVER_OF_SHARE);
        let home = (is_cold && below == above && below != owner).then_some(below);
        let is_crowded = self.pieces.len() > self.max_pieces / 4 * 3;
        home.or_else(|| if is_crowded { self.neighbour_of_sliver(piece, owner) } else { None })
    }

    /// Who has a neighbour that a sliver can be joined with. Where names grow with time, what is hot leaves slivers behind that have
    /// an Owner each.
    fn neighbour_of_sliver(&self, piece: usize, owner: usize) -> Option<usize> {
        let state = &self.pieces[piece];
        let takes = |neighbour: &usize| {
            let (near, to) = (&self.pieces[*neighbour], self.eligible_owner(Some(*neighbour))?);
            let is_cold = state.load + near.load < part_of(self.owners[to].share, CROWDED_SLIVER_OF_SHARE);
            let can_join = !near.is_fixed && near.state_since == state.state_since;
            (to != owner && is_cold && can_join && state.load <= self.room(to)).then_some(to)
        };
        [state.below, state.above].iter().flatten().find_map(takes)
    }

    /// The keys of a piece and the next one, if they may be one range.
    fn merge_with_above(&self, piece: usize) -> Option<KeyRange> {
        let state = &self.pieces[piece];
        let above = &self.pieces[state.above?];
        let stays = |piece: &Piece| !piece.is_fixed && piece.is_whole && piece.is_rested;
        let owner = self.eligible_owner(Some(piece))?;
        let is_cold = state.load + above.load < part_of(self.owners[owner].share, COLD_OF_SHARE);
        let are_alike = above.owner == Some(owner) && above.state_since == state.state_since;
        let may_merge = is_cold && are_alike && stays(state) && stays(above);
        may_merge.then(|| KeyRange::new(state.range.first(), above.range.last())).flatten()
    }
}
