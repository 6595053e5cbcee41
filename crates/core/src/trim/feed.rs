//! Fills Owners that have just joined, or that have had too little for a while, from the fullest.

use crate::trim::board::part_of;
use crate::trim::budget::Bucket;
use crate::trim::candidate::{Refusals, Search, Wanted};
use crate::trim::plan::Plan;
use crate::trim::{TrimReason, TrimSkip};

/// No Owner gives if that would leave it below this part of its goal, in permille.
const GIVES_ABOVE: u64 = 940;
/// Owners are filled up to this part of their goal.
const FILLED: u64 = 980;

/// Who is to be filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct FeedQueue {
    /// The next one last.
    hungry: Vec<usize>,
    /// The Owners that cannot give anything to the next one.
    exhausted: Vec<bool>,
    /// What kept them from giving.
    too_dear: bool,
}

impl Plan {
    /// Lists who is to be filled: newcomers first, then by what they have.
    pub(super) fn queue_hungry(&mut self) {
        let is_hungry = |&owner: &usize| {
            let Some(standing) = self.standings.get(owner) else { return false };
            let is_eligible = self.board.owners[owner].is_eligible;
            let is_idle = standing.is_idle && self.loads_are_known;
            is_eligible && (standing.is_new || is_idle) && !self.is_filled(owner)
        };
        let mut hungry: Vec<usize> = (0..self.board.owners.len()).filter(is_hungry).collect();
        hungry.sort_by_key(|&owner| {
            (self.standings[owner].is_new, std::cmp::Reverse((self.board.ratio(owner), owner)))
        });
        let exhausted = vec![false; self.board.owners.len()];
        self.feed = FeedQueue { hungry, exhausted, too_dear: false };
    }

    /// Makes one move to the next Owner that is to be filled.
    pub(super) fn feed_one(&mut self) -> Option<u64> {
        let &to = self.feed.hungry.last()?;
        let owners = self.board.owners.len() as u64;
        if self.is_filled(to) {
            self.next_hungry(to);
            return Some(owners);
        }
        if !self.has_moves_left() {
            self.feed.hungry.clear();
            return Some(1);
        }
        let Some(from) = self.fullest_giver(to) else {
            self.next_hungry(to);
            return Some(owners);
        };
        Some(owners + self.feed_from(from, to))
    }

    fn feed_from(&mut self, from: usize, to: usize) -> u64 {
        let (reason, bucket) = match self.standings[to].is_new {
            true => (TrimReason::FeedNew, Bucket::Free),
            false => (TrimReason::FeedIdle, Bucket::Calm),
        };
        let owner = |place: usize| &self.board.owners[place];
        let spare = owner(from).load.saturating_sub(part_of(owner(from).goal, GIVES_ABOVE));
        let need = spare.min(owner(to).goal.saturating_sub(owner(to).load));
        let limit = self.budget.limit(bucket);
        // Where nobody reports load no range is known to rest, and whoever joins would wait for ever.
        let even_unrested = !self.loads_are_known;
        let wanted = Wanted { from, to: Some(to), need, most: need, even_unrested, limit };
        let (best, Refusals { too_dear, .. }, work) = Search::run(&self.board, wanted);
        let moved = best.is_some_and(|best| self.move_part(best.piece, best.part, best.to, reason, bucket));
        self.feed.exhausted[from] |= !moved;
        self.feed.too_dear |= too_dear;
        work
    }

    fn is_filled(&self, owner: usize) -> bool {
        u64::from(self.board.ratio(owner)) >= FILLED
    }

    /// The Owner with the highest ratio that can give to `to`.
    fn fullest_giver(&self, to: usize) -> Option<usize> {
        let gives = |&owner: &usize| {
            owner != to
                && self.board.owners[owner].is_eligible
                && !self.feed.exhausted[owner]
                && u64::from(self.board.ratio(owner)) > GIVES_ABOVE
        };
        // Of equals the last wins, hence from the highest name down.
        (0..self.board.owners.len()).rev().filter(gives).max_by_key(|&owner| self.board.ratio(owner))
    }

    fn next_hungry(&mut self, fed: usize) {
        if self.feed.too_dear && !self.is_filled(fed) {
            let (session, ratio) = (self.session(fed), self.board.ratio(fed));
            self.skip(TrimSkip::ChurnBudgetSpent { session, bucket: Bucket::Calm, ratio });
        }
        self.feed.hungry.pop();
        self.feed.exhausted.fill(false);
        self.feed.too_dear = false;
    }
}
