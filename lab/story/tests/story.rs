//! The story as one command: it passes, and it fails when something is wrong on purpose.

use std::process::{Command, Output};

fn story(arguments: &[&str]) -> Output {
    let story = env!("CARGO_BIN_EXE_story");
    Command::new(story).args(arguments).output().expect("the program was built for this test")
}

fn told(output: &Output) -> String {
    let [told, complaints] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{told}\n{complaints}")
}

/// Centrifuge §4.1, PRS §2.1.
#[test]
fn no_client_is_left_silently_wrong() {
    let output = story(&["--seed", "1"]);
    assert!(output.status.success(), "{}", told(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    assert!(last.ends_with(" passed, 0 failed"), "{last}");
    let scenes =
        ["are killed, all at once", "is cut off from the Manager", "Nobody was told of a loss", "The end"];
    for scene in scenes {
        assert!(text.contains(scene), "{scene} is missing in\n{text}");
    }
}

/// What a story says that failed with something wrong on purpose.
fn failures_with(bug: &str) -> Vec<String> {
    let output = story(&["--seed", "1", "--lease", "2s", "--json", "--bug", bug]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    let failures = summary["failures"].as_array().expect("a list").clone();
    assert_eq!(summary["failed"], failures.len());
    failures.into_iter().filter_map(|failure| failure.as_str().map(str::to_owned)).collect()
}

/// The checks are not blind: devices that ignore that their queue is another are found out.
#[test]
fn forgetful_clients_are_silently_wrong() {
    let failures = failures_with("forgetful-clients");
    assert!(failures.iter().any(|failure| failure.contains("no client is silently wrong")), "{failures:#?}");
}

/// The checks are not blind: without the losses of other pools, some devices are never told.
#[test]
fn deaf_queues_leave_devices_untold() {
    let failures = failures_with("deaf-queues");
    assert!(failures.iter().any(|failure| failure.contains("are told")), "{failures:#?}");
}
