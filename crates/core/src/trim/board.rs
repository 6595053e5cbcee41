//! The table as a decision changes it: pieces of ranges, their predicted loads, and the Owners that have them.

use std::time::Duration;

use crate::id::{Generation, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::{Key, KeyRange};
use crate::time::Instant;
use crate::trim::density::{Density, heavy_within};
use crate::trim::level::{Level, Thresholds};
use crate::trim::memory::RangeMemory;
use crate::trim::preparation::Member;
use crate::trim::shape::Shape;
use crate::trim::{TrimInput, TrimRange};

/// After this a cold sliver may go home.
const LONG_REST: Duration = Duration::from_secs(300);
/// How many pieces with load there may be for each Owner, however many have none.
const RESERVED_PER_OWNER: usize = 4;
/// Where loads are not known, a piece counts by its keys, in units of 2^28.
const KEYS_SHIFT: u32 = 28;

/// A range of the table, or what a decision cut it into.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Piece {
    pub(super) range: KeyRange,
    /// By place among the Owners.
    pub(super) owner: Option<usize>,
    /// What it is predicted to have when a move would end.
    pub(super) load: u64,
    /// Where its heavy keys are in the list of all.
    heavy: (usize, usize),
    /// Where the rest of its load lies.
    shape: Shape,
    /// It may not be touched: it moves, or is pinned.
    pub(super) is_fixed: bool,
    pub(super) is_rested: bool,
    /// It is a range of the table, and not a part of one.
    pub(super) is_whole: bool,
    pub(super) is_long_rested: bool,
    pub(super) state_since: Generation,
    /// The pieces below and above in the key space.
    pub(super) below: Option<usize>,
    pub(super) above: Option<usize>,
}

/// An Owner in a decision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnerState {
    pub(super) session: SessionId,
    pub(super) weight: u32,
    pub(super) is_eligible: bool,
    /// The load of its pieces.
    pub(super) load: u64,
    /// Its part of the load by weight.
    pub(super) share: u64,
    /// What it should have: its share, or its big key if that is more.
    pub(super) goal: u64,
    /// Up to what it may be filled.
    pub(super) fill: u64,
    /// Its key that is larger than a share.
    pub(super) big_key: Option<(Key, u64)>,
    /// Not in order.
    pub(super) pieces: Vec<usize>,
}

impl OwnerState {
    fn new(member: &Member) -> OwnerState {
        OwnerState {
            session: member.session,
            weight: member.weight,
            is_eligible: member.is_eligible,
            load: 0,
            share: 0,
            goal: 0,
            fill: 0,
            big_key: None,
            pieces: Vec::new(),
        }
    }
}

/// What a decision works on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Board {
    pub(super) pieces: Vec<Piece>,
    /// By name.
    pub(super) owners: Vec<OwnerState>,
    /// In key order, with predicted loads.
    heavy: Vec<(Key, u64)>,
    pub(super) total: u64,
    pub(super) level: Level,
    pub(super) thresholds: Thresholds,
    /// How many Owners may have keys.
    pub(super) eligible: usize,
    /// Nobody has any key.
    pub(super) is_unowned: bool,
    /// The most pieces that the table may have.
    pub(super) max_pieces: usize,
    /// How many ranges have no load at all. Where keys are ordered, these may be most of them.
    idle: usize,
}

impl Board {
    /// A board without pieces.
    pub(super) fn new(members: &[Member], input: &TrimInput<'_>) -> Board {
        let eligible = members.iter().filter(|member| member.is_eligible).count();
        Board {
            pieces: Vec::with_capacity(input.ranges.len() + 1_024),
            owners: members.iter().map(OwnerState::new).collect(),
            heavy: Vec::new(),
            total: 0,
            level: Level::default(),
            thresholds: Thresholds::new(input.settings),
            eligible,
            is_unowned: input.ranges.iter().all(|range| range.owner.is_none()),
            max_pieces: (input.settings.max_ranges_per_owner as usize).saturating_mul(eligible),
            idle: 0,
        }
    }

