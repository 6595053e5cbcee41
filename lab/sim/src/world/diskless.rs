//! What a seed draws for Managers that have no store: a usual plan, with an election among peers in place of the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::flease::FleaseConfig;
use centrifuge_core::id::Namespace;
use centrifuge_core::load::LoadPolicyKind;
use centrifuge_core::manager::{DeclaredNamespace, ManagerConfig};
use centrifuge_core::settings::{Drift, Settings};

use super::draw::{
    Clocks, OTHER_TIMES, USUAL_TIMES, Whose, batch_beside, draw_races, fit, pause_beside, shortest_lease,
    with_times,
};
use super::election_node::election_config;
use super::{
    DisklessPlan, Fault, MILLISECOND, ManagerPlan, NamespacePlan, Plan, Profile, Rng, SECOND, convergence,
    longest_leader_hold, peer_of,
};

/// What can only happen to a store, or is refused where there is none.
const OF_STORES: [Fault; 7] = [
    Fault::CutStore,
    Fault::StoreDown,
    Fault::StoreSlow,
    Fault::StoreUnknown,
    Fault::LeaseRevoked,
    Fault::Configure,
    Fault::Remove,
];

/// What ends a leadership.
const CHANGES_LEADER: [Fault; 3] = [Fault::Resign, Fault::PlannedManagers, Fault::LeaderDies];

const OF_LEADERS: [(Fault, u64); 5] = [
    (Fault::LeaderAndOwner, 6),
    (Fault::LeaderTwice, 4),
    (Fault::LossUnseen, 4),
    (Fault::CutPeers, 4),
    (Fault::MoveStranded, 6),
];

impl Plan {
    /// A usual plan, most often with shorter leases, so that more leaders come to learn more tables.
    pub(crate) fn draw_diskless(rng: &mut Rng) -> Plan {
        let mut plan = Plan::draw(rng);
        for namespace in &mut plan.namespaces {
            let times = if rng.chance(250) { USUAL_TIMES } else { rng.pick(&OTHER_TIMES) };
            namespace.settings = vec![fit(namespace.kind(), &with_times(&namespace.settings[0], times))];
        }
        let count = rng.weighted(&[(3, 8), (5, 1), (1, 1)]);
        let flease = draw_flease(rng, count);
        plan.faults.mix.retain(|(fault, _)| !OF_STORES.contains(fault));
        if plan.races_only {
            plan.faults.mix.retain(|(fault, _)| !CHANGES_LEADER.contains(fault));
            if leaders_may_die(&plan, &flease) {
                let_leaders_die(rng, &mut plan);
            }
        }
        plan.managers = draw_managers(rng, count, &flease, &plan.namespaces);
        plan.manager_ids = plan.managers.iter().map(|manager| manager.config.id.clone()).collect();
        plan.store.leader_holds = plan.managers.iter().map(|manager| manager.config.leader_hold).collect();
        for lookup in &mut plan.lookups {
            lookup.config.managers = Arc::clone(&plan.manager_ids);
            let election = plan.managers[0].config.campaign_interval;
            lookup.config.check(longest_leader_hold(&plan.managers), election).expect("the times are valid");
        }
        if plan.races_only {
            plan.network = draw_races(rng, &plan.namespaces);
        } else {
            let more = OF_LEADERS.map(|(fault, weight)| (fault, weight * rng.pick(&[0, 1, 3])));
            plan.faults.mix.extend(more);
            // A leader that learns a table needs some time for it.
            plan.faults.interval = rng.pick(&[2, 5, 12, 25]) * SECOND;
            plan.faults.lulls = rng.pick(&[0, 30, 100]);
            plan.kept = rng.pick(&[0, 60, 200]);
        }
        plan.convergence =
            convergence(&plan.managers, &plan.namespaces) + election_and_rebuild(&plan, &flease);
        plan.safety = (620 * SECOND).saturating_sub(plan.convergence).max(400 * SECOND);
        plan.diskless = Some(draw_peers(rng, flease, plan.races_only));
        plan
    }
}

/// Whether an Owner's lease outlasts the death of a leader: its lease at the election and that of the Flease cell run out,
/// somebody wins, and the Owner asks one Manager after the other until it finds it.
fn leaders_may_die(plan: &Plan, flease: &FleaseConfig) -> bool {
    shortest_lease(&plan.namespaces) >= flease.lease * 8
}

/// Leaders die and resign, and nothing else fails: ranges move and load is balanced meanwhile. Then a change of leader
/// costs neither a lease nor state.
fn let_leaders_die(rng: &mut Rng, plan: &mut Plan) {
    let planned: u64 = plan.faults.mix.iter().map(|(_, weight)| weight).sum();
    plan.faults.mix.push((Fault::LeaderDies, planned / 4 + 1));
    plan.faults.mix.push((Fault::Resign, rng.pick(&[0, 4])));
    plan.apps.loads = true;
    for namespace in &mut plan.namespaces {
        let load_policy = rng.pick(&[LoadPolicyKind::TenPercent, LoadPolicyKind::Off]);
        let settings = Settings { load_policy, ..Settings::clone(&namespace.settings[0]) };
        namespace.settings = vec![Arc::new(settings)];
    }
}

