//! What a Manager makes of the loads that Owners report, also of wrong ones (protocol §5.16).

mod support;

use std::collections::BTreeMap;

use centrifuge_core::id::LoadDimension;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{LoadSkip, MAX_HEAVY_KEYS, RangeLoad};
use centrifuge_core::manager::{ManagerAction, NamespaceOverview, Skip};
use centrifuge_core::owner::OwnerEvent;

use support::{Clock, Cluster, Node, pool, secs};

/// Starts an Owner whose load is in that dimension.
fn owner_in(cluster: &mut Cluster, name: &str, dimension: &str) -> Node {
    let dimension = LoadDimension::new(dimension).expect("a name");
    cluster.owner_with(name, Clock::TRUE, |config| config.load_dimension = dimension)
}

/// The load of an Owner, all of it in its first range.
fn load(cluster: &mut Cluster, owner: Node, load: u64) {
    let range = cluster.keys_of(owner).iter().next().expect("a range");
    cluster.tell(
        owner,
        OwnerEvent::Load(vec![RangeLoad { range, load, heavy: Vec::new(), quantiles: Vec::new() }].into()),
    );
}

fn overview(cluster: &mut Cluster) -> NamespaceOverview {
    let now = cluster.mark();
    let leader = cluster.leader();
    cluster.manager_machine(leader).overview(now).remove(&pool()).expect("the namespace")
}

fn load_skips(cluster: &Cluster) -> BTreeMap<String, LoadSkip> {
    let skips = cluster.noted.iter().filter_map(|(_, _, action)| match action {
        ManagerAction::Skip(Skip::Load { owner, why, .. }) => Some((owner.as_str().to_owned(), *why)),
        _ => None,
    });
    skips.collect()
}

fn virtual_nodes(cluster: &Cluster, owners: &[Node]) -> Vec<u32> {
    owners.iter().map(|owner| cluster.stored().sessions[&cluster.session(*owner)].virtual_nodes).collect()
}

/// An Owner that counts something else neither gives nor gets anything for it, and is not in the sum.
#[test]
fn a_load_in_another_dimension_than_most_is_ignored() {
    for strange in [0, 10, u64::MAX] {
        let mut cluster = Cluster::new();
        let c = owner_in(&mut cluster, "c", "cpu-ms");
        let [a, b] = cluster.owners(["a", "b"]);
        load(&mut cluster, a, 1_000_000);
        load(&mut cluster, b, 1_000_000);
        load(&mut cluster, c, strange);
        cluster.run_for(secs(200));
        assert_eq!(virtual_nodes(&cluster, &[a, b, c]), [64, 64, 64], "{strange}");
        assert_eq!(load_skips(&cluster)["c"], LoadSkip::OtherDimension);
        assert_eq!(load_skips(&cluster)["a"], LoadSkip::Balanced);
        let overview = overview(&mut cluster);
        assert_eq!((overview.load(), overview.load_dimension.as_str()), (2_000_000, "requests"));
        assert_eq!(overview.sessions[&cluster.session(c)].load_dimension.as_str(), "cpu-ms");
    }
}

/// A pool changes its dimension server by server: most servers decide at any time.
#[test]
fn the_dimension_is_that_of_most_owners() {
    let mut cluster = Cluster::new();
    let [a] = cluster.owners(["a"]);
    load(&mut cluster, a, 7);
    cluster.run_for(secs(20));
    assert!(overview(&mut cluster).load_dimension.is_requests());
    for name in ["b", "c"] {
        owner_in(&mut cluster, name, "cpu-ms");
    }
    cluster.run_for(secs(20));
    let overview = overview(&mut cluster);
    assert_eq!((overview.load(), overview.load_dimension.as_str()), (0, "cpu-ms"));
}

#[test]
fn loads_saturate() {
    let mut cluster = Cluster::new();
    let owners = cluster.owners(["a", "b"]);
    for owner in owners {
        let ranges: Vec<KeyRange> = cluster.keys_of(owner).iter().collect();
        let most = |range| RangeLoad {
            range,
            load: u64::MAX,
            heavy: vec![(Key::MIN, u64::MAX); 3],
            quantiles: Vec::new(),
        };
        cluster.tell(owner, OwnerEvent::Load(ranges.into_iter().map(most).collect::<Vec<_>>().into()));
    }
    cluster.run_for(secs(200));
    assert_eq!(overview(&mut cluster).load(), u64::MAX);
    assert_eq!(virtual_nodes(&cluster, &owners), [64, 64]);
}

/// Ranges that overlap count once, whatever else a report says of them.
#[test]
fn a_range_that_is_named_many_times_counts_once() {
    let mut cluster = Cluster::new();
    let [a, _] = cluster.owners(["a", "b"]);
    let range = cluster.keys_of(a).iter().next().expect("a range");
    let heavy = (0..2 * MAX_HEAVY_KEYS as u64).map(|number| (Key(range.first().0 + number), 1)).collect();
    let load = RangeLoad { range, load: 500, heavy, quantiles: Vec::new() };
    cluster.tell(a, OwnerEvent::Load(vec![load; 1_000].into()));
    cluster.run_for(secs(20));
    assert_eq!(overview(&mut cluster).load(), 500);
}