    /// Takes the board, and leaves one without pieces and Owners.
    pub(super) fn take(&mut self) -> Board {
        let (pieces, owners) = (std::mem::take(&mut self.pieces), std::mem::take(&mut self.owners));
        Board { pieces, owners, heavy: std::mem::take(&mut self.heavy), ..*self }
    }

    /// Adds the next range of the table, with the load that is predicted.
    pub(super) fn add(&mut self, range: &TrimRange, known: &RangeMemory, owner: Option<usize>, now: Instant) {
        let load = known.estimate.predicted();
        let first = self.heavy.len();
        let scale = |key_load: u64| match known.estimate.load {
            same if same == load => key_load,
            before => (u128::from(key_load) * u128::from(load) / u128::from(before.max(1))) as u64,
        };
        self.heavy.extend(known.heavy.iter().map(|&(key, key_load)| (key, scale(key_load))));
        let place = self.pieces.len();
        // What somebody holds is not to be given to a second Owner, even if nobody knows who that is.
        let is_unclear = owner.is_none() && (range.owner.is_some() || range.holder.is_some());
        self.pieces.push(Piece {
            range: range.range,
            owner,
            load,
            heavy: (first, self.heavy.len()),
            shape: known.shape.clone(),
            is_fixed: range.is_fixed || is_unclear,
            is_whole: true,
            is_rested: known.is_rested(now),
            is_long_rested: known.has_stayed(now, LONG_REST),
            state_since: range.state_since,
            below: place.checked_sub(1),
            above: None,
        });
        if let Some(below) = place.checked_sub(1) {
            self.pieces[below].above = Some(place);
        }
        self.total = self.total.saturating_add(load);
        self.idle += usize::from(load == 0);
        if let Some(owner) = owner {
            self.owners[owner].pieces.push(place);
            self.owners[owner].load = self.owners[owner].load.saturating_add(load);
        }
    }

    /// Takes the keys of each piece for its load, for loads are not known.
    pub(super) fn count_keys_instead(&mut self) {
        self.heavy.clear();
        (self.total, self.idle) = (0, 0);
        self.owners.iter_mut().for_each(|owner| owner.load = 0);
        for piece in &mut self.pieces {
            piece.heavy = (0, 0);
            piece.shape = Shape::default();
            piece.load = (piece.range.key_count() >> KEYS_SHIFT) as u64;
            self.total += piece.load;
            if let Some(owner) = piece.owner {
                self.owners[owner].load += piece.load;
            }
        }
    }

    /// The heavy keys of a piece, in key order.
    pub(super) fn heavy(&self, piece: usize) -> &[(Key, u64)] {
        let (first, end) = self.pieces[piece].heavy;
        &self.heavy[first..end]
    }