/// Lease, epsilon, round and window in milliseconds. With the shortest epsilon a unit of terms is longer than all clocks differ.
const TIMES: [(u64, u64, u64, u64); 4] =
    [(5_000, 250, 1_000, 500), (10_000, 500, 2_000, 1_000), (3_000, 100, 500, 200), (4_000, 5, 500, 10)];

fn draw_flease(rng: &mut Rng, count: usize) -> FleaseConfig {
    let (lease, epsilon, round, window) = rng.pick(&TIMES);
    let [lease, epsilon, round, window] = [lease, epsilon, round, window].map(Duration::from_millis);
    let peers = FleaseConfig::new(peer_of(0), (0..count).map(peer_of));
    FleaseConfig { window, ..peers.with_times(lease, epsilon, round) }
}

fn draw_managers(
    rng: &mut Rng,
    count: usize,
    flease: &FleaseConfig,
    namespaces: &[NamespacePlan],
) -> Vec<ManagerPlan> {
    let clocks = Clocks::draw(rng);
    let drift = Drift::default();
    let ids: Vec<_> = (0..count).map(|number| format!("manager-{number}").as_str().into()).collect();
    let usual = configured(namespaces, Arc::clone);
    // An operator is about to shorten leases: one Manager has the new ones already.
    let ahead = configured(namespaces, |settings| Arc::new(with_shortest_lease(settings)));
    let has_shorter = rng.chance(200).then(|| rng.below(count as u64) as usize);
    let campaigns = rng.between(4, 12) as u32;
    let compact_every = rng.pick(&[8, 64]);
    let manager = |number: usize| {
        let election = election_config(flease, &ids, number);
        election.check().expect("the drawn times are valid");
        let leader_lease = election.leader_lease(drift);
        let config = ManagerConfig {
            leader_lease,
            leader_hold: drift.hold_for(leader_lease),
            campaign_interval: leader_lease / campaigns,
            drift,
            compact_every,
            max_batch: batch_beside(compact_every),
            arrival_pause: pause_beside(compact_every),
            diskless: Some(Arc::clone(if has_shorter == Some(number) { &ahead } else { &usual })),
            ..ManagerConfig::new(ids[number].clone())
        };
        ManagerPlan { config, clock: clocks.clock(rng, Whose::Waiting) }
    };
    (0..count).map(manager).collect()
}

fn configured(
    namespaces: &[NamespacePlan],
    settings: impl Fn(&Arc<Settings>) -> Arc<Settings>,
) -> Arc<BTreeMap<Namespace, DeclaredNamespace>> {
    let declared = |space: &NamespacePlan| {
        let (kind, settings) = (space.kind().clone(), settings(&space.settings[0]));
        (space.name.clone(), DeclaredNamespace { kind, settings })
    };
    Arc::new(namespaces.iter().map(declared).collect())
}

/// The same holds with the shortest leases that renewals allow: how leases are shortened (ADR 15).
fn with_shortest_lease(settings: &Settings) -> Settings {
    let lease = settings.renewal * 3 + settings.answer_allowance + Duration::from_secs(1);
    Settings { lease: lease.min(settings.lease), ..settings.clone() }
}

/// What a world without faults may take longer than one with a store: every peer recovers, a lease runs out, and the table is
/// learned in a full hold.
fn election_and_rebuild(plan: &Plan, flease: &FleaseConfig) -> u64 {
    let local = flease.recovery + flease.lease * 2 + plan.longest_hold();
    u64::try_from(local.as_nanos()).expect("minutes at most") * 25 / 24
}

fn draw_peers(rng: &mut Rng, flease: FleaseConfig, races_only: bool) -> DisklessPlan {
    let longest = rng.pick(&[2, 20, 100]) * MILLISECOND;
    let reliable = Profile::reliable(MILLISECOND / 10, longest);
    let lease = u64::try_from(flease.lease.as_nanos()).expect("a lease is minutes at most");
    let unkind = Profile {
        slow: rng.pick(&[0, 0, 50]),
        slowest: SECOND,
        lost: rng.pick(&[0, 10, 50, 150]),
        duplicated: rng.pick(&[0, 20, 200]),
        straggling: rng.pick(&[0, 500]),
        straggle: 30 * SECOND,
        ..reliable
    };
    let hiccups = rng.pick(&[(0, 0), (20, SECOND), (100, lease / 2), (30, 2 * lease)]);
    DisklessPlan {
        network: if races_only { reliable } else { unkind },
        slowness: rng.spread(2, 40),
        turn_every: rng.between(lease / 4, lease * 2),
        hiccups: if races_only { (0, 0) } else { hiccups },
        flease,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_has_an_election_that_its_leaders_outlast() {
        for seed in 0..200 {
            let plan = Plan::draw_diskless(&mut Rng::new(seed));
            let diskless = plan.diskless.as_ref().expect("it is one without a store");
            for manager in &plan.managers {
                let config = &manager.config;
                assert!(
                    config.drift.hold_for(config.leader_lease)
                        <= diskless.flease.lease - diskless.flease.epsilon
                );
                assert_eq!(config.diskless.as_ref().map(|spaces| spaces.len()), Some(plan.namespaces.len()));
            }
            assert!(plan.faults.mix.iter().all(|(fault, _)| !OF_STORES.contains(fault)));
        }
    }
}
