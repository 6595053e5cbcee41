//! B1: because of load nothing moves that is pinned, nothing while the namespace is frozen, nothing to an Owner that gives
//! everything away, and no more in a time than the budget allows.
//!
//! It is judged by what is committed alone: the reason of a recall says that load asked for it and what paid for it, and the record itself
//! how much of the key space moves, which must not be more than the reason says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{OwnerName, SessionId, Term};
use centrifuge_core::key::KeyRange;
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::record::{Batch, Change, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;

use super::{At, Seen, TrueTime, Verdict, later, slot};

/// The buckets, and what an hour brings each of them, in percent of the key space.
const BUCKETS: [(&str, u128); 2] = [("calm budget left", 30), ("relief budget left", 100)];
/// How long the credit of a pool that has nothing yet lasts, and how long what it paid for may wait to begin.
const CREDIT: Duration = Duration::from_secs(300 + 100);
/// What the budget may have gained by a clock that is fast, and by what was rounded.
const TOLERANCE: (u128, u128) = (26, 25);

/// What a share in words may be too low by: a thousandth of a percent.
const ROUNDED: u128 = PERCENT / 500;
const HOUR_NANOS: u128 = 3_600_000_000_000;
const PERCENT: u128 = (1 << 64) / 100;

/// Guards B1.
#[derive(Debug, Default)]
pub struct BalanceKeepsItsBounds {
    pools: Vec<Pool>,
    /// The latest leader's, and when it began.
    term: Term,
    since: TrueTime,
}

/// What is committed of one namespace, record by record.
#[derive(Debug, Default)]
struct Pool {
    settings: Arc<Settings>,
    frozen: bool,
    sessions: BTreeMap<SessionId, SessionInfo>,
    pins: RangeMap<OwnerName>,
    /// What has an owner.
    owned: RangeMap<SessionId>,
    spending: Spending,
}

/// What one leader has spent. The next one begins without tokens.
#[derive(Debug, Default)]
struct Spending {
    /// Up to when moves may be on credit.
    credit_until: TrueTime,
    /// The most that an hour could bring since the term began, in percent of what is usual.
    churn: u128,
    /// By bucket, in keys.
    spent: [u128; BUCKETS.len()],
    /// What was said of each move that was paid for: a recall that is repeated is one move.
    paid_for: BTreeSet<String>,
}

impl BalanceKeepsItsBounds {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        let Seen::Committed { batch, .. } = seen else { return Ok(()) };
        self.judge(batch, facts)
    }

    fn judge(&mut self, batch: &Batch, facts: At) -> Verdict {
        if self.term != batch.term {
            (self.term, self.since) = (batch.term, facts.now);
            self.pools.iter_mut().for_each(|pool| pool.begin_term(facts.now));
        }
        for record in &batch.records {
            let Record::Namespace { namespace, change, reason } = record else { continue };
            let Some(space) = facts.spaces.find(namespace) else { continue };
            let pool = slot(&mut self.pools, space);
            if let (Change::Recalled { range, to, .. }, Reason::Balanced(words)) = (change, reason) {
                let wrong = pool
                    .wrong_about(*range, *to)
                    .or_else(|| pool.spend(*range, words, (self.since, facts.now)));
                if let Some(wrong) = wrong {
                    let what = format!("load moves {range}, {words}, though {wrong}");
                    return Err(facts.violation("B1", space, vec![range.first()], what));
                }
            }
            pool.apply(change, facts.now);
        }
        Ok(())
    }
}

impl Pool {
    fn begin_term(&mut self, now: TrueTime) {
        self.spending = Spending::default();
        self.note_credit(now);
    }

    /// A pool that has nothing gets a credit, once somebody is there to decide.
    fn note_credit(&mut self, now: TrueTime) {
        if self.owned.is_empty() {
            self.spending.credit_until = later(now, CREDIT);
        }
    }

    fn apply(&mut self, change: &Change, now: TrueTime) {
        self.note_credit(now);
        match change {
            Change::Created { settings, .. } => {
                *self = Pool { spending: std::mem::take(&mut self.spending), ..Pool::default() };
                self.configure(settings);
            }
            Change::Configured { settings } => self.configure(settings),
            Change::Frozen => self.frozen = true,
            Change::Unfrozen => self.frozen = false,
            Change::SessionStarted { session, info } | Change::SessionChanged { session, info } => {
                self.sessions.insert(*session, info.clone());
            }
            Change::SessionEnded { session } => drop(self.sessions.remove(session)),
            Change::Pinned { range, to: Some(to) } => self.pins.insert(*range, to.clone()),
            Change::Pinned { range, to: None } => self.pins.remove(*range),
            Change::Granted { range, session, .. } | Change::Claimed { range, session, .. } => {
                self.owned.insert(*range, *session);
            }
            Change::Released { range, .. } => self.owned.remove(*range),
            _ => {}
        }
        self.note_credit(now);
    }

