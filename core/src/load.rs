//! Load policies: how many virtual nodes each Owner should have, given the load that it reports.
//!
//! The Manager holds a round every so often and stores the counts that a policy decides; the partitioner turns them
//! into ranges (Centrifuge §2.1.2, PRS §4.5).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::id::OwnerName;
use crate::key::{Key, KeyRange};
use crate::partition::{PartitionOwner, Partitioner};

/// The load of a range, in requests per 1,000 seconds or any unit that all Owners share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RangeLoad {
    /// The keys that were asked for.
    pub range: KeyRange,
    /// The load of all of them.
    pub load: u64,
    /// The single key with the greatest load seen in the range, and that load.
    pub hottest: Option<(Key, u64)>,
}

/// One Owner as the policy sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerLoad {
    /// The Owner's name; no two of a round share it.
    pub name: OwnerName,
    /// The virtual nodes that the Owner has now.
    pub virtual_nodes: u32,
    /// The Owner's capacity in percent of a normal Owner's.
    pub weight: u32,
    /// The load that the Owner reports, in the unit of the ranges.
    pub load: u64,
}

/// What a policy is asked about: the state of a namespace whose earlier moves have ended.
#[derive(Clone, Copy)]
pub struct LoadRound<'a> {
    /// The Owners that may have keys.
    pub owners: &'a [OwnerLoad],
    /// The load of the key space, as the Owners reported it. Keys outside every range are taken to have none.
    pub ranges: &'a [RangeLoad],
    /// What turns counts of virtual nodes into ranges.
    pub partitioner: &'a dyn Partitioner,
    /// The most transfers between two Owners that the round may make.
    pub max_changes: usize,
}

/// A new count of virtual nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VirtualNodeChange {
    /// Whose count changes.
    pub name: OwnerName,
    /// What it is from now on.
    pub virtual_nodes: u32,
}

/// Why an Owner's load led to no transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoadSkip {
    /// The policy is not to balance.
    Off,
    /// There is nobody to share with.
    SingleOwner,
    /// Nobody reports any load.
    NoLoad,
    /// The Owner is configured to have no keys.
    NoCapacity,
    /// The Owner's load is close enough to its share.
    Balanced,
    /// The Owner, or whoever would give, has no virtual node to spare.
    LastVirtualNode,
    /// No transfer would lower the highest load among the Owners that it concerns.
    WouldNotLowerPeak,
    /// Earlier transfers were predicted to bring the Owner closer to its share and did not.
    Patience,
    /// The round has made, or considered, all that it may.
    RoundFull,
}

/// What a round decided, and why it left the rest alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LoadDecision {
    /// The new counts, in the order of the round's Owners; the total of all counts is what it was.
    pub changes: Vec<VirtualNodeChange>,
    /// The Owners for which no transfer was made, in the order of the round's Owners.
    pub skipped: Vec<(OwnerName, LoadSkip)>,
}

/// A way to answer load with virtual nodes.
pub trait LoadPolicy {
    /// Decides one round. `memory` is what the policy keeps from round to round; a new leader begins with none.
    fn round(&self, memory: &mut LoadMemory, round: &LoadRound<'_>) -> LoadDecision;
}

/// The policies that a namespace can be configured with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LoadPolicyKind {
    /// [`TenPercent`], the default.
    TenPercent,
    /// [`NoBalancing`].
    Off,
}

impl LoadPolicyKind {
    /// The policy of this kind.
    #[must_use]
    pub fn policy(self) -> &'static dyn LoadPolicy {
        match self {
            LoadPolicyKind::TenPercent => &TenPercent,
            LoadPolicyKind::Off => &NoBalancing,
        }
    }
}

/// Leaves every count alone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NoBalancing;

impl LoadPolicy for NoBalancing {
    fn round(&self, _memory: &mut LoadMemory, round: &LoadRound<'_>) -> LoadDecision {
        skip_all(round, LoadSkip::Off)
    }
}

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
/// - Predictions are not exact, so each transfer is on account of the Owner that was out of balance, which must have
///   come closer to its share than ever before, by at least 1 % of it, or spend one of a few credits. An Owner
///   without credit causes no transfer. As the distance to its share cannot shrink for ever, each Owner causes only
///   so many transfers, and the policy comes to rest whatever the loads do meanwhile. Credit is renewed only when
///   Owners, weights or the load itself have changed, which transfers do not do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TenPercent;

/// An Owner's whole share, in the millionths of its share by which its load is judged.
const SHARE: u64 = 1_000_000;
/// How far from its share an Owner may be.
const TOLERANCE: u64 = SHARE / 10;
/// How much closer to its share counts as progress.
const PROGRESS: u64 = SHARE / 100;
/// How many transfers without progress an Owner may cause in a row.
const PATIENCE: u8 = 3;
/// How far the load of an Owner at rest, or of all together, may wander before it counts as another load.
const SAME_LOAD: u64 = SHARE / 5;
/// How much a transfer must lower the peak to be worth the move of a range.
const WORTHWHILE: u64 = SHARE / 1_000;
/// How many rounds without a transfer it takes for the effects of the last one to be in every report.
const QUIET_ROUNDS: u32 = 3;
/// How many partners are tried for one Owner.
const PARTNERS: usize = 4;
/// How many predictions a round may make: each costs an assignment, and the Manager has renewals to answer.
const PREDICTIONS: usize = 64;

