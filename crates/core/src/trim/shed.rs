//! Relieves Owners that have too much, the fullest first.

use std::cmp::Reverse;

use crate::key::KeyRange;
use crate::trim::board::{Board, part_of};
use crate::trim::budget::Bucket;
use crate::trim::candidate::{Candidate, Refusals, Search, Wanted};
use crate::trim::plan::Plan;
use crate::trim::{TrimReason, TrimSkip};

/// Above this ratio, in permille, an Owner also sheds ranges that came a moment ago.
const UNRESTED: u32 = 1_100;
/// A key is swapped if it has at least this part of the need, in permille.
const LEAST_SWAP_OF_NEED: u64 = 300;
/// A swapped key may exceed the need by so many permille of a share.
const MOST_SWAP_OF_SHARE: u64 = 600;
/// How many of the roomiest Owners are asked to take a key in exchange for smaller parts.
const SWAP_PARTNERS: usize = 16;

impl Plan {
    /// Makes one move for the fullest Owner that sheds, or gives up on it.
    pub(super) fn shed_one(&mut self) -> Option<u64> {
        let from = self.fullest_shedding()?;
        let work = self.board.owners.len() as u64;
        if !self.has_moves_left() {
            self.standings.iter_mut().for_each(|standing| standing.sheds = false);
            return Some(work);
        }
        let bucket = self.shed_bucket(from);
        let wanted = self.shed_wish(from, bucket);
        let (best, refusals, searching) = self.search(wanted);
        let work = work + searching;
        let moved = match best {
            Some(best) => self.move_part(best.piece, best.part, best.to, best.reason, bucket),
            None => self.swap(from, &wanted, bucket),
        };
        if !moved {
            self.standings[from].sheds = false;
            self.skip_shedding(from, bucket, refusals);
        }
        Some(work)
    }

    /// The best part to give away, why others were left out, and how much work it was to find.
    fn search(&mut self, wanted: Wanted) -> (Option<Candidate>, Refusals, u64) {
        let (best, refusals, work) = Search::run(&self.board, wanted);
        if best.is_some()
            || !refusals.no_room
            || self.board.ratio(wanted.from) <= self.board.thresholds.pressed
        {
            return (best, refusals, work);
        }
        // Everybody else has about a share, and nobody room worth a move: each takes as much as it would not shed again.
        self.board.fill_to(self.board.thresholds.start_slow);
        let (best, refusals, more) = Search::run(&self.board, wanted);
        self.board.fill_to(self.board.thresholds.fill);
        (best, refusals, work + more)
    }

    /// The Owner with the highest ratio of those that have begun to shed and are not done.
    fn fullest_shedding(&self) -> Option<usize> {
        let sheds = |&owner: &usize| {
            self.standings[owner].sheds && self.board.ratio(owner) > self.board.thresholds.stop
        };
        // Of equals the last wins, hence from the highest name down.
        (0..self.board.owners.len()).rev().filter(sheds).max_by_key(|&owner| self.board.ratio(owner))
    }

    fn shed_bucket(&self, from: usize) -> Bucket {
        match self.standings[from].is_urgent || self.board.owners[from].big_key.is_some() {
            true => Bucket::Relief,
            false => Bucket::Calm,
        }
    }

    fn shed_wish(&self, from: usize, bucket: Bucket) -> Wanted {
        let owner = &self.board.owners[from];
        let need = owner.load.saturating_sub(self.board.shed_target(from));
        Wanted {
            from,
            to: None,
            need,
            most: Search::most_for(need, owner.share),
            even_unrested: self.standings[from].is_urgent || self.board.ratio(from) > UNRESTED,
            limit: self.budget.limit(bucket),
        }
    }

    /// Gives a key that fits nowhere to an Owner that can have it if it sheds smaller parts itself.
    fn swap(&mut self, from: usize, wanted: &Wanted, bucket: Bucket) -> bool {
        let Some((piece, part, load)) = self.swap_key(wanted) else { return false };
        let Some(to) = self.board.swap_partner(from, load) else { return false };
        let moved = self.move_part(piece, part, to, TrimReason::Swap, bucket);
        if moved {
            self.standings[to].sheds = true;
            self.standings[to].is_urgent |= self.standings[from].is_urgent;
        }
        moved
    }

    /// The key that comes closest to the need.
    fn swap_key(&self, wanted: &Wanted) -> Option<(usize, KeyRange, u64)> {
        let least = part_of(wanted.need, LEAST_SWAP_OF_NEED).max(1);
        let share = self.board.owners[wanted.from].share;
        let most = wanted.need.saturating_add(part_of(share, MOST_SWAP_OF_SHARE));
        let own = self.board.owners[wanted.from].big_key.map(|(key, _)| key);
        let pieces = self.board.owners[wanted.from].pieces.iter().copied();
        let movable = pieces.filter(|&piece| {
            let state = &self.board.pieces[piece];
            !state.is_fixed && (state.is_rested || wanted.even_unrested)
        });
        let keys = movable.flat_map(|piece| self.board.heavy(piece).iter().map(move |known| (piece, known)));
        let fitting = keys.filter(|(_, (key, load))| (least..=most).contains(load) && Some(*key) != own);
        let best = fitting.min_by_key(|(_, (key, load))| (load.abs_diff(wanted.need), *key));
        let has_space = self.board.may_add(2);
        best.filter(|_| has_space).map(|(piece, &(key, load))| (piece, KeyRange::one(key), load))
    }

    fn skip_shedding(&mut self, from: usize, bucket: Bucket, refusals: Refusals) {
        let (session, ratio) = (self.session(from), self.board.ratio(from));
        if refusals.ranges_full {
            self.skip(TrimSkip::RangesFull);
        }
        self.skip(if refusals.too_dear {
            TrimSkip::ChurnBudgetSpent { session, bucket, ratio }
        } else if refusals.resting && !refusals.no_room {
            TrimSkip::Resting { session, ratio }
        } else {
            TrimSkip::NoRoom { session, ratio }
        });
    }
}

impl Board {
    /// Down to what an Owner sheds.
    fn shed_target(&self, owner: usize) -> u64 {
        part_of(self.owners[owner].goal, u64::from(self.thresholds.stop))
    }

    /// The roomiest Owner that could hold a key of that load beside its own largest key. If there is none, the one whose largest key
    /// is least, and at most half of that load: it has to leave, and must be easier to place than the key that comes.
    fn swap_partner(&self, from: usize, load: u64) -> Option<usize> {
        let could_hold = |&owner: &usize| {
            let state = &self.owners[owner];
            owner != from && state.is_eligible && state.big_key.is_none() && load <= state.fill
        };
        let mut others: Vec<usize> = (0..self.owners.len()).filter(could_hold).collect();
        others.sort_by_key(|&owner| (Reverse(self.room(owner)), owner));
        let fits = |&owner: &usize| self.largest_key(owner).saturating_add(load) <= self.owners[owner].fill;
        let roomiest = others.iter().copied().take(SWAP_PARTNERS).find(fits);
        roomiest.or_else(|| {
            let least = others.into_iter().min_by_key(|&owner| self.largest_key(owner))?;
            (self.largest_key(least) <= load / 2).then_some(least)
        })
    }
}