    fn configure(&mut self, settings: &Arc<Settings>) {
        self.settings = Arc::clone(settings);
        self.spending.churn = self.spending.churn.max(u128::from(settings.churn_budget));
    }

    /// What stands in the way of a move because of load.
    fn wrong_about(&self, range: KeyRange, to: Option<SessionId>) -> Option<String> {
        let may_have_keys = |info: &SessionInfo| !info.is_draining() && !info.evicted && info.weight > 0;
        if self.frozen {
            return Some("an operator froze the namespace".to_owned());
        }
        let info = to.and_then(|to| self.sessions.get(&to));
        if let Some(info) = info.filter(|info| !may_have_keys(info)) {
            return Some(format!("{} gives everything away", info.name));
        }
        let name = info.map(|info| &info.name);
        let is_there =
            |owner: &OwnerName| self.sessions.values().any(|info| info.name == *owner && may_have_keys(info));
        let mut pins = self.pins.overlapping(range);
        let pinned = pins.find(|(_, owner)| is_there(owner) && Some(*owner) != name);
        pinned.map(|(keys, owner)| format!("an operator wants {keys} at {owner}"))
    }

    /// Pays for a move; says what is wrong if the budget cannot have paid for it, or if more moves than the words say.
    fn spend(&mut self, range: KeyRange, words: &str, (since, now): (TrueTime, TrueTime)) -> Option<String> {
        let spending = &mut self.spending;
        if now <= spending.credit_until {
            return None;
        }
        let costs = costs(words);
        let said: u128 = costs.iter().map(|cost| cost.keys).sum();
        let moved = range.key_count();
        if moved > said + ROUNDED * costs.len() as u128 && !words.contains("; and ") {
            return Some(format!("{} thousandths of a percent of the keys move", parts(moved)));
        }
        let churn = spending.churn.max(u128::from(self.settings.churn_budget));
        let elapsed = u128::from(now.0 - since.0) * TOLERANCE.0 / TOLERANCE.1;
        for Cost { bucket, keys, words } in costs {
            let Some(bucket) = bucket.filter(|_| spending.paid_for.insert(words)) else { continue };
            // A part of what was decided may move alone.
            spending.spent[bucket] += keys.min(moved);
            // In millionths, so that nothing overflows.
            let hourly = BUCKETS[bucket].1 * churn / 100;
            let earned = hourly * elapsed / (HOUR_NANOS / 1_000_000) * (PERCENT / 1_000_000);
            let spent = spending.spent[bucket];
            if spent > earned + PERCENT / 100 {
                let (spent, earned) = (parts(spent), parts(earned));
                return Some(format!(
                    "{spent} thousandths of a percent of the keys moved for a budget of {earned}"
                ));
            }
        }
        None
    }
}

/// Keys, in thousandths of a percent of all.
fn parts(keys: u128) -> u128 {
    keys * 1_000 / PERCENT
}

/// A move that words speak of.
#[derive(Debug, PartialEq, Eq)]
struct Cost {
    /// What paid for it; `None`: nothing had to.
    bucket: Option<usize>,
    keys: u128,
    /// What is said of it.
    words: String,
}

/// The moves that words speak of.
fn costs(words: &str) -> Vec<Cost> {
    let mut costs: Vec<Cost> = Vec::new();
    let mut head = "";
    for clause in words.split("; ") {
        let bucket = BUCKETS.iter().position(|(name, _)| clause.starts_with(name));
        if let Some(keys) = clause.strip_prefix("moves ").and_then(keys_of) {
            costs.push(Cost { bucket: None, keys, words: format!("{head}; {clause}") });
        } else if let (Some(bucket), Some(last)) = (bucket, costs.last_mut()) {
            last.bucket = Some(bucket);
            last.words += clause;
        } else {
            head = clause;
        }
    }
    costs
}

