//! How a seed draws its plan: sizes, clocks, settings, network and the mix of faults, each seed another ("swarm").

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{ManagerId, Namespace, OwnerName};
use centrifuge_core::key::Key;
use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::lookup::LookupConfig;
use centrifuge_core::manager::{MAX_BATCH, ManagerConfig};
use centrifuge_core::namespace_kind::{Mode, NamespaceKind};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::{Drift, Settings};

use crate::clock::Clock;

use super::kinds::{add_misfits, divider, foreign_keys, kinds_of, suit};
use super::plan::{AppPlan, LookupPlan, OwnerPlan};
use super::{
    Fault, FaultPlan, MILLISECOND, ManagerPlan, NamespacePlan, Part, Plan, Profile, Rng, SECOND, StorePlan,
    convergence, longest_leader_hold,
};

impl Plan {
    /// What the seed draws for the usual world.
    pub(crate) fn draw(rng: &mut Rng) -> Plan {
        let races_only = rng.chance(200);
        let clocks = Clocks::draw(rng);
        let managers = draw_managers(rng, clocks);
        let manager_ids: Arc<[ManagerId]> =
            managers.iter().map(|manager| manager.config.id.clone()).collect();
        let count = if rng.chance(750) { 1 } else { 2 };
        let namespaces: Vec<_> = (0..count).map(|number| draw_namespace(rng, number, races_only)).collect();
        let mut owners = draw_owners(rng, clocks, &namespaces, races_only);
        add_misfits(&mut owners, &namespaces);
        let lookups = draw_lookups(rng, clocks, &namespaces, &manager_ids, &managers);
        let store = draw_store(rng, clocks, &managers, races_only);
        let network = if races_only { draw_races(rng, &namespaces) } else { draw_network(rng) };
        let faults = if races_only { operators_only(rng, &managers, &namespaces) } else { draw_faults(rng) };
        let apps = draw_apps(rng, races_only);
        let late_wakes = if races_only { (0, 0) } else { draw_late_wakes(rng) };
        let kept = if races_only { 0 } else { rng.pick(&[0, 20, 60]) };
        let misaddressed = if count == 2 && !races_only { rng.pick(&[0, 5, 30]) } else { 0 };
        let convergence = convergence(&managers, &namespaces);
        let safety = (620 * SECOND).saturating_sub(convergence).max(400 * SECOND);
        Plan {
            managers,
            manager_ids,
            namespaces,
            owners,
            lookups,
            store,
            network,
            faults,
            apps,
            late_wakes,
            kept,
            misaddressed,
            safety,
            convergence,
            races_only,
            diskless: None,
            load: None,
            death: None,
        }
    }
}

/// How fast clocks run. Within half the drift bound of real time: two of them differ by 26/24 = 65/60 at most.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clocks {
    Exact,
    Anywhere,
    /// Every clock runs exactly as fast, or as slowly, as it may.
    Extreme,
    /// Whoever waits for others has the fastest clock, and whoever relies on a lease the slowest.
    Worst,
}

/// Whose clock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Somebody who waits until others must have stopped.
    Waiting,
    /// Somebody who relies on a lease or on contact.
    Relying,
}

impl Clocks {
    pub(super) fn draw(rng: &mut Rng) -> Clocks {
        let kinds = [(Clocks::Exact, 2), (Clocks::Anywhere, 3), (Clocks::Extreme, 2), (Clocks::Worst, 3)];
        rng.weighted(&kinds)
    }

    pub(super) fn clock(self, rng: &mut Rng, whose: Whose) -> Clock {
        let offset = if rng.chance(200) { 0 } else { rng.below(1_000_000 * SECOND) };
        let (numerator, denominator) = match self {
            Clocks::Exact => (1, 1),
            Clocks::Anywhere => (rng.between(24_000, 26_000), 25_000),
            Clocks::Extreme => (rng.pick(&[24, 26]), 25),
            Clocks::Worst => (if whose == Whose::Waiting { 26 } else { 24 }, 25),
        };
        Clock { offset, numerator, denominator, lost: 0 }
    }
}

