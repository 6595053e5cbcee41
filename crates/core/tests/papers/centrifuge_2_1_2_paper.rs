//! Centrifuge §2.1.2, claim by claim: partitioning, leases, load.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::*;
use centrifuge_core::id::{Generation, Namespace, Nonce, OwnerName, Seq, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{
    LoadDecision, LoadMemory, LoadPolicy, LoadPolicyKind, LoadRound, LoadSkip, OwnerLoad, RangeLoad,
    VirtualNodeChange,
};
use centrifuge_core::manager::{AdminCommand, ManagerAction, MessageSkip, Skip};
use centrifuge_core::message::{Destination, LookupRequest, ManagerToLookup, Position, UpdateBody};
use centrifuge_core::owner::{OwnerAction, OwnerEvent, TransferId};
use centrifuge_core::partition::{ConsistentHash, PartitionOwner, Partitioner};
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::Change;
use centrifuge_core::settings::Settings;
use centrifuge_core::table::Entry;

// ---- §2.1.2: partitioning and leases

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_namespaces_share_nothing() {
    let mut cluster = Cluster::sliced();
    let other = Namespace::new("other").expect("a label");
    let settings = Arc::new(sliced());
    cluster
        .admin(AdminCommand::Create { kind: Default::default(), namespace: other.clone(), settings })
        .expect("a second namespace");
    cluster.watched = false; // Two namespaces' keys are not the same keys.
    let a = cluster.owner("a");
    let lookup = cluster.lookup();
    let stranger = cluster.owner_with("a", Clock::TRUE, |config| config.namespace = other.clone());
    assert!(
        cluster.holds(a, KeyRange::ALL) && cluster.holds(stranger, KeyRange::ALL),
        "as if each were alone"
    );
    let before = cluster.stored_of(&other).clone();
    // Whatever happens in one, the other stays as it is ...
    let b = cluster.owner("b");
    cluster.crash(a);
    cluster.run_for(secs(100));
    assert!(cluster.holds(b, KeyRange::ALL));
    assert_eq!(cluster.stored_of(&other), &before);
    // ... and a message with the wrong name on it does nothing, in either direction.
    cluster.hold_both(stranger, M1);
    cluster.run_for(secs(20));
    let mut report = cluster.take(stranger, M1);
    report.report().namespace = pool();
    report.report().held.clear();
    let pool_before = cluster.stored().clone();
    cluster.deliver(report);
    assert_eq!(cluster.manager_machine(M1).counters().skipped[&MessageSkip::ForeignNonce], 1);
    let mut assign = cluster.latest(M1, b, |e| e.as_assign().map(|_| e.clone()));
    assign.to = stranger;
    assign.assign().session = cluster.session(stranger);
    cluster.deliver(assign);
    assert_eq!(cluster.owner_machine(stranger).counters().foreign, 1);
    let mut update = cluster.latest(M1, lookup, |e| e.as_update().map(|_| e.clone()));
    if let Message::ToLookup(ManagerToLookup::Update(update)) = &mut update.message {
        update.namespace = other.clone();
    }
    cluster.deliver(update);
    assert_eq!(cluster.lookup_machine(lookup).counters().other_namespace, 1);
    assert_eq!((cluster.stored(), cluster.stored_of(&other)), (&pool_before, &before));
    assert!(cluster.holds(stranger, KeyRange::ALL));
}

/// Centrifuge §2.1.2, PRS §4.1.
#[test]
fn centrifuge_2_1_2_every_leased_range_has_a_generation() {
    let mut cluster = Cluster::new();
    let check = |cluster: &Cluster| {
        let ranges: Vec<(KeyRange, Entry)> = cluster.table().iter().map(|(r, e)| (r, *e)).collect();
        assert_eq!((ranges[0].0.first(), ranges[ranges.len() - 1].0.last()), (Key::MIN, Key::MAX));
        assert!(ranges.windows(2).all(|pair| pair[0].0.touches(pair[1].0)), "every key has one entry");
        let leased = ranges.iter().filter(|(_, entry)| entry.owner.is_some());
        assert!(leased.clone().all(|(_, entry)| entry.generation > Generation::ZERO));
        leased.count()
    };
    assert_eq!(check(&cluster), 0);
    let [a, _, _] = cluster.owners(["a", "b", "c"]);
    assert!(check(&cluster) > 100);
    cluster.crash(a);
    cluster.run_for(secs(70));
    assert!(check(&cluster) > 50);
}

/// Centrifuge §2.1.2, PRS §2.
#[test]
fn centrifuge_2_1_2_a_join_recalls_only_what_the_new_owner_gets() {
    let mut cluster = Cluster::new();
    cluster.owners(["a", "b", "c"]);
    let (before, committed) = (cluster.table().clone(), cluster.store.log.len());
    let [d] = cluster.owners(["d"]);
    let gets = desired(&["a", "b", "c", "d"], 3);
    let mut recalled = RangeSet::new();
    for change in cluster.store.changes_after(committed) {
        if let Change::Recalled { range, to, .. } = change {
            assert_eq!(*to, Some(cluster.session(d)));
            recalled.insert(*range);
        }
    }
    assert_eq!(recalled, gets);
    assert_eq!(cluster.keys_of(d), gets);
    assert_eq!(cluster.held_keys(d), gets, "and it is granted all of it");
    // Whatever stays has the lease that it had.
    for range in RangeSet::all().difference(&gets).iter() {
        for (part, entry) in before.overlapping(range) {
            assert!(cluster.table().overlapping(part).all(|(_, now)| now == entry));
        }
    }
}

/// What consistent hashing gives to one of these Owners.
fn desired(names: &[&str], of: usize) -> RangeSet {
    let owner = |name: &&str| PartitionOwner {
        name: OwnerName::new(name).expect("a name"),
        virtual_nodes: 64,
        weight: 100,
    };
    let assignment = ConsistentHash.assign(&names.iter().map(owner).collect::<Vec<_>>());
    assignment.into_iter().filter(|(_, place)| *place == of).map(|(range, _)| range).collect()
}

/// Centrifuge §2.1.2, PRS §4.1.
#[test]
fn centrifuge_2_1_2_recalled_ranges_are_granted_one_by_one_as_they_come_free() {
    let mut cluster = Cluster::new();
    let [a, b] = cluster.owners(["a", "b"]);
    let (of_a, of_b) = (cluster.keys_of(a), cluster.keys_of(b));
    cluster.by_hand(a);
    cluster.by_hand(b);
    let mark = cluster.mark();
    let c = cluster.owner("c");
    cluster.run_for(secs(1));
    let gets = desired(&["a", "b", "c"], 2);
    assert!(cluster.held_keys(c).is_empty(), "everything is still in use");
    // One range comes free: it is granted alone.
    let (transfer, range, generation) =
        cluster.upcalls(a, mark).into_iter().find_map(start).expect("a recall");
    let to = cluster.session(c);
    cluster.tell(a, OwnerEvent::TransferReady(transfer));
    cluster.tell(c, OwnerEvent::ImportReady { range, source: generation, term: Term(1) });
    cluster.tell(a, OwnerEvent::TransferDone { transfer, to });
    assert_eq!(cluster.held_keys(c), RangeSet::from_ranges([range]));
    // Then all that one Owner had; the other has not moved at all.
    cluster.let_move(a);
    cluster.run_for(secs(2));
    assert_eq!(cluster.held_keys(c), gets.intersection(&of_a));
    assert_eq!(cluster.held_keys(b), of_b);
    cluster.let_move(b);
    cluster.run_for(secs(2));
    assert_eq!(cluster.held_keys(c), gets);
    assert!(gets.intersection(&of_a).len() > 10 && gets.intersection(&of_b).len() > 10);
}

fn start(action: &OwnerAction) -> Option<(TransferId, KeyRange, Generation)> {
    match action {
        OwnerAction::StartTransfer { transfer, range, generation, .. } => {
            Some((*transfer, *range, *generation))
        }
        _ => None,
    }
}

/// Centrifuge §2.1.2, PRS §4.1.
#[test]
fn centrifuge_2_1_2_the_ranges_of_an_owner_that_is_gone_go_to_the_others() {
    let removals: [fn(&mut Cluster, Node); 3] = [
        |cluster, b| cluster.crash(b),
        |cluster, b| cluster.tell(b, OwnerEvent::Leave),
        |cluster, _| {
            let owner = OwnerName::new("b").expect("a name");
            cluster
                .admin(AdminCommand::Evict { namespace: pool(), owner, why: "a test".into() })
                .expect("done");
        },
    ];
    for remove in removals {
        let mut cluster = Cluster::new();
        let [a, b, c] = cluster.owners(["a", "b", "c"]);
        let (before, of_b) = (cluster.table().clone(), cluster.keys_of(b));
        remove(&mut cluster, b);
        cluster.run_for(secs(70));
        assert_eq!(cluster.keys_of(a).union(&cluster.keys_of(c)), RangeSet::all());
        assert!([a, c].into_iter().all(|stays| !cluster.keys_of(stays).intersection(&of_b).is_empty()));
        for (range, entry) in before.iter().filter(|(_, entry)| entry.owner != Some(cluster.session(b))) {
            assert!(
                cluster.table().overlapping(range).all(|(_, now)| now == entry),
                "no range moves between those that stay"
            );
        }
    }
}

/// Centrifuge §2.1.2, PRS §4.1.
#[test]
fn centrifuge_2_1_2_the_change_log_forgets_after_five_minutes() {
    let mut cluster = Cluster::new();
    cluster.owners(["a", "b", "c"]);
    cluster.run_for(secs(600));
    let old = Position { log: cluster.stored().log, lsn: cluster.stored().lsn };
    cluster.pin(KeyRange::one(Key(7)), "a");
    cluster.pin(KeyRange::one(Key(7)), "b");
    assert!(cluster.stored().lsn > old.lsn);
    cluster.run_for(secs(300));
    let changes = ask(&mut cluster, old);
    assert!(matches!(changes, UpdateBody::Changes { from, .. } if from == old.lsn), "{changes:?}");
    cluster.run_for(millis(1));
    assert!(matches!(ask(&mut cluster, old), UpdateBody::Snapshot { .. }));
}

/// What a Lookup that has this position is answered.
fn ask(cluster: &mut Cluster, position: Position) -> UpdateBody {
    let lookup = Nonce(u128::from(cluster.now.0));
    let request = LookupRequest {
        namespace: pool(),
        lookup,
        seq: Seq(1),
        position: Some(position),
        term: Term(1),
        expects: Default::default(),
    };
    let asker = Node::Lookup(1_000);
    let envelope =
        Envelope { sent_at: cluster.now, from: asker, to: M1, message: Message::FromLookup(request) };
    cluster.deliver(envelope);
    cluster.latest(M1, asker, |e| e.as_update().map(|update| update.body.clone()))
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_a_recall_names_the_next_owner_so_that_state_can_move() {
    let mut cluster = Cluster::sliced();
    let a = cluster.owner("a");
    cluster.by_hand(a);
    let mark = cluster.mark();
    let b = cluster.owner("b");
    let (_, high) = halves();
    let named = Destination {
        session: cluster.session(b),
        name: OwnerName::new("b").expect("a name"),
        url: "http://b".into(),
    };
    let lease = cluster.check_now(a, Key::MAX).expect("the range is served while its state is copied");
    let [OwnerAction::StartTransfer { transfer, range, generation, to, .. }] = cluster.upcalls(a, mark)[..]
    else {
        panic!("one recall")
    };
    assert_eq!((*range, *generation, to), (high, lease, &named));
    // The copy arrived at another process: it does not count, and the copy is made again.
    let (transfer, stranger) = (*transfer, SessionId(Nonce(99)));
    cluster.tell(a, OwnerEvent::TransferReady(transfer));
    cluster.tell(a, OwnerEvent::TransferDone { transfer, to: stranger });
    cluster.run_for(secs(2));
    assert_eq!(cluster.check_now(a, Key::MAX), Ok(lease));
    let again = cluster.upcalls(a, mark).into_iter().rev().find_map(start).expect("another try");
    assert_eq!((again.1, again.2), (high, lease));
    assert_ne!(again.0, transfer);
    // The copy arrived where it should: both ends know, and the lease moves with the state.
    cluster.tell(b, OwnerEvent::ImportReady { range: high, source: lease, term: Term(1) });
    cluster.tell(a, OwnerEvent::TransferReady(again.0));
    cluster.tell(a, OwnerEvent::TransferDone { transfer: again.0, to: named.session });
    let granted = cluster.upcalls(b, mark).into_iter().find_map(|action| match action {
        OwnerAction::Granted(grants) => Some(grants[0]),
        _ => None,
    });
    let granted = granted.expect("a grant");
    assert_eq!((granted.range, granted.source, granted.state_since), (high, Some(lease), lease));
}

// ---- §2.1.2: load

/// Three Owners with the default settings, whose loads are these, measured and reported.
fn loaded(loads: [u64; 3]) -> (Cluster, [Node; 3]) {
    let mut cluster = Cluster::new();
    let owners = cluster.owners(["a", "b", "c"]);
    for (owner, load) in owners.into_iter().zip(loads) {
        load_evenly(&mut cluster, owner, load);
    }
    (cluster, owners)
}

/// The load of an Owner, spread evenly over its keys.
fn load_evenly(cluster: &mut Cluster, owner: Node, load: u64) {
    let keys = cluster.keys_of(owner);
    let share = |range: KeyRange| (u128::from(load) * range.key_count() / keys.key_count()) as u64;
    let mut loads: Vec<RangeLoad> = keys
        .iter()
        .map(|range| RangeLoad { range, load: share(range), heavy: Vec::new(), quantiles: Vec::new() })
        .collect();
    loads[0].load += load - loads.iter().map(|range| range.load).sum::<u64>();
    cluster.tell(owner, OwnerEvent::Load(loads.into()));
}

fn virtual_nodes(cluster: &Cluster, owners: [Node; 3]) -> [u32; 3] {
    owners.map(|owner| cluster.stored().sessions[&cluster.session(owner)].virtual_nodes)
}

/// Why the load policy left Owners alone, by name.
fn load_skips(cluster: &Cluster) -> BTreeMap<String, LoadSkip> {
    let skips = cluster.noted.iter().filter_map(|(_, _, action)| match action {
        ManagerAction::Skip(Skip::Load { owner, why, .. }) => Some((owner.as_str().to_owned(), *why)),
        _ => None,
    });
    skips.collect()
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_owners_report_their_load() {
    let (mut cluster, [a, ..]) = loaded([1_000_000, 1_000_000, 1_000_000]);
    cluster.run_for(secs(20));
    let report = cluster.latest(a, M1, |e| e.as_report().cloned());
    let reported: RangeSet = report.loads.iter().map(|load| load.range).collect();
    assert_eq!(reported, cluster.keys_of(a), "range by range");
    assert_eq!(report.loads.iter().map(|load| load.load).sum::<u64>(), 1_000_000);
    cluster.run_for(secs(60));
    assert_eq!(load_skips(&cluster)["a"], LoadSkip::Balanced, "the policy was given it");
}

/// Centrifuge §2.1.2, PRS §4.5.
#[test]
fn centrifuge_2_1_2_an_overloaded_owner_gives_a_virtual_node_to_the_least_loaded() {
    // The least loaded is 9 % below the mean, and gets it all the same.
    let (mut cluster, owners) = loaded([1_150_000, 940_000, 910_000]);
    cluster.run_for(secs(70));
    assert_eq!(virtual_nodes(&cluster, owners), [63, 64, 65]);
    assert_eq!(cluster.table().iter().filter(|(_, entry)| entry.recall.is_some()).count(), 0, "and it moved");
    // Where one key is the whole load, no transfer would lower the peak: it is skipped, with that reason.
    let (mut cluster, [a, b, c]) = loaded([0, 0, 0]);
    let key = cluster.keys_of(a).iter().next().expect("a range").first();
    let hot = RangeLoad {
        range: KeyRange::one(key),
        load: 1_000_000,
        heavy: vec![(key, 1_000_000)],
        quantiles: Vec::new(),
    };
    cluster.tell(a, OwnerEvent::Load(vec![hot].into()));
    cluster.run_for(secs(70));
    assert_eq!(virtual_nodes(&cluster, [a, b, c]), [64, 64, 64]);
    assert_eq!(load_skips(&cluster)["a"], LoadSkip::WouldNotLowerPeak);
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_an_underloaded_owner_gets_a_virtual_node() {
    // Nobody is 10 % above the mean; the one 12 % below gets a virtual node of the most loaded.
    let (mut cluster, owners) = loaded([1_070_000, 880_000, 1_050_000]);
    cluster.run_for(secs(70));
    assert_eq!(virtual_nodes(&cluster, owners), [63, 65, 64]);
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_owners_near_the_mean_are_left_alone() {
    let (mut cluster, owners) = loaded([1_100_000, 1_000_000, 900_000]);
    cluster.run_for(secs(300));
    assert_eq!(virtual_nodes(&cluster, owners), [64, 64, 64]);
    let balanced = LoadSkip::Balanced;
    assert_eq!(load_skips(&cluster), ["a", "b", "c"].map(|name| (name.to_owned(), balanced)).into());
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_the_total_of_virtual_nodes_is_constant() {
    let (mut cluster, owners) = loaded([2_000_000, 700_000, 300_000]);
    let mut seen = BTreeSet::new();
    for _ in 0..10 {
        cluster.run_for(secs(60));
        let counts = virtual_nodes(&cluster, owners);
        assert_eq!(counts.iter().sum::<u32>(), 3 * 64);
        seen.insert(counts);
    }
    assert!(seen.len() > 3, "{seen:?}");
}

/// Centrifuge §2.1.2.
#[test]
fn centrifuge_2_1_2_the_load_policy_can_be_exchanged() {
    /// Takes a virtual node from whoever is first.
    struct FirstGives;
    impl LoadPolicy for FirstGives {
        fn round(&self, _: &mut LoadMemory, round: &LoadRound<'_>) -> LoadDecision {
            let first = &round.owners[0];
            let change =
                VirtualNodeChange { name: first.name.clone(), virtual_nodes: first.virtual_nodes - 1 };
            LoadDecision { changes: vec![change], skipped: Vec::new() }
        }
    }
    let owners = ["a", "b"].map(|name| OwnerLoad {
        name: OwnerName::new(name).expect("a name"),
        virtual_nodes: 64,
        weight: 100,
        load: 1,
    });
    let round = LoadRound { owners: &owners, ranges: &[], partitioner: &ConsistentHash, max_changes: 1 };
    let policies: [&dyn LoadPolicy; 3] =
        [&FirstGives, LoadPolicyKind::Off.policy(), LoadPolicyKind::TenPercent.policy()];
    let changes = policies.map(|policy| policy.round(&mut LoadMemory::default(), &round).changes.len());
    assert_eq!(changes, [1, 0, 0]);
    // And in a running pool, by its settings.
    let (mut cluster, owners) = loaded([2_000_000, 500_000, 500_000]);
    let settings = Arc::new(Settings { load_policy: LoadPolicyKind::Off, ..papers() });
    cluster
        .admin(AdminCommand::Configure { namespace: pool(), settings, expected: None, kind: None })
        .expect("good settings");
    cluster.run_for(secs(130));
    assert_eq!(virtual_nodes(&cluster, owners), [64, 64, 64]);
    assert_eq!(load_skips(&cluster)["a"], LoadSkip::Off);
    let settings = Arc::new(papers());
    cluster
        .admin(AdminCommand::Configure { namespace: pool(), settings, expected: None, kind: None })
        .expect("good settings");
    cluster.run_for(secs(70));
    assert_ne!(virtual_nodes(&cluster, owners), [64, 64, 64]);
}
