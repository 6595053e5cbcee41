//! An Owner's process, and the timer that every machine has.

use std::collections::BTreeMap;
use std::sync::Arc;

use centrifuge_core::id::{LoadDimension, ManagerId, Namespace, Term};
use centrifuge_core::load::LoadMeasurement;
use centrifuge_core::namespace_kind::ExpectedKind;
use centrifuge_core::owner::{OwnerConfig, OwnerMachine, TransferId};
use centrifuge_core::random::Random;
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::time::Instant;

use crate::load_world::environment::Member;
use crate::load_world::observation::Counters;

/// An Owner that runs.
pub(super) struct OwnerNode {
    pub(super) machine: OwnerMachine,
    pub(super) timer: Timer,
    /// Until when it has told what it counted.
    pub(super) measured_at: u64,
    /// Until when it has counted.
    pub(super) counted_at: u64,
    pub(super) counters: Counters,
    /// What it measured last.
    pub(super) measured: LoadMeasurement,
    /// How often it may still report at once before its next report is due.
    pub(super) urgent_left: u32,
    /// Since when it has each range.
    pub(super) held: RangeMap<u64>,
    /// The term of each transfer that has begun.
    pub(super) terms: BTreeMap<TransferId, Term>,
}

impl OwnerNode {
    pub(super) fn config(
        member: &Member,
        namespace: &Namespace,
        manager: &ManagerId,
        expects: ExpectedKind,
    ) -> OwnerConfig {
        OwnerConfig {
            namespace: namespace.clone(),
            name: member.name.clone(),
            url: member.name.as_str().into(),
            managers: Arc::from([manager.clone()]),
            takes_over_previous: false,
            weight: member.weight,
            migrates: true,
            credential: None,
            expects,
            load_dimension: LoadDimension::default(),
        }
    }

    pub(super) fn new(config: OwnerConfig, random: Random, now: u64) -> OwnerNode {
        OwnerNode {
            machine: OwnerMachine::new(config, random),
            timer: Timer::default(),
            measured_at: now,
            counted_at: now,
            counters: Counters::default(),
            measured: LoadMeasurement::default(),
            urgent_left: 0,
            held: RangeMap::new(),
            terms: BTreeMap::new(),
        }
    }
}

/// When a machine wants to be woken. Only the latest ring counts.
#[derive(Debug, Default)]
pub(super) struct Timer {
    wanted: Option<Instant>,
    token: u64,
}

impl Timer {
    /// Sets the timer; returns when to ring and with which token, if that is new.
    pub(super) fn set(&mut self, wanted: Option<Instant>, now: u64) -> Option<(u64, u64)> {
        if self.wanted == wanted {
            return None;
        }
        self.wanted = wanted;
        self.token += 1;
        Some((wanted?.0.max(now), self.token))
    }

    /// Takes a ring; says whether it is the latest.
    pub(super) fn rings(&mut self, token: u64) -> bool {
        let is_latest = self.token == token && self.wanted.is_some();
        if is_latest {
            self.wanted = None;
        }
        is_latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_ring_counts() {
        let mut timer = Timer::default();
        let (_, first) = timer.set(Some(Instant(5)), 0).expect("it is new");
        assert_eq!(timer.set(Some(Instant(5)), 1), None);
        let (at, second) = timer.set(Some(Instant(3)), 4).expect("it is new");
        assert_eq!(at, 4, "not before now");
        assert!(!timer.rings(first) && timer.rings(second) && !timer.rings(second));
    }
}