/// The keys of `7 requests/s, 1.250 % of the keys`.
fn keys_of(clause: &str) -> Option<u128> {
    let percent = clause.split(", ").nth(1)?.strip_suffix(" % of the keys")?;
    let (whole, thousandths) = percent.split_once('.')?;
    let thousandths = whole.parse::<u128>().ok()? * 1_000 + thousandths.parse::<u128>().ok()?;
    Some(thousandths * (PERCENT / 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, create, grant, range, session, space_name, start_session};
    use centrifuge_core::id::{Generation, Index};

    /// What Trim says of a move at the cost of the calm budget.
    fn calm(range: KeyRange, seconds: u64) -> String {
        let ppb = range.key_count() * 1_000_000_000 / (1 << 64);
        let (whole, rest) = (ppb / 10_000_000, ppb / 10_000 % 1_000);
        let moves = format!("moves 7 requests/s, {whole}.{rest:03} % of the keys");
        format!("shed-part: 1.200 to 1.000 of its share; {moves}; calm budget left: {seconds}")
    }

    fn recall(range: KeyRange, to: u64) -> Change {
        Change::Recalled { range, generation: Generation(1), to: Some(session(to)) }
    }

    /// Judges a batch in which the changes are an operator's and the recalls Trim's.
    fn commit(
        guard: &mut BalanceKeepsItsBounds,
        seconds: u64,
        changes: Vec<Change>,
    ) -> Result<(), &'static str> {
        let scene = Scene::new();
        let record = |change: Change| {
            let reason = match change {
                Change::Recalled { range, .. } => Reason::Balanced(calm(range, seconds).into()),
                _ => Reason::Joined,
            };
            Record::Namespace { namespace: space_name(), change, reason }
        };
        let batch = Batch { term: Term(1), records: changes.into_iter().map(record).collect() };
        let seen = Seen::Committed { index: Index(1), batch: &batch, by: 0 };
        guard.see(&seen, scene.facts.at(at(seconds))).map_err(|violation| violation.invariant)
    }

    /// A pool of two Owners, of which the first has everything.
    fn pool() -> BalanceKeepsItsBounds {
        let mut guard = BalanceKeepsItsBounds::default();
        let begun = vec![create(1), start_session(1), start_session(2), grant(0, u64::MAX, 1, 1)];
        commit(&mut guard, 0, begun).expect("nothing moves");
        guard
    }

    fn percent(count: u64) -> KeyRange {
        range(0, u64::MAX / 100 * count)
    }

    #[test]
    fn a_move_within_the_budget_is_well_and_one_beyond_it_is_not() {
        let mut guard = pool();
        assert_eq!(commit(&mut guard, 3_600, vec![recall(percent(20), 2)]), Ok(()));
        assert_eq!(commit(&mut guard, 3_700, vec![recall(percent(20), 2)]), Err("B1"));
        let mut guard = pool();
        assert_eq!(commit(&mut guard, 10, vec![recall(percent(90), 2)]), Ok(()), "on credit");
    }

    #[test]
    fn words_are_read_clause_by_clause() {
        let one = PERCENT / 1_000;
        let words = "feed-new: 0.1 to 0.2 of its share; moves 1 requests/s, 2.125 % of the keys; shed-part: 1.2 to 1.0 of its share; \
            moves 0 requests/s, 0.001 % of the keys; relief budget left: 1.000 % of the load, 2.000 % of the keys";
        let read: Vec<_> = costs(words).into_iter().map(|cost| (cost.bucket, cost.keys)).collect();
        assert_eq!(read, [(None, 2_125 * one), (Some(1), one)]);
    }

    #[test]
    fn a_move_of_more_than_is_said_is_a_breach() {
        let mut guard = pool();
        let change = recall(percent(20), 2);
        let reason = Reason::Balanced(calm(percent(10), 7).into());
        let record = Record::Namespace { namespace: space_name(), change, reason };
        let batch = Batch { term: Term(1), records: vec![record] };
        let scene = Scene::new();
        let verdict =
            guard.see(&Seen::Committed { index: Index(2), batch: &batch, by: 0 }, scene.facts.at(at(3_600)));
        assert_eq!(verdict.unwrap_err().invariant, "B1");
    }

    #[test]
    fn a_repeated_recall_is_paid_for_once() {
        let mut guard = pool();
        assert_eq!(commit(&mut guard, 3_600, vec![recall(percent(25), 2), recall(percent(25), 2)]), Ok(()));
    }

    #[test]
    fn nothing_moves_while_frozen_to_whoever_leaves_or_from_a_pin() {
        let pin = |owner: &str| {
            let owner = OwnerName::new(owner).expect("a plain name");
            Change::Pinned { range: range(0, 9), to: Some(owner) }
        };
        let moved = || recall(range(5, 20), 2);
        assert_eq!(commit(&mut pool(), 3_600, vec![Change::Frozen, moved()]), Err("B1"));
        assert_eq!(commit(&mut pool(), 3_600, vec![Change::Frozen, Change::Unfrozen, moved()]), Ok(()));
        assert_eq!(commit(&mut pool(), 3_600, vec![pin("owner-1"), moved()]), Err("B1"));
        assert_eq!(commit(&mut pool(), 3_600, vec![pin("owner-2"), moved()]), Ok(()), "it is wanted there");
        assert_eq!(commit(&mut pool(), 3_600, vec![pin("owner-9"), moved()]), Ok(()), "nobody has that name");
        let Change::SessionStarted { session, mut info } = start_session(2) else { unreachable!() };
        info.drain_ordered = true;
        assert_eq!(
            commit(&mut pool(), 3_600, vec![Change::SessionChanged { session, info }, moved()]),
            Err("B1")
        );
    }
}
