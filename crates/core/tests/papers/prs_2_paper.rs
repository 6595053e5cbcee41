//! PRS §2, claim by claim, where Centrifuge's own paper does not say the same.

use std::collections::BTreeSet;

use crate::support::*;
use centrifuge_core::id::{OwnerName, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LossReason};
use centrifuge_core::manager::ManagerEvent;
use centrifuge_core::owner::{NotOwner, OwnerAction};
use centrifuge_core::partition::PartitionOwner;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::Change;

// ---- §2: what the whole promises

/// PRS §2.
#[test]
fn prs_2_the_whole_key_space_is_assigned() {
    let mut cluster = Cluster::new();
    let mut owners = Vec::new();
    let assigned = |cluster: &Cluster, owners: &[Node]| {
        let held = owners.iter().fold(RangeSet::new(), |all, owner| all.union(&cluster.held_keys(*owner)));
        held == RangeSet::all() && cluster.table().iter().all(|(_, entry)| entry.owner.is_some())
    };
    for name in ["a", "b", "c", "d", "e"] {
        owners.extend(cluster.owners([name]));
        assert!(assigned(&cluster, &owners), "with {}", owners.len());
    }
    while owners.len() > 1 {
        let gone = owners.remove(0);
        cluster.crash(gone);
        cluster.run_for(secs(70));
        assert!(assigned(&cluster, &owners), "with {}", owners.len());
    }
    cluster.crash(owners[0]);
    cluster.run_for(secs(70));
    assert!(cluster.table().iter().all(|(_, entry)| entry.owner.is_none()), "nobody is left to take it");
}

/// PRS §2.
#[test]
fn prs_2_more_virtual_nodes_spread_keys_more_evenly() {
    let names: Vec<OwnerName> =
        (0..10).map(|number| OwnerName::new(&format!("owner-{number}")).expect("a name")).collect();
    let largest_share = |virtual_nodes: u32| {
        let owner = |name: &OwnerName| PartitionOwner { name: name.clone(), virtual_nodes, weight: 100 };
        let owners: Vec<_> = names.iter().map(owner).collect();
        let mut keys = [0_u128; 10];
        for (range, place) in papers().partitioner.partitioner().unwrap().assign(&owners) {
            keys[place] += range.key_count();
        }
        keys.into_iter().max().expect("ten shares") * 1_000 / RangeSet::all().key_count()
    };
    let shares = [1, 8, 64, 512].map(largest_share);
    assert!(shares.windows(2).all(|pair| pair[0] > pair[1]), "in thousandths: {shares:?}");
    assert!(shares[2] < 150, "with 64, at most half more than a tenth: {shares:?}");
}

/// PRS §2.
#[test]
fn prs_2_every_loss_is_raised_within_the_bound() {
    let (hold, recall, contact) = (secs(65), secs(60 + 10), secs(90));
    // State is lost by a crash with an heir, by a crash without one, and by a recall that ends in force.
    let ways: [fn(&mut Cluster, Node); 3] = [
        |cluster, a| {
            cluster.owner("b");
            cluster.run_for(secs(10));
            cluster.crash(a);
        },
        |cluster, a| cluster.crash(a),
        |cluster, a| {
            cluster.by_hand(a);
            cluster.owner("b");
        },
    ];
    for (number, lose) in ways.into_iter().enumerate() {
        let mut cluster = Cluster::sliced();
        let a = cluster.owner("a");
        let [connected, cut_off, late] = [cluster.lookup(), cluster.lookup(), cluster.lookup()];
        cluster.run_for(secs(10));
        lose(&mut cluster, a);
        let mark = cluster.mark();
        let endangered = if number == 2 { RangeSet::from_ranges([halves().1]) } else { cluster.keys_of(a) };
        assert!(!endangered.is_empty());
        cluster.isolate(cut_off);
        cluster.isolate(late);
        cluster.run_for(secs(80));
        cluster.reconnect(late);
        cluster.run_until(hold + recall + contact, |cluster| {
            let told = |lookup| endangered.difference(&cluster.lost_keys(lookup, mark)).is_empty();
            [connected, cut_off, late].into_iter().all(told)
        });
        assert!(
            cluster.now.since(mark) <= if number == 2 { hold + recall + contact } else { hold + contact }
        );
    }
}

// ---- §2.1: keys and Lookups

