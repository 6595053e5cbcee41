//! What the default load policy remembers from round to round, and why that makes it come to rest.

use std::collections::BTreeMap;

use crate::id::OwnerName;
use crate::load::{OwnerLoad, is_able};

/// An Owner's whole share, in the millionths of its share by which its load is judged.
pub(super) const SHARE: u64 = 1_000_000;
/// How much closer to its share counts as progress.
const PROGRESS: u64 = SHARE / 100;
/// How many transfers without progress an Owner may cause in a row.
const MAX_FUTILE_TRANSFERS: u8 = 3;
/// How far the load of an Owner at rest, or of all together, may wander before it counts as another load.
const SAME_LOAD: u64 = SHARE / 5;
/// How many rounds without a transfer it takes for the effects of the last one to be in every report.
const QUIET_ROUNDS: u32 = 3;

/// What the policy remembers between rounds; volatile, and empty in a new leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LoadMemory {
    /// The Owners since the credits were last renewed.
    pub(super) owners: BTreeMap<OwnerName, Progress>,
    /// The load of all of them then.
    load: u128,
    /// How many rounds in a row made no transfer, counted no further than it matters.
    quiet_rounds: u32,
    /// Where the next round goes on, because the last one ran out of predictions.
    pub(super) resume_at: Option<OwnerName>,
}

/// How one Owner has fared since the credits were last renewed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Progress {
    weight: u32,
    /// The smallest distance from its share at which the Owner has caused a transfer.
    smallest_gap: u64,
    /// How many more transfers it may cause without progress.
    credit: u8,
    /// Its level when the pool had come to rest.
    resting_level: u64,
}

impl Progress {
    /// An Owner that has caused no transfer yet is closer than ever.
    fn is_closer(&self, gap: u64) -> bool {
        gap.saturating_add(PROGRESS) <= self.smallest_gap
    }

    /// Whether the Owner, now this far from its share, may cause a transfer.
    pub(super) fn may_transfer(&self, gap: u64) -> bool {
        self.is_closer(gap) || self.credit > 0
    }

    /// Books a transfer that the Owner caused while it was this far from its share.
    pub(super) fn charge(&mut self, gap: u64) {
        if self.is_closer(gap) {
            self.smallest_gap = gap;
            self.credit = MAX_FUTILE_TRANSFERS;
        } else {
            self.credit = self.credit.saturating_sub(1);
        }
    }
}

impl LoadMemory {
    /// Renews the credits if this is no longer the pool or the load that they were given for.
    pub(super) fn begin(&mut self, owners: &[OwnerLoad], pool: Pool) {
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

    /// Notes whether the round was quiet.
    pub(super) fn end(&mut self, transfers: usize) {
        self.quiet_rounds = if transfers > 0 { 0 } else { (self.quiet_rounds + 1).min(QUIET_ROUNDS + 1) };
    }

    fn is_same_pool(&self, owners: &[OwnerLoad]) -> bool {
        let able = || owners.iter().filter(|owner| is_able(owner));
        let known = |owner: &OwnerLoad| self.owners.get(&owner.name).map(|known| known.weight);
        able().count() == self.owners.len() && able().all(|owner| known(owner) == Some(owner.weight))
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
            let weight = owner.weight;
            (
                owner.name.clone(),
                Progress { weight, smallest_gap: u64::MAX, credit: MAX_FUTILE_TRANSFERS, resting_level: 0 },
            )
        };
        let owners = owners.iter().filter(|owner| is_able(owner)).map(fresh).collect();
        *self = LoadMemory { owners, load: pool.load, ..LoadMemory::default() };
    }
}

/// The load and the weight of all able Owners together.
#[derive(Clone, Copy)]
pub(super) struct Pool {
    pub(super) load: u128,
    weight: u128,
}

impl Pool {
    pub(super) fn of(owners: &[OwnerLoad]) -> Pool {
        let able = || owners.iter().filter(|owner| is_able(owner));
        Pool {
            load: able().map(|owner| u128::from(owner.load)).sum(),
            weight: able().map(|owner| u128::from(owner.weight)).sum(),
        }
    }

    /// What `load` is to an Owner of that weight, in millionths of its share; 0 to an Owner that has no share.
    pub(super) fn level(self, load: u64, weight: u32) -> u64 {
        let scaled = u128::from(load).saturating_mul(self.weight).saturating_mul(u128::from(SHARE));
        let share = self.load * u128::from(weight);
        u64::try_from(scaled.checked_div(share).unwrap_or(0)).unwrap_or(u64::MAX)
    }
}

/// How far from its share an Owner with this level is.
pub(super) fn gap(level: u64) -> u64 {
    level.abs_diff(SHARE)
}
