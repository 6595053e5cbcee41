//! The default load policy: the papers' 10 % rule.

use std::cmp::Reverse;

use crate::load::memory::{LoadMemory, Pool, Progress, SHARE, gap};
use crate::load::prediction::predicted_loads;
use crate::load::{LoadDecision, LoadPolicy, LoadRound, LoadSkip, OwnerLoad, RangeLoad, VirtualNodeChange};
use crate::load::{is_able, skip_all};
use crate::partition::PartitionOwner;

/// The papers' rule (Centrifuge §2.1.2, PRS §4.5), made to come to rest.
///
/// An Owner whose load is more than 10 % above its share, which is the mean in proportion to its weight, gives a
/// virtual node to one of the least loaded; one more than 10 % below its share gets one from one of the most loaded.
/// The total of virtual nodes stays what it is. Two rules are added to the papers':
///
/// - A transfer is made only if it is predicted to lower the peak: the highest load, relative to weight, among the
///   Owners whose load it changes. (Not the highest of all: one key that nobody can carry must not keep the others
///   from being balanced.) Were predictions exact, the loads sorted from the highest down would shrink with every
///   transfer, so no state could come again.
/// - Predictions are not exact, so each transfer is on account of the Owner that was out of balance. That Owner must have
///   come closer to its share than at any transfer before, by at least 1 % of it, or spend one of a few credits; without
///   credit it causes no transfer. A distance cannot shrink for ever, so each Owner causes a bounded number of
///   transfers, however wrong the predictions are, and under steady load the policy comes to rest for good. Credits are
///   renewed only when Owners, weights, the total load, or the loads of a pool at rest have changed: transfers change
///   none of these.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TenPercent;

/// How far from its share an Owner may be.
const TOLERANCE: u64 = SHARE / 10;
/// How much a transfer must lower the peak to be worth the move of a range.
const WORTHWHILE: u64 = SHARE / 1_000;
/// How many partners are tried for one Owner.
const PARTNERS: usize = 8;
/// How many virtual nodes a round may place in its predictions, for the Manager has renewals to answer meanwhile.
const PLACEMENTS: u64 = 1_000_000;

impl LoadPolicy for TenPercent {
    fn round(&self, memory: &mut LoadMemory, round: &LoadRound<'_>) -> LoadDecision {
        if round.owners.iter().filter(|owner| is_able(owner)).count() < 2 {
            return skip_all(round, LoadSkip::SingleOwner);
        }
        let pool = Pool::of(round.owners);
        if pool.load == 0 {
            return skip_all(round, LoadSkip::NoLoad);
        }
        memory.begin(round.owners, pool);
        let mut plan = Plan::new(round, pool);
        plan.run(memory);
        memory.end(plan.transfers);
        plan.decision()
    }
}

/// A round in the making: the counts decided so far and the levels that they are predicted to bring.
struct Plan<'a> {
    round: &'a LoadRound<'a>,
    pool: Pool,
    /// The reports in key order.
    ranges: Vec<&'a RangeLoad>,
    owners: Vec<PartitionOwner>,
    levels: Vec<u64>,
    reasons: Vec<LoadSkip>,
    transfers: usize,
    /// Virtual nodes placed by the predictions of transfers so far.
    placements: u64,
}

