//! `joins` at a tiny size: every Owner gets leases, and no process is left behind.

use crate::measured::{self, marked};
use serde_json::Value;

#[test]
fn every_owner_joins_and_the_cost_is_reported() {
    let mark = format!("joins-{}", std::process::id());
    let args = ["--owners", "6", "--processes", "2", "--json"];
    let output = measured::bench("joins", &mark, &args).output().expect("it runs");
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    assert_eq!(error, "", "quiet for scripts");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["owners"], 6);
    assert!(report["ranges"].as_u64().is_some_and(|ranges| ranges > 6), "each has many: {report}");
    let number = |name: &str| report[name].as_f64().expect("a number");
    assert!(number("seconds") >= number("join_seconds") && number("join_seconds") > 0.0, "{report}");
    assert!(number("messages_in") >= 12.0, "a hello and a report of each: {report}");
    assert!(number("messages_out") >= 12.0, "{report}");
    assert_eq!(report["cpu_within_10_s"].as_bool(), Some(number("cpu_seconds") <= 10.0));
    assert_eq!(marked(&mark), 0, "no process is left behind");
}

#[test]
fn every_process_ends_when_it_is_told_to_stop() {
    let mark = format!("joins-stopped-{}", std::process::id());
    let args = ["--owners", "400", "--processes", "2", "--json"];
    let command = measured::bench("joins", &mark, &args);
    // The measurement itself, the Manager and two processes of Owners.
    measured::ends_when_told_to(command, &mark, 4);
}
