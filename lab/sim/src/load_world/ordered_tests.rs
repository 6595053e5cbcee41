//! Ordered keys in whole worlds, small ones: what is hot is split by load, the end of a timeline too, and scans ask few Owners.

use std::collections::BTreeSet;

use centrifuge_core::key::KeyRange;

use super::metrics::{Table, peak};
use super::tests::args;
use super::*;

/// The world of an application, at every sample.
fn run(args: &LoadArgs, seconds: u64, mut look: impl FnMut(u64, &Environment, &Table)) {
    let mut environment = Environment::new(5, args.scenario, args.size());
    let mut contender = args.contender(args.partitioner[0], &environment).expect("the build has it");
    for now in (SAMPLE_INTERVAL..=seconds * SECOND).step_by(SAMPLE_INTERVAL as usize) {
        let incidents = environment.step(now);
        contender.advance(now, &incidents, &environment);
        look(now / SECOND, &environment, &contender.table());
    }
}

fn ordered(application_keys: ApplicationKeys, scenario: Scenario) -> LoadArgs {
    LoadArgs { application_keys, ..args(Partitioner::Trim, scenario) }
}

/// How many Owners a scan of these keys asks.
fn owners_of(table: &Table, keys: KeyRange) -> usize {
    let owners: BTreeSet<_> = table
        .iter()
        .filter(|(range, _)| range.intersection(keys).is_some())
        .filter_map(|(_, owner)| *owner)
        .collect();
    owners.len()
}

/// ASCII names lie close together among numbers of 64 bits: an even division gives them to one or two Owners, and splits by load repair that.
#[test]
fn trim_spreads_the_names_of_tenants_that_an_even_division_put_in_one_place() {
    let mut peaks = Vec::new();
    run(&ordered(ApplicationKeys::Tenants, Scenario::Static), 600, |_, environment, table| {
        peaks.push(peak(environment, table));
    });
    let uneven_at = peaks.iter().position(|peak| *peak > 2.0).expect("most names are in one place at first");
    let even_at = uneven_at + peaks[uneven_at..].iter().position(|peak| *peak < 1.1).expect("it is repaired");
    println!("even after {} s, from {:.2}", (even_at + 1) * 5, peaks[uneven_at]);
    assert!(even_at * 5 <= 240, "{peaks:?}");
    assert!(peaks[even_at..].iter().all(|peak| *peak < 1.25), "it stays so: {peaks:?}");
}

/// Another tenant has 30 % of the load from one second to the next: 3.6 times the share of one of twelve Owners.
#[test]
fn a_tenant_that_becomes_hot_is_split_by_load() {
    const CHANGE: u64 = WARM_UP / SECOND + 150;
    let mut seen = Vec::new();
    run(&ordered(ApplicationKeys::Tenants, Scenario::Hot), CHANGE + 200, |second, environment, table| {
        if [CHANGE - 5, CHANGE, CHANGE + 200].contains(&second) {
            seen.push((peak(environment, table), owners_of(table, environment.hot_keys(0.5))));
        }
    });
    let [before, at_once, after] = seen.try_into().expect("three looks");
    println!(
        "peak and owners of the hot tenant: before {before:?}, at once {at_once:?}, after 200 s {after:?}"
    );
    assert!(before.0 < 1.2 && before.1 >= 3, "the first hot tenant was split: {before:?}");
    assert!(at_once.0 > 2.5 && at_once.1 <= 2, "the next one is in one place: {at_once:?}");
    assert!(after.0 < 1.2 && (3..=8).contains(&after.1), "and is split too: {after:?}");
}

/// The names of a timeline grow: what is new is always at the end, and the last half hour has two thirds of the load.
#[test]
fn the_end_of_a_timeline_is_split_by_load_while_it_moves_on() {
    let timeline = LoadArgs { churn_budget: 300, ..ordered(ApplicationKeys::Timeline, Scenario::Static) };
    let mut seen = Vec::new();
    run(&timeline, 2_400, |second, environment, table| {
        seen.push((second, peak(environment, table), owners_of(table, environment.hot_keys(1.0 / 3.0))));
    });
    let before = seen.iter().find(|(_, peak, _)| *peak > 2.0).expect("one Owner has all of it at first");
    let after: Vec<_> = seen.iter().filter(|(second, ..)| *second > 1_200).collect();
    let average = after.iter().map(|(_, peak, _)| peak).sum::<f64>() / after.len() as f64;
    let fewest = after.iter().map(|(.., owners)| *owners).min().expect("some");
    println!(
        "at first {before:?}; from 20 minutes on the peak is {average:.2}, the hot end has {fewest} Owners"
    );
    assert!(before.1 > 5.0 && before.2 <= 2, "{before:?}");
    assert!(average < 1.7 && fewest >= 5, "{average} {fewest}");
}

/// Neighbours stay together: all things of a tenant are with one Owner, or a few if it is hot, and not with all twelve.
#[test]
fn a_scan_of_a_tenant_asks_few_owners() {
    let mut asked = (0.0, 0, 0);
    run(&ordered(ApplicationKeys::Tenants, Scenario::Static), 900, |_, environment, table| {
        let tenants: Vec<usize> =
            environment.tenants().into_iter().map(|keys| owners_of(table, keys)).collect();
        let average = tenants.iter().sum::<usize>() as f64 / tenants.len() as f64;
        let hot = owners_of(table, environment.hot_keys(0.5));
        asked = (average, hot, tenants.into_iter().max().expect("some"));
    });
    let (average, hot, most) = asked;
    println!(
        "of 12 Owners a scan of a tenant asks {average:.2} on average, {hot} for the hot one, at most {most}"
    );
    assert!(average < 1.5 && (3..=8).contains(&hot) && most == hot, "{asked:?}");
}