    /// How the load lies inside a piece.
    pub(super) fn density(&self, piece: usize) -> Density<'_> {
        let Piece { range, load, ref shape, .. } = self.pieces[piece];
        Density { range, load, heavy: self.heavy(piece), shape }
    }

    /// Whether the table may have so many more pieces. If ranges without load fill it, which cannot be joined unless their state began
    /// together, those with load may still be cut into a few for each Owner.
    pub(super) fn may_add(&self, added: usize) -> bool {
        let count = self.pieces.len() + added;
        let is_cut_little = count - self.idle <= RESERVED_PER_OWNER * self.eligible;
        count <= self.max_pieces || (is_cut_little && count <= 2 * self.max_pieces)
    }

    /// Who may have keys and has the piece; `None` if nobody.
    pub(super) fn eligible_owner(&self, piece: Option<usize>) -> Option<usize> {
        let owner = self.pieces[piece?].owner?;
        self.owners[owner].is_eligible.then_some(owner)
    }

    /// How much more an Owner may get.
    pub(super) fn room(&self, owner: usize) -> u64 {
        if injected(Bug::RoomNotChecked) {
            return u64::MAX;
        }
        let OwnerState { fill, load, .. } = self.owners[owner];
        fill.saturating_sub(load)
    }

    /// The Owner with the most room, other than `except`.
    pub(super) fn roomiest(&self, except: Option<usize>) -> Option<usize> {
        let mut best: Option<(i64, usize)> = None;
        for (place, owner) in self.owners.iter().enumerate() {
            let room = owner.fill as i64 - owner.load as i64;
            if owner.is_eligible && Some(place) != except && best.is_none_or(|(most, _)| room > most) {
                best = Some((room, place));
            }
        }
        best.map(|(_, place)| place)
    }

    /// An Owner's ratio of load to goal, in permille.
    pub(super) fn ratio(&self, owner: usize) -> u32 {
        let OwnerState { load, goal, .. } = self.owners[owner];
        permille(load, goal)
    }

    /// The highest ratio of an Owner that may have keys.
    pub(super) fn peak(&self) -> u32 {
        let eligible = (0..self.owners.len()).filter(|&owner| self.owners[owner].is_eligible);
        eligible.map(|owner| self.ratio(owner)).max().unwrap_or(0)
    }

    /// The largest key of an Owner.
    pub(super) fn largest_key(&self, owner: usize) -> u64 {
        let keys = self.owners[owner].pieces.iter().flat_map(|&piece| self.heavy(piece));
        keys.map(|(_, load)| *load).max().unwrap_or(0)
    }

    /// Makes `part` of a piece a piece of its own, and says which it is.
    pub(super) fn cut(&mut self, piece: usize, part: KeyRange) -> usize {
        let (below, above) = self.pieces[piece].range.difference(part);
        let mut middle = piece;
        if let Some(below) = below {
            middle = self.cut_above(piece, below);
        }
        if above.is_some() {
            self.cut_above(middle, part);
        }
        middle
    }

    /// Leaves `kept`, the low end, to the piece; the rest becomes a new piece.
    fn cut_above(&mut self, piece: usize, kept: KeyRange) -> usize {
        let load = self.density(piece).load_of(kept);
        let (first, end) = self.pieces[piece].heavy;
        let middle = first + heavy_within(&self.heavy[first..end], kept).len();
        let new = self.pieces.len();
        let old = &mut self.pieces[piece];
        let (_, rest) = old.range.difference(kept);
        let rest = rest.unwrap_or(old.range);
        let added = Piece {
            range: rest,
            load: old.load - load.min(old.load),
            heavy: (middle, end),
            is_whole: false,
            below: Some(piece),
            ..old.clone()
        };
        (old.range, old.load, old.heavy, old.above) = (kept, load.min(old.load), (first, middle), Some(new));
        old.is_whole = false;
        if let Some(above) = added.above {
            self.pieces[above].below = Some(new);
        }
        if let Some(owner) = added.owner {
            self.owners[owner].pieces.push(new);
        }
        self.pieces.push(added);
        new
    }

    /// Gives a piece to an Owner. It is not touched again.
    pub(super) fn give(&mut self, piece: usize, to: usize) {
        let load = self.pieces[piece].load;
        if let Some(from) = self.pieces[piece].owner {
            let from = &mut self.owners[from];
            from.load = from.load.saturating_sub(load);
            if let Some(place) = from.pieces.iter().position(|&other| other == piece) {
                from.pieces.swap_remove(place);
            }
        }
        self.owners[to].load = self.owners[to].load.saturating_add(load);
        self.owners[to].pieces.push(piece);
        (self.pieces[piece].owner, self.pieces[piece].is_fixed) = (Some(to), true);
    }
}

/// A ratio in permille; of nothing to nothing it is 0.
pub(super) fn permille(load: u64, goal: u64) -> u32 {
    let ratio = (u128::from(load) * 1_000).checked_div(u128::from(goal));
    let ratio = ratio.unwrap_or(if load == 0 { 0 } else { u128::from(u32::MAX) });
    u32::try_from(ratio).unwrap_or(u32::MAX)
}

/// So many permille of a load.
pub(super) fn part_of(load: u64, permille: u64) -> u64 {
    u64::try_from(u128::from(load) * u128::from(permille) / 1_000).unwrap_or(u64::MAX)
}
