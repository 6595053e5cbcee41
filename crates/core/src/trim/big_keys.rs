//! Keys that are larger than a share: each gets an Owner of its own, and a large one if need be.

use std::cmp::Reverse;

use crate::key::KeyRange;
use crate::trim::board::{Board, part_of, permille};
use crate::trim::budget::Bucket;
use crate::trim::level::BigKey;
use crate::trim::plan::{Plan, URGENT};
use crate::trim::{TrimHotKey, TrimReason, TrimSkip};

/// A key above so many permille of its Owner's share goes to a larger Owner.
const TOO_LARGE: u64 = 1_250;

impl Plan {
    /// Moves the next big key, if it should be elsewhere.
    pub(super) fn move_one_big_key(&mut self) -> Option<u64> {
        let &BigKey { key, load, owner } = self.big_keys.get(self.cursor)?;
        self.cursor += 1;
        let Some(from) = owner else { return Some(1) };
        let work = (self.board.owners.len() + self.board.pieces.len()) as u64;
        let is_second = self.board.owners[from].big_key.is_some_and(|(first, _)| first != key);
        let share = self.board.owners[from].share;
        let (to, reason) = if is_second {
            (self.board.largest_without_big_key(from, 0), TrimReason::HotKeyAlone)
        } else if load > part_of(share, TOO_LARGE) {
            let least = u64::from(self.board.owners[from].weight).saturating_mul(3).div_ceil(2);
            (self.board.largest_without_big_key(from, least), TrimReason::HotKeyToLarger)
        } else {
            return Some(1);
        };
        let pieces = &self.board.owners[from].pieces;
        let piece = pieces.iter().copied().find(|&piece| self.board.pieces[piece].range.contains(key));
        if let (Some(to), Some(piece)) = (to, piece) {
            self.move_big_key(piece, KeyRange::one(key), to, reason);
        }
        Some(work)
    }

    fn move_big_key(&mut self, piece: usize, part: KeyRange, to: usize, reason: TrimReason) {
        let state = &self.board.pieces[piece];
        let Some(from) = state.owner.filter(|_| !state.is_fixed) else { return };
        let ratio = self.board.ratio(from);
        let session = self.session(from);
        if !state.is_rested && ratio <= URGENT {
            return self.skip(TrimSkip::Resting { session, ratio });
        }
        if !self.board.may_add(2) {
            return self.skip(TrimSkip::RangesFull);
        }
        if !self.has_moves_left() {
            return;
        }
        if self.move_part(piece, part, to, reason, Bucket::Relief) {
            // Beside its new key it has too much of everything else.
            (self.standings[to].sheds, self.standings[to].is_urgent) = (true, true);
        } else {
            self.skip(TrimSkip::ChurnBudgetSpent { session, bucket: Bucket::Relief, ratio });
        }
    }
}

impl Plan {
    /// The keys that are larger than a share, the largest first.
    pub(super) fn hot_keys(&self) -> Vec<TrimHotKey> {
        let even = self.board.even_level();
        let hot_key = |big: &BigKey| {
            let owner = &self.board.owners[big.owner?];
            let share = permille(big.load, even.share(owner.weight));
            Some(TrimHotKey { key: big.key, session: owner.session, load: big.load, share })
        };
        self.big_keys.iter().filter_map(hot_key).collect()
    }
}

impl Board {
    /// The largest Owner that has no big key and at least this weight; of equals the one whose own largest key is least, because
    /// until that has left it has both; and of those the one with the most room.
    fn largest_without_big_key(&self, from: usize, weight: u64) -> Option<usize> {
        let is_free = |&place: &usize| {
            let owner = &self.owners[place];
            place != from && owner.is_eligible && owner.big_key.is_none() && u64::from(owner.weight) >= weight
        };
        // Of equals the last wins, hence from the highest name down.
        let free = (0..self.owners.len()).rev().filter(is_free);
        free.max_by_key(|&owner| {
            (self.owners[owner].weight, Reverse(self.largest_key(owner)), self.room(owner))
        })
    }
}