/// Decisions that are cut into pieces, in every other world.
pub(super) fn batch_beside(compact_every: u64) -> usize {
    if compact_every == 8 { 5 } else { MAX_BATCH }
}

/// In the other worlds a first assignment waits for Owners that arrive together.
pub(super) fn pause_beside(compact_every: u64) -> Duration {
    Duration::from_millis(if compact_every == 8 { 0 } else { 250 })
}

fn draw_managers(rng: &mut Rng, clocks: Clocks) -> Vec<ManagerPlan> {
    let count = rng.weighted(&[(1, 2), (2, 4), (3, 4)]);
    let usual = rng.pick(&[8, 15, 20]);
    let differ = rng.chance(300);
    let manager = |number: u64| {
        let lease = Duration::from_secs(if differ { rng.pick(&[5, 20]) } else { usual });
        let drift = Drift::default();
        let campaign_interval = Duration::from_millis(rng.between(2_000, 5_000));
        let compact_every = rng.pick(&[8, 64]);
        let config = ManagerConfig {
            leader_lease: lease,
            leader_hold: drift.hold_for(lease),
            campaign_interval,
            drift,
            compact_every,
            max_batch: batch_beside(compact_every),
            arrival_pause: pause_beside(compact_every),
            ..ManagerConfig::new(format!("manager-{number}").as_str().into())
        };
        ManagerPlan { config, clock: clocks.clock(rng, Whose::Waiting) }
    };
    (0..count).map(manager).collect()
}

fn draw_namespace(rng: &mut Rng, number: usize, races_only: bool) -> NamespacePlan {
    let name = Namespace::new(["presence", "rooms"][number]).expect("a plain label");
    let mut keys: Vec<Key> = (0..8).map(|_| Key(rng.next())).chain([Key::MIN, Key::MAX]).collect();
    keys.sort_unstable();
    let busiest = rng.below(keys.len() as u64) as usize;
    let busy = rng.pick(&[0, 300, 700]);
    let kinds = kinds_of(&keys, mode_beside(number, &keys));
    let settings = suit(draw_settings(rng, races_only), &keys, divider(&keys));
    let settings = settings.iter().map(|settings| fit(&kinds[0], settings)).collect();
    let foreign_keys = foreign_keys(&keys);
    NamespacePlan { name, kinds, keys, foreign_keys, busiest, busy, settings }
}

/// Every other second namespace is in affinity mode, beside one whose leases are exclusive.
fn mode_beside(number: usize, keys: &[Key]) -> Mode {
    let is_drawn = keys.iter().map(|key| key.0.count_ones()).sum::<u32>().is_multiple_of(2);
    if number == 1 && is_drawn { Mode::Affinity } else { Mode::Exclusive }
}

/// The settings as a namespace of this kind can have them: no hold can be set in affinity mode.
pub(super) fn fit(kind: &NamespaceKind, settings: &Settings) -> Arc<Settings> {
    let hold = match kind.mode {
        Mode::Exclusive => settings.hold,
        Mode::Affinity => Settings::default().hold,
    };
    let settings = Settings { hold, ..settings.clone() };
    kind.check(&settings, Drift::default()).expect("the drawn settings are valid");
    Arc::new(settings)
}

/// Lease, hold, renewal and answer allowance in seconds.
pub(super) type Times = (u64, u64, u64, u64);

pub(super) const USUAL_TIMES: Times = (60, 65, 15, 10);
pub(super) const OTHER_TIMES: [Times; 3] = [(24, 26, 6, 4), (30, 35, 8, 3), (12, 13, 3, 1)];

