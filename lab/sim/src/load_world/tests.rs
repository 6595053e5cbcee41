//! Whole worlds, small ones: partitioners work, the same each time, and a bad one scores badly.

use super::*;

fn args(partitioner: Partitioner, scenario: Scenario) -> LoadArgs {
    LoadArgs {
        partitioner: vec![partitioner],
        tightest: false,
        load_policy: LoadPolicyKind::TenPercent,
        scenario,
        owners: 12,
        zipf: 0.9,
        rate: 500.0,
        hours: 0.25,
        keys: 20_000,
        application_keys: ApplicationKeys::Hashed,
        churn_budget: 100,
        failing_migrations: 20,
        explain: false,
    }
}

fn played(partitioner: Partitioner, scenario: Scenario) -> Tally {
    play(&args(partitioner, scenario), partitioner, 5).expect("the build has it")
}

fn row(partitioner: Partitioner, scenario: Scenario) -> Row {
    Row::new(partitioner.name(), &played(partitioner, scenario))
}

#[test]
fn every_partitioner_is_the_same_for_a_seed() {
    use Partitioner::{ConsistentHash, Dicer, DicerTightest, Slicer};
    for partitioner in [ConsistentHash, Slicer, Dicer, DicerTightest] {
        let first = played(partitioner, Scenario::Mixed);
        assert!(first == played(partitioner, Scenario::Mixed), "{partitioner:?}");
        let args = args(partitioner, Scenario::Mixed);
        assert!(first != play(&args, partitioner, 6).expect("the build has it"), "{partitioner:?}");
    }
}

#[test]
fn without_load_policy_consistent_hashing_does_not_follow_load() {
    let args =
        LoadArgs { load_policy: LoadPolicyKind::Off, ..args(Partitioner::ConsistentHash, Scenario::Static) };
    let tally = play(&args, Partitioner::ConsistentHash, 5).expect("the build has it");
    assert_eq!(tally.leases_moved, 0);
    let balanced = row(Partitioner::ConsistentHash, Scenario::Static);
    let off = Row::new(args.row_name(Partitioner::ConsistentHash), &tally);
    assert!(balanced.peak_average < off.peak_average, "{balanced:?} {off:?}");
}

#[test]
fn the_tightest_rival_is_nearest_to_the_floor() {
    let [tightest, shipped, papers] =
        [Partitioner::DicerTightest, Partitioner::Dicer, Partitioner::ConsistentHash]
            .map(|partitioner| row(partitioner, Scenario::Static).peak_average);
    assert!(tightest < shipped && tightest < papers, "{tightest} {shipped} {papers}");
    assert!(tightest < 1.2, "{tightest}");
}

#[test]
fn a_rule_that_gives_all_to_one_pod_scores_badly() {
    let args = args(Partitioner::Dicer, Scenario::Member);
    let environment = Environment::new(5, args.scenario, args.size());
    let pace = Pace { decides_every: 60 * SECOND, believes: 1.0 };
    let mut hoard = Executor::new(Rule::Hoard, pace, &environment);
    let row = Row::new(
        "hoard".into(),
        &watch(environment, &mut hoard, Recorder::default(), WARM_UP + 900 * SECOND),
    );
    assert!(row.peak_average > 4.0 && row.even_percent == 0.0, "{row:?}");
    assert_eq!(row.recovery_p95, 300.0);
}

#[test]
fn crashed_and_drained_owners_have_nothing_in_the_end() {
    for partitioner in [Partitioner::ConsistentHash, Partitioner::Slicer, Partitioner::DicerTightest] {
        let args = args(partitioner, Scenario::Member);
        let mut environment = Environment::new(5, args.scenario, args.size());
        let mut contender = args.contender(partitioner, &environment).expect("the build has it");
        // Crash at 950 s, join at 1,400 s, drain at 1,850 s.
        for now in (SAMPLE_INTERVAL..2_200 * SECOND).step_by(SAMPLE_INTERVAL as usize) {
            let incidents = environment.step(now);
            contender.advance(now, &incidents, &environment);
        }
        let table = contender.table();
        let holds = |owner: usize| table.iter().any(|(_, holder)| *holder == Some(owner));
        for (number, member) in environment.members.iter().enumerate() {
            assert_eq!(holds(number), member.may_have_keys(), "{partitioner:?}: {number} {member:?}");
        }
        assert!(table.iter().all(|(_, holder)| holder.is_some()));
    }
}

