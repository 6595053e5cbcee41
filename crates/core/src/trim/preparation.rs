//! Reads the table and the reports, range by range, into estimates and the board that a decision works on.

use crate::id::SessionId;
use crate::time::Instant;
use crate::trim::board::Board;
use crate::trim::memory::{RangeMemory, TrimMemory};
use crate::trim::plan::Plan;
use crate::trim::report::{ReportReader, is_recent};
use crate::trim::{TrimInput, TrimOwner, TrimRange, TrimSettings, TrimSkip};

/// How many ranges one step reads, and how much work one of them is.
const RANGES_PER_STEP: usize = 256;
const WORK_PER_RANGE: u64 = 5;

/// What a decision depends on, besides table, members and reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Terms {
    pub(super) now: Instant,
    pub(super) settings: TrimSettings,
    pub(super) may_move: bool,
    pub(super) is_settled: bool,
    pub(super) is_new: bool,
    pub(super) moves_under_way: usize,
    pub(super) membership_changed: bool,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Member {
    pub(super) session: SessionId,
    pub(super) weight: u32,
    pub(super) is_eligible: bool,
    pub(super) reported_at: Option<Instant>,
    /// Its report is new.
    pub(super) is_fresh: bool,
    /// Its report is recent enough to say something.
    is_heard: bool,
    /// It holds a range.
    pub(super) is_holder: bool,
}

/// A decision whose input is being read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Preparation {
    terms: Terms,
    /// In the order in which ties are broken: by name, then by session.
    members: Vec<Member>,
    by_session: Vec<(SessionId, usize)>,
    /// The new reports.
    readers: Vec<Option<ReportReader>>,
    ranges: Vec<TrimRange>,
    /// What is known of the ranges that were read.
    remembered: Vec<RangeMemory>,
    /// The next range of the memory that may overlap one of the table.
    next_known: usize,
    board: Board,
}

impl Preparation {
    pub(super) fn new(memory: &TrimMemory, input: &TrimInput<'_>) -> Preparation {
        let mut owners: Vec<&TrimOwner<'_>> = input.owners.iter().collect();
        owners.sort_by_key(|owner| (owner.name, owner.session));
        let members: Vec<Member> = owners.iter().map(|owner| Member::new(owner, memory, input)).collect();
        let mut by_session: Vec<(SessionId, usize)> =
            members.iter().enumerate().map(|(place, member)| (member.session, place)).collect();
        by_session.sort_unstable();
        let reader = |(owner, member): (&&TrimOwner<'_>, &Member)| {
            let report = owner.report.filter(|_| member.is_fresh);
            report.map(|report| ReportReader::new(&report, input.settings.renewal))
        };
        Preparation {
            terms: Terms::of(input),
            readers: owners.iter().zip(&members).map(reader).collect(),
            ranges: input.ranges.to_vec(),
            remembered: Vec::with_capacity(input.ranges.len()),
            next_known: 0,
            board: Board::new(&members, input),
            members,
            by_session,
        }
    }

    /// Reads some more ranges, and says how much work it was; `None` if all are read.
    pub(super) fn read_some(&mut self, memory: &TrimMemory) -> Option<u64> {
        let first = self.remembered.len();
        let end = self.ranges.len().min(first + RANGES_PER_STEP);
        (first..end).for_each(|place| self.read(place, memory));
        (first < end).then_some((end - first) as u64 * WORK_PER_RANGE)
    }

    fn read(&mut self, place: usize, memory: &TrimMemory) {
        let range = self.ranges[place];
        let owner = self.member(range.owner);
        let holder = if range.holder == range.owner { owner } else { self.member(range.holder) };
        let mut known = memory.of_range(&range, &mut self.next_known, self.terms.now);
        if let Some(holder) = holder {
            self.members[holder].is_holder = true;
            if let Some(reader) = &mut self.readers[holder] {
                known.read(reader, self.members[holder].reported_at);
            }
        }
        self.board.add(&range, &known, owner, self.terms.now);
        self.remembered.push(known);
    }

    fn member(&self, session: Option<SessionId>) -> Option<usize> {
        let found = self.by_session.binary_search_by_key(&session?, |(session, _)| *session).ok()?;
        Some(self.by_session[found].1)
    }

    /// Updates the memory, and begins to plan with all that was read.
    pub(super) fn plan(&mut self, memory: &mut TrimMemory) -> Plan {
        let Terms { now, is_new, ref settings, .. } = self.terms;
        memory.budget.refill(now, is_new, settings);
        memory.ranges = std::mem::take(&mut self.remembered);
        memory.follow_members(&self.members, now);
        let unknown = self.unknown_loads();
        let idle = self.no_balancing();
        let mut board = self.board.take();
        if unknown.is_some() {
            board.count_keys_instead();
        }
        Plan::new(memory, board, &self.members, &self.terms, (unknown, idle))
    }

    /// Why the loads are not known well enough.
    fn unknown_loads(&self) -> Option<TrimSkip> {
        let weight = |is_counted: fn(&Member) -> bool| -> u64 {
            let counted = self.members.iter().filter(|member| member.is_holder && is_counted(member));
            counted.map(|member| u64::from(member.weight.max(1))).sum()
        };
        if weight(|member| !member.is_heard).saturating_mul(5) > weight(|_| true) {
            return Some(TrimSkip::TooFewReports);
        }
        (self.board.total == 0).then_some(TrimSkip::NoLoad)
    }

    /// Why no load may move in this decision, even if it is known.
    fn no_balancing(&self) -> Option<TrimSkip> {
        let has_news = self.terms.membership_changed || self.members.iter().any(|member| member.is_fresh);
        if self.board.eligible == 0 {
            Some(TrimSkip::NoOwners)
        } else if !(self.terms.may_move && self.terms.is_settled) {
            Some(TrimSkip::Frozen)
        } else if self.terms.settings.churn_percent == 0 {
            Some(TrimSkip::BalancingOff)
        } else {
            (!has_news).then_some(TrimSkip::NothingNew)
        }
    }
}

impl Terms {
    fn of(input: &TrimInput<'_>) -> Terms {
        Terms {
            now: input.now,
            settings: input.settings.clone(),
            may_move: input.may_move,
            is_settled: input.is_settled,
            is_new: input.is_new,
            moves_under_way: input.moves_under_way,
            membership_changed: input.membership_changed,
        }
    }
}

impl Member {
    fn new(owner: &TrimOwner<'_>, memory: &TrimMemory, input: &TrimInput<'_>) -> Member {
        let reported_at = owner.report.map(|report| report.at);
        let known = memory.owners.get(&owner.session).and_then(|known| known.reported_at);
        Member {
            session: owner.session,
            weight: owner.weight,
            is_eligible: owner.is_eligible && owner.weight > 0,
            reported_at,
            is_fresh: reported_at > known,
            is_heard: reported_at.is_some_and(|at| is_recent(at, input.now, input.settings.renewal)),
            is_holder: false,
        }
    }
}
