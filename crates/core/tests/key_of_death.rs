//! A key that kills whoever has it takes down a few Owners of a pool, by each partitioner, with and without restarts (protocol
//! §5.18, ADR 24). The bounds are those that the guide and the ADR name.

mod support;

use std::sync::Arc;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager::{AdminCommand, AdminError, ManagerAction, Skip};
use centrifuge_core::manager_state::MAX_QUARANTINED_KEYS;
use centrifuge_core::namespace_kind::NamespaceKind;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::random::Random;
use centrifuge_core::record::{Change, DeathEvidence};
use centrifuge_core::settings::Settings;
use centrifuge_core::table::Entry;
use support::{Cluster, M1, Node, Options, millis, pool, secs};

/// How soon after an Owner has the key the request comes that it dies of.
const LIVES: u64 = 900;

/// A pool whose Owners have had their keys for longer than the window.
fn cluster(partitioner: PartitionerKind, owners: usize) -> (Cluster, Vec<Node>) {
    let settings = Settings { partitioner, ..Settings::default() };
    let mut cluster = Cluster::with(Options { settings, ..Options::default() });
    let nodes = pool_of(&mut cluster, owners);
    (cluster, nodes)
}

/// The same in a cluster that there is.
fn pool_of(cluster: &mut Cluster, owners: usize) -> Vec<Node> {
    let nodes = (0..owners).map(|number| cluster.owner(&format!("server-{number}"))).collect();
    cluster.run_for(secs(120));
    nodes
}

/// Crashes whoever has the key, until it is in quarantine; says how many that were. They start again under their names if that is
/// wanted.
fn kill_holders(cluster: &mut Cluster, nodes: &mut Vec<Node>, key: Key, restarts: bool) -> usize {
    let killed = kill_some_holders(cluster, nodes, key, (restarts, 20));
    assert!(cluster.entry(key).quarantined, "the key is not found, and {killed} have died of it");
    killed
}

/// The same, of so many at most.
fn kill_some_holders(
    cluster: &mut Cluster,
    nodes: &mut Vec<Node>,
    key: Key,
    (restarts, most): (bool, usize),
) -> usize {
    let mut killed = 0;
    while killed < most && !nodes.is_empty() && !cluster.entry(key).quarantined {
        let holder = nodes.iter().position(|node| cluster.check_now(*node, key).is_ok());
        let Some(place) = holder else {
            cluster.run_for(millis(500));
            continue;
        };
        cluster.run_for(millis(LIVES));
        if cluster.check_now(nodes[place], key).is_err() {
            continue;
        }
        cluster.crash(nodes[place]);
        killed += 1;
        if restarts {
            cluster.run_for(secs(2));
            let name = format!("server-{place}");
            nodes[place] = cluster.owner_with(&name, support::Clock::TRUE, |config| {
                config.takes_over_previous = true;
            });
        } else {
            nodes.remove(place);
        }
    }
    killed
}

/// What is promised once the key is found.
fn judge(cluster: &mut Cluster, key: Key) {
    let stored = cluster.stored();
    assert_eq!(stored.quarantines.len(), 1);
    let quarantine = stored.quarantines[0].clone();
    assert!(quarantine.range.contains(key));
    assert!(quarantine.range.key_count() <= MAX_QUARANTINED_KEYS / 4);
    assert!(quarantine.evidence.len() >= 4, "{:?}", quarantine.evidence);
    let lookup = cluster.lookup();
    cluster.run_for(secs(120));
    let route = cluster.lookup_machine(lookup).lookup(key).expect("a table");
    assert!(route.quarantined && route.owner.is_none() && route.range == quarantine.range);
    let is_owned = |keys: KeyRange| keys == quarantine.range || cluster.entry(keys.first()).owner.is_some();
    assert!(cluster.table().iter().all(|(keys, _)| is_owned(keys)), "everything else has an owner");
    let (range, why) = (KeyRange::one(key), "fixed".into());
    cluster.admin(AdminCommand::Unquarantine { namespace: pool(), range, why }).expect("it is in quarantine");
    cluster.run_for(secs(30));
    assert!(!cluster.owners_of(key).is_empty(), "somebody has it again");
}

#[test]
fn with_consistent_hashing_five_of_twelve_die_at_most() {
    for number in 0..4_u64 {
        let key = Key::of(format!("key-{number}").as_bytes());
        let (mut cluster, mut nodes) = cluster(PartitionerKind::ConsistentHash, 12);
        let killed = kill_holders(&mut cluster, &mut nodes, key, false);
        assert!(killed <= 5, "{killed} died of {key}");
        assert_eq!(nodes.len() + killed, 12);
        judge(&mut cluster, key);
    }
}

#[test]
fn with_trim_six_of_twelve_die_at_most() {
    let key = Key::of(b"key-0");
    let (mut cluster, mut nodes) = cluster(PartitionerKind::Trim, 12);
    let killed = kill_holders(&mut cluster, &mut nodes, key, false);
    assert!(killed <= 6, "{killed} died");
    judge(&mut cluster, key);
}

/// A slice is a twelfth of the keys: it takes two cuts by eight to find a four-hundredth.
#[test]
fn with_large_slices_seven_of_twelve_die_at_most() {
    let key = Key(0x1234_5678_9abc_def0);
    let (mut cluster, mut nodes) = cluster(PartitionerKind::Fixed, 12);
    let killed = kill_holders(&mut cluster, &mut nodes, key, false);
    assert!(killed <= 7, "{killed} died");
    judge(&mut cluster, key);
}

