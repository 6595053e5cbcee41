//! A pool whose load is known key by key.

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::manager::{AdminCommand, NamespaceOverview, TrimOverview};
use centrifuge_core::owner::OwnerEvent;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::record::{Change, Reason, Record};
use centrifuge_core::settings::Settings;
use centrifuge_core::time::Instant;

use crate::support::{Cluster, Node, Options, pool, secs};

/// The load of every key, in requests per 1,000 s.
#[derive(Clone)]
pub(crate) struct Load {
    /// Of all keys but the hot ones together.
    pub(crate) spread: u64,
    pub(crate) hot: Vec<(Key, u64)>,
}

impl Load {
    pub(crate) fn of(&self, range: KeyRange) -> RangeLoad {
        let heavy: Vec<_> = self.hot.iter().copied().filter(|(key, _)| range.contains(*key)).collect();
        let spread = (u128::from(self.spread) * range.key_count()) >> 64;
        let load =
            u64::try_from(spread).expect("less than all") + heavy.iter().map(|(_, load)| load).sum::<u64>();
        RangeLoad { range, load, heavy, quantiles: Vec::new() }
    }

    /// Lets time pass; Owners count and report.
    pub(crate) fn run(&self, cluster: &mut Cluster, owners: &[Node], seconds: u64) {
        for _ in 0..seconds.div_ceil(5) {
            for owner in owners {
                let loads: Vec<RangeLoad> =
                    cluster.held_keys(*owner).iter().map(|range| self.of(range)).collect();
                cluster.tell(*owner, OwnerEvent::Load(loads.into()));
            }
            cluster.run_for(secs(5));
        }
    }

    /// The highest load of these Owners, relative to an even share of all load, in permille.
    pub(crate) fn peak(&self, cluster: &Cluster, owners: &[Node]) -> u64 {
        let load_of =
            |owner: &Node| cluster.keys_of(*owner).iter().map(|range| self.of(range).load).sum::<u64>();
        let share = self.of(KeyRange::ALL).load / owners.len() as u64;
        owners.iter().map(load_of).max().unwrap_or(0) * 1_000 / share
    }
}

pub(crate) fn settings(partitioner: PartitionerKind) -> Settings {
    Settings { partitioner, ..Settings::default() }
}

/// A Manager with a namespace that Trim divides.
pub(crate) fn trimmed(settings: Settings) -> Cluster {
    Cluster::with(Options { settings, ..Options::default() })
}

pub(crate) fn configure(cluster: &mut Cluster, settings: Settings) {
    let command =
        AdminCommand::Configure { namespace: pool(), settings: settings.into(), expected: None, kind: None };
    cluster.admin(command).expect("valid settings");
}

pub(crate) fn overview(cluster: &mut Cluster) -> NamespaceOverview {
    let now = cluster.mark();
    let leader = cluster.leader();
    cluster.manager_machine(leader).overview(now).remove(&pool()).expect("the namespace")
}

pub(crate) fn trim_overview(cluster: &mut Cluster) -> TrimOverview {
    *overview(cluster).trim.expect("Trim has decided")
}

/// The ranges that were recalled from an instant on, with the reasons.
pub(crate) fn recalls(cluster: &Cluster, from: Instant) -> Vec<(KeyRange, Reason)> {
    use centrifuge_core::manager::ManagerAction;
    let committed =
        cluster.noted.iter().filter(|(at, ..)| *at >= from).filter_map(|(_, _, action)| match action {
            ManagerAction::Committed { batch, .. } => Some(batch.records.iter()),
            _ => None,
        });
    let recalled = committed.flatten().filter_map(|record| match record {
        Record::Namespace { change: Change::Recalled { range, .. }, reason, .. } => {
            Some((*range, reason.clone()))
        }
        _ => None,
    });
    recalled.collect()
}