#[test]
fn product_partitioners_are_found_by_their_label() {
    assert_eq!(Partitioner::ConsistentHash.of_product(), Ok(Some(PartitionerKind::ConsistentHash)));
    assert_eq!(Partitioner::Slicer.of_product(), Ok(None));
    let args = LoadArgs { tightest: true, ..args(Partitioner::Dicer, Scenario::Static) };
    assert_eq!(args.partitioners(), [Partitioner::DicerTightest]);
}

#[test]
fn worlds_that_cannot_be_measured_are_refused() {
    let usual = args(Partitioner::Slicer, Scenario::Static);
    assert_eq!(usual.check(), Ok(()));
    assert!(LoadArgs { owners: 1, ..usual.clone() }.check().is_err());
    assert!(LoadArgs { keys: 10, ..usual.clone() }.check().is_err());
    assert!(LoadArgs { hours: 0.0, ..usual.clone() }.check().is_err());
    assert!(LoadArgs { rate: f64::NAN, ..usual }.check().is_err());
}

/// The peak over the floor every five seconds from the very start, as the product's partitioner brings it down.
fn peaks_from_the_start(args: &LoadArgs, seconds: u64) -> Vec<f64> {
    let mut environment = Environment::new(5, args.scenario, args.size());
    let mut contender = args.contender(args.partitioner[0], &environment).expect("the build has it");
    let mut peaks = Vec::new();
    for now in (SAMPLE_INTERVAL..seconds * SECOND).step_by(SAMPLE_INTERVAL as usize) {
        let incidents = environment.step(now);
        contender.advance(now, &incidents, &environment);
        peaks.push(metrics::peak(&environment, &contender.table()));
    }
    peaks
}

/// ASCII names lie close together among numbers of 64 bits: an even division gives them to one or two Owners, and splits by load repair that.
#[test]
fn trim_spreads_the_names_of_tenants_that_an_even_division_put_in_one_place() {
    let ordered =
        LoadArgs { application_keys: ApplicationKeys::Tenants, ..args(Partitioner::Trim, Scenario::Static) };
    let peaks = peaks_from_the_start(&ordered, 600);
    let uneven_at = peaks.iter().position(|peak| *peak > 2.0).expect("most names are in one place at first");
    let even_at = uneven_at + peaks[uneven_at..].iter().position(|peak| *peak < 1.1).expect("it is repaired");
    println!("even after {} s, from {:.2}", (even_at + 1) * 5, peaks[uneven_at]);
    assert!(even_at * 5 <= 240, "{peaks:?}");
    assert!(peaks[even_at..].iter().all(|peak| *peak < 1.25), "it stays so: {peaks:?}");
}

#[test]
fn trim_splits_a_tenant_that_becomes_hot() {
    let ordered = |partitioner| LoadArgs {
        application_keys: ApplicationKeys::Tenants,
        ..args(partitioner, Scenario::Hot)
    };
    let played = |partitioner| {
        let tally = play(&ordered(partitioner), partitioner, 5).expect("the build has it");
        Row::new(partitioner.name(), &tally)
    };
    let (trim, hash) = (played(Partitioner::Trim), played(Partitioner::ConsistentHash));
    println!("{trim:?}\n{hash:?}");
    assert!(trim.disturbances > 0 && trim.recovery_median <= 200.0, "{trim:?}");
    assert!(trim.peak_average < 2.0 && hash.peak_average > 3.0, "{trim:?} {hash:?}");
}

/// The end of a timeline is hot and moves on: what is new has to move away from who owns the end, all the time, which takes a budget.
#[test]
fn trim_follows_the_end_of_a_timeline_as_far_as_its_budget_goes() {
    let ordered = |partitioner, churn_budget| LoadArgs {
        application_keys: ApplicationKeys::Timeline,
        churn_budget,
        ..args(partitioner, Scenario::Static)
    };
    let peak = |partitioner, churn_budget| {
        let tally = play(&ordered(partitioner, churn_budget), partitioner, 5).expect("the build has it");
        Row::new(partitioner.name(), &tally).peak_average
    };
    let (ample, usual) = (peak(Partitioner::Trim, 300), peak(Partitioner::Trim, 100));
    let hash = peak(Partitioner::ConsistentHash, 100);
    println!("ample {ample:.2}, usual {usual:.2}, consistent hashing {hash:.2}");
    assert!(ample < 1.6 && ample <= usual && usual < hash / 2.0 && hash > 8.0, "{ample} {usual} {hash}");
}
