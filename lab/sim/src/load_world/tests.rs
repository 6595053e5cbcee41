//! Whole worlds, small ones: partitioners work, the same each time, and a bad one scores badly.

use super::*;

pub(super) fn args(partitioner: Partitioner, scenario: Scenario) -> LoadArgs {
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
