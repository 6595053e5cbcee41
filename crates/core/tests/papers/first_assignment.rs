//! How the first assignment waits for Owners that arrive together (protocol §5.8).

use centrifuge_core::record::Change;
use centrifuge_core::settings::Settings;

use crate::support::{Cluster, Options, millis, papers, secs};

fn cluster() -> Cluster {
    let settings = Settings { settle: secs(10), virtual_nodes: 4, ..papers() };
    Cluster::with(Options { settings, arrival_pause: millis(250), ..Options::default() })
}

fn is_unowned(cluster: &Cluster) -> bool {
    cluster.table().iter().all(|(_, entry)| entry.owner.is_none())
}

/// A pool that starts: whoever comes first does not get what would have to move at once.
#[test]
fn owners_that_arrive_together_get_their_keys_without_a_move() {
    let mut cluster = cluster();
    let owners: Vec<_> = (0..20)
        .map(|number| {
            let owner = cluster.owner(&format!("owner-{number}"));
            cluster.run_for(millis(200));
            assert!(is_unowned(&cluster), "{number}");
            owner
        })
        .collect();
    cluster.run_for(millis(100));
    assert!(owners.iter().all(|owner| !cluster.held_keys(*owner).is_empty()));
    cluster.run_for(secs(60));
    let recalls = cluster.store.changes_after(0).filter(|change| matches!(change, Change::Recalled { .. }));
    assert_eq!(recalls.count(), 0);
}

#[test]
fn a_first_assignment_waits_no_longer_than_the_settle_time() {
    let mut cluster = cluster();
    let first = cluster.owner("first");
    let mut others = 0;
    while is_unowned(&cluster) {
        assert!(others * 200 <= 10_000, "{others} others have arrived");
        others += 1;
        cluster.owner(&format!("other-{others}"));
        cluster.run_for(millis(200));
    }
    assert!(others * 200 >= 10_000, "{others} others have arrived");
    assert!(!cluster.held_keys(first).is_empty());
}

#[test]
fn nobody_waits_for_arrivals_once_somebody_has_keys() {
    let mut cluster = cluster();
    let first = cluster.owner("first");
    cluster.run_for(secs(1));
    assert!(!cluster.held_keys(first).is_empty());
    cluster.crash(first);
    cluster.run_for(secs(70));
    assert!(is_unowned(&cluster));
    let second = cluster.owner("second");
    cluster.run_for(secs(1));
    let third = cluster.owner("third");
    cluster.run_for(millis(100));
    assert!(!cluster.held_keys(second).is_empty() && !cluster.held_keys(third).is_empty());
}
