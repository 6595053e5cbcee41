//! Chooses the moves of a decision: the order of its parts, and what every move has in common.

use std::time::Duration;

use crate::id::SessionId;
use crate::key::KeyRange;
use crate::time::Instant;
use crate::trim::board::Board;
use crate::trim::budget::{Bucket, Budget};
use crate::trim::candidate::{cost, key_share_ppb};
use crate::trim::estimate::{load_of_one_request, sigma};
use crate::trim::feed::FeedQueue;
use crate::trim::level::BigKey;
use crate::trim::memory::{OwnerMemory, TrimMemory};
use crate::trim::preparation::{Member, Terms};
use crate::trim::{TrimDecision, TrimMove, TrimReason, TrimSkip};

/// The most moves of one decision, besides those of ranges that nobody has.
const MAX_MOVES: usize = 256;
/// How far above its goal an Owner must be, in halves of a standard deviation: in two reports running, and in one.
const SLOW_HALF_SIGMAS: u64 = 3;
const FAST_HALF_SIGMAS: u64 = 8;
/// An Owner below this ratio, in permille, has too little.
const IDLE: u32 = 800;
/// An Owner that has reached this ratio has settled.
const SETTLED: u32 = 900;
/// So long after it joined an Owner is no newcomer any more, whatever it has.
const NEWCOMER_TIME: Duration = Duration::from_secs(300);
/// Above this ratio the larger budget pays for what an Owner sheds.
pub(super) const URGENT: u32 = 1_250;

/// How an Owner stands at the beginning of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Standing {
    /// It has too much, for long enough.
    pub(super) sheds: bool,
    /// It has had too little for long enough.
    pub(super) is_idle: bool,
    /// It has not had its share yet.
    pub(super) is_new: bool,
    /// It was far above its goal when it began to shed.
    pub(super) is_urgent: bool,
}

/// The parts of a decision, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Place,
    BigKeys,
    Shed,
    Feed,
    SendHome,
    Merge,
    Done,
}

/// The moves of a decision as they are chosen, one step after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    pub(super) board: Board,
    pub(super) budget: Budget,
    pub(super) standings: Vec<Standing>,
    /// Keys larger than a share, the largest first, and who has them.
    pub(super) big_keys: Vec<BigKey>,
    pub(super) decision: TrimDecision,
    /// How many more ranges may begin to move.
    pub(super) moves_left: usize,
    /// Pieces without an eligible Owner, the hottest last.
    pub(super) unplaced: Vec<usize>,
    pub(super) feed: FeedQueue,
    /// Where the phase goes on that walks through a list.
    pub(super) cursor: usize,
    pub(super) may_move: bool,
    may_merge: bool,
    pub(super) loads_are_known: bool,
    may_balance: bool,
    /// Nobody reports any load: whoever joins gets its part of the keys all the same.
    feeds_by_keys: bool,
    phase: Phase,
    now: Instant,
}

impl Plan {
    /// Begins with the table as it stands; `skips` say why loads are not known, and why none may move.
    pub(super) fn new(
        memory: &mut TrimMemory,
        mut board: Board,
        members: &[Member],
        terms: &Terms,
        skips: (Option<TrimSkip>, Option<TrimSkip>),
    ) -> Plan {
        let (unknown, idle) = skips;
        board.cut_first_ranges();
        let big_keys = board.measure();
        let standings = standings(memory, &board, members, terms);
        let mut plan = Plan {
            budget: memory.budget.clone(),
            standings,
            big_keys,
            moves_left: MAX_MOVES.min(terms.settings.max_moves.saturating_sub(terms.moves_under_way)),
            unplaced: board.unplaced(),
            feed: FeedQueue::default(),
            cursor: 0,
            may_move: terms.may_move,
            may_merge: terms.may_move && terms.is_settled,
            loads_are_known: unknown.is_none(),
            may_balance: unknown.is_none() && idle.is_none(),
            feeds_by_keys: unknown == Some(TrimSkip::NoLoad) && idle.is_none(),
            phase: Phase::Place,
            now: terms.now,
            decision: TrimDecision::default(),
            board,
        };
        plan.decision.skipped.extend(unknown.into_iter().chain(idle));
        plan.decision.summary.peak_before = plan.board.peak();
        plan
    }