fn draw_settings(rng: &mut Rng, races_only: bool) -> Vec<Arc<Settings>> {
    let usual = rng.chance(850);
    let times = if usual { USUAL_TIMES } else { rng.pick(&OTHER_TIMES) };
    let shared = Settings {
        // Where nothing fails, a migration ends; races may take their time.
        migration_timeout: Duration::from_secs(if races_only { 150 } else { rng.between(10, 40) }),
        recall_timeout: Duration::from_secs(rng.between(4, 10)),
        min_owners: rng.pick(&[1, 1, 2]),
        settle: Duration::from_secs(rng.between(0, 10)),
        max_moves: rng.pick(&[1, 2, 8, 256]),
        virtual_nodes: u32::try_from(rng.between(1, 4)).expect("a small number"),
        partitioner: rng.weighted(&[
            (PartitionerKind::ConsistentHash, 2),
            (PartitionerKind::Trim, 2),
            (PartitionerKind::Fixed, 1),
        ]),
        load_policy: rng.pick(&[LoadPolicyKind::TenPercent, LoadPolicyKind::Off]),
        load_interval: Duration::from_secs(rng.between(20, 60)),
        log_span: Duration::from_secs(rng.pick(&[20, 120, 300])),
        heartbeat: Duration::from_secs(rng.between(8, 30)),
        // Most worlds have no key of death, and plan as they did before there was one.
        death_window: Duration::ZERO,
        ..Settings::default()
    };
    let other = if usual { rng.pick(&[(24, 26, 6, 4), (40, 44, 10, 8)]) } else { USUAL_TIMES };
    // Where nothing fails, leases are long most often, so that leaders may change.
    let other = if races_only && rng.chance(700) { times } else { other };
    [times, other].into_iter().map(|times| Arc::new(with_times(&shared, times))).collect()
}

pub(super) fn with_times(settings: &Settings, (lease, hold, renewal, allowance): Times) -> Settings {
    let settings = Settings {
        lease: Duration::from_secs(lease),
        hold: Duration::from_secs(hold),
        renewal: Duration::from_secs(renewal),
        answer_allowance: Duration::from_secs(allowance),
        ..settings.clone()
    };
    settings.check(Drift::default()).expect("the drawn settings are valid");
    settings
}

fn draw_owners(
    rng: &mut Rng,
    clocks: Clocks,
    namespaces: &[NamespacePlan],
    races_only: bool,
) -> Vec<OwnerPlan> {
    let mut owners = Vec::new();
    for (namespace, space) in namespaces.iter().enumerate() {
        let most = if rng.chance(30) { 10 } else { 8 - 2 * namespaces.len() as u64 };
        let regular = rng.between(2, most) as usize;
        let first = owners.len();
        for _ in 0..regular {
            owners.push(draw_owner(rng, clocks, owners.len(), namespace, Part::Regular));
        }
        owners.push(draw_owner(rng, clocks, owners.len(), namespace, Part::Spare));
        let of = first + rng.below(regular as u64) as usize;
        let mut second = draw_owner(rng, clocks, owners.len(), namespace, Part::Second { of });
        second.name = owners[of].name.clone();
        owners.push(second);
        owners[first..].iter_mut().for_each(|owner| owner.mode = space.kind().mode);
        // If there are enough of them, the last one was built for exclusive leases, whatever its namespace is.
        if regular > 2 {
            owners[first + regular - 1].mode = Mode::Exclusive;
        }
    }
    owners.iter_mut().for_each(|owner| owner.migrates |= races_only);
    owners
}

/// Adds Owners of the first namespace until it has `count` regular ones, and takes all others away.
pub(super) fn more_owners(rng: &mut Rng, owners: &mut Vec<OwnerPlan>, count: usize) {
    owners.retain(|owner| owner.namespace == 0 && owner.part == Part::Regular);
    let clocks = Clocks::draw(rng);
    while owners.len() < count {
        owners.push(draw_owner(rng, clocks, owners.len(), 0, Part::Regular));
    }
}

