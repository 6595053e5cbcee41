//! The workspace's tests, several programs at a time: those that start processes spend most of their time waiting.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::together::{self, Task};
use crate::workspace::{Result, Workspace};

/// How many test programs run at once. More would make them wait for the processor instead of each other.
const AT_ONCE: usize = 4;

/// Test programs whose tests wait for leases to end and hardly compute, and how many of their tests run at once.
const WAITING: &[(&str, &str)] =
    &[("examples/services", "12"), ("story/story", "3"), ("story/presence_eval", "4")];

/// Test programs that take longest, all of it waiting: what begins first does not end last.
const FIRST: &[&str] = &["server/diskless", "cli/processes"];

/// Builds every test, runs all of them though some may fail, and names those that did.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let tests = together::run(build(workspace)?, AT_ONCE);
    let examples = workspace.cargo(["test", "--workspace", "--doc"]).status();
    match (tests, examples.is_ok_and(|status| status.success())) {
        (tests, true) => tests,
        (Ok(()), false) => Err("the examples in the documentation fail".to_owned()),
        (Err(failed), false) => Err(format!("{failed}, and the examples in the documentation")),
    }
}

/// The programs, in cargo's order but for the longest.
fn build(workspace: &Workspace) -> Result<Vec<Task>> {
    let arguments = ["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
    let mut command = workspace.cargo(arguments);
    let built =
        command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !built.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let text = String::from_utf8(built.stdout).map_err(|error| format!("cargo test: {error}"))?;
    let mut programs: Vec<Task> = text.lines().filter_map(program).collect();
    programs.sort_by_key(|task| !FIRST.contains(&task.name.as_str()));
    Ok(programs)
}

/// The test program that a line of cargo's names, if it names one.
fn program(line: &str) -> Option<Task> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = PathBuf::from(message["executable"].as_str()?);
    if message["profile"]["test"] != true {
        return None;
    }
    let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = directory.file_name()?.to_str()?;
    let target = message["target"]["name"].as_str()?;
    let mut command = Command::new(path);
    command.current_dir(&directory).env("CARGO_MANIFEST_DIR", &directory);
    let name = format!("{package}/{target}");
    if let Some((_, threads)) = WAITING.iter().find(|(waiting, _)| *waiting == name) {
        command.env("RUST_TEST_THREADS", threads);
    }
    Some(Task { name, command })
}
