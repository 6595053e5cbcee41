//! The table stays small while Owners come and go under ever new names (protocol §5.10).

mod support;

use centrifuge_core::id::Generation;
use centrifuge_core::key::Key;
use centrifuge_core::owner::OwnerEvent;
use centrifuge_core::settings::Settings;
use centrifuge_core::table::Table;
use centrifuge_core::time::Instant;

use support::{Cluster, Node, Options, papers, secs, some_keys};

/// How many Owners there are at once, and how many come and go.
const AT_ONCE: usize = 3;
const GENERATIONS_OF_OWNERS: usize = 60;
/// Few, so that the table is small enough to be looked through often.
const VIRTUAL_NODES: u32 = 16;

fn cluster() -> Cluster {
    let settings = Settings { virtual_nodes: VIRTUAL_NODES, ..papers() };
    Cluster::with(Options { settings, ..Options::default() })
}

/// Replaces the Owners one by one, each by one of another name, as `end` ends them; then nothing happens for ten minutes.
fn churn(cluster: &mut Cluster, end: impl Fn(&mut Cluster, Node)) -> Vec<Node> {
    let mut owners = Vec::new();
    for number in 0..GENERATIONS_OF_OWNERS {
        owners.push(cluster.owner(&format!("server-{number}")));
        cluster.run_for(secs(20));
        if owners.len() > AT_ONCE {
            let oldest = owners.remove(0);
            end(cluster, oldest);
        }
    }
    cluster.run_for(secs(600));
    owners
}

fn drain(cluster: &mut Cluster, owner: Node) {
    cluster.tell(owner, OwnerEvent::Drain);
    cluster.run_until(secs(300), |cluster| cluster.held_keys(owner).is_empty());
    cluster.tell(owner, OwnerEvent::Leave);
    cluster.run_for(secs(1));
}

fn is_whole(table: &Table) -> bool {
    table.iter().all(|(_, entry)| entry.owner.is_some() && entry.merge.is_none() && entry.recall.is_none())
}

#[test]
fn after_planned_churn_there_are_two_ranges_for_each_virtual_node_at_most() {
    let mut cluster = cluster();
    let lookup = cluster.lookup();
    let owners = churn(&mut cluster, drain);
    let most = 2 * AT_ONCE * VIRTUAL_NODES as usize;
    assert!(is_whole(cluster.table()));
    assert!(cluster.table().len() <= most, "{} entries in the store", cluster.table().len());
    assert!(cluster.is_current(lookup));
    let known = cluster.lookup_machine(lookup).table().map_or(0, |table| table.len());
    assert!(known <= most, "{known} entries in a Lookup");
    let pieces = owners.iter().map(|owner| cluster.owner_machine(*owner).accepted().len()).sum::<usize>();
    assert!(pieces <= 2 * most, "{pieces} pieces at the Owners, by how long each was held");
    let first_grant = Instant::ZERO + secs(10);
    assert_eq!(cluster.losses(lookup, first_grant), []);
}

#[test]
fn after_crashes_there_are_four_at_most() {
    let mut cluster = cluster();
    let lookup = cluster.lookup();
    churn(&mut cluster, |cluster, owner| {
        cluster.crash(owner);
        cluster.run_for(secs(90));
    });
    let most = 4 * AT_ONCE * VIRTUAL_NODES as usize;
    assert!(is_whole(cluster.table()));
    assert!(cluster.table().len() <= most, "{} entries in the store", cluster.table().len());
    let known = cluster.lookup_machine(lookup).table().map_or(0, |table| table.len());
    assert!(known <= most, "{known} entries in a Lookup");
}

/// What was checked under a number that the lease does not have any more is still continuous, and nothing else is.
#[test]
fn a_lease_is_continuous_under_every_number_that_it_had() {
    let mut cluster = Cluster::new();
    let [a, b] = cluster.owners(["a", "b"]);
    cluster.run_for(secs(20));
    let before: Vec<(Key, Generation)> =
        some_keys().filter_map(|key| Some((key, cluster.check_now(a, key).ok()?))).collect();
    drain(&mut cluster, b);
    cluster.run_for(secs(200));
    assert_eq!(cluster.table().len(), 1, "all of it is one lease");
    let now = cluster.check_now(a, Key::MIN).expect("a holds everything");
    for (key, lease) in before {
        assert!(lease < now && cluster.check_continuous(a, key, lease), "{key} since {lease}");
        assert!(!cluster.check_continuous(a, key, Generation(0)));
        assert!(!cluster.check_continuous(a, key, Generation(now.0 + 1)));
    }
}