/// PRS §2.1.
#[test]
fn prs_2_1_a_key_is_the_hash_of_a_name() {
    let vectors =
        include_str!("../../testdata/key_vectors.txt").lines().filter(|line| !line.starts_with('#'));
    let mut checked = 0;
    for vector in vectors {
        let (name, key) = vector.split_once(' ').expect("a name and a key");
        let byte = |place| u8::from_str_radix(&name[place..place + 2], 16).expect("hexadecimal");
        let name: Vec<u8> = (0..name.len()).step_by(2).map(byte).collect();
        assert_eq!(Key::of(&name).to_string(), key, "{name:?}");
        checked += 1;
    }
    assert!(checked > 10, "{checked}");
}

/// PRS §2.1.
#[test]
fn prs_2_1_one_key_is_never_divided() {
    let mut cluster = Cluster::new();
    let owners = cluster.owners(["a", "b", "c"]);
    let lookup = cluster.lookup();
    // Two things of one key go to one Owner, and whatever is moved with the key is moved with both.
    let key = Key::of(b"one name");
    assert_eq!(KeyRange::one(key).split_at(key), None);
    for (name, owner) in ["a", "b", "c"].into_iter().zip(owners) {
        cluster.pin(KeyRange::one(key), name);
        assert_eq!(cluster.owners_of(key), [owner]);
        assert_eq!(cluster.route(lookup, key), Some(owner));
        let around = |range: KeyRange| range.contains(key);
        assert_eq!(cluster.table().iter().filter(|(range, _)| around(*range)).count(), 1);
    }
}

/// PRS §2.1.
#[test]
fn prs_2_1_chosen_keys_keep_their_order() {
    let mut cluster = Cluster::new();
    cluster.owners(["a", "b", "c"]);
    let lookup = cluster.lookup();
    let machine = cluster.lookup_machine(lookup);
    let mut next = Some(Key::MIN);
    let mut ranges = 0;
    while let Some(first) = next {
        let route = machine.lookup(first).expect("a table");
        assert_eq!(route.range.first(), first, "where one range ends the next begins");
        // Neighbours are together as far as the range reaches.
        let middle = Key(first.0 + (route.range.last().0 - first.0) / 2);
        for key in [middle, middle.next().unwrap_or(middle).min(route.range.last()), route.range.last()] {
            assert_eq!(machine.lookup(key), Some(route));
        }
        next = route.range.last().next();
        ranges += 1;
    }
    assert_eq!(ranges, cluster.table().len());
}

/// PRS §2.1.
#[test]
fn prs_2_1_a_lookup_out_of_contact_raises_a_loss_on_everything() {
    let mut cluster = Cluster::sliced();
    let (a, lookup) = (cluster.owner("a"), cluster.lookup());
    let lease = cluster.check_now(a, Key::MIN).expect("a lease");
    cluster.run_for(secs(70));
    let asked = cluster.latest(lookup, M1, |envelope| Some(envelope.sent_at));
    cluster.isolate(lookup);
    let mark = cluster.mark();
    cluster.run_until(secs(91), |cluster| !cluster.losses(lookup, mark).is_empty());
    assert_eq!(
        cluster.losses(lookup, mark),
        [(asked + secs(90), &RangeSet::all(), LossReason::OutOfContact)]
    );
    assert!(cluster.raised.contains(&(cluster.now, lookup, LookupAction::Contact(false))));
    assert!(cluster.check_continuous(a, Key::MIN, lease), "though nothing was lost");
}

// ---- §2.2 to §2.4: what Owners can rely on

/// PRS §2.2, PRS §4.3.
#[test]
fn prs_2_2_checks_are_local() {
    let mut cluster = Cluster::new();
    let [a, b] = cluster.owners(["a", "b"]);
    cluster.isolate(M1);
    cluster.run_for(secs(30));
    let (sent, now) = (cluster.sent.len(), cluster.now);
    let mut held = 0;
    for key in some_keys() {
        // It has its ranges with their numbers; that is all that a check reads.
        let owner = cluster.owner_machine(a);
        let (range, lease) = match owner.leases().get(key) {
            Some((range, lease)) => (range, lease.generation),
            None => {
                assert_eq!(cluster.check_now(a, key), Err(NotOwner::NoLease));
                continue;
            }
        };
        assert!(range.contains(key));
        assert_eq!(cluster.check_now(a, key), Ok(lease));
        assert!(cluster.check_continuous(a, key, lease) && cluster.check_now(b, key).is_err());
        held += 1;
    }
    assert!(held > 50, "{held}");
    assert_eq!((cluster.sent.len(), cluster.now), (sent, now), "no message and no time was spent");
}