impl LoadPolicy for TenPercent {
    fn round(&self, memory: &mut LoadMemory, round: &LoadRound<'_>) -> LoadDecision {
        let able = || round.owners.iter().filter(|owner| is_able(owner));
        if able().count() < 2 {
            return skip_all(round, LoadSkip::SingleOwner);
        }
        let pool = Pool { load: able().map(|owner| u128::from(owner.load)).sum(), weight: able().map(|owner| u128::from(owner.weight)).sum() };
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

/// Whether the Owner can have keys at all.
fn is_able(owner: &OwnerLoad) -> bool {
    owner.weight > 0 && owner.virtual_nodes > 0
}

fn skip_all(round: &LoadRound<'_>, reason: LoadSkip) -> LoadDecision {
    let skipped = round.owners.iter().map(|owner| (owner.name.clone(), reason)).collect();
    LoadDecision { changes: Vec::new(), skipped }
}

/// The load and the weight of all able Owners together; neither is zero.
#[derive(Clone, Copy)]
struct Pool {
    load: u128,
    weight: u128,
}

impl Pool {
    /// What `load` is to an Owner of that weight, in millionths of its share.
    fn level(self, load: u64, weight: u32) -> u64 {
        let scaled = u128::from(load).saturating_mul(self.weight).saturating_mul(u128::from(SHARE));
        let share = self.load * u128::from(weight);
        u64::try_from(scaled / share).unwrap_or(u64::MAX)
    }
}

/// How far from its share an Owner with this level is.
fn gap(level: u64) -> u64 {
    level.abs_diff(SHARE)
}

/// What the policy remembers between rounds; volatile, and empty in a new leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LoadMemory {
    /// The Owners since the credits were last renewed.
    owners: BTreeMap<OwnerName, Progress>,
    /// The load of all of them then.
    load: u128,
    /// How many rounds in a row made no transfer.
    quiet_rounds: u32,
    /// Where the next round goes on, because the last one ran out of predictions.
    resume_at: Option<OwnerName>,
}

/// How one Owner has fared since the credits were last renewed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Progress {
    weight: u32,
    /// The smallest distance from its share at which the Owner has caused a transfer.
    smallest_gap: u64,
    /// How many more transfers it may cause without progress.
    credit: u8,
    /// Its level when the pool had come to rest.
    resting_level: u64,
}

impl Progress {
    fn is_closer(&self, gap: u64) -> bool {
        gap.saturating_add(PROGRESS) <= self.smallest_gap
    }

    fn may_transfer(&self, gap: u64) -> bool {
        self.is_closer(gap) || self.credit > 0
    }

    fn charge(&mut self, gap: u64) {
        if self.is_closer(gap) {
            self.smallest_gap = gap;
            self.credit = PATIENCE;
        } else {
            self.credit = self.credit.saturating_sub(1);
        }
    }
}

impl LoadMemory {
    /// Renews the credits if this is no longer the pool or the load that they were given for.
    fn begin(&mut self, owners: &[OwnerLoad], pool: Pool) {
        if !self.is_same_pool(owners) || !self.is_same_load(owners, pool) {
            self.renew(owners, pool);
        }
        if self.quiet_rounds == QUIET_ROUNDS {
            for owner in owners {
                if let Some(progress) = self.owners.get_mut(&owner.name) {
                    progress.resting_level = pool.level(owner.load, owner.weight);
                }
            }
        }
    }

    fn end(&mut self, transfers: usize) {
        self.quiet_rounds = if transfers > 0 { 0 } else { self.quiet_rounds.saturating_add(1) };
    }

    fn is_same_pool(&self, owners: &[OwnerLoad]) -> bool {
        let known = |owner: &OwnerLoad| self.owners.get(&owner.name).is_some_and(|known| known.weight == owner.weight);
        owners.iter().filter(|owner| is_able(owner)).count() == self.owners.len()
            && owners.iter().filter(|owner| is_able(owner)).all(known)
    }

    /// Transfers shift load between Owners but do not change its total, and at rest there are no transfers: what moves
    /// then is the load itself.
    fn is_same_load(&self, owners: &[OwnerLoad], pool: Pool) -> bool {
        if pool.load.abs_diff(self.load) * u128::from(SHARE) > self.load * u128::from(SAME_LOAD) {
            return false;
        }
        let rests = |owner: &OwnerLoad| {
            let level = pool.level(owner.load, owner.weight);
            self.owners.get(&owner.name).is_none_or(|known| level.abs_diff(known.resting_level) <= SAME_LOAD)
        };
        self.quiet_rounds <= QUIET_ROUNDS || owners.iter().all(rests)
    }