    pub(super) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Takes one step, and says how much work it was.
    pub(super) fn step(&mut self) -> u64 {
        let (next, work) = match self.phase {
            Phase::Place => (Phase::BigKeys, self.place_one()),
            Phase::BigKeys => (Phase::Shed, self.move_one_big_key()),
            Phase::Shed => (Phase::Feed, self.shed_one()),
            Phase::Feed => (Phase::SendHome, self.feed_one()),
            Phase::SendHome => (Phase::Merge, self.send_some_home()),
            Phase::Merge => (Phase::Done, self.merge_some()),
            Phase::Done => return 0,
        };
        if let Some(work) = work {
            return work;
        }
        self.phase = self.permitted(next);
        self.cursor = 0;
        match self.phase {
            Phase::Shed => self.measure_again(),
            Phase::Feed => self.queue_hungry(),
            _ => {}
        }
        self.board.owners.len() as u64
    }

    /// Sets the level anew if big keys moved: they take Owners of other weights from the rest now.
    fn measure_again(&mut self) {
        let is_of_big_key =
            |m: &TrimMove| m.reason == TrimReason::HotKeyAlone || m.reason == TrimReason::HotKeyToLarger;
        if self.decision.moves.iter().any(is_of_big_key) {
            self.big_keys = self.board.measure();
        }
    }

    /// The next phase that this decision may have.
    fn permitted(&self, next: Phase) -> Phase {
        match next {
            _ if self.may_balance => next,
            Phase::Done => Phase::Done,
            Phase::BigKeys if self.feeds_by_keys => Phase::Feed,
            _ if self.may_merge && self.loads_are_known => Phase::Merge,
            _ => Phase::Done,
        }
    }

    /// Returns the decision, and notes in the memory what it spent.
    pub(super) fn finish(&mut self, memory: &mut TrimMemory) -> TrimDecision {
        memory.budget = self.budget.clone();
        for place in 0..self.board.owners.len() {
            let is_settled = self.board.ratio(place) >= SETTLED;
            if let Some(owner) = memory.owners.get_mut(&self.board.owners[place].session) {
                owner.is_settled |= is_settled || self.now.since(owner.since) >= NEWCOMER_TIME;
            }
        }
        let session = |owner: usize| self.board.owners[owner].session;
        let candidates = self.big_keys.iter().filter_map(|big| Some((big.key, session(big.owner?))));
        self.decision.replica_candidates = candidates.collect();
        self.summarize();
        std::mem::take(&mut self.decision)
    }

    fn summarize(&mut self) {
        let summary = &mut self.decision.summary;
        summary.level = if self.loads_are_known { self.board.level.share(100) } else { 0 };
        summary.peak_after = self.board.peak();
        summary.calm = self.budget.left(Bucket::Calm);
        summary.relief = self.budget.left(Bucket::Relief);
        summary.credit = self.budget.credit();
        summary.ranges = self.board.pieces.len();
        summary.owners = self.board.eligible;
    }

    /// Moves a part of a piece if the bucket pays for it; says whether it did.
    pub(super) fn move_part(
        &mut self,
        piece: usize,
        part: KeyRange,
        to: usize,
        reason: TrimReason,
        bucket: Bucket,
    ) -> bool {
        let load = self.board.density(piece).load_of(part);
        if !self.budget.pay(bucket, cost(&self.board, load, part)) {
            return false;
        }
        let from = self.board.pieces[piece].owner;
        let judged = judged_owner(reason, from, to);
        let ratio_before = self.board.ratio(judged);
        let moved = self.board.cut(piece, part);
        self.board.give(moved, to);
        self.follow_big_keys(moved, from, to);
        if reason != TrimReason::Unowned {
            self.moves_left = self.moves_left.saturating_sub(1);
        }
        self.decision.moves.push(TrimMove {
            range: part,
            from: from.map(|from| self.session(from)),
            to: self.session(to),
            reason,
            ratio_before,
            ratio_after: self.board.ratio(judged),
            load: if self.loads_are_known { load } else { 0 },
            key_share_ppb: key_share_ppb(part),
            bucket,
            tokens_left: self.budget.left(bucket),
        });
        true
    }

