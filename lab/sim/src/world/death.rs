//! The world of a key of death: requests for one key kill whoever has it, and the Manager has to find the key (ADR 24).

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager::AdminCommand;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::Settings;

use super::draw::{OTHER_TIMES, more_owners, with_times};
use super::kinds::suit;
use super::{Event, Fault, FaultPlan, MILLISECOND, Node, Plan, Rng, SECOND, Seen, Undo, World, convergence};

/// A key of a namespace that kills whoever serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeathPlan {
    pub(crate) namespace: usize,
    pub(crate) key: Key,
    /// When the first request for it comes.
    pub(crate) first: u64,
    /// The mean time between two requests.
    pub(crate) interval: u64,
    /// How often, in a thousand, an Owner dies as soon as it gets the key, before it can say that it has it.
    pub(crate) at_once: u64,
    /// Whether whoever died of it is started again.
    pub(crate) restarts: bool,
    /// Nobody dies of anything else, and no leader changes: then so many Owners may die of it, and no more.
    pub(crate) alone: Option<u32>,
}

/// What disturbs a pool in which nobody dies of anything but the key.
const HARMLESS_MIX: [(Fault, u64); 5] = [
    (Fault::Weight, 3),
    (Fault::Disconnect, 4),
    (Fault::Freeze, 1),
    (Fault::JoinStorm, 2),
    (Fault::PauseLookup, 2),
];

/// What may be mistaken for a key of death, or hide one.
const MIX: [(Fault, u64); 12] = [
    (Fault::CrashOwner, 6),
    (Fault::Rack, 6),
    (Fault::RollingOwners, 2),
    (Fault::OwnerCutOff, 3),
    (Fault::CrashManager, 2),
    (Fault::Resign, 1),
    (Fault::DrainAndLeave, 2),
    (Fault::Evict, 1),
    (Fault::Move, 2),
    (Fault::Freeze, 1),
    (Fault::Release, 2),
    (Fault::Configure, 1),
];

impl Plan {
    /// A pool of some size with short leases and a key that kills; alone, or among other faults.
    pub(crate) fn draw_death(rng: &mut Rng) -> Plan {
        let mut plan = Plan::draw(rng);
        plan.races_only = false;
        plan.namespaces.truncate(1);
        plan.lookups.retain(|lookup| lookup.namespace == 0);
        plan.misaddressed = 0;
        let alone = rng.chance(400);
        let owners = rng.between(8, 14) as usize;
        more_owners(rng, &mut plan.owners, owners);
        // Weights of 50 to 200 would make some of them much larger than others.
        plan.owners.iter_mut().for_each(|owner| owner.weight = 100);
        let settings = draw_settings(rng, &plan.namespaces[0].settings[0], alone);
        if settings[0].virtual_nodes == 64 {
            // Hundreds of ranges that are lost and granted again, five in each batch, take a slow store longer than any bound says.
            plan.managers.iter_mut().for_each(|manager| {
                manager.config.max_batch = manager.config.max_batch.max(32);
            });
        }
        plan.namespaces[0].settings = suit(settings, &plan.namespaces[0].keys, PartitionerKind::Trim);
        plan.faults = draw_faults(rng, alone, &plan.faults);
        if alone {
            plan.network = super::Profile::reliable(MILLISECOND, 50 * MILLISECOND);
            (plan.late_wakes, plan.kept) = ((0, 0), 0);
            (plan.apps.hangs, plan.apps.fails) = (0, 0);
        }
        plan.death = rng.chance(if alone { 1_000 } else { 750 }).then(|| draw_key(rng, &plan, alone, owners));
        plan.convergence = convergence(&plan.managers, &plan.namespaces);
        plan
    }

    /// In some usual worlds a key kills as well, beside everything else. They are drawn apart, so that all others are as they were.
    pub(crate) fn draw_death_beside(&mut self, rng: &mut Rng) {
        if self.races_only || !rng.chance(100) {
            return;
        }
        let window = Duration::from_secs(rng.pick(&[10, 30]));
        for settings in self.namespaces.iter_mut().flat_map(|namespace| &mut namespace.settings) {
            *settings = Arc::new(Settings { death_window: window, ..Settings::clone(settings) });
        }
        self.death = Some(draw_key(rng, self, false, self.owners.len()));
    }
}

fn draw_settings(rng: &mut Rng, base: &Settings, alone: bool) -> Vec<Arc<Settings>> {
    let times = rng.pick(&OTHER_TIMES);
    let settings = Settings {
        max_moves: 256,
        // With few nodes some ranges are so large that more Owners die than are left of the bound.
        virtual_nodes: if alone { rng.pick(&[16, 64]) } else { rng.pick(&[4, 16, 64]) },
        min_owners: 1,
        partitioner: rng.weighted(&[
            (PartitionerKind::ConsistentHash, 3),
            (PartitionerKind::Trim, 2),
            (PartitionerKind::Fixed, if alone { 0 } else { 1 }),
        ]),
        death_window: Duration::from_secs(rng.pick(&[15, 30])),
        quarantine: Duration::from_secs(if alone { 3_600 } else { rng.pick(&[30, 90, 3_600]) }),
        ..with_times(base, times)
    };
    let off = Settings { death_window: Duration::ZERO, ..settings.clone() };
    let others = if alone || rng.chance(500) { settings.clone() } else { off };
    vec![Arc::new(settings), Arc::new(others)]
}

