//! The first assignment: a key space that nobody has is cut evenly before it is given away.

use std::cmp::Reverse;

use crate::key::Key;
use crate::trim::board::Board;

/// How many ranges an Owner of weight 100 gets at first: a hot region meets many Owners, and the table may still grow.
const FIRST_RANGES: u64 = 16;

impl Board {
    /// Cuts a key space that nobody has into as many ranges as the Owners should begin with.
    pub(super) fn cut_first_ranges(&mut self) {
        let wanted = self.first_ranges();
        if !self.is_unowned || self.pieces.iter().any(|piece| piece.is_fixed) || self.pieces.len() >= wanted {
            return;
        }
        let mut place = Some(0).filter(|_| !self.pieces.is_empty());
        for number in 1..wanted {
            let boundary = ((number as u128) << 64) / wanted as u128;
            let Some(boundary) = u64::try_from(boundary).ok().map(Key) else { continue };
            while let Some(here) = place.filter(|&here| self.pieces[here].range.last() < boundary) {
                place = self.pieces[here].above;
            }
            place = place.map(|here| self.cut_at(here, boundary));
        }
    }

    /// The piece that begins at `boundary`, which is cut off if need be.
    fn cut_at(&mut self, piece: usize, boundary: Key) -> usize {
        let range = self.pieces[piece].range;
        match range.split_at(boundary) {
            Some((_, rest)) => self.cut(piece, rest),
            None => piece,
        }
    }

    fn first_ranges(&self) -> usize {
        let eligible = self.owners.iter().filter(|owner| owner.is_eligible);
        let ranges = eligible.map(|owner| (u64::from(owner.weight) * FIRST_RANGES).div_ceil(100));
        let wanted = usize::try_from(ranges.sum::<u64>()).unwrap_or(usize::MAX);
        wanted.min(self.max_pieces)
    }

    /// The pieces that are to be placed, the hottest last and of equals the lowest.
    pub(super) fn unplaced(&self) -> Vec<usize> {
        let is_unplaced =
            |&place: &usize| !self.pieces[place].is_fixed && self.eligible_owner(Some(place)).is_none();
        let mut unplaced: Vec<usize> = (0..self.pieces.len()).filter(is_unplaced).collect();
        unplaced.sort_by_key(|&place| (self.pieces[place].load, Reverse(self.pieces[place].range)));
        unplaced
    }
}
