//! `isolation` at a tiny size: every kind is measured beside the baseline, and no process is left behind.

use crate::measured::{self, marked};
use serde_json::Value;

const KINDS: [&str; 8] = [
    "held_pieces",
    "released_pieces",
    "released_of_others",
    "refused_pieces",
    "imports",
    "renewals",
    "joins",
    "lookups",
];

#[test]
fn every_kind_is_measured_in_turn_and_as_a_flood() {
    let mark = format!("isolation-{}", std::process::id());
    let output = measured::bench("isolation", &mark, &["--seconds", "1", "--pieces", "8", "--json"]).output();
    let output = output.expect("it runs");
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{error}");
    assert_eq!(error, "", "quiet for scripts");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let (baseline, rows) = rows.split_first().expect("a baseline");
    assert_eq!(baseline["kind"], "baseline");
    assert!(baseline["p99_above_baseline_us"].is_null() && baseline["within_10_ms"].is_null());
    assert_eq!(baseline["hostile_messages"], 0);
    let wanted = KINDS.iter().flat_map(|kind| [(*kind, "in_turn"), (*kind, "flood")]);
    for (row, (kind, pacing)) in rows.iter().zip(wanted) {
        let number = |name: &str| row[name].as_u64().expect("a number");
        assert_eq!((row["kind"].as_str(), row["pacing"].as_str()), (Some(kind), Some(pacing)));
        assert_eq!(number("pieces"), 8, "{row}");
        assert!(number("renewals") > 0, "the honest Owner goes on: {row}");
        assert!(number("hostile_messages") > 0 && number("hostile_replies") > 0, "{row}");
        assert!(number("p50_us") <= number("p99_us") && number("p99_us") <= number("max_us"), "{row}");
        let above = number("p99_us").saturating_sub(baseline["p99_us"].as_u64().expect("a number"));
        assert_eq!(number("p99_above_baseline_us"), above, "{row}");
        assert_eq!(row["within_10_ms"].as_bool(), Some(above <= 10_000), "{row}");
        assert!(row["cpu_seconds"].is_f64(), "{row}");
    }
    assert_eq!(rows.len(), 2 * KINDS.len());
    assert_eq!(marked(&mark), 0, "no process is left behind");
}

#[test]
fn every_process_ends_when_it_is_told_to_stop() {
    let mark = format!("isolation-stopped-{}", std::process::id());
    let args = ["--seconds", "1", "--pieces", "8", "--kind", "imports", "--json"];
    let command = measured::bench("isolation", &mark, &args);
    // The measurement itself, the Manager, the honest Owner and the hostile one.
    measured::ends_when_told_to(command, &mark, 4);
}

#[test]
fn nonsense_is_refused() {
    for wrong in [["--seconds", "0"], ["--pieces", "0"], ["--kind", "nothing"]] {
        let output = measured::bench("isolation", "nonsense", &wrong).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
