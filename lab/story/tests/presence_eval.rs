//! The evaluation of presence, small and short: that it runs, judges and reports. What it measures here means nothing.

use std::process::Command;

use serde_json::Value;

/// Runs an evaluation, which must pass, and reads the last line of what it prints.
fn evaluate(arguments: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_presence-eval"))
        .args(arguments.split(' '))
        .output()
        .expect("it was built for this test");
    let said = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments}: {said}\n{printed}");
    serde_json::from_str(printed.lines().last().expect("it prints a report")).expect("the last line is JSON")
}

#[test]
fn a_rolling_restart_loses_nothing() {
    let report =
        evaluate("rolling --servers 3 --frontends 6 --users 120 --rate 60 --lease 8s --for 2s --json");
    assert_eq!(report["passed"], true);
    for count in ["losses_told", "failed_after_retry", "wrong"] {
        assert_eq!(report[count], 0, "{count}");
    }
    let (rounds, restarts) = (report["rounds"].as_u64(), report["restarts"].as_u64());
    assert!(rounds.is_some_and(|rounds| rounds > 0), "{report}");
    assert_eq!(restarts, rounds.map(|rounds| rounds * 3));
    let [before, during, after] = [0, 1, 2].map(|phase| &report["phases"][phase]);
    assert_eq!([&before["phase"], &during["phase"], &after["phase"]], ["before", "during", "after"]);
    assert!(during["moved_ranges"].as_u64().is_some_and(|moved| moved > 0));
    for phase in [before, during, after] {
        assert!(phase["requests"].as_u64().is_some_and(|requests| requests > 0), "{phase}");
        assert!(phase["p99_ms"].as_f64().is_some_and(|p99| p99 > 0.0), "{phase}");
    }
    assert!(report["p99_ratio"].as_f64().is_some_and(|ratio| ratio > 0.0));
}

/// PRS §7.2.
#[test]
fn what_dies_with_a_rack_is_told_to_every_frontend_and_published_again() {
    let report = evaluate("rack --servers 5 --frontends 8 --users 200 --rate 60 --lease 6s --for 2s --json");
    assert_eq!(report["passed"], true);
    assert_eq!(report["killed"], 1);
    assert_eq!(report["frontends_told_all"], 8);
    assert!(report["lost_users"].as_u64().is_some_and(|lost| lost > 0));
    assert_eq!(report["republished_users"], report["lost_users"]);
    for count in ["frontends_told_falsely", "not_republished", "never_found", "republished_falsely", "wrong"]
    {
        assert_eq!(report[count], 0, "{count}");
    }
    let until_whole = report["whole_from_kill"]["max_ms"].as_f64();
    assert!(until_whole.is_some_and(|whole| whole > 1_000.0), "nobody can know of a death at once");
    assert!(report["whole_from_kill"]["cdf"].as_array().is_some_and(|points| points.len() >= 10));
}

#[test]
fn a_load_shift_settles_and_nobody_notices() {
    let report = evaluate(
        "shift --servers 3 --frontends 4 --users 400 --rate 300 --lease 5s --for 1s --zipf 1.4 --even 1.3 --json",
    );
    assert_eq!(report["passed"], true);
    for count in ["losses_told", "failed_after_retry", "wrong"] {
        assert_eq!(report[count], 0, "{count}");
    }
    let shift = &report["shifts"][0];
    assert!(shift["moves"].as_u64().is_some_and(|moves| moves > 0), "{shift}");
    assert!(shift["goal"].as_f64().is_some_and(|goal| goal <= 1.3), "{shift}");
    assert!(report["samples"].as_array().is_some_and(|samples| samples.len() >= 10), "{report}");
}

/// Restarts everything at once, Managers by SIGTERM and servers by drain, and expects that no user notices.
fn restart_with_managers(store: &str) {
    let report = evaluate(&format!(
        "rolling --with-managers --store {store} --servers 3 --frontends 6 --users 120 --rate 60 --lease 8s --for 2s --json"
    ));
    assert_eq!(report["passed"], true);
    for count in ["losses_told", "failed_after_retry", "wrong"] {
        assert_eq!(report[count], 0, "{count}");
    }
    let managers = report["managers"].as_u64();
    assert!(managers.is_some() && report["manager_restarts"].as_u64() >= managers, "{report}");
    assert!(report["restarts"].as_u64().is_some_and(|restarts| restarts >= 3), "{report}");
}

#[test]
fn a_rolling_restart_with_the_managers_on_etcd_loses_nothing() {
    restart_with_managers("etcd");
}

#[test]
fn a_rolling_restart_with_managers_that_store_nothing_loses_nothing() {
    restart_with_managers("none");
}
