//! What processes record of themselves can be replayed.

use std::fs::File;
use std::io::BufReader;
use std::time::Duration;

use centrifuge_core::recording::MachineKind;
use centrifuge_sim::replay::replay;

use crate::sight::{SHORT, is_at_rest};
use crate::support::{Operator, Pool, Process, refusal, until};

#[test]
fn servers_and_callers_replay() {
    let pool = Pool::start();
    pool.create(SHORT);
    let run = |part: &str, name: &str| -> Process {
        let file = pool.path(name);
        pool.run(&[
            "dev",
            part,
            "--name",
            name,
            "--record",
            file.to_str().expect("a path"),
            "--output",
            "json",
        ])
    };
    let (first, second) = (run("server", "server-1"), run("server", "server-2"));
    [&first, &second].iter().for_each(|server| server.await_line("serving"));
    until("two servers share the keys", || is_at_rest(&pool, 2));
    let caller = run("caller", "caller-1");
    until("requests are served", || {
        let owners = pool.ask(&["owners", "dev"]);
        owners["owners"].as_array().is_some_and(|owners| owners.iter().all(|owner| owner["load"] != 0))
    });
    // One dies while it writes, the others say goodbye.
    second.kill().expect("it ends");
    until("one server has everything", || is_at_rest(&pool, 1));
    let third = pool.run(&["dev", "server", "--name", "server-3", "--output", "json"]);
    third.await_line("serving");
    for process in [caller, first] {
        assert!(process.stop(Duration::from_secs(60)).expect("it stops").0.success());
    }
    let expected = [
        ("server-1", MachineKind::Owner),
        ("server-2", MachineKind::Owner),
        ("caller-1", MachineKind::Lookup),
    ];
    for (name, machine) in expected {
        let file = File::open(pool.path(name)).expect("a recording");
        let outcome = replay(BufReader::new(file)).expect("a recording");
        assert_eq!((outcome.machine, &outcome.difference), (machine, &None), "{name}");
        // Its start, its first leases or table, and what the death of the other server changed.
        assert!(outcome.agreed >= 3, "{name}: {outcome:?}");
        assert!(!outcome.cut || name == "server-2", "{name} ended well");
    }
}

#[test]
fn a_recording_that_cannot_begin_is_refused() {
    let pool = Pool::start();
    pool.ask(&["namespace", "create", "dev"]);
    for part in ["server", "caller"] {
        let args = ["dev", part, "--name", "a", "--record", "/nowhere/at/all"];
        let (code, message) = refusal(&mut pool.command(&args));
        assert_eq!(code, 1, "{message}");
        assert!(message.contains("/nowhere/at/all"), "{message}");
    }
}