fn draw_owner(rng: &mut Rng, clocks: Clocks, number: usize, namespace: usize, part: Part) -> OwnerPlan {
    OwnerPlan {
        namespace,
        name: OwnerName::new(&format!("owner-{number}")).expect("a plain name"),
        url: format!("node-{number}").as_str().into(),
        weight: rng.pick(&[100, 100, 100, 50, 200]),
        migrates: !rng.chance(60),
        mode: Mode::Exclusive,
        clock: clocks.clock(rng, Whose::Relying),
        part,
    }
}

fn draw_lookups(
    rng: &mut Rng,
    clocks: Clocks,
    namespaces: &[NamespacePlan],
    managers: &Arc<[ManagerId]>,
    plans: &[ManagerPlan],
) -> Vec<LookupPlan> {
    let mut lookups = Vec::new();
    for (namespace, plan) in namespaces.iter().enumerate() {
        for _ in 0..rng.weighted(&[(1, 5), (2, 4), (3, 1)]) {
            let (poll, contact_timeout) = rng.pick(&[(30, 90), (15, 60), (8, 45)]);
            let config = LookupConfig {
                poll: Duration::from_secs(poll),
                contact_timeout: Duration::from_secs(contact_timeout),
                unowned_delay: Duration::from_secs(rng.between(5, 40)),
                silence: Duration::from_secs(rng.between(3, 8)),
                expects: plan.kind().expected(),
                ..LookupConfig::new(plan.name.clone(), Arc::clone(managers))
            };
            let election =
                plans.iter().map(|manager| manager.config.campaign_interval).max().unwrap_or_default();
            config.check(longest_leader_hold(plans), election).expect("the drawn times are valid");
            lookups.push(LookupPlan { namespace, config, clock: clocks.clock(rng, Whose::Relying) });
        }
    }
    lookups
}

fn draw_store(rng: &mut Rng, clocks: Clocks, managers: &[ManagerPlan], races_only: bool) -> StorePlan {
    let longest = if races_only { 5 } else { rng.pick(&[2, 10, 60, 400]) };
    StorePlan {
        clock: clocks.clock(rng, Whose::Waiting),
        delay: (MILLISECOND, longest * MILLISECOND),
        slow: rng.pick(&[1, 4, 12]) * SECOND,
        late: rng.pick(&[2, 8, 20]) * SECOND,
        leader_holds: managers.iter().map(|manager| manager.config.leader_hold).collect(),
    }
}

fn draw_network(rng: &mut Rng) -> Profile {
    let usual = match rng.below(6) {
        0 => Profile::reliable(MILLISECOND, 5 * MILLISECOND),
        1 => Profile::reliable(MILLISECOND, 150 * MILLISECOND),
        // Longer than the store takes: an answer is overtaken by the push that follows its commit.
        2 | 3 => Profile::reliable(MILLISECOND, 800 * MILLISECOND),
        4 => Profile { slow: 150, slowest: 6 * SECOND, ..Profile::reliable(MILLISECOND, 40 * MILLISECOND) },
        _ => Profile { slow: 100, slowest: 8 * SECOND, ..Profile::reliable(20 * MILLISECOND, 2 * SECOND) },
    };
    Profile {
        lost: rng.pick(&[0, 0, 10, 50, 150]),
        duplicated: rng.pick(&[0, 20, 100, 300]),
        straggling: rng.pick(&[0, 500, 900]),
        straggle: rng.pick(&[30, 120, 300]) * SECOND,
        ..usual
    }
}

/// Delays as long as the times after which both sides say it again; the longest round trip stays below an eighth of the
/// lease, which is as far as backoffs go.
pub(super) fn draw_races(rng: &mut Rng, namespaces: &[NamespacePlan]) -> Profile {
    let lease = u64::try_from(shortest_lease(namespaces).as_nanos()).expect("a lease is minutes at most");
    let longest = lease / rng.pick(&[30, 40, 100, 300]);
    Profile::reliable(rng.pick(&[MILLISECOND, longest / 4, longest]), longest)
}

