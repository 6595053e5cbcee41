//! What commands print, and the codes they end with.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sight::{SHORT, is_at_rest};
use crate::support::{self, Operator, Pool, TIMEOUT, refusal, until};

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
    assert_eq!(pool.exit_code(&["owners"]), 4, "there is no namespace yet");
    assert_eq!(pool.exit_code(&["namespace", "create", "dev"]), 0);
    assert_eq!(pool.exit_code(&["owners"]), 0, "there is only one");
    assert_eq!(pool.exit_code(&["namespace", "create", "dev"]), 1, "there is one");
    assert_eq!(pool.exit_code(&["lookup", "dev", "alice"]), 4, "nobody owns it");
    assert_eq!(pool.exit_code(&["lookup", "alice"]), 4, "nobody owns it in the only namespace");
    for part in [&["watch", "nowhere"][..], &["dev", "server", "--name", "a", "--namespace", "nowhere"]] {
        assert_eq!(pool.exit_code(part), 4, "{part:?}");
    }
    assert_eq!(pool.exit_code(&["dev", "caller", "--name", "a", "--namespace", "No"]), 2);
    assert_eq!(pool.exit_code(&["namespace", "create", "other"]), 0);
    assert_eq!(pool.exit_code(&["owners"]), 2, "there are two");
    assert_eq!(pool.exit_code(&["evict", "dev", "nobody"]), 4);
    assert_eq!(pool.exit_code(&["quarantine", "list", "dev"]), 0);
    assert_eq!(pool.exit_code(&["quarantine", "release", "dev", "--key", "alice"]), 4, "it is in none");
    assert_eq!(pool.exit_code(&["quarantine", "release", "dev"]), 2, "which keys?");
    assert_eq!(pool.exit_code(&["no-such-command"]), 2);
    for args in [&["status"][..], &["owners", "dev"], &["watch", "dev"], &["drain", "dev", "a"]] {
        let args = [args, &["--managers", "127.0.0.1:1"]].concat();
        let (code, message) = refusal(support::binary().args(&args));
        assert_eq!(code, 3, "{args:?}: {message}");
        assert!(message.contains("127.0.0.1:1"), "{args:?}: {message}");
    }
    assert_eq!(support::exit_code(&["status", "--managers", "@/nowhere/at/all"]), 2);
}

#[test]
fn refusals_and_empty_lists_say_what_they_are_about() {
    let pool = Pool::start();
    let said = |args: &[&str]| refusal(&mut pool.command(args)).1;
    let listed = pool.command(&["namespace", "list"]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&listed.stdout).contains("there are no namespaces"), "{listed:?}");
    let refused = said(&["namespace", "create", "dev", "--lease", "20s", "--max-moves", "3"]);
    assert!(
        refused.contains("less than lease") && refused.contains("--lease 20s --max-moves 3"),
        "{refused}"
    );
    let refused = said(&["namespace", "create", "dev", "--max-moves", "0"]);
    assert!(refused.contains("max_moves must not be zero"), "{refused}");
    assert!(said(&["namespace", "show", "nowhere"]).contains("`nowhere`"));
    pool.ask(&["namespace", "create", "dev"]);
    assert!(said(&["evict", "dev", "nobody"]).contains("`nobody`"));
    assert!(said(&["quarantine", "release", "--range", "all"]).contains("none of these keys of `dev`"));
    let listed = pool.command(&["quarantine", "list"]).output().expect("it runs");
    assert!(
        String::from_utf8_lossy(&listed.stdout).contains("nothing of dev is in quarantine"),
        "{listed:?}"
    );
    let refused = said(&["namespace", "configure", "dev", "--quarantine", "0s"]);
    assert!(refused.contains("quarantine must not be zero"), "{refused}");
}

