//! Which part of an Owner's ranges is the best to give away.

use crate::key::KeyRange;
use crate::trim::TrimReason;
use crate::trim::board::{Board, part_of};
use crate::trim::budget::{TrimTokens, WHOLE};
use crate::trim::density::End;

/// A part below both of these is a crumb: of what is needed, and of a share, in permille.
const CRUMB_OF_NEED: u64 = 200;
const CRUMB_OF_SHARE: u64 = 5;
/// A part may exceed what is needed by so many permille of a share.
const EXCESS_OF_SHARE: u64 = 120;
/// What a move and an added range cost, in permille of an Owner's load.
const MOVE_PRICE: u64 = 20;
const ADDED_PRICE: u64 = 10;
/// How many times dearer an added range is when the table is almost full.
const MAX_DEARNESS: u64 = 10;

/// A part that may move, and where it would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub(super) piece: usize,
    pub(super) part: KeyRange,
    pub(super) to: usize,
    pub(super) reason: TrimReason,
    /// What it is good for, and what it costs, in load.
    gain: u64,
    price: u64,
}

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub(super) from: usize,
    /// Who is to get it; `None`: a neighbour, or whoever has the most room.
    pub(super) to: Option<usize>,
    pub(super) need: u64,
    /// The most that the part may have.
    pub(super) most: u64,
    /// Also ranges that came a moment ago.
    pub(super) even_unrested: bool,
    /// What the budget can pay.
    pub(super) limit: TrimTokens,
}

/// Why parts that would have helped were left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Refusals {
    pub(super) resting: bool,
    pub(super) no_room: bool,
    pub(super) too_dear: bool,
    pub(super) ranges_full: bool,
}

/// A search for the best part.
pub(super) struct Search<'a> {
    board: &'a Board,
    wanted: Wanted,
    /// Who gets what no neighbour takes.
    roomiest: Option<usize>,
    crumb: u64,
    /// The budget's limit in load and in keys.
    max_load: u64,
    max_keys: u128,
    move_price: u64,
    added_price: u64,
    best: Option<Candidate>,
    refusals: Refusals,
    /// How many parts were considered.
    work: u64,
}

