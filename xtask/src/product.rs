//! Whether what a plain `cargo build` makes is the product alone, with nothing in it that only tests may have.

use std::process::Command;

use crate::workspace::{Result, Workspace, output_of};

/// What the program says of itself when nothing is in it that only tests may have.
const CLEAN: &str = "features for tests: none";

/// Builds the product as users do and asks the built program.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    workspace.run_cargo(["build"])?;
    let program = workspace.target_directory()?.join("debug").join("centrifuge");
    let mut version = Command::new(&program);
    version.arg("--version");
    let said = output_of(version)?;
    if !said.lines().any(|line| line == CLEAN) {
        return Err(format!("a plain `cargo build` makes a program that says\n{said}instead of \"{CLEAN}\""));
    }
    println!("product: the built program has no injected bugs, clock rates or made-up versions");
    Ok(())
}