pub(super) fn shortest_lease(namespaces: &[NamespacePlan]) -> Duration {
    let settings = namespaces.iter().flat_map(|namespace| &namespace.settings);
    settings.map(|settings| settings.lease).min().unwrap_or_default()
}

const USUAL_MIX: [(Fault, u64); 42] = [
    (Fault::CrashOwner, 10),
    (Fault::CrashManager, 6),
    (Fault::CrashLookup, 2),
    (Fault::PauseOwner, 8),
    (Fault::PauseManager, 6),
    (Fault::PauseLookup, 4),
    (Fault::SuspendOwner, 4),
    (Fault::SuspendManager, 3),
    (Fault::SuspendLookup, 3),
    (Fault::CutOneWay, 10),
    (Fault::CutBothWays, 8),
    (Fault::Isolate, 5),
    (Fault::OwnerCutOff, 3),
    (Fault::CutStore, 5),
    (Fault::Split, 4),
    (Fault::StoreDown, 3),
    (Fault::StoreSlow, 3),
    (Fault::StoreUnknown, 6),
    (Fault::LeaseRevoked, 5),
    (Fault::RollingOwners, 1),
    (Fault::RollingManagers, 1),
    (Fault::PlannedOwners, 1),
    (Fault::PlannedManagers, 1),
    (Fault::Rack, 1),
    (Fault::JoinStorm, 2),
    (Fault::LeaveStorm, 1),
    (Fault::SecondProcess, 3),
    (Fault::DrainAndLeave, 4),
    (Fault::Ambush, 8),
    (Fault::Resign, 3),
    (Fault::Dither, 5),
    (Fault::Storm, 3),
    (Fault::Replay, 8),
    (Fault::ManagersChanged, 2),
    (Fault::Disconnect, 3),
    (Fault::Configure, 3),
    (Fault::Remove, 1),
    (Fault::Freeze, 2),
    (Fault::Move, 8),
    (Fault::Evict, 2),
    (Fault::Drain, 2),
    (Fault::Weight, 4),
];

fn draw_faults(rng: &mut Rng) -> FaultPlan {
    let mut mix: Vec<_> =
        USUAL_MIX.iter().map(|(fault, weight)| (*fault, weight * rng.pick(&[0, 1, 1, 4]))).collect();
    if mix.iter().all(|(_, weight)| *weight == 0) {
        mix = USUAL_MIX.to_vec();
    }
    let (interval, lulls) = rng.pick(&[(5_000, 0), (3_500, 15), (1_500, 30), (1_500, 60)]);
    FaultPlan {
        mix,
        interval: interval * MILLISECOND,
        first: rng.pick(&[1, 20, 60]) * SECOND,
        lulls,
        longest: rng.pick(&[2, 10, 30, 60]) * SECOND,
        outlasting: rng.pick(&[0, 50, 200]),
        slowest_restart: rng.pick(&[1, 10, 60, 100]) * SECOND,
        takeovers: rng.pick(&[0, 500, 900]),
    }
}

/// All that is planned, and streams that break. None of it may cost a lease or state.
const PLANNED_MIX: [(Fault, u64); 10] = [
    (Fault::Move, 12),
    (Fault::Dither, 4),
    (Fault::Weight, 8),
    (Fault::JoinStorm, 2),
    (Fault::Drain, 3),
    (Fault::DrainAndLeave, 3),
    (Fault::PlannedOwners, 1),
    (Fault::Freeze, 1),
    (Fault::Configure, 2),
    (Fault::Disconnect, 6),
];

/// What may leave a pool without a leader for as long as a leader lease; only where every lease outlasts that.
const LEADER_CHANGES: [(Fault, u64); 2] = [(Fault::LeaderDies, 4), (Fault::PlannedManagers, 1)];

