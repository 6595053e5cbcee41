//! Namespaces with ordered keys on the command line.

use serde_json::{Value, json};

use crate::support::{Operator, Pool, refusal};

fn said(pool: &Pool, args: &[&str]) -> (i32, String) {
    refusal(&mut pool.command(args))
}

fn printed(pool: &Pool, args: &[&str]) -> String {
    let output = pool.command(args).output().expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_a_namespace_is_is_said_once_and_shown_everywhere() {
    let pool = Pool::start();
    let create = ["namespace", "create", "users", "--keys", "ordered", "--key-prefix", "user/"];
    pool.ask(&create);
    pool.ask(&["namespace", "create", "rooms"]);
    let shown = pool.ask(&["namespace", "show", "users"]);
    let kind = |space: &Value| [space["keys"].clone(), space["key_prefix"].clone(), space["mode"].clone()];
    assert_eq!(kind(&shown), [json!("ordered"), json!("user/"), json!("exclusive")]);
    assert_eq!(shown["settings"]["partitioner"], "trim", "the one that can divide them");
    let listed = pool.ask(&["namespace", "list"]);
    assert_eq!(kind(&listed["namespaces"][0]), [json!("hashed"), Value::Null, json!("exclusive")]);
    let table = printed(&pool, &["namespace", "list"]);
    assert!(table.contains("ordered after 'user/'") && table.contains("hashed"), "{table}");
    let shown = printed(&pool, &["namespace", "show", "users"]);
    assert!(shown.contains("keys               ordered after 'user/'"), "{shown}");
    assert!(shown.contains("mode               exclusive"), "{shown}");

    let (code, why) = said(&pool, &create);
    assert!(code == 1 && why.contains("already") && !why.contains("another kind"), "{why}");
    for other in [&["--keys", "ordered", "--key-prefix", "account/"][..], &["--keys", "hashed"], &[]] {
        let (code, why) = said(&pool, &[&["namespace", "create", "users"], other].concat());
        assert_eq!(code, 1, "{why}");
        assert!(why.contains("of another kind: ordered keys after 'user/', exclusive leases"), "{why}");
    }
    for other in [&["--keys", "hashed"][..], &["--key-prefix", "account/"], &["--mode", "affinity"]] {
        let (code, why) = said(&pool, &[&["namespace", "configure", "users"], other].concat());
        assert_eq!(code, 1, "{why}");
        assert!(why.contains("create another namespace"), "{why}");
    }
    pool.ask(&["namespace", "configure", "users", "--keys", "ordered", "--max-moves", "7"]);
}

#[test]
fn kinds_that_cannot_be_are_refused_with_what_to_do() {
    let pool = Pool::start();
    let create = |more: &[&str]| said(&pool, &[&["namespace", "create", "users"], more].concat());
    let long = "a".repeat(65);
    let refused = [
        (&["--keys", "sorted"][..], "possible values: hashed, ordered"),
        (&["--keys", "ordered", "--key-prefix", &long], "at most 64 bytes, and this one has 65"),
        (&["--keys", "ordered", "--key-prefix", r"a\q"], "is no escape"),
        (&["--key-prefix", "user/"], "is for ordered keys alone"),
        (&["--keys", "ordered", "--partitioner", "consistent-hash"], "use trim, which divides by load"),
        (&["--mode", "best-effort"], "possible values: exclusive, affinity"),
    ];
    for (more, words) in refused {
        let (code, why) = create(more);
        assert!(code == 2 && why.contains(words), "{more:?}: {code} {why}");
    }
    // A prefix that is no text.
    pool.ask(&["namespace", "create", "users", "--keys", "ordered", "--key-prefix", r"\xff\x00'\\"]);
    let shown = pool.ask(&["namespace", "show", "users"]);
    assert_eq!(shown["key_prefix"], r"\xff\x00\'\\");
}

#[test]
fn commands_that_take_application_keys_ask_the_namespace_what_they_are() {
    let pool = Pool::start();
    pool.ask(&["namespace", "create", "users", "--keys", "ordered", "--key-prefix", "user/"]);
    let (code, why) = said(&pool, &["lookup", "users", "account/1"]);
    assert!(code == 2 && why.contains("does not begin with 'user/'"), "{why}");
    let nobody = printed(&pool, &["lookup", "users", "user/Ada", "--json"]);
    let nobody: Value = serde_json::from_str(&nobody).expect("one object");
    assert_eq!(nobody["key"], "4164610000000000", "the bytes of Ada, in their order");
    assert_eq!(nobody["application_keys"], json!({ "from": "user/", "to": null }));
    let shown = printed(&pool, &["lookup", "users", r"user/\xff"]);
    assert!(shown.contains("key ff00000000000000") && shown.contains("all keys from 'user/' on"), "{shown}");
    pool.ask(&["history", "users", "--key", "user/Ada"]);
    pool.ask(&["history", "--key", "user/Ada"]);
    pool.ask(&["namespace", "create", "rooms"]);
    let (code, why) = said(&pool, &["history", "--key", "user/Ada"]);
    assert!(code == 2 && why.contains("they do not make keys in the same way"), "{why}");

    let (code, why) = said(&pool, &["quarantine", "release", "users", "--key", "account/1"]);
    assert!(code == 2 && why.contains("does not begin with 'user/'"), "{why}");
    let (code, why) = said(&pool, &["dev", "server", "--name", "a", "--namespace", "users"]);
    assert!(code == 1 && why.contains("users does not have hashed keys"), "{why}");
}

/// A Lookup of each of the four kinds; the first line says that nobody has anything.
#[test]
fn namespaces_of_every_kind_are_watched() {
    let pool = Pool::start();
    for (name, keys, mode) in [
        ("a", "hashed", "exclusive"),
        ("b", "hashed", "affinity"),
        ("c", "ordered", "exclusive"),
        ("d", "ordered", "affinity"),
    ] {
        pool.ask(&["namespace", "create", name, "--keys", keys, "--mode", mode]);
        let watch = pool.run(&["watch", name, "--json"]);
        watch.await_line(&format!("\"mode\":\"{mode}\""));
        drop(watch);
    }
}
