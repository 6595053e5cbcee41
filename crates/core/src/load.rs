//! Load policies: how many virtual nodes each Owner should have, given the load that it reports.
//!
//! The Manager holds a round every so often and stores the counts that a policy decides; the partitioner turns them
//! into ranges (Centrifuge §2.1.2, PRS §4.5).

mod dimension;
mod measurement;
mod memory;
mod prediction;
mod report;
mod ten_percent;

use crate::id::OwnerName;
use crate::key::{Key, KeyRange};
use crate::partition::Partitioner;

pub use dimension::common_dimension;
pub use measurement::{LoadMeasurement, glance_interval};
pub use memory::LoadMemory;
pub use report::{
    HEAVY_PER_MILLE, MAX_HEAVY_KEYS, MAX_QUANTILES, MAX_QUANTILES_IN_ALL, bound_loads, quantiles,
};
pub use ten_percent::TenPercent;

/// The load of a range in its Owner's dimension per 1,000 seconds: requests, unless the application reports something else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RangeLoad {
    /// The keys that were asked for.
    pub range: KeyRange,
    /// The load of all of them.
    pub load: u64,
    /// The keys with a great part of their Owner's load, in key order, each with load that it surely had.
    #[cfg_attr(feature = "serde", serde(default))]
    pub heavy: Vec<(Key, u64)>,
    /// Keys between which the rest of the load lies in equal parts, in key order: each but the last is the first of a part, and the last is
    /// where the load ends. None: nothing is known of where it lies, which is good enough where keys are hashed.
    #[cfg_attr(feature = "serde", serde(default))]
    pub quantiles: Vec<Key>,
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
    /// The Owner's load is in another dimension than its namespace's, so that it is taken to have its share.
    OtherDimension,
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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

/// Whether the Owner can have keys at all.
fn is_able(owner: &OwnerLoad) -> bool {
    owner.weight > 0 && owner.virtual_nodes > 0
}

fn skip_all(round: &LoadRound<'_>, reason: LoadSkip) -> LoadDecision {
    let skipped = round.owners.iter().map(|owner| (owner.name.clone(), reason)).collect();
    LoadDecision { changes: Vec::new(), skipped }
}
