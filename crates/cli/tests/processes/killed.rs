//! Processes that are killed without warning.

use std::time::Duration;

use serde_json::Value;

use crate::sight::{SHORT, are_served, is_at_rest, leases, losses, of};
use crate::support::{Operator, Pool, Process, until};

#[test]
fn killed_owners_and_managers() {
    let mut pool = Pool::start();
    pool.create(SHORT);
    let mut servers: Vec<Process> = ["server-1", "server-2", "server-3"]
        .iter()
        .map(|name| pool.run(&["dev", "server", "--name", name, "--output", "json"]))
        .collect();
    servers.iter().for_each(|server| server.await_line("serving"));
    until("three servers share the keys", || is_at_rest(&pool, 3));

    let watch = pool.run(&["watch", "dev", "--output", "json"]);
    watch.await_line("change");
    let callers: Vec<Process> = ["caller-1", "caller-2"]
        .iter()
        .map(|name| pool.run(&["dev", "caller", "--name", name, "--output", "json"]))
        .collect();
    // The callers' load shows at the servers once requests are served.
    until("requests are served", || are_served(&pool));
    assert_eq!(losses(&watch), 0, "nothing was lost yet: {:?}", watch.lines());

    // An Owner dies.
    let before = leases(&pool);
    servers.remove(1).kill().expect("it ends");
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
        let (status, lines) = caller.stop(Duration::from_secs(30)).expect("it stops");
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
    let (status, _) = stopped.stop(Duration::from_secs(30)).expect("it stops");
    assert!(status.success());
    until("two servers have everything", || is_at_rest(&pool, 2));
    assert_eq!(losses(&watch), raised, "a drain loses nothing: {:?}", watch.lines());
}
