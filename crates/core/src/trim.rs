//! Trim: a load balancer that takes the table that stands and moves exactly what is too much.
//!
//! A decision is a pure function of the table, the Owners, their reports and a volatile [`TrimMemory`]. [`decide`] runs
//! it to the end; [`TrimRun`] runs it in slices, so that a Manager can answer renewals in between.

mod big_keys;
mod board;
mod budget;
mod candidate;
mod density;
mod estimate;
mod feed;
mod first;
mod level;
mod memory;
mod place;
mod plan;
mod preparation;
mod report;
mod run;
mod shape;
mod shed;
mod tidy;
mod words;

use std::time::Duration;

use crate::id::{Generation, OwnerName, SessionId};
use crate::key::{Key, KeyRange};
use crate::load::RangeLoad;
use crate::time::Instant;

pub use budget::{Bucket, TrimTokens};
pub use memory::TrimMemory;
pub use run::TrimRun;

/// How much of a decision a Manager makes at once, for [`TrimRun::advance`]: a few milliseconds. Whatever has arrived meanwhile is
/// answered before it goes on.
pub const WORK_AT_ONCE: u64 = 20_000;

/// What operators set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrimSettings {
    /// Scales both budgets, in percent. With 0 no load moves at all: only ranges without an eligible Owner are placed.
    pub churn_percent: u32,
    /// The most ranges per Owner, on average over the eligible ones.
    pub max_ranges_per_owner: u32,
    /// The ratio of load to goal, in permille, above which an Owner sheds load at once. It scales all four thresholds.
    pub imbalance_permille: u32,
    /// The most moves that are under way at once.
    pub max_moves: usize,
    /// How often Owners report.
    pub renewal: Duration,
}

impl Default for TrimSettings {
    fn default() -> TrimSettings {
        TrimSettings {
            churn_percent: 100,
            max_ranges_per_owner: 64,
            imbalance_permille: 1_050,
            max_moves: 256,
            renewal: Duration::from_secs(15),
        }
    }
}

/// One Owner as Trim sees it.
#[derive(Clone, Copy, Debug)]
pub struct TrimOwner<'a> {
    /// Its process.
    pub session: SessionId,
    /// Its name; of equally good Owners the one with the lowest name is chosen.
    pub name: &'a OwnerName,
    /// Its capacity in percent of a normal Owner's.
    pub weight: u32,
    /// Whether it may get keys: it is not draining and not evicted. An Owner of weight 0 never may.
    pub is_eligible: bool,
    /// Its latest report; `None` if it has not reported to this leader.
    pub report: Option<TrimReport<'a>>,
}

/// An Owner's latest report of its load.
#[derive(Clone, Copy, Debug)]
pub struct TrimReport<'a> {
    /// When the leader received it. The same instant means the same report, which counts once.
    pub at: Instant,
    /// The load of the ranges that it holds, in requests per 1,000 s. What others hold is ignored.
    pub loads: &'a [RangeLoad],
    /// Over how long it was counted; zero: about a renewal. The shorter, the less it says about load that has not changed.
    pub span: Duration,
}

/// One range of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrimRange {
    /// The keys.
    pub range: KeyRange,
    /// The destination of its migration, else its holder; `None` if it has neither. A range of somebody who is no
    /// member is not touched.
    pub owner: Option<SessionId>,
    /// Who serves it now and reports its load: the source, while it migrates.
    pub holder: Option<SessionId>,
    /// It moves already, or is pinned: it counts and is not touched.
    pub is_fixed: bool,
    /// Since which lease it has its state. Only neighbours of equal age may be joined.
    pub state_since: Generation,
}

/// All that a decision depends on, besides the memory.
#[derive(Clone, Copy, Debug)]
pub struct TrimInput<'a> {
    /// The leader's clock.
    pub now: Instant,
    /// Every Owner that is a member, eligible or not.
    pub owners: &'a [TrimOwner<'a>],
    /// The table, in key order; it covers every key.
    pub ranges: &'a [TrimRange],
    /// What operators set.
    pub settings: &'a TrimSettings,
    /// The namespace is not frozen, and the hold of a takeover is over. If not, only unowned ranges are placed.
    pub may_move: bool,
    /// The namespace holds no state yet: moves are on credit for a while.
    pub is_new: bool,
    /// How many moves of earlier decisions have not ended.
    pub moves_under_way: usize,
    /// Members or weights changed since the last decision. Without this and without a new report no load moves.
    pub membership_changed: bool,
}

/// Why a range moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrimReason {
    /// It had no Owner.
    Unowned,
    /// Its Owner may not have keys any more.
    Draining,
    /// Its Owner has another key that is larger than a share: each needs an Owner of its own.
    HotKeyAlone,
    /// One key is too large for its Owner, and a larger Owner can have it.
    HotKeyToLarger,
    /// Its Owner has too much.
    ShedRange,
    /// Its Owner has too much, and this key is the part that fits.
    ShedHotKey,
    /// Its Owner has too much, and this end of a range is the part that fits.
    ShedPart,
    /// Its Owner has too much, nobody has room, and its new Owner sheds smaller parts in exchange.
    Swap,
    /// Its new Owner has had too little for a while.
    FeedIdle,
    /// Its new Owner has just joined.
    FeedNew,
    /// A cold sliver goes back between its two neighbours.
    ColdKeyHome,
}

