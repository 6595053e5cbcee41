//! Managers that are stopped and started again, here or elsewhere.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::sight::{are_served, has_heard, is_at_rest, leases, losses};
use crate::support::{Operator, Pool, Process, refusal, until};

/// Leases that outlast the move of a Manager on a slow machine.
const LONG: &str =
    "--lease 40s --hold 44s --renewal 1s --answer-allowance 2s --settle 500ms --virtual-nodes 16";

#[test]
fn a_manager_that_moves_is_found_through_the_file() {
    let mut pool = Pool::start();
    let file = pool.path("managers");
    fs::write(&file, format!("# the only one\n{}\n", pool.address())).expect("written");
    let managers = format!("@{}", file.display());
    let run = |pool: &Pool, args: &[&str]| {
        pool.run(&[args, &["--managers", &managers, "--output", "json"]].concat())
    };
    pool.create(LONG);
    let servers: Vec<Process> =
        ["server-1", "server-2"].iter().map(|name| run(&pool, &["dev", "server", "--name", name])).collect();
    servers.iter().for_each(|server| server.await_line("serving"));
    until("two servers share the keys", || is_at_rest(&pool, 2));
    let watch = run(&pool, &["watch", "dev"]);
    watch.await_line("change");
    let caller = run(&pool, &["dev", "caller", "--name", "caller-1"]);
    until("requests are served", || are_served(&pool));
    let (before, changes) = (leases(&pool), watch.lines().len());

    assert!(pool.stop_manager().success());
    pool.move_elsewhere();
    pool.start_manager();
    fs::write(&file, pool.address()).expect("written");
    until("the servers have found the Manager", || has_heard(&pool, 2));
    assert_eq!(leases(&pool), before, "no lease was lost and none has another number");

    // Whoever does not follow the file sees nothing of this.
    let third = run(&pool, &["dev", "server", "--name", "server-3"]);
    until("a third server gets its share", || is_at_rest(&pool, 3));
    until("the watch has found the Manager", || watch.lines().len() > changes);
    assert_eq!(losses(&watch), 0, "{:?}", watch.lines());
    drop(third);
    let (status, lines) = caller.stop(Duration::from_secs(30)).expect("it stops");
    let summary: Value = serde_json::from_str(lines.last().expect("a summary")).expect("JSON");
    assert!(status.success(), "{summary}");
    for count in ["losses", "violations", "failed"] {
        assert_eq!(summary[count], 0, "{summary}");
    }
}

/// Whether something was decided in a term.
fn decided(pool: &Pool, kind: &str, term: u64) -> bool {
    let history = pool.ask(&["history"]);
    let decisions = history["decisions"].as_array().expect("a list");
    decisions.iter().any(|decision| decision["kind"] == kind && decision["term"] == term)
}

#[test]
fn a_manager_that_is_told_to_stop_resigns_and_the_next_leads_at_once() {
    // Nobody waits that long here: the next leader does not wait at all.
    let mut pool = Pool::with_leader_lease("1h");
    pool.ask(&["namespace", "create", "dev"]);
    let first = pool.ask(&["status"])["managers"][0]["term"].as_u64().expect("a term");
    assert!(pool.stop_manager().success());
    pool.start_manager();
    let second = pool.ask(&["status"])["managers"][0]["term"].as_u64().expect("a term");
    assert!(second > first, "term {second} follows term {first}");
    // A leader is settled once it waits for nothing that an earlier one may still have promised.
    until("the second leader is settled", || decided(&pool, "leader-settled", second));
    assert!(decided(&pool, "leader-resigned", first));
    assert_eq!(pool.ask(&["namespace", "list"])["namespaces"][0]["name"], "dev");
}

#[test]
fn a_second_manager_on_the_same_file_is_refused() {
    let pool = Pool::start();
    let (code, message) = refusal(&mut pool.second_manager());
    assert_eq!(code, 1);
    assert!(message.contains("centrifuge.db"), "{message}");
}