/// PRS §2.2.
#[test]
fn prs_2_2_a_lease_number_is_enough_across_leaders() {
    let mut cluster = Cluster::sliced_with_managers(3);
    let (a, b) = (cluster.owner("a"), cluster.owner("b"));
    let handles = [a, b].map(|owner| {
        let key = cluster.held_keys(owner).iter().next().expect("a range").first();
        (owner, key, cluster.check_now(owner, key).expect("a lease"))
    });
    cluster.crash(M1);
    cluster.run_for(secs(100));
    let second = cluster.leader();
    let all_hold = |cluster: &Cluster| {
        handles.iter().all(|(owner, key, lease)| cluster.check_continuous(*owner, *key, *lease))
    };
    assert!(all_hold(&cluster), "another leader changes nothing about a handle");
    // A lease is lost and comes back under each leader in turn: its old handles never fit again.
    for leader in [second, second] {
        cluster.isolate(a);
        cluster.run_for(secs(70));
        cluster.reconnect(a);
        cluster.run_for(secs(20));
        assert!(!cluster.held_keys(a).is_empty());
        let (owner, key, lease) = handles[0];
        assert!(!cluster.check_continuous(owner, key, lease));
        if cluster.leaders().next() == Some(leader) {
            cluster.crash(leader);
            cluster.run_for(secs(100));
        }
    }
    let mut granted = Vec::new();
    for batch in &cluster.store.log {
        for change in batch.records.iter().filter_map(|record| match record {
            centrifuge_core::record::Record::Namespace { change, .. } => Some(change),
            _ => None,
        }) {
            if let Change::Granted { generation, .. } = change {
                granted.push((batch.term, *generation));
            }
        }
    }
    let terms: BTreeSet<Term> = granted.iter().map(|(term, _)| *term).collect();
    assert_eq!(terms.len(), 3, "three leaders granted something: {granted:?}");
    assert!(granted.windows(2).all(|pair| pair[0].1 < pair[1].1), "no number twice: {granted:?}");
}

/// PRS §2.4.
#[test]
fn prs_2_4_a_clean_migration_is_told_to_owners_and_not_to_lookups() {
    let mut cluster = Cluster::sliced();
    let (a, lookup) = (cluster.owner("a"), cluster.lookup());
    let mark = cluster.mark();
    let b = cluster.owner("b");
    let told = |owner, what: fn(&OwnerAction) -> bool| cluster.upcalls(owner, mark).into_iter().any(what);
    assert!(told(a, |action| matches!(action, OwnerAction::Revoked(_))));
    assert!(told(b, |action| matches!(action, OwnerAction::Granted(_))));
    cluster.run_for(secs(200));
    assert!(cluster.is_current(lookup) && cluster.losses(lookup, mark).is_empty());
    // A loss, on the other hand, is told to both.
    let mark = cluster.mark();
    cluster.crash(b);
    cluster.run_for(secs(70));
    assert!(cluster.upcalls(a, mark).iter().any(|action| matches!(action, OwnerAction::Granted(_))));
    assert_eq!(cluster.lost_keys(lookup, mark), RangeSet::from_ranges([halves().1]));
    // A leader that resigns inside the migration changes nothing about that.
    let mut cluster = Cluster::sliced_with_managers(2);
    let [a, b] = cluster.owners(["a", "b"]);
    let lookup = cluster.lookup();
    cluster.run_for(secs(20));
    let mark = cluster.mark();
    cluster.move_unheard("b", b);
    cluster.tell(M1, ManagerEvent::Resign);
    cluster.run_until(secs(40), |cluster| cluster.holds(b, KeyRange::one(Key::MIN)));
    cluster.run_for(secs(100));
    let told = |owner, what: fn(&OwnerAction) -> bool| cluster.upcalls(owner, mark).into_iter().any(what);
    assert!(told(a, |action| matches!(action, OwnerAction::Revoked(_))));
    assert!(told(b, |action| matches!(action, OwnerAction::Granted(_))));
    assert_eq!(cluster.losses(lookup, mark), []);
}

/// PRS §2.4.
#[test]
fn prs_2_4_derived_keys_fall_to_several_owners() {
    let mut cluster = Cluster::new();
    cluster.owners(["a", "b", "c", "d", "e"]);
    let lookup = cluster.lookup();
    let spread = |name: u32| {
        let key = |copy: u32| Key::of(format!("{name}/{copy}").as_bytes());
        let owners: BTreeSet<Node> = (0..3).filter_map(|copy| cluster.route(lookup, key(copy))).collect();
        owners.len()
    };
    let spreads: Vec<usize> = (0..100).map(spread).collect();
    // By chance alone, three copies in a pool of five are at one Owner in 4 of 100 cases, and apart in 48.
    let count = |wanted| spreads.iter().filter(|spread| **spread == wanted).count();
    assert!(count(1) < 15 && count(3) > 30, "{spreads:?}");
}
