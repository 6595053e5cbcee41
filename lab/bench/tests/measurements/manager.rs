//! `manager` at a tiny size: every phase is measured, and no process is left behind.

use std::process::Command;

use crate::measured::{self, marked};
use serde_json::Value;

const RATES: [&str; 4] =
    ["messages_in_per_second", "messages_out_per_second", "bytes_in_per_second", "bytes_out_per_second"];

fn bench(mark: &str, args: &[&str]) -> Command {
    measured::bench("manager", mark, args)
}

fn mark(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

#[test]
fn every_phase_is_measured() {
    let mark = mark("phases");
    let args = [
        "--owners",
        "4",
        "--lookups",
        "8",
        "--processes",
        "2",
        "--restart-rate",
        "2000",
        "--phase-seconds",
        "2",
        "--mean-lifetime",
        "6s",
        "--moves",
        "2",
        "--json",
    ];
    let output = bench(&mark, &args).output().expect("it runs");
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    assert_eq!(error, "", "quiet for scripts");
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");

    assert_eq!((report["owners"].as_u64(), report["lookups"].as_u64()), (Some(4), Some(8)));
    let phases = report["phases"].as_array().expect("a list");
    let names: Vec<&str> = phases.iter().filter_map(|phase| phase["name"].as_str()).collect();
    assert_eq!(names, ["start", "steady", "moves", "owner_restarts", "lookup_restarts"]);
    for phase in phases {
        assert!(phase["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{phase}");
        assert!(phase["cpu_percent"].as_f64().is_some_and(|percent| percent >= 0.0), "{phase}");
        assert!(phase["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{phase}");
        assert!(RATES.iter().all(|rate| phase[rate].is_u64()), "counts are whole numbers: {phase}");
    }
    for restarts in [&phases[3], &phases[4]] {
        assert!(
            RATES.iter().all(|rate| restarts[rate] != 0),
            "whoever restarts asks and is answered: {restarts}"
        );
    }

    // Two keys of eight bytes and two numbers at least; the paper has 32 bytes.
    let bytes_per_range = report["bytes_per_range"].as_u64().expect("a number");
    assert!((20..=64).contains(&bytes_per_range), "{bytes_per_range}");
    assert!(report["bytes_per_lease_message"].as_u64().is_some_and(|bytes| bytes > 0), "{report}");
    let us = |of: &str, what: &str| report[of][what].as_u64().expect("a number");
    for of in ["propagation_us", "propagation_from_request_us"] {
        assert!(us(of, "p50") <= us(of, "p99") && us(of, "p99") <= us(of, "max"), "{report}");
    }
    assert!(us("propagation_from_request_us", "p50") > 0, "{report}");
    assert!(us("propagation_us", "max") <= us("propagation_from_request_us", "max"), "{report}");
    assert_eq!(marked(&mark), 0, "no process is left behind");
}

#[test]
fn every_process_ends_when_it_is_told_to_stop() {
    let mark = mark("stopped");
    let args = ["--owners", "2", "--lookups", "2", "--processes", "2", "--phase-seconds", "600", "--json"];
    let command = bench(&mark, &args);
    // The measurement itself, the Manager and two processes of clients.
    measured::ends_when_told_to(command, &mark, 4);
}

#[test]
fn nonsense_is_refused() {
    for wrong in [["--owners", "0"], ["--restart-rate", "0"], ["--mean-lifetime", "8"]] {
        let output = bench("nonsense", &wrong).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
