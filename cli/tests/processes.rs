//! The whole system as users run it: processes of their own, killed without warning.

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use support::{Pool, Running, until};

const SHORT: [&str; 12] = [
    "--lease",
    "3s",
    "--hold",
    "3300ms",
    "--renewal",
    "700ms",
    "--answer-allowance",
    "500ms",
    "--settle",
    "500ms",
    "--virtual-nodes",
    "16",
];

/// Every range with its owner and its lease.
fn leases(pool: &Pool) -> BTreeMap<String, (String, u64)> {
    let table = pool.ask(&["leases", "dev"]);
    let rows = table["leases"].as_array().expect("a list").iter();
    rows.filter(|lease| !lease["owner"].is_null())
        .map(|lease| {
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let generation = lease["generation"].as_u64().expect("a number");
            (text(&lease["range"]), (text(&lease["owner"]["name"]), generation))
        })
        .collect()
}

fn is_at_rest(pool: &Pool, owners: u64) -> bool {
    let space = pool.ask(&["namespace", "show", "dev"]);
    space["owners"] == owners && space["unowned_ranges"] == 0 && space["moving_ranges"] == 0
}

fn losses(watch: &Running) -> usize {
    watch.lines().iter().filter(|line| line.contains("\"loss\"")).count()
}

fn of<'a>(
    leases: &'a BTreeMap<String, (String, u64)>,
    server: &'a str,
) -> impl Iterator<Item = (&'a String, &'a (String, u64))> {
    leases.iter().filter(move |(_, (owner, _))| owner == server)
}

#[test]
fn killed_owners_and_managers() {
    let mut pool = Pool::start();
    let mut create = vec!["namespace", "create", "dev"];
    create.extend(SHORT);
    pool.ask(&create);
    let mut servers: Vec<Running> = ["server-1", "server-2", "server-3"]
        .iter()
        .map(|name| pool.run(&["dev", "server", "--name", name, "--output", "json"]))
        .collect();
    servers.iter().for_each(|server| server.await_line("serving"));
    until("three servers share the keys", || is_at_rest(&pool, 3));

    let watch = pool.run(&["watch", "dev", "--output", "json"]);
    watch.await_line("change");
    let callers: Vec<Running> = ["caller-1", "caller-2"]
        .iter()
        .map(|name| pool.run(&["dev", "caller", "--name", name, "--output", "json"]))
        .collect();
    // The callers' load shows at the servers once requests are served.
    until("requests are served", || {
        let owners = pool.ask(&["owners", "dev"]);
        owners["owners"].as_array().is_some_and(|owners| owners.iter().all(|owner| owner["load"] != 0))
    });
    assert_eq!(losses(&watch), 0, "nothing was lost yet: {:?}", watch.lines());

    // An Owner dies.
    let before = leases(&pool);
    servers.remove(1).kill();
    until("the dead server's keys are owned again", || is_at_rest(&pool, 2));
    let after = leases(&pool);
    assert_eq!(of(&after, "server-2").count(), 0);
    for (range, lease) in of(&before, "server-1").chain(of(&before, "server-3")) {
        assert_eq!(after.get(range), Some(lease), "{range} was nobody else's to disturb");
    }
    until("the loss is raised at a caller", || losses(&watch) > 0);
    let raised = losses(&watch);

    // The Manager dies.
    pool.kill_manager();
    pool.start_manager();
    until("the new Manager has heard from the servers", || {
        let owners = pool.ask(&["owners", "dev"]);
        owners["owners"].as_array().is_some_and(|owners| {
            owners.len() == 2 && owners.iter().all(|owner| !owner["heard_seconds_ago"].is_null())
        })
    });
    assert_eq!(leases(&pool), after, "no lease was lost and none has another number");
    servers.push(pool.run(&["dev", "server", "--name", "server-4", "--output", "json"]));
    until("a new server gets its share", || {
        is_at_rest(&pool, 3) && of(&leases(&pool), "server-4").count() > 0
    });
    let latest = after.values().map(|(_, generation)| *generation).max().expect("leases");
    let last = leases(&pool);
    let granted = of(&last, "server-4").map(|(_, (_, generation))| *generation).min().expect("leases");
    assert!(granted > latest, "lease {granted} follows lease {latest}");
    assert_eq!(
        losses(&watch),
        raised,
        "a restart of the Manager and a move lose nothing: {:?}",
        watch.lines()
    );

    // What the callers have to say.
    for caller in callers {
        let (status, lines) = caller.terminate(Duration::from_secs(30));
        let summary: Value = serde_json::from_str(lines.last().expect("a summary")).expect("JSON");
        assert!(status.success(), "{summary}");
        assert_eq!(
            (summary["violations"].as_u64(), summary["failed"].as_u64()),
            (Some(0), Some(0)),
            "{summary}"
        );
        assert!(summary["requests"].as_u64().is_some_and(|requests| requests > 50), "{summary}");
        assert!(summary["losses"].as_u64().is_some_and(|losses| losses > 0), "{summary}");
    }

    // A server that is told to stop moves its state away first.
    let stopped = servers.remove(0);
    let (status, _) = stopped.terminate(Duration::from_secs(30));
    assert!(status.success());
    until("two servers have everything", || is_at_rest(&pool, 2));
    assert_eq!(losses(&watch), raised, "a drain loses nothing: {:?}", watch.lines());
}