    /// Notes that the big keys of a piece have another Owner now.
    fn follow_big_keys(&mut self, piece: usize, from: Option<usize>, to: usize) {
        if self.board.heavy(piece).is_empty() {
            return;
        }
        let range = self.board.pieces[piece].range;
        for big in self.big_keys.iter_mut().filter(|big| range.contains(big.key)) {
            big.owner = Some(to);
        }
        for owner in from.into_iter().chain([to]) {
            let own = self.big_keys.iter().find(|big| big.owner == Some(owner));
            self.board.owners[owner].big_key = own.map(|big| (big.key, big.load));
            self.board.set_goal(owner);
        }
    }

    pub(super) fn session(&self, owner: usize) -> SessionId {
        self.board.owners[owner].session
    }

    /// Notes a reason once.
    pub(super) fn skip(&mut self, skip: TrimSkip) {
        if !self.decision.skipped.contains(&skip) {
            self.decision.skipped.push(skip);
        }
    }

    /// Whether one more range may begin to move; notes it if not.
    pub(super) fn has_moves_left(&mut self) -> bool {
        if self.moves_left == 0 {
            self.skip(TrimSkip::MovesFull);
        }
        self.moves_left > 0
    }
}

/// Whose ratio says what a move is good for.
fn judged_owner(reason: TrimReason, from: Option<usize>, to: usize) -> usize {
    match reason {
        TrimReason::HotKeyAlone
        | TrimReason::HotKeyToLarger
        | TrimReason::ShedRange
        | TrimReason::ShedHotKey
        | TrimReason::ShedPart
        | TrimReason::Swap => from.unwrap_or(to),
        TrimReason::Unowned
        | TrimReason::Draining
        | TrimReason::FeedIdle
        | TrimReason::FeedNew
        | TrimReason::ColdKeyHome => to,
    }
}

/// Counts the streaks of the Owners that reported, and says how every Owner stands.
fn standings(memory: &mut TrimMemory, board: &Board, members: &[Member], terms: &Terms) -> Vec<Standing> {
    let one_request = load_of_one_request(terms.settings.renewal);
    let mut standings = vec![Standing::default(); board.owners.len()];
    for (place, owner) in board.owners.iter().enumerate().filter(|(_, owner)| owner.is_eligible) {
        let Some(known) = memory.owners.get_mut(&owner.session) else { continue };
        let ratio = board.ratio(place);
        let excess = owner.load.saturating_sub(owner.goal).saturating_mul(2);
        let half_sigmas = |count: u64| count.saturating_mul(sigma(owner.goal, one_request));
        let is_high = ratio > board.thresholds.start_slow && excess > half_sigmas(SLOW_HALF_SIGMAS);
        let is_very_high = ratio > board.thresholds.start_fast && excess > half_sigmas(FAST_HALF_SIGMAS);
        if members[place].is_fresh {
            known.count(is_high, ratio < IDLE);
        }
        standings[place] = Standing {
            sheds: is_very_high || (is_high && known.high_streak >= 2),
            is_idle: ratio < IDLE && known.low_streak >= 2,
            is_new: !known.is_settled,
            is_urgent: ratio > URGENT,
        };
    }
    standings
}

impl OwnerMemory {
    /// Counts one more report.
    fn count(&mut self, is_high: bool, is_low: bool) {
        self.high_streak = if is_high { (self.high_streak + 1).min(2) } else { 0 };
        self.low_streak = if is_low { (self.low_streak + 1).min(2) } else { 0 };
    }
}