/// Three servers that restart under their names and take over. Three deaths share some twenty ranges, which three servers tell apart
/// in three more, and two cuts are left.
#[test]
fn a_pool_of_three_that_is_restarted_finds_its_key_too() {
    let key = Key::of(b"key-0");
    let (mut cluster, mut nodes) = cluster(PartitionerKind::ConsistentHash, 3);
    let killed = kill_holders(&mut cluster, &mut nodes, key, true);
    assert!(killed <= 10, "{killed} died");
    judge(&mut cluster, key);
}

/// Owners of a pool die one after the other of something else, each just after it got keys of the one before. Says how many keys that
/// brought into quarantine at most.
fn die_by_chance(owners: usize, seed: u64) -> u128 {
    let (mut cluster, mut nodes) = cluster(PartitionerKind::ConsistentHash, owners);
    let mut most = 0;
    let mut random = Random::from_number(seed);
    while nodes.len() > 1 {
        let place = random.nonce().0 % nodes.len() as u128;
        cluster.crash(nodes.remove(place as usize));
        cluster.run_for(secs(70));
        most = most.max(cluster.stored().quarantined_keys());
        let is_served = |entry: &Entry| entry.owner.is_some() || entry.quarantined;
        assert!(cluster.table().iter().all(|(_, entry)| is_served(entry)), "everything else has an owner");
    }
    most
}

/// The fewer there are, the more deaths share some keys by chance, and the more are needed.
#[test]
fn deaths_of_another_cause_bring_no_key_of_a_small_pool_into_quarantine() {
    for seed in 0..6 {
        assert_eq!(die_by_chance(6, seed), 0, "seed {seed}");
    }
}

#[test]
fn deaths_of_another_cause_cost_few_keys_of_a_larger_pool() {
    for seed in 0..2 {
        let keys = die_by_chance(10, seed);
        assert!(keys <= MAX_QUARANTINED_KEYS / 2, "seed {seed}: {keys} keys");
    }
}

/// Many keys of a pool that restarts kill, one after the other. No more than one key in a hundred is kept from everybody: the less
/// room there is, the smaller is what is kept, and the more servers it takes to find it.
#[test]
fn however_many_keys_kill_few_are_kept_from_everybody() {
    let (mut cluster, mut nodes) = cluster(PartitionerKind::ConsistentHash, 12);
    cluster.watched = false;
    let mut killed = Vec::new();
    for number in 0..12 {
        let key = Key(number * (u64::MAX / 12));
        killed.push(kill_holders(&mut cluster, &mut nodes, key, true));
        cluster.run_for(secs(120));
        assert!(cluster.stored().quarantined_keys() <= MAX_QUARANTINED_KEYS);
    }
    assert_eq!(cluster.stored().quarantines.len(), 12);
    assert!(killed[0] <= 6 && killed[11] > killed[0], "{killed:?}");
    let is_served = |entry: &Entry| entry.owner.is_some() || entry.quarantined;
    assert!(cluster.table().iter().all(|(_, entry)| is_served(entry)), "everything else has an owner");
}

/// No more than 64 ranges are in quarantine, and a new leader remembers them. What kills then goes on killing, in ever smaller parts,
/// and operators are told why.
#[test]
fn when_quarantine_is_full_a_key_goes_on_killing_and_operators_are_told() {
    let mut cluster = Cluster::with(Options { managers: 2, ..Options::default() });
    let mut nodes = pool_of(&mut cluster, 12);
    let evidence: Arc<[DeathEvidence]> = Arc::new([]);
    for number in 0..64 {
        let change =
            Change::Quarantined { range: KeyRange::one(Key(number << 8)), evidence: evidence.clone() };
        cluster.store.group.apply_change(&pool(), &change);
    }
    cluster.crash(M1);
    cluster.run_for(secs(150));
    assert_eq!(cluster.stored().quarantines.len(), 64, "the new leader has loaded them");
    let is_full = |action: &ManagerAction| matches!(action, ManagerAction::Skip(Skip::QuarantineFull { .. }));
    let is_told = |cluster: &Cluster| cluster.noted.iter().any(|(_, _, action)| is_full(action));
    assert!(!is_told(&cluster), "nothing is suspected");
    let key = Key::of(b"key-0");
    assert_eq!(kill_some_holders(&mut cluster, &mut nodes, key, (true, 8)), 8);
    assert!(is_told(&cluster) && cluster.stored().quarantines.len() == 64);
    let release = AdminCommand::Unquarantine { namespace: pool(), range: KeyRange::ALL, why: "fixed".into() };
    cluster.admin(release).expect("there are some");
    let more = kill_some_holders(&mut cluster, &mut nodes, key, (true, 8));
    assert!(
        cluster.entry(key).quarantined && more <= 2,
        "there is room again, and it has killed enough: {more}"
    );
}

/// Keys that nobody may have do not hold up the end of a namespace, and the next of its name knows nothing of them.
#[test]
fn a_namespace_goes_with_its_quarantines() {
    let key = Key::of(b"key-0");
    let (mut cluster, mut nodes) = cluster(PartitionerKind::ConsistentHash, 12);
    kill_holders(&mut cluster, &mut nodes, key, false);
    let remove = AdminCommand::Remove { namespace: pool() };
    assert_eq!(cluster.admin(remove.clone()), Err(AdminError::NamespaceInUse));
    nodes.into_iter().for_each(|node| cluster.crash(node));
    cluster.run_for(secs(120));
    cluster.admin(remove).expect("only what is in quarantine is left");
    let (kind, settings) = (NamespaceKind::default(), Arc::new(Settings::default()));
    cluster.admin(AdminCommand::Create { namespace: pool(), kind, settings }).expect("it is gone");
    assert!(cluster.stored().quarantines.is_empty());
    let owner = cluster.owner("server-0");
    cluster.run_for(secs(30));
    assert!(cluster.check_now(owner, key).is_ok());
}
