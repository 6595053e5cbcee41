//! Gives away what has no eligible Owner, free of budget.

use crate::trim::board::{Board, part_of, permille};
use crate::trim::budget::Bucket;
use crate::trim::density::End;
use crate::trim::plan::Plan;
use crate::trim::{TrimReason, TrimSkip};

/// A part is cut off for an Owner that has room for this much of a range, in permille.
const WORTH_CUTTING: u64 = 200;

impl Plan {
    /// Places the hottest range that has no eligible Owner.
    pub(super) fn place_one(&mut self) -> Option<u64> {
        let piece = self.unplaced.pop()?;
        let work = 2 * self.board.owners.len() as u64 + 4;
        let reason = match self.board.pieces[piece].owner {
            None => TrimReason::Unowned,
            Some(_) => TrimReason::Draining,
        };
        if reason == TrimReason::Draining && !self.may_move {
            self.skip(TrimSkip::Frozen);
            return Some(1);
        }
        if reason == TrimReason::Draining && !self.has_moves_left() {
            return Some(1);
        }
        if let Some(to) = self.board.place_for(piece) {
            self.move_part(piece, self.board.pieces[piece].range, to, reason, Bucket::Free);
        } else {
            self.place_part(piece, reason);
        }
        Some(work)
    }

    /// Cuts off what fits at the roomiest Owner, or gives the whole to whoever is the least loaded with it.
    fn place_part(&mut self, piece: usize, reason: TrimReason) {
        let Some(roomiest) = self.board.roomiest(None) else { return };
        let (range, load) = (self.board.pieces[piece].range, self.board.pieces[piece].load);
        let room = self.board.room(roomiest);
        let is_worth_it = room >= part_of(load, WORTH_CUTTING).max(1);
        let may_cut = is_worth_it && self.board.may_add(1);
        let part = may_cut.then(|| self.board.density(piece).end_of(End::Low, room)).flatten();
        let part = part.filter(|part| self.board.density(piece).load_of(*part) >= room / 2);
        let Some(part) = part else {
            if let Some(to) = self.board.least_loaded_with(load, [None; 2]) {
                self.move_part(piece, range, to, reason, Bucket::Free);
            }
            return;
        };
        self.move_part(piece, part, roomiest, reason, Bucket::Free);
        // The low end keeps its place among the pieces; the rest is the one above it.
        self.unplaced.extend(self.board.pieces[piece].above);
    }
}

impl Board {
    /// Where a piece fits as a whole: beside a neighbour, with the roomiest, or with an Owner that would still not shed.
    ///
    /// A key space that nobody has is spread, and neighbours differ: a hot region meets many Owners.
    fn place_for(&self, piece: usize) -> Option<usize> {
        let state = &self.pieces[piece];
        let beside = [state.below, state.above].map(|place| self.eligible_owner(place));
        if self.is_unowned {
            return self
                .least_loaded_with(state.load, beside)
                .or(self.least_loaded_with(state.load, [None; 2]));
        }
        let fits = |owner: &usize| self.room(*owner) >= state.load;
        let beside = beside.into_iter().flatten().find(fits);
        let roomiest = self.roomiest(None)?;
        let least = || {
            let least = self.least_loaded_with(state.load, [None; 2])?;
            let ratio = permille(self.owners[least].load + state.load, self.owners[least].goal);
            (ratio <= (self.thresholds.fill + self.thresholds.start_slow * 2) / 3).then_some(least)
        };
        beside.or(Some(roomiest).filter(fits)).or_else(least)
    }

    /// The Owner whose ratio is the lowest if it gets so much more.
    fn least_loaded_with(&self, load: u64, except: [Option<usize>; 2]) -> Option<usize> {
        let may_get = |&owner: &usize| self.owners[owner].is_eligible && !except.contains(&Some(owner));
        let ratio = |&owner: &usize| {
            let owner = &self.owners[owner];
            permille(owner.load.saturating_add(load), owner.goal)
        };
        (0..self.owners.len()).filter(may_get).min_by_key(ratio)
    }
}
