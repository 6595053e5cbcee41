//! A namespace in affinity mode, as operators see it.

use serde_json::json;

use crate::support::{Operator, Pool, binary, exit_code, free_address, refusal, run_to_end, start, until};

/// What a command prints for people.
fn text(at: &impl Operator, args: &[&str]) -> String {
    let output = at.command(args).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn affinity_mode_is_chosen_once_and_marked_in_every_table() {
    let pool = Pool::start();
    let make = ["namespace", "create", "feeds", "--mode", "affinity"];
    let (code, message) = refusal(&mut pool.command(&[&make[..], &["--hold", "70s"]].concat()));
    assert!(code != 0 && message.contains("hold must not be set in affinity mode"), "{message}");
    pool.ask(&[&make[..], &["--lease", "120s"]].concat());

    let shown = pool.ask(&["namespace", "show", "feeds"]);
    let times = (&shown["mode"], &shown["settings"]["hold_ms"], &shown["settings"]["silence_ms"]);
    assert_eq!(times, (&json!("affinity"), &json!(null), &json!(40_000)), "{shown}");
    assert_eq!(pool.ask(&["owners", "feeds"])["mode"], "affinity");
    assert_eq!(pool.ask(&["leases", "feeds"])["mode"], "affinity");
    assert_eq!(pool.ask(&["history", "feeds"])["decisions"][0]["mode"], "affinity");
    assert_eq!(pool.ask(&["status"])["managers"][0]["affinity_namespaces"], 1);
    for (args, mark) in [
        (&["namespace", "list"][..], "affinity"),
        (&["namespace", "show", "feeds"], "silence"),
        (&["owners", "feeds"], "feeds is in affinity mode: a key may have two owners"),
        (&["leases", "feeds"], "feeds is in affinity mode: a key may have two owners"),
        (&["lookup", "feeds", "feed-7"], "nobody"),
        (&["history", "feeds"], "feeds (affinity)"),
        (&["status"], "1 (1 affinity)"),
    ] {
        let text = text(&pool, args);
        assert!(text.contains(mark), "{args:?} prints {text}");
    }
    let watch = pool.run(&["watch", "feeds", "--output", "json"]);
    until("the watch tells the table", || {
        watch.lines().iter().any(|line| line.contains(r#""mode":"affinity""#))
    });

    let change = ["namespace", "configure", "feeds", "--mode", "exclusive"];
    let (code, message) = refusal(&mut pool.command(&change));
    assert!(code != 0 && message.contains("keeps them for as long as it exists"), "{message}");

    let file = pool.path("backup");
    let file = file.to_str().expect("a plain path");
    pool.ask(&["store", "backup", "--managers", pool.address(), file]);
    let restored = pool.path("restored.db");
    let restored = restored.to_str().expect("a plain path");
    let (status, _) = run_to_end(&["store", "restore", file, "--store", restored, "--leases-have-ended"]);
    assert!(status.success());
    let (grpc, http) = (free_address(), free_address());
    let mut command = binary();
    command.args(["manager", "--store", restored, "--grpc-listen", &grpc, "--http-listen", &http]);
    let _manager = start(command);
    until("the Manager leads", || exit_code(&["status", "--managers", &grpc]) == 0);
    let (_, list) = run_to_end(&["namespace", "list", "--managers", &grpc, "--output", "json"]);
    assert!(list.contains(r#""mode":"affinity""#), "{list}");
}