    fn renew(&mut self, owners: &[OwnerLoad], pool: Pool) {
        let fresh = |owner: &OwnerLoad| {
            let progress =
                Progress { weight: owner.weight, smallest_gap: u64::MAX, credit: PATIENCE, resting_level: 0 };
            (owner.name.clone(), progress)
        };
        let owners = owners.iter().filter(|owner| is_able(owner)).map(fresh).collect();
        *self = LoadMemory { owners, load: pool.load, ..LoadMemory::default() };
    }
}

/// A round in the making: the counts decided so far and the levels that they are predicted to bring.
struct Plan<'a> {
    round: &'a LoadRound<'a>,
    pool: Pool,
    owners: Vec<PartitionOwner>,
    levels: Vec<u64>,
    reasons: Vec<LoadSkip>,
    transfers: usize,
    predictions: usize,
}

impl<'a> Plan<'a> {
    fn new(round: &'a LoadRound<'a>, pool: Pool) -> Plan<'a> {
        let as_partitioned = |owner: &OwnerLoad| PartitionOwner {
            name: owner.name.clone(),
            virtual_nodes: owner.virtual_nodes,
            weight: owner.weight,
        };
        let reason = |owner| if is_able(owner) { LoadSkip::Balanced } else { LoadSkip::NoCapacity };
        let mut plan = Plan {
            round,
            pool,
            owners: round.owners.iter().map(as_partitioned).collect(),
            levels: Vec::new(),
            reasons: round.owners.iter().map(reason).collect(),
            transfers: 0,
            predictions: 0,
        };
        plan.levels = plan.predict(&plan.owners);
        plan
    }

    /// Gives every Owner that is out of balance its turn.
    fn run(&mut self, memory: &mut LoadMemory) {
        let turns = self.turns(memory);
        memory.resume_at = None;
        for &(gap, owner) in &turns {
            let name = &self.round.owners[owner].name;
            if self.transfers >= self.round.max_changes {
                self.reasons[owner] = LoadSkip::RoundFull;
                continue;
            }
            if self.predictions >= PREDICTIONS {
                self.reasons[owner] = LoadSkip::RoundFull;
                memory.resume_at.get_or_insert_with(|| name.clone());
                continue;
            }
            let Some(progress) = memory.owners.get_mut(name) else { continue };
            match self.turn(owner, progress.may_transfer(gap)) {
                Ok(()) => progress.charge(gap),
                Err(reason) => self.reasons[owner] = reason,
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
        let resume_at = |&(_, place): &(u64, usize)| Some(&self.round.owners[place].name) == memory.resume_at.as_ref();
        let first = turns.iter().position(resume_at).unwrap_or(0);
        turns.rotate_left(first);
        turns
    }

    /// Makes the first transfer that helps `owner` and lowers the peak.
    fn turn(&mut self, owner: usize, has_credit: bool) -> Result<(), LoadSkip> {
        if gap(self.levels[owner]) <= TOLERANCE {
            return Err(LoadSkip::Balanced);
        }
        if !has_credit {
            return Err(LoadSkip::Patience);
        }
        let gives = self.levels[owner] > SHARE;
        let mut reason = LoadSkip::LastVirtualNode;
        for partner in self.partners(owner, gives) {
            let (from, to) = if gives { (owner, partner) } else { (partner, owner) };
            let Some(owners) = self.transferred(from, to) else { continue };
            let levels = self.predict(&owners);
            self.predictions += 1;
            if lowers_peak(&self.levels, &levels) {
                (self.owners, self.levels) = (owners, levels);
                self.transfers += 1;
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
        let loads = predicted_loads(&self.round.partitioner.assign(owners), self.round.ranges, owners.len());
        let level = |(owner, load): (&PartitionOwner, u64)| match owner.weight {
            0 => 0,
            weight => self.pool.level(load, weight),
        };
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

/// The load that each of `count` Owners would have under `assignment`.
///
/// The hottest key of a range goes where its point of the key space goes; the rest of the range's load is taken to be
/// spread evenly, for nothing more is known of it.
fn predicted_loads(assignment: &[(KeyRange, usize)], ranges: &[RangeLoad], count: usize) -> Vec<u64> {
    let mut loads = vec![0_u64; count];
    for reported in ranges {
        let hottest = reported.hottest.filter(|(key, _)| reported.range.contains(*key));
        let hottest_load = hottest.map_or(0, |(_, load)| load.min(reported.load));
        let spread = reported.load - hottest_load;
        let first = assignment.partition_point(|(range, _)| range.last() < reported.range.first());
        for &(range, owner) in &assignment[first..] {
            let Some(part) = range.intersection(reported.range) else { break };
            let point = if hottest.is_some_and(|(key, _)| part.contains(key)) { hottest_load } else { 0 };
            loads[owner] = loads[owner].saturating_add(point).saturating_add(part_of(spread, part, reported.range));
        }
    }
    loads
}

/// What falls on `part` of a load spread over `whole`. The parts of a whole add up to its load.
fn part_of(load: u64, part: KeyRange, whole: KeyRange) -> u64 {
    if part == whole {
        return load;
    }
    let up_to = |keys: u128| u128::from(load) * keys / whole.key_count();
    let before = u128::from(part.first().0 - whole.first().0);
    (up_to(before + part.key_count()) - up_to(before)) as u64
}