#[test]
fn a_manager_that_is_told_to_stop_resigns() {
    let mut pool = Pool::start();
    pool.ask(&["namespace", "create", "dev"]);
    let status = pool.stop_manager();
    assert!(status.success());
    pool.start_manager();
    let history = pool.ask(&["history"]);
    let kinds: Vec<&str> =
        history["decisions"].as_array().expect("a list").iter().filter_map(|d| d["kind"].as_str()).collect();
    assert!(kinds.contains(&"leader-resigned"), "{kinds:?}");
    assert_eq!(pool.ask(&["namespace", "list"])["namespaces"][0]["name"], "dev");
}

#[test]
fn exit_codes_mean_something() {
    let pool = Pool::start();
    assert_eq!(pool.exit_code(&["namespace", "show", "nowhere"]), 4);
    assert_eq!(pool.exit_code(&["namespace", "create", "Not-A-Label"]), 2);
    assert_eq!(
        pool.exit_code(&["namespace", "create", "dev", "--lease", "5s"]),
        2,
        "it does not fit the renewal"
    );
    assert_eq!(pool.exit_code(&["namespace", "create", "dev"]), 0);
    assert_eq!(pool.exit_code(&["namespace", "create", "dev"]), 1, "there is one");
    assert_eq!(pool.exit_code(&["lookup", "dev", "alice"]), 4, "nobody owns it");
    assert_eq!(pool.exit_code(&["evict", "dev", "nobody"]), 4);
    assert_eq!(pool.exit_code(&["no-such-command"]), 2);
    assert_eq!(support::exit_code(&["status", "--managers", "127.0.0.1:1"]), 3);
}

#[test]
fn a_second_manager_on_the_same_file_is_refused() {
    let pool = Pool::start();
    let (status, message) = pool.second_manager();
    assert_eq!(status.code(), Some(1));
    assert!(message.contains("centrifuge.db"), "{message}");
}

#[test]
fn the_demonstration_keeps_its_promises() {
    let (status, output) = support::run_to_end(&["dev", "--for", "12s", "--json"]);
    assert!(status.success(), "{output}");
    let summary: Value = serde_json::from_str(output.lines().last().expect("a line")).expect("JSON");
    for key in ["requests", "rejected", "retried", "failed", "moves", "losses", "violations"] {
        assert!(summary[key].is_u64(), "{key}: {summary}");
    }
    assert_eq!(summary["violations"], 0, "{summary}");
    assert!(summary["requests"].as_u64() > Some(100) && summary["moves"].as_u64() > Some(0), "{summary}");
}
