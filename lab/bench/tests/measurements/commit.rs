//! `commit` at a tiny size: both stores are measured, and no process is left behind.

use std::process::Output;

use crate::measured::{self, marked};
use serde_json::Value;

fn bench(mark: &str, args: &[&str], path: Option<&str>) -> Output {
    let mut command = measured::bench("commit", mark, args);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().expect("it runs")
}

#[test]
fn both_stores_are_measured_in_one_run() {
    let mark = format!("commit-{}", std::process::id());
    let output = bench(&mark, &["--seconds", "1", "--in-flight", "8", "--joins", "4", "--json"], None);
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    assert_eq!((error.as_ref(), text.lines().count()), ("", 1), "one line and nothing else: {text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    for store in ["embedded", "etcd"] {
        let cost = &report[store];
        for flight in ["one_in_flight", "many_in_flight"] {
            let commits = &cost[flight];
            assert!(commits["changes"].as_u64().is_some_and(|changes| changes > 0), "{report}");
            assert!(commits["changes_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{report}");
            assert!(commits["changes_per_commit"].as_f64().is_some_and(|share| share >= 0.9), "{report}");
            assert!(
                commits["latency_us"]["p50"].as_u64() <= commits["latency_us"]["p99"].as_u64(),
                "{report}"
            );
        }
        assert_eq!(cost["joins"], 4, "{report}");
        assert!(cost["join_us"]["p50"].as_u64().is_some_and(|micros| micros > 0), "{report}");
    }
    assert!(report["etcd_to_embedded"]["join_p50"].as_f64().is_some_and(|ratio| ratio > 0.0), "{report}");
    assert_eq!(marked(&mark), 0, "no process is left behind");
}

#[test]
fn without_etcd_it_says_how_to_get_one() {
    let output = bench("none", &["--seconds", "1"], Some("/nowhere"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("apt-get install etcd-server"), "{error}");
}
