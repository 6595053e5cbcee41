//! A live namespace is switched between partitioners, either way, with a pin and a drain on the way: nothing moves at once, and
//! nothing is lost.

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager::AdminCommand;
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::record::Reason;
use centrifuge_core::settings::Settings;

use crate::load::{Load, configure, recalls, settings, trimmed};
use crate::support::{Cluster, Node, Options, pool, secs};

const MAX_MOVES: usize = 8;

fn load() -> Load {
    let hot = (0..12).map(|number| (Key(u64::MAX / 13 * number), 60_000 * (number + 1))).collect();
    Load { spread: 6_000_000, hot }
}

fn with_few_moves(partitioner: PartitionerKind) -> Settings {
    Settings { max_moves: MAX_MOVES, ..settings(partitioner) }
}

fn pinned() -> KeyRange {
    KeyRange::new(Key(1 << 60), Key(1 << 61)).expect("in order")
}

fn drain(cluster: &mut Cluster, owner: &str) {
    let owner = centrifuge_core::id::OwnerName::new(owner).expect("a name");
    cluster.admin(AdminCommand::Drain { namespace: pool(), owner, why: "".into() }).expect("it is there");
}

/// Lets time pass, and sees at every step that no more moves than may, that the pinned keys stay, and that nothing is lost.
fn watch(cluster: &mut Cluster, owners: &[Node], lookup: Node, pinned_to: Node, seconds: u64) {
    let start = cluster.mark();
    for _ in 0..seconds / 5 {
        load().run(cluster, owners, 5);
        assert!(cluster.table().recalled().count() <= MAX_MOVES);
        assert!(cluster.holds(pinned_to, pinned()), "pinned keys stay");
        assert_eq!(cluster.held_twice(), None);
    }
    assert!(cluster.lost_keys(lookup, start).is_empty(), "nothing is lost");
}

/// A pool under load, with a pin and a drain that has begun and not ended.
fn pool_on_its_way(from: PartitionerKind) -> (Cluster, [Node; 4], Node) {
    let mut cluster = trimmed(with_few_moves(from));
    let owners = cluster.owners(["a", "b", "c", "d"]);
    let lookup = cluster.lookup();
    load().run(&mut cluster, &owners, 120);
    cluster.pin(pinned(), "c");
    load().run(&mut cluster, &owners, 120);
    // The drain stands still while the partitioner is switched.
    cluster.by_hand(owners[3]);
    drain(&mut cluster, "d");
    load().run(&mut cluster, &owners, 10);
    assert!(cluster.table().recalled().count() > 0, "the drain has begun");
    (cluster, owners, lookup)
}

#[test]
fn to_trim_nothing_moves_but_what_load_asks_for() {
    let (mut cluster, owners, lookup) = pool_on_its_way(PartitionerKind::ConsistentHash);
    let before = cluster.published();
    let start = cluster.mark();
    configure(&mut cluster, with_few_moves(PartitionerKind::Trim));
    assert_eq!(cluster.published(), before, "every key has the lease that it had");
    assert_eq!(recalls(&cluster, start), [], "nothing is asked back");
    watch(&mut cluster, &owners, lookup, owners[2], 30);
    cluster.let_move(owners[3]);
    watch(&mut cluster, &owners, lookup, owners[2], 300);
    let unasked = recalls(&cluster, start)
        .into_iter()
        .filter(|(_, why)| !matches!(why, Reason::Balanced(_) | Reason::Draining | Reason::DestinationGone));
    assert_eq!(unasked.collect::<Vec<_>>(), [], "only load and the drain move anything");
    assert!(cluster.keys_of(owners[3]).is_empty(), "the drain ends");
    let peak = load().peak(&cluster, &owners[..3]);
    assert!(peak < 1_100, "load is even: {peak}");
}

