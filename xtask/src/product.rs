//! Whether what a plain `cargo build` makes is the product alone, with nothing in it that only tests may have.

use std::process::Command;

use crate::workspace::{Result, Workspace, output_of};

/// What the program says of itself when nothing is in it that only tests may have.
const CLEAN: &str = "features for tests: none";

/// Builds the product as users do and asks the built program.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let status = workspace.cargo(["build"]).status().map_err(|error| format!("cargo build: {error}"))?;
    if !status.success() {
        return Err(format!("cargo build: {status}"));
    }
    let program = workspace.target_directory()?.join("debug").join("centrifuge");
    let mut version = Command::new(&program);
    version.arg("--version");
    let said = output_of(version)?;
    match said.lines().any(|line| line == CLEAN) {
        true => {
            println!("product: the built program has no injected bugs, clock rates or made-up versions");
            Ok(())
        }
        false => {
            Err(format!("a plain `cargo build` makes a program that says\n{said}instead of \"{CLEAN}\""))
        }
    }
}
