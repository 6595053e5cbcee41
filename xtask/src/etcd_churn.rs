//! Commits without end against a real etcd: runs the store's own test for it, in its long form.

use std::process::Stdio;

use crate::tools;
use crate::workspace::{Result, Workspace};

/// Runs it and prints the line of JSON last, or what it says as sentences.
pub(crate) fn run(workspace: &Workspace, commits: u64, json: bool) -> Result<()> {
    tools::ensure()?;
    let mut command = workspace.cargo(
        "test --release --quiet -p centrifuge-server --test etcd_churn -- --nocapture --test-threads 1"
            .split(' '),
    );
    command.env("CENTRIFUGE_CHURN_COMMITS", commits.to_string()).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.find("{\"").map(|at| &line[at..]));
    if !output.status.success() {
        return Err(format!("{}\n{text}", output.status));
    }
    let line = line.ok_or_else(|| format!("it said nothing:\n{text}"))?;
    if json {
        println!("{line}");
        return Ok(());
    }
    let told: serde_json::Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
    println!("{commits} commits on three nodes of etcd {}", told["etcd"].as_str().unwrap_or("?"));
    println!("in use before: {} bytes", told["bytes_in_use"]["before"]);
    println!("in use after:  {} bytes", told["bytes_in_use"]["after"]);
    println!("on the way:    {}", told["bytes_in_use"]["on_the_way"]);
    println!("the file now:  {} bytes", told["file_bytes"]["after"]);
    println!("an append:     {} microseconds", told["append_us"]);
    Ok(())
}