#[test]
fn from_trim_ranges_move_to_the_ring_a_few_at_a_time() {
    let (mut cluster, owners, lookup) = pool_on_its_way(PartitionerKind::Trim);
    // Nothing ends to move, so that what has begun can be seen.
    owners.iter().for_each(|owner| cluster.by_hand(*owner));
    let before = cluster.published();
    let held: Vec<_> = owners.iter().map(|owner| cluster.held_keys(*owner)).collect();
    configure(&mut cluster, with_few_moves(PartitionerKind::ConsistentHash));
    assert_eq!(cluster.published(), before, "every key has the lease that it had");
    let still: Vec<_> = owners.iter().map(|owner| cluster.held_keys(*owner)).collect();
    assert_eq!(still, held, "nobody lets go of anything at once");
    assert!(cluster.table().recalled().count() <= MAX_MOVES);
    owners.iter().for_each(|owner| cluster.let_move(*owner));
    watch(&mut cluster, &owners, lookup, owners[2], 900);
    assert!(cluster.keys_of(owners[3]).is_empty(), "the drain ends");
    assert_eq!(cluster.table().recalled().count(), 0, "the ring is reached");
}

#[test]
fn there_and_back_while_moves_are_under_way_loses_nothing() {
    let (mut cluster, owners, lookup) = pool_on_its_way(PartitionerKind::Trim);
    let start = cluster.mark();
    for partitioner in [PartitionerKind::ConsistentHash, PartitionerKind::Trim].repeat(4) {
        configure(&mut cluster, with_few_moves(partitioner));
        load().run(&mut cluster, &owners, 5);
    }
    cluster.let_move(owners[3]);
    watch(&mut cluster, &owners, lookup, owners[2], 300);
    assert!(cluster.lost_keys(lookup, start).is_empty());
    assert!(cluster.keys_of(owners[3]).is_empty(), "the drain ends");
}

/// An operator who cancels a move under Trim wants the keys nowhere in particular: they stay where they are.
#[test]
fn a_move_that_is_cancelled_before_it_ends_leaves_the_keys_where_they_are() {
    let mut cluster = trimmed(Settings { churn_budget: 0, ..settings(PartitionerKind::Trim) });
    let owners = cluster.owners(["a", "b"]);
    let from = owners.into_iter().find(|owner| cluster.holds(*owner, pinned())).expect("it is whole");
    let to = if from == owners[0] { "b" } else { "a" };
    cluster.by_hand(from);
    cluster.pin(pinned(), to);
    assert!(cluster.table().recalled().count() > 0, "it has begun");
    let (range, why) = (pinned(), "rather not".into());
    cluster.admin(AdminCommand::Move { namespace: pool(), range, to: None, why }).expect("cancelled");
    load().run(&mut cluster, &owners, 30);
    assert_eq!(cluster.table().recalled().count(), 0);
    cluster.let_move(from);
    load().run(&mut cluster, &owners, 60);
    assert!(cluster.holds(from, pinned()));
}

#[test]
fn a_drain_ends_before_a_new_leader_has_heard_everybody() {
    let settings = settings(PartitionerKind::Trim);
    let mut cluster = Cluster::with(Options { managers: 2, settings, ..Options::default() });
    let owners = cluster.owners(["a", "b", "c"]);
    let lookup = cluster.lookup();
    load().run(&mut cluster, &owners, 120);
    let first = cluster.leader();
    cluster.crash(first);
    let crashed_at = cluster.mark();
    cluster.run_until(secs(60), |cluster| cluster.leaders().next().is_some());
    drain(&mut cluster, "c");
    load().run(&mut cluster, &owners, 35);
    assert!(cluster.mark().since(crashed_at) < Settings::default().hold, "the takeover's hold is not over");
    assert!(cluster.keys_of(owners[2]).is_empty(), "{:?}", cluster.keys_of(owners[2]));
    assert!(cluster.lost_keys(lookup, crashed_at).is_empty(), "nothing is lost");
}