impl<'a> Plan<'a> {
    fn new(round: &'a LoadRound<'a>, pool: Pool) -> Plan<'a> {
        let as_partitioned = |owner: &OwnerLoad| PartitionOwner {
            name: owner.name.clone(),
            virtual_nodes: owner.virtual_nodes,
            weight: owner.weight,
        };
        let reason = |owner| if is_able(owner) { LoadSkip::Balanced } else { LoadSkip::NoCapacity };
        let mut ranges: Vec<&RangeLoad> = round.ranges.iter().collect();
        ranges.sort_by_key(|reported| reported.range);
        Plan {
            round,
            pool,
            ranges,
            owners: round.owners.iter().map(as_partitioned).collect(),
            levels: Vec::new(),
            reasons: round.owners.iter().map(reason).collect(),
            transfers: 0,
            placements: 0,
        }
    }

    /// Gives every Owner that is out of balance its turn.
    fn run(&mut self, memory: &mut LoadMemory) {
        let turns = self.turns(memory);
        memory.resume_at = None;
        if !turns.is_empty() {
            self.levels = self.predict(&self.owners);
        }
        for (gap, owner) in turns {
            let name = &self.round.owners[owner].name;
            let tired = self.placements >= PLACEMENTS;
            if tired {
                memory.resume_at.get_or_insert_with(|| name.clone());
            }
            let outcome = match memory.owners.get_mut(name) {
                Some(progress) if !tired && self.transfers < self.round.max_changes => {
                    self.turn(owner, gap, progress)
                }
                _ => Err(LoadSkip::RoundFull),
            };
            if let Err(reason) = outcome {
                self.reasons[owner] = reason;
            }
        }
    }

    /// The Owners out of balance by what they report, the farthest first, with their distance.
    fn turns(&self, memory: &LoadMemory) -> Vec<(u64, usize)> {
        let gap_of = |owner: &OwnerLoad| gap(self.pool.level(owner.load, owner.weight));
        let able = self.round.owners.iter().enumerate().filter(|(_, owner)| is_able(owner));
        let mut turns: Vec<(u64, usize)> =
            able.map(|(place, owner)| (gap_of(owner), place)).filter(|&(gap, _)| gap > TOLERANCE).collect();
        turns.sort_by_key(|&(gap, place)| (Reverse(gap), &self.round.owners[place].name));
        let resume_at =
            |&(_, place): &(u64, usize)| Some(&self.round.owners[place].name) == memory.resume_at.as_ref();
        let first = turns.iter().position(resume_at).unwrap_or(0);
        turns.rotate_left(first);
        turns
    }

    /// Makes the first transfer that helps `owner` and lowers the peak.
    fn turn(&mut self, owner: usize, reported_gap: u64, progress: &mut Progress) -> Result<(), LoadSkip> {
        if gap(self.levels[owner]) <= TOLERANCE {
            return Err(LoadSkip::Balanced);
        }
        if !progress.may_transfer(reported_gap) {
            return Err(LoadSkip::Patience);
        }
        let gives = self.levels[owner] > SHARE;
        let mut reason = LoadSkip::LastVirtualNode;
        for partner in self.partners(owner, gives) {
            let (from, to) = if gives { (owner, partner) } else { (partner, owner) };
            let Some(owners) = self.transferred(from, to) else { continue };
            let levels = self.predict(&owners);
            self.placements += owners.iter().map(|owner| u64::from(owner.virtual_nodes)).sum::<u64>();
            if lowers_peak(&self.levels, &levels) {
                (self.owners, self.levels) = (owners, levels);
                self.transfers += 1;
                progress.charge(reported_gap);
                return Ok(());
            }
            reason = LoadSkip::WouldNotLowerPeak;
        }
        Err(reason)
    }

    /// The least loaded others if `owner` gives, else the most loaded.
    fn partners(&self, owner: usize, gives: bool) -> Vec<usize> {
        let able = |&place: &usize| place != owner && is_able(&self.round.owners[place]);
        let mut others: Vec<usize> = (0..self.owners.len()).filter(able).collect();
        others.sort_by_key(|&place| (self.levels[place], &self.owners[place].name));
        if !gives {
            others.reverse();
        }
        others.truncate(PARTNERS);
        others
    }

    /// The counts after a transfer; `None` if `from` must keep what it has.
    fn transferred(&self, from: usize, to: usize) -> Option<Vec<PartitionOwner>> {
        // An Owner of half the weight needs two for one more on the ring.
        let step = 100_u32.div_ceil(self.owners[from].weight.min(self.owners[to].weight));
        let step = step.min(self.owners[from].virtual_nodes - 1);
        let received = self.owners[to].virtual_nodes.checked_add(step)?;
        if step == 0 {
            return None;
        }
        let mut owners = self.owners.clone();
        owners[from].virtual_nodes -= step;
        owners[to].virtual_nodes = received;
        Some(owners)
    }

    /// The level of every Owner if the counts were these.
    fn predict(&self, owners: &[PartitionOwner]) -> Vec<u64> {
        let loads = predicted_loads(&self.round.partitioner.assign(owners), &self.ranges, owners.len());
        let level = |(owner, load): (&PartitionOwner, u64)| self.pool.level(load, owner.weight);
        owners.iter().zip(loads).map(level).collect()
    }

    fn decision(self) -> LoadDecision {
        let mut decision = LoadDecision::default();
        for ((was, is), reason) in self.round.owners.iter().zip(self.owners).zip(self.reasons) {
            if was.virtual_nodes == is.virtual_nodes {
                decision.skipped.push((is.name, reason));
            } else {
                decision.changes.push(VirtualNodeChange { name: is.name, virtual_nodes: is.virtual_nodes });
            }
        }
        decision
    }
}

/// Whether the highest level falls among the Owners whose level changes.
fn lowers_peak(before: &[u64], after: &[u64]) -> bool {
    let changed = || before.iter().zip(after).filter(|(before, after)| before != after);
    let peak_before = changed().map(|(&before, _)| before).max().unwrap_or(0);
    let peak_after = changed().map(|(_, &after)| after).max().unwrap_or(0);
    peak_after.saturating_add(WORTHWHILE) <= peak_before
}
