//! The examples do what they say: they are programs of their own, and fail if they do not.

use std::path::PathBuf;
use std::process::Command;

/// Where cargo puts an example that it builds together with this test.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let profile = test.parent().and_then(|dependencies| dependencies.parent()).expect("a target directory");
    let path = profile.join("examples").join(name);
    assert!(path.exists(), "{} is missing: `cargo build -p centrifuge --examples`", path.display());
    path
}

#[test]
fn one_master_at_a_time_and_no_late_write_of_a_former_one() {
    let output = Command::new(example("flease_primary_backup")).output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{complaint}");
    for part in
        ["is killed", "stops before it has written \"late\"", "never two at a time", "nobody has \"late\""]
    {
        assert!(told.contains(part), "no word of {part:?} in:\n{told}\n{complaint}");
    }
}
