//! `flease` at a tiny size: peers and etcd are measured, and no process and no folder is left behind.

use std::fs;
use std::process::Command;

use crate::measured::{self, marked};
use serde_json::Value;

fn bench(mark: &str, args: &[&str]) -> Command {
    measured::bench("flease", mark, args)
}

fn mark(name: &str) -> String {
    format!("flease-{name}-{}", std::process::id())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("a number, not {value}"))
}

fn rises(times: &Value) {
    let [p50, p99, max] = ["p50", "p99", "max"].map(|name| number(&times[name]));
    assert!(p50 > 0.0 && p50 <= p99 && p99 <= max, "{times}");
}

#[test]
fn peers_and_etcd_are_measured_in_one_run() {
    let (mark, folder) = (mark("measured"), tempfile::tempdir().expect("a folder"));
    let dir = folder.path().display().to_string();
    let args = ["--peers", "3", "--cells", "40", "--in-flight", "8", "--seconds", "1", "--lease", "1s"];
    let output = bench(&mark, &[&args[..], &["--dir", &dir, "--json"]].concat()).output().expect("it runs");
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    assert_eq!((error.as_ref(), text.lines().count()), ("", 1), "one line and nothing else: {text}");
    let report: Value = serde_json::from_str(&text).expect("JSON");

    let groups = report["flease"].as_array().expect("a list");
    assert_eq!((groups.len(), &groups[0]["peers"]), (1, &Value::from(3)), "{report}");
    for cells in ["one_cell", "many_cells"] {
        let cost = &groups[0][cells];
        assert!(
            number(&cost["acquisitions"]) > 0.0 && number(&cost["acquisitions_per_second"]) > 0.0,
            "{cost}"
        );
        rises(&cost["latency_us"]);
        // Two requests to each of the two others, and their replies; a slow peer's may be missing, or a round be in
        // vain.
        assert!((6.0..40.0).contains(&number(&cost["messages_per_acquisition"])), "{cost}");
        let datagrams = number(&cost["datagrams_per_acquisition"]);
        assert!(datagrams > 0.0 && datagrams <= number(&cost["messages_per_acquisition"]), "{cost}");
        assert!(number(&cost["bytes_per_acquisition"]) > datagrams * 32.0, "each has a code: {cost}");
        assert!(number(&cost["renewals"]["renewals_per_second"]) > 0.0, "{cost}");
        rises(&cost["renewals"]["round_us"]);
    }
    assert!(number(&groups[0]["contended_acquisitions"]) > 0.0, "{report}");
    let shares: Vec<f64> = groups[0]["shares"].as_array().expect("a list").iter().map(number).collect();
    assert!(shares.len() == 3 && (shares.iter().sum::<f64>() - 1.0).abs() < 0.01, "{shares:?}");

    let etcd = &report["etcd"];
    for (what, rate) in [
        ("one_in_flight", "acquisitions_per_second"),
        ("many_in_flight", "acquisitions_per_second"),
        ("keep_alives_one_in_flight", "keep_alives_per_second"),
        ("keep_alives_many_in_flight", "keep_alives_per_second"),
    ] {
        assert!(number(&etcd[what][rate]) > 0.0, "{etcd}");
        rises(&etcd[what]["latency_us"]);
    }
    let ratios = &report["flease_to_etcd"][0];
    for name in ["acquisitions_per_second_one_in_flight", "acquisitions_per_second_many_in_flight"] {
        assert!(number(&ratios[name]) > 0.0, "{ratios}");
    }
    assert_eq!(marked(&mark), 0, "no process is left behind");
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0, "no data is left behind");
}

#[test]
fn every_process_ends_when_it_is_told_to_stop() {
    let mark = mark("stopped");
    let command = bench(&mark, &["--peers", "3", "--json"]);
    // The measurement itself, three nodes of etcd and three peers.
    measured::ends_when_told_to(command, &mark, 7);
}

#[test]
fn nonsense_is_refused() {
    for wrong in [["--peers", "0"], ["--cells", "0"], ["--in-flight", "0"], ["--lease", "50ms"]] {
        let output = bench("nonsense", &wrong).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
