//! Each constant of Dicer's rule has its effect.

use centrifuge_core::key::Key;

use super::super::slices::slice;
use super::*;

const PODS: [Pod; 2] = [Pod { number: 0, weight: 1.0 }, Pod { number: 1, weight: 1.0 }];
/// A sixteenth of the key space.
const PART: u64 = 1 << 60;

fn parts(loads: &[(usize, f64)]) -> Vec<Slice> {
    let part = |(number, (owner, load)): (usize, &(usize, f64))| {
        let first = number as u64 * PART;
        slice(first, first + (PART - 1), *owner, *load)
    };
    loads.iter().enumerate().map(part).collect()
}

/// A rule that neither splits up nor merges down, and tolerates half.
fn rule() -> Dicer {
    Dicer { min_slices: 0, max_slices: 100, tolerance: 0.5, ..Dicer::shipped() }
}

fn loads(slices: &mut Vec<Slice>) -> Vec<f64> {
    Placement::new(slices, &PODS).loads
}

#[test]
fn what_is_tolerated_stays() {
    let mut slices = parts(&[(0, 2.0), (0, 2.0), (0, 2.0), (1, 2.0), (1, 2.5)]);
    let before = slices.clone();
    rule().decide(&mut slices, &PODS);
    assert_eq!(slices, before);
    Dicer { tolerance: 0.05, ..rule() }.decide(&mut slices, &PODS);
    let after = loads(&mut slices);
    assert!((after[0] - after[1]).abs() < 0.6, "{after:?}");
}

#[test]
fn slices_above_the_tolerance_are_split_and_hot_keys_isolated() {
    let mut slices = parts(&[(0, 8.0), (1, 2.0)]);
    slices[0].heavy = vec![(Key(77), 6.0)];
    split_hot(&mut slices, 2.5);
    assert!(slices.iter().any(|slice| slice.range.first() == Key(77) && slice.range.last() == Key(77)));
    assert!(slices.iter().all(|slice| slice.load <= 2.5 || slice.range.key_count() == 1));
}

#[test]
fn the_fewest_and_the_most_slices_hold() {
    let mut slices = parts(&[(0, 1.0), (1, 1.0)]);
    Dicer { min_slices: 8, ..rule() }.decide(&mut slices, &PODS);
    assert_eq!(slices.len(), 16);
    Dicer { max_slices: 3, ..rule() }.decide(&mut slices, &PODS);
    assert_eq!(slices.len(), 6);
}

#[test]
fn a_dear_move_is_not_made() {
    let uneven = parts(&[(0, 2.0), (0, 2.0), (0, 2.0), (0, 0.4), (1, 2.0)]);
    let mut slices = uneven.clone();
    rule().decide(&mut slices, &PODS);
    assert_ne!(slices, uneven);
    let mut kept = uneven.clone();
    Dicer { churn_penalty: 100.0, ..rule() }.decide(&mut kept, &PODS);
    assert_eq!(kept, uneven);
}

#[test]
fn without_penalties_nothing_moves_and_either_is_enough() {
    let uneven = parts(&[(0, 2.0), (0, 2.0), (0, 2.0), (0, 0.4), (1, 2.0)]);
    let none = Dicer { overshoot_penalty: 0.0, undershoot_penalty: 0.0, ..rule() };
    let moved = |rule: Dicer| {
        let mut slices = uneven.clone();
        rule.decide(&mut slices, &PODS);
        slices != uneven
    };
    assert!(!moved(none));
    assert!(moved(Dicer { overshoot_penalty: 16.0, ..none }));
    assert!(moved(Dicer { undershoot_penalty: 4.0, ..none }));
}

#[test]
fn a_new_pod_is_filled_to_the_mean() {
    let mut slices = parts(&[(0, 2.0), (0, 2.0), (0, 2.0), (0, 2.0)]);
    rule().decide(&mut slices, &PODS);
    assert_eq!(loads(&mut slices), [4.0, 4.0]);
}

#[test]
fn what_the_dead_had_goes_to_the_coldest() {
    let mut slices = parts(&[(0, 3.0), (7, 3.0), (1, 1.0), (1, 0.5)]);
    rule().decide(&mut slices, &PODS);
    assert!(slices.iter().all(|slice| matches!(slice.owner, Some(0 | 1))));
}

#[test]
fn weights_share_the_load() {
    let pods = [Pod { number: 0, weight: 1.0 }, Pod { number: 1, weight: 3.0 }];
    let mut slices = super::super::slices::initial(&pods, 16);
    slices.iter_mut().for_each(|slice| slice.load = 1.0);
    slices.iter_mut().for_each(|slice| slice.owner = Some(0));
    Dicer { max_slices: 64, tolerance: 0.1, ..rule() }.decide(&mut slices, &pods);
    let placement = Placement::new(&mut slices, &pods);
    assert!(placement.ratio(0) < 9.0 && placement.ratio(1) < 9.0, "{:?}", placement.loads);
}

#[test]
fn what_waits_is_not_joined_over() {
    let mut slices = parts(&[(0, 1.0), (0, 1.0), (0, 1.0), (1, 3.0)]);
    slices.remove(1);
    merge_down(&mut slices, 2);
    let ranges: Vec<_> = slices.iter().map(|slice| (slice.range.first().0, slice.range.last().0)).collect();
    assert_eq!(ranges, [(0, PART - 1), (2 * PART, 4 * PART - 1)]);
    merge_down(&mut slices, 1);
    assert_eq!(slices.len(), 2);
}