/// One range that is to move.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrimMove {
    /// The keys; a range of the table, or a part of one.
    pub range: KeyRange,
    /// Who has it; `None`: nobody.
    pub from: Option<SessionId>,
    /// Who gets it.
    pub to: SessionId,
    /// Why.
    pub reason: TrimReason,
    /// The ratio of load to goal before the move, in permille: the source's if it has too much, else the destination's.
    pub ratio_before: u32,
    /// The same ratio as it is predicted to be after the move.
    pub ratio_after: u32,
    /// The predicted load of the range, in requests per 1,000 s; 0 if loads are not known.
    pub load: u64,
    /// Its part of the key space, in parts per billion.
    pub key_share_ppb: u64,
    /// What paid for it.
    pub bucket: Bucket,
    /// What the bucket holds after it.
    pub tokens_left: TrimTokens,
}

/// Why load stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrimSkip {
    /// No Owner may have keys.
    NoOwners,
    /// Holders of more than a fifth of the weight have not reported lately: ranges are placed by key space.
    TooFewReports,
    /// Nobody reports any load: only Owners that join get something, by key space.
    NoLoad,
    /// Moves are not allowed now.
    Frozen,
    /// The churn budget is set to 0.
    BalancingOff,
    /// Neither reports nor members are new.
    NothingNew,
    /// As many moves are under way, or in this decision, as may be.
    MovesFull,
    /// The table has as many ranges as it may: only whole ranges move.
    RangesFull,
    /// The budget does not pay for what the Owner would have to move.
    ChurnBudgetSpent {
        /// The Owner that has too much, or too little.
        session: SessionId,
        /// The empty bucket.
        bucket: Bucket,
        /// The Owner's ratio of load to goal as it stays, in permille.
        ratio: u32,
    },
    /// What the Owner could give moved too recently.
    Resting {
        /// The Owner that has too much.
        session: SessionId,
        /// Its ratio as it stays.
        ratio: u32,
    },
    /// Nobody has room for any part that would help.
    NoRoom {
        /// The Owner that has too much.
        session: SessionId,
        /// Its ratio as it stays.
        ratio: u32,
    },
}

/// What a decision left behind, for metrics and the console.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrimSummary {
    /// The load of an Owner of weight 100 that has its share, in requests per 1,000 s; 0 if loads are not known.
    pub level: u64,
    /// The highest ratio of load to goal before the decision, in permille.
    pub peak_before: u32,
    /// The highest ratio that is predicted once all moves have ended.
    pub peak_after: u32,
    /// What the calm bucket holds.
    pub calm: TrimTokens,
    /// What the relief bucket holds.
    pub relief: TrimTokens,
    /// What is left of a new namespace's credit.
    pub credit: TrimTokens,
    /// How many ranges the table has once all moves have ended.
    pub ranges: usize,
    /// How many Owners may have keys.
    pub owners: usize,
    /// Whether enough Owners report load; ratios are of key space if not.
    pub loads_known: bool,
    /// The highest ratio of load to an even share by weight before the decision, in permille.
    pub peak_of_share: u32,
    /// The lowest that this ratio can be: above 1,000 if one key is larger than a share.
    pub floor_of_share: u32,
    /// How many ranges the Owner with the most has once all moves have ended.
    pub most_ranges: usize,
}

/// A key that is larger than a share. No move makes its Owner's load even: read replicas would.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TrimHotKey {
    /// The key.
    pub key: Key,
    /// Who has it, or is about to.
    pub session: SessionId,
    /// Its load, in requests per 1,000 s.
    pub load: u64,
    /// Its load as a part of an even share of its Owner's weight, in permille.
    pub share: u32,
}

/// What is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrimDecision {
    /// The moves, the most urgent first; no two share a key.
    pub moves: Vec<TrimMove>,
    /// Neighbours of one Owner and one age that may be joined, each as the keys of both.
    pub merges: Vec<KeyRange>,
    /// Why other load stays where it is.
    pub skipped: Vec<TrimSkip>,
    /// The keys that are larger than a share, and who has them: read replicas would help.
    pub replica_candidates: Vec<(Key, SessionId)>,
    /// The same with their loads, the largest first.
    pub hot_keys: Vec<TrimHotKey>,
    /// The state that results.
    pub summary: TrimSummary,
}

/// Decides at one go what [`TrimRun`] decides in slices.
pub fn decide(memory: &mut TrimMemory, input: &TrimInput<'_>) -> TrimDecision {
    let mut run = TrimRun::begin(memory, input);
    loop {
        if let Some(decision) = run.advance(memory, u64::MAX) {
            return decision;
        }
    }
}