fn draw_faults(rng: &mut Rng, alone: bool, usual: &FaultPlan) -> FaultPlan {
    let mix = if alone { HARMLESS_MIX.to_vec() } else { MIX.to_vec() };
    FaultPlan {
        mix,
        interval: rng.pick(&[10, 20, 40]) * SECOND,
        first: 50 * SECOND,
        lulls: 100,
        longest: if alone { SECOND } else { usual.longest },
        outlasting: if alone { 0 } else { usual.outlasting },
        slowest_restart: rng.pick(&[1, 10, 30]) * SECOND,
        takeovers: rng.pick(&[0, 500, 1_000]),
    }
}

fn draw_key(rng: &mut Rng, plan: &Plan, alone: bool, owners: usize) -> DeathPlan {
    let namespace = rng.below(plan.namespaces.len() as u64) as usize;
    let restarts = owners < 11 || rng.chance(600);
    DeathPlan {
        namespace,
        key: rng.pick(&plan.namespaces[namespace].keys),
        first: rng.between(40, 90) * SECOND,
        interval: rng.pick(&[200, 1_000, 3_000]) * MILLISECOND,
        at_once: rng.pick(&[0, 0, 500, 1_000]),
        restarts,
        alone: alone.then_some(MOST_DEATHS),
    }
}

/// How many Owners may die of a key where nothing else disturbs: the one that had it for long, three more, and one for each cut.
/// The drawn pools have ranges of up to an eighth of the keys, and four Owners at least to cut them for: 12.5 % / 4 / 4 / 4 < 0.25 %.
/// One may die of the grant of a part before it is known that another has died of it.
const MOST_DEATHS: u32 = 1 + 3 + 3 + 1;

impl World {
    pub(super) fn begin_death(&mut self) {
        if let Some(death) = self.plan.death {
            self.queue.push(death.first, Event::Undo(Undo::Poison));
        }
    }

    /// A request for the key comes, to whoever has it.
    pub(super) fn poison(&mut self) {
        let Some(death) = self.plan.death.filter(|_| self.faults_happen) else { return };
        let next = self.now.0 + self.rng.below(2 * death.interval) + 1;
        self.queue.push(next, Event::Undo(Undo::Poison));
        let serves = |owner: &usize| {
            let host = &self.owners[*owner];
            let now = host.clock.read(self.now);
            let process = host.process.as_ref().filter(|_| host.is_running());
            process.is_some_and(|process| process.machine.check_lease_now(now, death.key).is_ok())
        };
        let holder = self.owners_of(death.namespace).find(serves);
        if let Some(owner) = holder {
            self.die_of_key(owner);
        }
    }

    /// Whether an Owner dies of keys as soon as it gets them.
    pub(super) fn dies_at_once(&mut self, owner: usize, ranges: impl Iterator<Item = KeyRange>) -> bool {
        let Some(death) = self.plan.death else { return false };
        let has_begun = self.faults_happen && self.now.0 >= death.first;
        let is_its = self.plan.owners[owner].namespace == death.namespace;
        has_begun
            && is_its
            && ranges.into_iter().any(|range| range.contains(death.key))
            && self.rng.chance(death.at_once)
    }

    pub(super) fn die_of_key(&mut self, owner: usize) {
        let (Some(death), Some(process)) = (self.plan.death, &self.owners[owner].process) else { return };
        let session = process.machine.session();
        let namespace = &self.plan.namespaces[death.namespace].name;
        let (key, most) = (death.key, death.alone);
        self.witness.see(self.now, &Seen::KilledByKey { session, namespace, key, most });
        self.tally.count(Fault::KeyOfDeath);
        self.kill(Node::Owner(owner), death.restarts);
    }

    /// An operator ends all quarantines of a namespace.
    pub(super) fn release_quarantines(&mut self, number: usize) -> bool {
        let namespace = self.plan.namespaces[number].name.clone();
        let is_any = self.stored(&namespace).is_some_and(|stored| !stored.quarantines.is_empty());
        let (range, why) = (KeyRange::ALL, "it is fixed, I think".into());
        is_any && self.ask_leader(AdminCommand::Unquarantine { namespace, range, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_worlds_have_a_key_alone_some_among_faults_and_some_none() {
        let plans: Vec<Plan> = (0..60).map(|seed| Plan::draw_death(&mut Rng::new(seed))).collect();
        let count = |wanted: fn(&Plan) -> bool| plans.iter().filter(|plan| wanted(plan)).count();
        assert!(count(|plan| plan.death.is_some_and(|death| death.alone.is_some())) > 10);
        assert!(count(|plan| plan.death.is_some_and(|death| death.alone.is_none())) > 10);
        assert!(count(|plan| plan.death.is_none()) > 3);
        assert!(plans.iter().all(|plan| plan.namespaces[0].settings[0].death_window > Duration::ZERO));
    }

    #[test]
    fn few_of_the_usual_worlds_have_one() {
        let has_one = |seed| {
            let mut plan = Plan::draw(&mut Rng::new(seed));
            plan.draw_death_beside(&mut Rng::new(seed + 1_000));
            plan.death.is_some()
        };
        let with = (0..300).filter(|seed| has_one(*seed)).count();
        assert!((10..60).contains(&with), "{with}");
    }
}
