//! What the partitioners promise: every key covered once, few keys moved, the same result for the same Owners.

use std::collections::BTreeMap;

use centrifuge_core::id::OwnerName;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::partition::{
    Assignment, ConsistentHash, Fixed, PartitionOwner, Partitioner, PartitionerKind, Ring, overlay,
};
use centrifuge_core::random::Random;
use centrifuge_core::range_map::RangeMap;

fn owner(number: usize) -> PartitionOwner {
    let name = OwnerName::new(&format!("owner-{number:03}")).expect("a plain name");
    PartitionOwner { name, virtual_nodes: 64, weight: 100 }
}

fn pool(owners: usize) -> Vec<PartitionOwner> {
    (0..owners).map(owner).collect()
}

/// Checks that every key has one owner and that no two neighbours could be one range.
fn assert_covers(assignment: &Assignment) {
    assert_eq!(assignment.first().expect("a range").0.first(), Key::MIN);
    assert_eq!(assignment.last().expect("a range").0.last(), Key::MAX);
    for pair in assignment.windows(2) {
        assert!(pair[0].0.touches(pair[1].0), "a hole or an overlap between {:?} and {:?}", pair[0], pair[1]);
        assert_ne!(pair[0].1, pair[1].1, "neighbours with one owner are one range");
    }
}

/// The keys of `owner`, in thousandths of the key space.
fn share(assignment: &Assignment, owner: usize) -> u64 {
    let keys: u128 =
        assignment.iter().filter(|(_, of)| *of == owner).map(|(range, _)| range.key_count()).sum();
    ((keys * 1_000) >> 64) as u64
}

/// What moves from the first assignment to the second: thousandths of the key space, and who gives and gets.
fn moves(before: &Assignment, after: &Assignment) -> (u64, Vec<usize>, Vec<usize>) {
    let moved: Vec<(KeyRange, usize, usize)> =
        overlay(before, after).filter(|(_, from, to)| from != to).collect();
    let keys: u128 = moved.iter().map(|(range, _, _)| range.key_count()).sum();
    let distinct = |mut owners: Vec<usize>| {
        owners.sort_unstable();
        owners.dedup();
        owners
    };
    let from = distinct(moved.iter().map(|(_, from, _)| *from).collect());
    let to = distinct(moved.iter().map(|(_, _, to)| *to).collect());
    (((keys * 1_000) >> 64) as u64, from, to)
}

#[test]
fn every_key_has_exactly_one_owner() {
    for owners in [1, 2, 3, 10, 100] {
        assert_covers(&ConsistentHash.assign(&pool(owners)));
        assert_covers(&Fixed.assign(&pool(owners)));
    }
}

#[test]
fn without_owners_there_is_no_range() {
    assert_eq!(ConsistentHash.assign(&[]), []);
    assert_eq!(Fixed.assign(&[]), []);
    let idle = [PartitionOwner { virtual_nodes: 0, ..owner(0) }, PartitionOwner { weight: 0, ..owner(1) }];
    assert_eq!(ConsistentHash.assign(&idle), []);
}

#[test]
fn one_owner_has_every_key_in_one_range() {
    assert_eq!(ConsistentHash.assign(&pool(1)), [(KeyRange::ALL, 0)]);
    assert_eq!(Fixed.assign(&pool(1)), [(KeyRange::ALL, 0)]);
}

#[test]
fn prs_4_1_the_nth_owner_takes_about_one_nth_and_nothing_moves_between_old_owners() {
    for owners in [2, 3, 10, 50] {
        let before = ConsistentHash.assign(&pool(owners - 1));
        let after = ConsistentHash.assign(&pool(owners));
        let (moved, from, to) = moves(&before, &after);
        let fair = 1_000 / owners as u64;
        assert!(moved.abs_diff(fair) * 5 < fair * 2, "{moved} of an expected {fair} thousandths moved");
        assert_eq!(to, [owners - 1], "all that moves goes to the new owner");
        assert!(from.len() * 2 >= owners, "and comes from many of the old");
    }
}

#[test]
fn an_owner_that_leaves_moves_only_its_own_keys() {
    let mut remaining = pool(10);
    let before = ConsistentHash.assign(&remaining);
    remaining[4].virtual_nodes = 0;
    let after = ConsistentHash.assign(&remaining);
    let (moved, from, to) = moves(&before, &after);
    assert_eq!(moved, share(&before, 4));
    assert_eq!((from, to), (vec![4], vec![0, 1, 2, 3, 5, 6, 7, 8, 9]));

    let left: Vec<PartitionOwner> =
        remaining.iter().filter(|owner| owner.virtual_nodes > 0).cloned().collect();
    let without: Assignment =
        after.iter().map(|&(range, owner)| (range, owner - usize::from(owner > 4))).collect();
    assert_eq!(ConsistentHash.assign(&left), without, "to be absent is to have no virtual nodes");
}

#[test]
fn an_owner_of_twice_the_weight_has_about_twice_the_keys() {
    let mut owners = pool(20);
    owners[7].weight = 200;
    let assignment = ConsistentHash.assign(&owners);
    let fair = 1_000 * 2 / 21;
    let has = share(&assignment, 7);
    assert!(has.abs_diff(fair) * 4 < fair, "{has} of an expected {fair} thousandths");
}

#[test]
fn a_small_weight_keeps_one_virtual_node() {
    let mut owners = pool(3);
    owners[1] = PartitionOwner { virtual_nodes: 4, weight: 1, ..owner(1) };
    let light = ConsistentHash.assign(&owners);
    owners[1] = PartitionOwner { virtual_nodes: 1, weight: 100, ..owner(1) };
    assert_eq!(light, ConsistentHash.assign(&owners));
}

