//! The figures of hand-made runs.

use super::super::environment::{Scenario, Size};
use super::super::ordered::ApplicationKeys;
use super::*;

const SIZE: Size =
    Size { keys: 20_000, owners: 4, zipf: 0.2, rate: 100.0, application_keys: ApplicationKeys::Hashed };

fn environment() -> Environment {
    Environment::new(1, Scenario::Static, SIZE)
}

/// The key space in parts of these shares of its width.
fn table(parts: &[(f64, Option<usize>)]) -> Table {
    let whole: f64 = parts.iter().map(|(share, _)| share).sum();
    let (mut first, mut sum, mut table) = (0u64, 0.0, Vec::new());
    for (number, (share, owner)) in parts.iter().enumerate() {
        sum += share;
        let is_last = number + 1 == parts.len();
        let last = if is_last { u64::MAX } else { (sum / whole * u64::MAX as f64) as u64 };
        table.push((KeyRange::new(Key(first), Key(last)).expect("in order"), *owner));
        first = last.wrapping_add(1);
    }
    table
}

/// As the weights of the four Owners are.
fn even() -> Table {
    table(&[(0.5, Some(0)), (1.0, Some(1)), (1.0, Some(2)), (2.0, Some(3))])
}

fn at(second: u64) -> u64 {
    WARM_UP + second * SECOND
}

#[test]
fn load_by_weight_is_at_the_floor_and_all_at_one_owner_is_far_above() {
    let environment = environment();
    let near = peak(&environment, &even());
    assert!((0.99..1.06).contains(&near), "{near}");
    let far = peak(&environment, &table(&[(1.0, Some(0))]));
    assert!((8.9..9.1).contains(&far), "4.5 units of weight at one with half a unit: {far}");
}

#[test]
fn what_a_crashed_owner_had_is_left_out() {
    let mut environment = environment();
    environment.members[3].standing = Standing::Crashed;
    let peak = peak(&environment, &even());
    assert!((0.99..1.06).contains(&peak), "{peak}");
}

#[test]
fn nothing_counts_at_the_start() {
    let environment = environment();
    let mut recorder = Recorder::default();
    recorder.observe(5 * SECOND, &environment, &even());
    recorder.observe(WARM_UP, &environment, &table(&[(1.0, Some(0))]));
    assert_eq!(recorder.finish(), Tally::default());
}

#[test]
fn moves_are_counted_by_load_space_and_lease_and_again_if_soon() {
    let environment = environment();
    let mut recorder = Recorder::default();
    recorder.observe(WARM_UP, &environment, &even());
    let moved = table(&[(0.5, Some(0)), (1.0, Some(1)), (1.0, Some(0)), (2.0, Some(3))]);
    recorder.observe(at(5), &environment, &moved);
    recorder.observe(at(10), &environment, &even());
    recorder.observe(at(1_000), &environment, &moved);
    let tally = recorder.finish();
    let part = 1.0 / 4.5;
    assert_eq!((tally.leases_moved, tally.seconds), (3, 1_000.0));
    assert!((tally.space_moved - 3.0 * part).abs() < 1e-6);
    assert!((tally.load_moved - 3.0 * part).abs() < 0.05, "{}", tally.load_moved);
    assert!((tally.load_moved_again - part).abs() < 0.02, "only the second was soon after another");
    assert_eq!((tally.most_ranges, tally.ranges[0]), (2, 1.0));
}

#[test]
fn ranges_without_a_holder_count_as_their_last_holders() {
    let environment = environment();
    let mut recorder = Recorder::default();
    recorder.observe(WARM_UP, &environment, &even());
    let unheld = table(&[(0.5, Some(0)), (2.0, None), (2.0, Some(3))]);
    recorder.observe(at(5), &environment, &unheld);
    recorder.observe(at(10), &environment, &even());
    assert_eq!(recorder.finish().leases_moved, 0);
}

#[test]
fn recovery_is_timed_from_the_disturbance_to_the_first_even_sample() {
    let environment = environment();
    let uneven = table(&[(1.0, Some(0)), (1.0, Some(1)), (1.0, Some(2)), (1.0, Some(3))]);
    let mut recorder = Recorder::default();
    recorder.observe(WARM_UP, &environment, &even());
    recorder.disturbed(at(5), Incident::LoadChanged);
    recorder.observe(at(5), &environment, &uneven);
    recorder.observe(at(10), &environment, &uneven);
    recorder.observe(at(15), &environment, &even());
    // One that shows no effect does not count, and one that lasts counts as the longest.
    recorder.disturbed(at(20), Incident::LoadChanged);
    (20..100).step_by(5).for_each(|second| recorder.observe(at(second), &environment, &even()));
    recorder.disturbed(at(100), Incident::Joined(3));
    (100..900).step_by(5).for_each(|second| recorder.observe(at(second), &environment, &uneven));
    assert_eq!(recorder.finish().recoveries, [10.0, 300.0]);
}

#[test]
fn recovery_from_a_crash_is_timed_from_the_end_of_the_hold() {
    let mut environment = environment();
    let uneven = table(&[(0.5, Some(1)), (1.0, Some(1)), (1.0, Some(2)), (2.0, Some(3))]);
    let spread = table(&[(1.125, Some(1)), (1.125, Some(2)), (2.25, Some(3))]);
    let mut recorder = Recorder::default();
    recorder.observe(WARM_UP, &environment, &even());
    environment.members[0].standing = Standing::Crashed;
    recorder.disturbed(at(5), Incident::Crashed(0));
    (5..65).step_by(5).for_each(|second| recorder.observe(at(second), &environment, &even()));
    recorder.observe(at(65), &environment, &uneven);
    recorder.observe(at(70), &environment, &uneven);
    recorder.observe(at(75), &environment, &spread);
    assert_eq!(recorder.finish().recoveries, [10.0]);
}

#[test]
fn percentiles_are_of_the_sorted_values() {
    let values = [5.0, 1.0, 3.0, 2.0, 4.0];
    assert_eq!([0.5, 0.95, 1.0].map(|part| percentile(&values, part)), [3.0, 5.0, 5.0]);
    assert_eq!((percentile(&[], 0.5), average(&[]), average(&values)), (0.0, 0.0, 3.0));
}
