//! A pool whose load Trim balances: every key has a load of its own, which shifts while faults happen and is steady afterwards.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::manager::AdminCommand;
use centrifuge_core::namespace_kind::KeyKind;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::Settings;

use super::kinds::suit;
use super::{Event, Fault, NamespacePlan, Plan, Rng, SECOND, World};

/// What an Owner of weight 100 would have if all were even, in requests per 1,000 s: 1,000 requests a second.
const SHARE: u64 = 1_000_000;
/// How often applications tell their library what they counted.
const MEASURE_EVERY: u64 = 5 * SECOND;
/// How much longer the world goes on after everything has an owner: balancing has to come to rest.
const RESTING: u64 = 500 * SECOND;

/// The load of every key.
#[derive(Clone, Debug)]
pub(crate) struct LoadPlan {
    /// The load of all keys together but for the hot ones, which is the same for each of those that have any.
    spread: u64,
    /// Which those are: all of them, or where keys are ordered, names that begin alike.
    keys: KeyRange,
    /// Whether libraries tell where in a range its load lies.
    is_ordered: bool,
    /// In key order.
    hot: Vec<(Key, u64)>,
    /// How often, in a thousand measurements, hot keys change.
    shifts: u64,
    /// How many Owners there are to share it.
    owners: u64,
}

/// What concerns the balance, besides all that usually happens.
const BALANCE_MIX: [(Fault, u64); 6] = [
    (Fault::Move, 8),
    (Fault::Freeze, 4),
    (Fault::Drain, 6),
    (Fault::DrainAndLeave, 4),
    (Fault::JoinStorm, 6),
    (Fault::Weight, 4),
];

impl Plan {
    /// A usual plan of one namespace, which Trim divides most of the time, with load and with fewer faults.
    pub(crate) fn draw_trim(rng: &mut Rng) -> Plan {
        let mut plan = Plan::draw(rng);
        plan.namespaces.truncate(1);
        plan.lookups.retain(|lookup| lookup.namespace == 0);
        plan.owners.retain(|owner| owner.namespace == 0);
        plan.misaddressed = 0;
        let trim = Settings {
            partitioner: PartitionerKind::Trim,
            churn_budget: rng.pick(&[100, 100, 1_000, 3_000]),
            max_ranges_per_owner: rng.pick(&[16, 64]),
            max_moves: rng.pick(&[8, 256]),
            ..Settings::clone(&plan.namespaces[0].settings[0])
        };
        let other =
            rng.pick(&[PartitionerKind::Trim, PartitionerKind::Trim, PartitionerKind::ConsistentHash]);
        let other = Settings { partitioner: other, ..trim.clone() };
        let settings = vec![Arc::new(trim), Arc::new(other)];
        plan.namespaces[0].settings = suit(settings, &plan.namespaces[0].keys, PartitionerKind::Trim);
        plan.faults.mix.extend(BALANCE_MIX);
        plan.faults.interval = rng.pick(&[8, 20, 40]) * SECOND;
        plan.convergence += RESTING;
        plan.load = Some(LoadPlan::draw(rng, plan.owners.len() as u64, &plan.namespaces[0]));
        plan
    }
}

impl LoadPlan {
    fn draw(rng: &mut Rng, owners: u64, namespace: &NamespacePlan) -> LoadPlan {
        let spread = owners * SHARE * rng.pick(&[3, 5, 8]) / 10;
        let (keys, is_ordered) = (names(namespace), namespace.kind().keys.kind() == KeyKind::Ordered);
        let shifts = rng.pick(&[5, 20, 60]);
        let mut load = LoadPlan { spread, keys, is_ordered, hot: Vec::new(), shifts, owners };
        load.shift(rng);
        load
    }

    /// Other keys are hot from now on.
    fn shift(&mut self, rng: &mut Rng) {
        let mut left = self.owners * SHARE - self.spread;
        self.hot.clear();
        while left > 0 && self.hot.len() < 24 {
            let load = rng.spread(SHARE / 100, SHARE / 2).min(left);
            left -= load;
            self.hot.push((key_at(self.keys, rng.next()), load));
        }
        self.hot.sort_unstable();
        self.hot.dedup_by_key(|(key, _)| *key);
    }

    /// What an application counts in a range that it has all the time.
    fn of(&self, range: KeyRange) -> RangeLoad {
        let own = range.intersection(self.keys);
        let count = own.map_or(0, KeyRange::key_count);
        let spread = u128::from(self.spread) * count / self.keys.key_count();
        let heavy: Vec<(Key, u64)> =
            self.hot.iter().copied().filter(|(key, _)| range.contains(*key)).collect();
        let hot: u64 = heavy.iter().map(|(_, load)| load).sum();
        RangeLoad {
            range,
            load: u64::try_from(spread).unwrap_or(u64::MAX) + hot,
            heavy,
            quantiles: own.filter(|_| self.is_ordered).map_or_else(Vec::new, sixteenths),
        }
    }
}

/// Ordered keys that have load: names that share their first three bytes. All keys, if they are hashed.
fn names(namespace: &NamespacePlan) -> KeyRange {
    match namespace.kind().keys.kind() {
        KeyKind::Hashed => KeyRange::ALL,
        KeyKind::Ordered => {
            let first = namespace.keys[4].0 >> 40 << 40;
            KeyRange::new(Key(first), Key(first | ((1 << 40) - 1))).expect("in order")
        }
    }
}

/// A key of a range, by a random number.
fn key_at(range: KeyRange, draw: u64) -> Key {
    Key(range.first().0 + ((u128::from(draw) * range.key_count()) >> 64) as u64)
}

/// What encloses sixteen parts of equal size.
fn sixteenths(range: KeyRange) -> Vec<Key> {
    (0..16).map(|part| key_at(range, part << 60)).chain([range.last()]).collect()
}

impl World {
    /// The load of some ranges of a pool whose load is known key by key, and when it is measured next; `None` in other worlds.
    pub(super) fn true_loads(&mut self) -> Option<(LoadPlan, u64)> {
        let load = self.plan.load.as_mut()?;
        if self.faults_happen && self.rng.chance(load.shifts) {
            load.shift(&mut self.rng);
        }
        Some((load.clone(), MEASURE_EVERY))
    }

    /// Takes all moves by hand back, so that nothing but load decides where keys are.
    pub(super) fn unpin(&mut self, number: usize) {
        let namespace = self.plan.namespaces[number].name.clone();
        let has_pins = self.stored(&namespace).is_some_and(|stored| !stored.pins.is_empty());
        if self.plan.load.is_some() && has_pins {
            let range = KeyRange::ALL;
            self.ask_leader(AdminCommand::Move { namespace, range, to: None, why: "enough".into() });
        }
    }

    /// Tells every application's library how loaded its ranges are.
    pub(super) fn measure_true_load(&mut self, namespace: usize, (load, next): (LoadPlan, u64)) {
        self.queue.push(self.now.0 + next, Event::MeasureLoad { namespace });
        self.tell_loads(namespace, |range, _| load.of(range));
    }
}

/// The last part of the run, in which nothing may move because of load any more.
pub(crate) fn at_rest_for(plan: &Plan) -> Option<Duration> {
    plan.load.as_ref().map(|_| Duration::from_nanos(RESTING / 4))
}
