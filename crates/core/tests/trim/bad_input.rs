//! Reports that lie, are absent or absurd, and pools in which nothing can be done: no panic, and no broken promise.

use centrifuge_core::id::{Nonce, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::RangeLoad;
use centrifuge_core::trim::TrimSkip;
use proptest::prelude::*;

use crate::world::{Lease, Random, World, at, owner};

#[test]
fn loads_beyond_all_measure_saturate() {
    let mut world = World::settled(1, 6);
    for _ in 0..5 {
        world.now += 15;
        world.end_moves();
        world.report();
        for (_, loads) in world.owners.iter_mut().filter_map(|owner| owner.report.as_mut()) {
            for load in loads {
                load.load = u64::MAX;
                load.heavy = vec![(load.range.first(), u64::MAX)];
            }
        }
        world.decide();
    }
}

#[test]
fn without_reports_only_unowned_ranges_are_placed_by_key_space() {
    let mut world = World::settled(2, 10);
    world.memory = Default::default();
    world.owners.iter_mut().take(4).for_each(|owner| owner.report = None);
    world.crash(9);
    let decision = world.decide();
    assert!(decision.skipped.contains(&TrimSkip::TooFewReports));
    assert!(!decision.moves.is_empty() && decision.moves.iter().all(|m| m.from.is_none() && m.load == 0));
}

#[test]
fn reports_that_are_old_are_no_reports() {
    let mut world = World::settled(3, 6);
    world.now += 1_000;
    world.membership_changed = true;
    assert!(world.decide().skipped.contains(&TrimSkip::TooFewReports));
}

#[test]
fn nobody_who_may_have_keys_means_no_moves() {
    for weights in [&[][..], &[0, 0, 0][..]] {
        let mut world = World::new(4, weights, 100);
        let decision = world.decide();
        assert!(decision.moves.is_empty());
        assert!(decision.skipped.contains(&TrimSkip::NoOwners));
    }
    let mut world = World::settled(4, 4);
    world.owners.iter_mut().for_each(|owner| owner.is_eligible = false);
    assert!(world.run(3).is_empty(), "a drain waits for somebody who can take over");
}

#[test]
fn a_single_owner_gets_everything_and_nothing_moves() {
    let mut world = World::new(5, &[100], 1_000);
    world.decide();
    assert_eq!(world.table.len(), 16);
    assert!(world.run(20).is_empty());
}

#[test]
fn no_load_at_all_moves_nothing() {
    let mut world = World::new(6, &[100; 5], 0);
    world.decide();
    assert!(world.run(5).is_empty());
    assert!(world.interval().skipped.contains(&TrimSkip::NoLoad));
}

#[test]
fn a_report_about_what_others_hold_is_ignored() {
    let mut honest = World::settled(7, 6);
    let mut lying = World::settled(7, 6);
    for world in [&mut honest, &mut lying] {
        world.now += 15;
        world.end_moves();
        world.report();
    }
    let foreign = lying.owners[0].report.as_ref().map(|(_, loads)| loads.clone()).unwrap_or_default();
    let (_, loads) = lying.owners[1].report.as_mut().expect("a report");
    loads.extend(foreign.into_iter().map(|load| RangeLoad { load: u64::MAX, ..load }));
    assert_eq!(honest.decide().moves, lying.decide().moves);
}

#[test]
fn an_owner_that_lies_moves_no_more_than_the_budget_allows() {
    let mut world = World::settled(8, 10);
    for round in 0..240 {
        world.now += 15;
        world.end_moves();
        world.report();
        let (_, loads) = world.owners[0].report.as_mut().expect("a report");
        loads.iter_mut().for_each(|load| load.load *= 1 + round % 3);
        // Budgets are checked with every decision.
        world.decide();
    }
}

#[test]
fn ranges_of_one_key_are_moved_whole() {
    let mut world = World::new(9, &[100; 4], 0);
    world.keys = (0..64).map(|key| (Key(key), 50_000_000)).collect();
    let session = Some(world.owners[0].session);
    let of = |range| Lease {
        range,
        owner: session,
        holder: session,
        is_pinned: false,
        moved_at: None,
        state_since: 1,
    };
    let rest = KeyRange::new(Key(64), Key::MAX).expect("not empty");
    world.table = (0..64).map(|key| of(KeyRange::one(Key(key)))).chain([of(rest)]).collect();
    world.run(120);
    assert!(world.peak() < 1_100, "peak {}", world.peak());
}

#[test]
fn a_setting_of_nothing_allows_nothing() {
    let mut world = World::settled(10, 6);
    world.settings.max_moves = 0;
    world.owners[0].is_eligible = false;
    world.keys[3].1 *= 10_000;
    assert!(world.run(10).is_empty());
    let mut world = World::new(10, &[100; 6], 100);
    world.settings.max_ranges_per_owner = 0;
    world.settings.imbalance_permille = 0;
    world.settings.renewal = std::time::Duration::ZERO;
    world.decide();
    world.interval();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the table, the members and the reports are, a decision keeps its promises.
    #[test]
    fn no_input_breaks_a_promise(seed in any::<u64>()) {
        let mut random = Random(seed);
        let weights: Vec<u32> = (0..random.below(7)).map(|_| [0, 1, 100, 250, u32::MAX][random.below(5) as usize]).collect();
        let mut world = World::new(seed, &weights, random.below(200));
        world.settings.churn_percent = [0, 100, 100_000][random.below(3) as usize];
        world.is_new = random.below(2) == 0;
        for _ in 0..6 {
            disturb(&mut world);
            world.decide();
            world.now += random.below(40);
        }
    }
}

/// Changes members, leases and reports at random.
fn disturb(world: &mut World) {
    let mut random = Random(world.random.next());
    world.may_move = random.below(4) > 0;
    world.membership_changed = random.below(2) == 0;
    world.end_moves();
    if random.below(4) == 0 {
        world.add(owner(100 + random.below(100_000), 100));
    }
    if random.below(4) == 0 && !world.owners.is_empty() {
        world.crash(random.below(world.owners.len() as u64) as usize);
    }
    let stranger = Some(SessionId(Nonce(77)));
    for lease in world.table.iter_mut() {
        match random.below(20) {
            0 => lease.is_pinned = !lease.is_pinned,
            1 => (lease.owner, lease.holder, lease.moved_at) = (stranger, stranger, None),
            _ => {}
        }
    }
    for owner in &mut world.owners {
        owner.is_eligible = random.below(5) > 0;
        let loads = (0..random.below(30)).map(|_| absurd_load(&mut random)).collect();
        owner.report = (random.below(4) > 0).then_some((at(world.now), loads));
    }
}

fn absurd_load(random: &mut Random) -> RangeLoad {
    let (one, other) = (Key(random.next()), Key(random.next()));
    let range = KeyRange::new(one.min(other), one.max(other)).expect("in order");
    let load = [0, 1, random.below(1_000_000), u64::MAX][random.below(4) as usize];
    let heavy = (0..random.below(4)).map(|_| (Key(random.next()), random.next())).collect();
    // Too many, in no order, and most of them of other ranges.
    let quantiles = (0..random.below(40)).map(|_| Key(random.next())).collect();
    RangeLoad { range: if random.below(3) == 0 { KeyRange::ALL } else { range }, load, heavy, quantiles }
}