#[test]
fn every_help_says_what_exit_codes_mean() {
    for command in [&[][..], &["status"], &["namespace", "create"], &["store", "restore"], &["dev", "server"]]
    {
        let (status, text) = support::run_to_end(&[command, &["--help"]].concat());
        assert!(status.success() && text.contains("Exit codes:"), "{command:?}: {text}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let pool = Pool::start();
    pool.ask(&["namespace", "create", "dev"]);
    for args in [&["leases"][..], &["history", "--output", "json"], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (code, message) = refusal(pool.command(args).stdout(writer));
        assert_eq!((code, message.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn a_watch_ends_with_its_reader_and_not_with_the_next_event() {
    let pool = Pool::start();
    pool.ask(&["namespace", "create", "dev"]);
    for args in [&["watch", "dev"][..], &["watch", "dev", "--json"]] {
        let mut watch = pool.command(args).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut reader = BufReader::new(watch.stdout.take().expect("a pipe"));
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        assert!(line.contains("no owner") || line.contains("change"), "{line}");
        // As `head` does. Nobody joins this pool, so that no event would follow.
        drop(reader);
        until("the watch ends", || watch.try_wait().expect("it can be waited for").is_some());
        assert_eq!(watch.wait().expect("it ended").code(), Some(0), "{args:?}");
    }
}

#[test]
fn json_is_the_same_as_output_json() {
    let pool = Pool::start();
    pool.ask(&["namespace", "create", "dev"]);
    let quarantines = &["quarantine", "list"];
    for args in [&["namespace", "show", "dev"][..], &["leases"], &["owners"], &["history"], quarantines] {
        let (short, long) = (pool.command(args).arg("--json").output(), pool.ask(args));
        let short: Value = serde_json::from_slice(&short.expect("it runs").stdout).expect("JSON");
        assert_eq!(short, long, "{args:?}");
    }
}

#[test]
fn a_manager_that_hangs_is_left_for_the_next() {
    let pool = Pool::start();
    pool.ask(&["namespace", "create", "dev"]);
    // The kernel takes connections for it, and nobody ever reads them.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = listener.local_addr().expect("an address").to_string();
    let closed = support::free_address();
    let managers = format!("{silent},{},{closed}", pool.address());
    let began = Instant::now();
    for args in [&["owners", "dev"][..], &["namespace", "create", "other"], &["status"]] {
        let (code, message) = refusal(pool.command(args).env("CENTRIFUGE_MANAGERS", &managers));
        assert_eq!(code, 0, "{args:?}: {message}");
    }
    assert!(began.elapsed() < Duration::from_secs(14), "{:?}", began.elapsed());
    let nobody = format!("{silent},{closed}");
    let (code, message) = refusal(pool.command(&["owners", "dev"]).env("CENTRIFUGE_MANAGERS", &nobody));
    assert_eq!(code, 3, "{message}");
    assert!(message.contains(&format!("{silent} does not answer")), "{message}");
    assert!(message.contains(&format!("{closed} cannot be reached")), "{message}");
}

#[test]
fn a_drain_is_waited_for() {
    let pool = Pool::start();
    pool.create(SHORT);
    let start = |name: &str| {
        let server = pool.run(&["dev", "server", "--name", name, "--json"]);
        server.await_line("serving");
        server
    };
    let first = start("server-1");
    until("it has everything", || is_at_rest(&pool, 1));
    let drain = ["drain", "dev", "server-1", "--wait", "--timeout"];
    let (code, message) = refusal(&mut pool.command(&[&drain[..], &["1s"]].concat()));
    assert_eq!(code, 5, "nobody can take its ranges: {message}");
    assert!(message.contains("left") && message.contains("undrain"), "{message}");

    let is_ordered = || pool.ask(&["owners"])["owners"][0]["drain_ordered"] == true;
    pool.ask(&["undrain", "server-1"]);
    assert!(!is_ordered());
    let waiting = pool.run(&[&drain[..], &["60s", "--json"]].concat());
    until("it is drained again", is_ordered);
    pool.ask(&["undrain", "server-1"]);
    assert_eq!(waiting.await_end(TIMEOUT).expect("it ends").0.code(), Some(1), "somebody ended the drain");

    let second = start("server-2");
    assert_eq!(pool.ask(&[&drain[..], &["60s"]].concat())["done"], true);
    let owners = pool.ask(&["owners"]);
    assert_eq!(
        (&owners["owners"][0]["ranges"], &owners["owners"][0]["state"]),
        (&0.into(), &"draining".into())
    );
    assert_eq!(pool.exit_code(&["drain", "dev", "nobody", "--wait"]), 4);
    drop((first, second));
}

#[test]
fn an_evicted_server_ends_and_says_why() {
    let pool = Pool::start();
    pool.create(SHORT);
    let server = pool.run(&["dev", "server", "--name", "server-1", "--output", "json"]);
    server.await_line("serving");
    until("it has everything", || is_at_rest(&pool, 1));
    pool.ask(&["evict", "server-1", "--why", "a test"]);
    assert_eq!(server.await_end(TIMEOUT).expect("it ends").0.code(), Some(1));
    until("nobody is left", || pool.ask(&["owners"])["owners"].as_array().is_some_and(Vec::is_empty));
}

#[test]
fn a_drained_server_gets_its_share_back_when_undrained() {
    let pool = Pool::start();
    pool.create(SHORT);
    let servers =
        ["server-1", "server-2"].map(|name| pool.run(&["dev", "server", "--name", name, "--output", "json"]));
    servers.iter().for_each(|server| server.await_line("serving"));
    until("they have everything", || is_at_rest(&pool, 2));
    let first = || pool.ask(&["owners"])["owners"][0].clone();
    assert_eq!(pool.ask(&["drain", "server-1", "--why", "a test"])["done"], true);
    assert_eq!(first()["drain_ordered"], true);
    until("it is empty", || first()["ranges"] == 0 && first()["state"] == "draining");
    assert_eq!(pool.ask(&["undrain", "server-1", "--why", "a test"])["done"], true);
    until("it has a share again", || first()["ranges"] != 0);
    assert_eq!(first()["drain_ordered"], false);
    until("it is live", || first()["state"] == "live");
    assert_eq!(pool.exit_code(&["undrain", "dev", "nobody"]), 4);
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