impl<'a> Search<'a> {
    fn new(board: &'a Board, wanted: Wanted) -> Search<'a> {
        let share = board.owners[wanted.from].share;
        let crumb = part_of(wanted.need, CRUMB_OF_NEED).min(part_of(share, CRUMB_OF_SHARE));
        let owner_load = board.total / board.eligible.max(1) as u64;
        Search {
            roomiest: wanted.to.or_else(|| board.roomiest(Some(wanted.from))),
            crumb: crumb.max(1),
            max_load: affordable(u128::from(board.total), wanted.limit.load_ppb) as u64,
            max_keys: affordable(1 << 64, wanted.limit.keys_ppb),
            move_price: part_of(owner_load, MOVE_PRICE).max(1),
            added_price: part_of(owner_load, ADDED_PRICE).saturating_mul(dearness(board)),
            best: None,
            refusals: Refusals::default(),
            work: board.owners.len() as u64,
            board,
            wanted,
        }
    }

    /// The best part, why others were left out, and how much work it was to find.
    pub(super) fn run(board: &'a Board, wanted: Wanted) -> (Option<Candidate>, Refusals, u64) {
        let mut search = Search::new(board, wanted);
        let best = search.best();
        (best, search.refusals, search.work)
    }

    /// The most that a part may have if the Owner is to be relieved of `need`.
    pub(super) fn most_for(need: u64, share: u64) -> u64 {
        need.saturating_add(part_of(share, EXCESS_OF_SHARE))
    }

    /// The best of whole ranges, heavy keys and ends of ranges.
    fn best(&mut self) -> Option<Candidate> {
        // Tokens that come in drops would go in drops: a move a decision, none of which helps.
        let is_paid = self.wanted.limit.load_ppb < WHOLE;
        if is_paid && self.max_load < part_of(self.wanted.need, CRUMB_OF_NEED) {
            self.refusals.too_dear = true;
            return None;
        }
        for place in 0..self.board.owners[self.wanted.from].pieces.len() {
            let piece = self.board.owners[self.wanted.from].pieces[place];
            self.work += 1;
            let state = &self.board.pieces[piece];
            if state.is_fixed || state.load < self.crumb {
                continue;
            }
            if !state.is_rested && !self.wanted.even_unrested {
                self.refusals.resting = true;
                continue;
            }
            self.consider(piece, state.range, state.load, TrimReason::ShedRange);
            self.consider_keys(piece);
            self.consider_ends(piece);
        }
        self.best
    }

    fn consider_keys(&mut self, piece: usize) {
        let range = self.board.pieces[piece].range;
        if range.key_count() == 1 {
            return;
        }
        for &(key, load) in self.board.heavy(piece) {
            self.consider(piece, KeyRange::one(key), load, TrimReason::ShedHotKey);
        }
    }

    fn consider_ends(&mut self, piece: usize) {
        let state = &self.board.pieces[piece];
        for (end, neighbour) in [(End::Low, state.below), (End::High, state.above)] {
            let roomiest = self.roomiest.map_or(0, |owner| self.board.room(owner));
            let neighbour = self.board.eligible_owner(neighbour).filter(|&owner| self.may_get(owner));
            let beside = neighbour.map_or(0, |owner| self.board.room(owner));
            self.consider_end(piece, end, roomiest);
            if beside < roomiest.min(self.wanted.need) {
                self.consider_end(piece, end, beside);
            }
        }
    }

    fn consider_end(&mut self, piece: usize, end: End, room: u64) {
        self.refusals.no_room |= room < self.crumb;
        let target = self.wanted.need.min(room).min(self.max_load);
        if target < self.crumb || target >= self.board.pieces[piece].load {
            return;
        }
        let density = self.board.density(piece);
        if let Some(part) = density.end_of(end, target) {
            self.consider(piece, part, density.load_of(part), TrimReason::ShedPart);
        }
    }

    fn consider(&mut self, piece: usize, part: KeyRange, load: u64, reason: TrimReason) {
        self.work += 1;
        if load < self.crumb || load > self.wanted.most {
            return;
        }
        let added = self.added(piece, part);
        if added > 0 && !self.board.may_add(added) {
            self.refusals.ranges_full = true;
            return;
        }
        if load > self.max_load || part.key_count() > self.max_keys {
            self.refusals.too_dear = true;
            return;
        }
        let Some((to, joins)) = self.destination(piece, part, load) else {
            self.refusals.no_room = true;
            return;
        };
        let added = added.saturating_sub(usize::from(joins)) as u64;
        let keys = (part.key_count().min(u128::from(u64::MAX)) * u128::from(self.board.total)) >> 65;
        let price = load + keys as u64 + self.move_price + self.added_price.saturating_mul(added);
        self.offer(Candidate { piece, part, to, reason, gain: load.min(self.wanted.need), price });
    }

    /// Keeps the better of two; of equals the one with the lower keys.
    fn offer(&mut self, candidate: Candidate) {
        let value = |one: &Candidate, other: &Candidate| u128::from(one.gain) * u128::from(other.price);
        let is_better = self.best.as_ref().is_none_or(|best| {
            let (new, old) = (value(&candidate, best), value(best, &candidate));
            new > old || (new == old && candidate.part < best.part)
        });
        if is_better {
            self.best = Some(candidate);
        }
    }

    /// How many more pieces there are once `part` is one.
    fn added(&self, piece: usize, part: KeyRange) -> usize {
        let whole = self.board.pieces[piece].range;
        usize::from(part.first() != whole.first()) + usize::from(part.last() != whole.last())
    }

    /// A neighbour's Owner if the part fits there, else the roomiest; and whether it joins a neighbour.
    fn destination(&self, piece: usize, part: KeyRange, load: u64) -> Option<(usize, bool)> {
        let beside = self.neighbours(piece, part);
        let fits = |owner: usize| load <= self.board.room(owner);
        let joined = beside.into_iter().flatten().find(|&owner| self.may_get(owner) && fits(owner));
        let roomiest = self.roomiest.filter(|&owner| fits(owner)).map(|owner| (owner, false));
        joined.map(|owner| (owner, true)).or(roomiest)
    }

    fn neighbours(&self, piece: usize, part: KeyRange) -> [Option<usize>; 2] {
        let state = &self.board.pieces[piece];
        let below = state.below.filter(|_| part.first() == state.range.first());
        let above = state.above.filter(|_| part.last() == state.range.last());
        [self.board.eligible_owner(below), self.board.eligible_owner(above)]
    }

    fn may_get(&self, owner: usize) -> bool {
        owner != self.wanted.from && self.wanted.to.is_none_or(|to| to == owner)
    }
}

/// What a move costs.
pub(super) fn cost(board: &Board, load: u64, part: KeyRange) -> TrimTokens {
    let load = (u128::from(load) * u128::from(WHOLE)).div_ceil(u128::from(board.total.max(1)));
    TrimTokens { load_ppb: u64::try_from(load).unwrap_or(u64::MAX), keys_ppb: key_share_ppb(part) }
}

/// A range's part of the key space, in parts per billion.
pub(super) fn key_share_ppb(range: KeyRange) -> u64 {
    (range.key_count() * u128::from(WHOLE)).div_ceil(1 << 64) as u64
}

/// The part of a whole that so many parts per billion pay for.
fn affordable(whole: u128, ppb: u64) -> u128 {
    whole * u128::from(ppb.min(WHOLE)) / u128::from(WHOLE)
}

/// How many times its price an added range costs: more, the closer the table is to its limit.
fn dearness(board: &Board) -> u64 {
    let half = (board.max_pieces / 2).max(1);
    let above = board.pieces.len().saturating_sub(half).min(half);
    1 + (MAX_DEARNESS - 1) * above as u64 / half as u64
}
