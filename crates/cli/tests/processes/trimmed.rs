//! What operators see of a pool whose load Trim balances, and which settings of it are refused.

use serde_json::Value;

use crate::sight::{SHORT, are_served, is_at_rest};
use crate::support::{Operator, Pool, Process, refusal, until};

/// The fields that programs read.
const FIELDS: [&str; 16] = [
    "calm",
    "credit",
    "decided_seconds_ago",
    "floor",
    "goal",
    "hot_key_count",
    "hot_keys",
    "latest_move",
    "latest_skip",
    "level",
    "loads_known",
    "mean_ranges",
    "most_ranges",
    "peak",
    "predicted",
    "relief",
];

fn fields(object: &Value) -> Vec<&str> {
    object.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn operators_see_how_even_the_load_is_and_what_trim_does_about_it() {
    let pool = Pool::start();
    pool.create(&format!("{SHORT} --partitioner trim"));
    let run = |args: &[&str]| pool.run(&[args, &["--output", "json"]].concat());
    let servers: Vec<Process> =
        ["server-1", "server-2"].iter().map(|name| run(&["dev", "server", "--name", name])).collect();
    servers.iter().for_each(|server| server.await_line("serving"));
    until("two servers share the keys", || is_at_rest(&pool, 2));
    let caller = run(&["dev", "caller", "--name", "caller-1"]);
    until("requests are served", || are_served(&pool));
    until("Trim knows the loads", || pool.ask(&["namespace", "show", "dev"])["trim"]["loads_known"] == true);

    let trim = pool.ask(&["namespace", "show", "dev"])["trim"].clone();
    assert_eq!(fields(&trim), FIELDS, "{trim}");
    let number = |field: &str| trim[field].as_f64().expect("a number");
    assert!(number("peak") >= number("floor") && number("floor") >= 1.0, "{trim}");
    assert!(number("mean_ranges") >= 1.0 && number("most_ranges") >= number("mean_ranges"), "{trim}");
    let listed = pool.ask(&["status"])["trim"].clone();
    assert_eq!(listed[0]["namespace"], "dev", "{listed}");
    let said = |args: &[&str]| {
        let output = pool.command(args).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let shown = said(&["namespace", "show", "dev"]);
    for row in ["balance  ", "calm budget left", "relief budget left", "ranges/owner"] {
        assert!(shown.contains(row), "{row}: {shown}");
    }
    let status = said(&["status"]);
    assert!(status.contains("RANGES/OWNER") && status.contains("leader"), "{status}");
    pool.ask(&["namespace", "configure", "dev", "--partitioner", "consistent-hash"]);
    until("Trim says nothing any more", || pool.ask(&["namespace", "show", "dev"])["trim"].is_null());
    assert_eq!(pool.ask(&["status"])["trim"], Value::Array(Vec::new()));
    drop(caller);
}

#[test]
fn settings_of_trim_that_make_no_sense_are_refused_with_the_reason() {
    let pool = Pool::start();
    let refused = |settings: &str| {
        let args: Vec<&str> = ["namespace", "create", "dev", "--partitioner", "trim"]
            .into_iter()
            .chain(settings.split(' '))
            .collect();
        let (code, said) = refusal(&mut pool.command(&args));
        assert_eq!(code, 2, "{settings}: {said}");
        said
    };
    assert!(refused("--imbalance 1009").contains("imbalance must be at least 1010"));
    assert!(refused("--imbalance 4001").contains("imbalance must be at most 4000"));
    assert!(refused("--churn-budget 10001").contains("churn_budget must be at most 10000"));
    assert!(refused("--max-ranges-per-owner 0").contains("max_ranges_per_owner must not be zero"));
    assert!(refused("--max-ranges-per-owner 1025").contains("max_ranges_per_owner must be at most 1024"));
    let nodes = refused("--virtual-nodes 65536 --max-moves 4294967295");
    assert!(nodes.contains("virtual_nodes") && nodes.contains("4096"), "{nodes}");
    for negative in ["--churn-budget -1", "--churn-budget=-1", "--imbalance=-1", "--max-moves=4294967296"] {
        assert!(refused(negative).contains("error:"), "{negative}");
    }
    let (code, said) =
        refusal(&mut pool.command(&["namespace", "create", "dev", "--partitioner", "roulette"]));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("consistent-hash") && said.contains("trim"), "it lists those there are: {said}");
    assert_eq!(pool.exit_code(&["namespace", "show", "dev"]), 4, "nothing was created");
}