#[test]
fn one_virtual_node_more_moves_keys_only_to_its_owner_and_one_less_only_from_it() {
    let before = ConsistentHash.assign(&pool(10));
    let mut moved_in_all = 0;
    for changed in 0..10 {
        let mut owners = pool(10);
        owners[changed].virtual_nodes += 1;
        let (moved, _, to) = moves(&before, &ConsistentHash.assign(&owners));
        assert!(to.iter().all(|to| *to == changed));
        owners[changed].virtual_nodes -= 2;
        let (_, from, _) = moves(&before, &ConsistentHash.assign(&owners));
        assert!(from.iter().all(|from| *from == changed));
        moved_in_all += moved;
    }
    assert!(moved_in_all > 0, "a virtual node is worth keys");
}

#[test]
fn the_order_of_the_owners_does_not_matter() {
    let forward = pool(9);
    let backward: Vec<PartitionOwner> = forward.iter().rev().cloned().collect();
    for kind in [PartitionerKind::ConsistentHash, PartitionerKind::Fixed] {
        let assigned = kind.partitioner().unwrap().assign(&backward);
        let renumbered: Assignment = assigned.into_iter().map(|(range, owner)| (range, 8 - owner)).collect();
        assert_eq!(kind.partitioner().unwrap().assign(&forward), renumbered);
    }
}

/// Owners come, go and change one after another; the ring gives every key to whom an assignment of those that are there does.
#[test]
fn a_ring_that_is_kept_says_what_an_assignment_from_scratch_says() {
    let mut ring = Ring::new();
    let mut there: BTreeMap<usize, PartitionOwner> = BTreeMap::new();
    let mut known: RangeMap<usize> = RangeMap::new();
    let mut random = Random::from_number(7);
    for _ in 0..300 {
        let number = (random.nonce().0 % 12) as usize;
        let before = there.remove(&number);
        before.iter().for_each(|owner| ring.remove(owner, number));
        let now = (!random.nonce().0.is_multiple_of(3)).then(|| PartitionOwner {
            virtual_nodes: (random.nonce().0 % 20) as u32,
            weight: (random.nonce().0 % 300) as u32,
            ..owner(number)
        });
        now.iter().for_each(|owner| ring.add(owner, number));
        for range in ring.around(before.iter().chain(&now)).iter() {
            known.remove(range);
            ring.pieces(range).for_each(|(piece, owner)| known.insert(piece, owner));
        }
        there.extend(now.map(|owner| (number, owner)));
        let numbers: Vec<usize> = there.keys().copied().collect();
        let owners: Vec<PartitionOwner> = there.values().cloned().collect();
        let assignment = ConsistentHash.assign(&owners);
        let expected: RangeMap<usize> =
            assignment.into_iter().map(|(range, place)| (range, numbers[place])).collect();
        assert_eq!(known, expected);
    }
}

#[test]
fn positions_are_the_hash_of_name_zero_and_index() {
    let name = OwnerName::new("owner-a").expect("a plain name");
    assert_eq!(ConsistentHash::position(&name, 258), Key::of(b"owner-a\0\x02\x01\0\0"));
    let positions = [0, 1, 2, 63].map(|index| ConsistentHash::position(&name, index).0);
    // As the C library xxHash 0.8.1 computes them.
    let golden = [0x4ccd_378a_f1f7_6957, 0x989b_56c6_a8eb_9520, 0xff42_e68a_f7fb_3573, 0x2116_64fe_c29d_8cd0];
    assert_eq!(positions, golden);
}

#[test]
fn a_virtual_node_owns_the_keys_up_to_its_position_and_the_lowest_also_those_above_the_highest() {
    let owners = pool(5);
    let assignment = ConsistentHash.assign(&owners);
    let owner_of = |key: Key| assignment.iter().find(|(range, _)| range.contains(key)).expect("covered").1;
    let mut nodes: Vec<(Key, usize)> = (0..5)
        .flat_map(|number| (0..64).map(move |index| (number, index)))
        .map(|(number, index)| (ConsistentHash::position(&owner(number).name, index), number))
        .collect();
    nodes.sort_unstable();
    for pair in nodes.windows(2) {
        let after_previous = pair[0].0.next().expect("not the highest");
        assert_eq!((owner_of(after_previous), owner_of(pair[1].0)), (pair[1].1, pair[1].1));
    }
    assert_eq!((owner_of(Key::MIN), owner_of(Key::MAX)), (nodes[0].1, nodes[0].1));
}

#[test]
fn fixed_slices_are_equal_and_in_the_order_of_the_names() {
    let assignment = Fixed.assign(&pool(4));
    let quarter = 1 << 62;
    let starts: Vec<(u64, usize)> =
        assignment.iter().map(|(range, owner)| (range.first().0, *owner)).collect();
    assert_eq!(starts, [(0, 0), (quarter, 1), (2 * quarter, 2), (3 * quarter, 3)]);

    let uneven = Fixed.assign(&pool(7));
    let counts: Vec<u128> = uneven.iter().map(|(range, _)| range.key_count()).collect();
    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1));
}

#[test]
fn fixed_slices_ignore_weights_and_counts() {
    let mut owners = pool(3);
    let before = Fixed.assign(&owners);
    owners[0].weight = 300;
    owners[1].virtual_nodes = 1;
    assert_eq!(Fixed.assign(&owners), before);
}