/// The shortest lease that outlasts a resignation, an election and the search for the next leader.
const OUTLASTS_RESIGNATION: Duration = Duration::from_secs(30);
/// The shortest that outlasts a leader that dies too, and the longest hold of such a leader.
const OUTLASTS_DEATH: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(17));

fn operators_only(rng: &mut Rng, managers: &[ManagerPlan], namespaces: &[NamespacePlan]) -> FaultPlan {
    let mut mix: Vec<_> =
        PLANNED_MIX.iter().map(|(fault, weight)| (*fault, weight * rng.pick(&[0, 1, 1, 3]))).collect();
    mix.push((Fault::Move, 1));
    let lease = shortest_lease(namespaces);
    if lease >= OUTLASTS_RESIGNATION {
        mix.push((Fault::Resign, rng.pick(&[0, 4, 12])));
    }
    if lease >= OUTLASTS_DEATH.0 && longest_leader_hold(managers) <= OUTLASTS_DEATH.1 {
        mix.extend(LEADER_CHANGES.map(|(fault, weight)| (fault, weight * rng.pick(&[0, 1, 3]))));
    }
    FaultPlan {
        mix,
        interval: rng.between(500, 3_000) * MILLISECOND,
        first: 40 * SECOND,
        lulls: 0,
        longest: SECOND,
        outlasting: 0,
        slowest_restart: SECOND,
        takeovers: 0,
    }
}

fn draw_apps(rng: &mut Rng, races_only: bool) -> AppPlan {
    AppPlan {
        interval: rng.between(3, 6) * SECOND,
        lasting: rng.pick(&[0, 300, 700]),
        longest: rng.pick(&[200, 2_000, 6_000]) * MILLISECOND,
        hangs: if races_only { 0 } else { rng.pick(&[0, 0, 40]) },
        fails: if races_only { 0 } else { rng.pick(&[0, 0, 100]) },
        attempts: if races_only { 4 } else { rng.pick(&[1, 2, 4]) },
        loads: rng.chance(300),
    }
}

fn draw_late_wakes(rng: &mut Rng) -> (u64, u64) {
    rng.pick(&[(0, 0), (0, 0), (30, SECOND), (100, 4 * SECOND), (60, 12 * SECOND)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_lasts_ten_minutes_and_keeps_to_the_drift_bound() {
        for seed in 0..500 {
            let plan = Plan::draw(&mut Rng::new(seed));
            assert!(plan.safety + plan.convergence >= 600 * SECOND);
            assert!(plan.clocks_within_bound());
            assert!(plan.layout().places() <= 64);
        }
    }

    #[test]
    fn affinity_is_beside_an_exclusive_namespace_and_somebody_is_built_for_the_other() {
        let plans: Vec<Plan> = (0..200).map(|seed| Plan::draw(&mut Rng::new(seed))).collect();
        let is_affinity = |space: &NamespacePlan| space.kind().mode == Mode::Affinity;
        let with: Vec<&Plan> = plans.iter().filter(|plan| plan.namespaces.iter().any(is_affinity)).collect();
        assert!(with.len() > 10, "{} of 200", with.len());
        assert!(plans.iter().all(|plan| !is_affinity(&plan.namespaces[0])));
        let stray = |plan: &&Plan| {
            plan.owners.iter().any(|owner| owner.namespace == 1 && owner.mode == Mode::Exclusive)
        };
        assert!(with.iter().any(stray) && with.iter().any(|plan| !stray(plan)));
    }

    #[test]
    fn some_clocks_are_exactly_at_the_bound() {
        let at_bound = |plan: &Plan| {
            let rate = |numerator| {
                plan.owners.iter().any(|o| (o.clock.numerator, o.clock.denominator) == (numerator, 25))
            };
            rate(24) && rate(26)
        };
        assert!((0..50).any(|seed| at_bound(&Plan::draw(&mut Rng::new(seed)))));
    }
}
