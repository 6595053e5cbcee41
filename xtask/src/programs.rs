//! The workspace's tests, several programs at a time: those that start processes spend most of their time waiting.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use crate::workspace::{Result, Workspace};

/// How many test programs run at once. More would make them wait for the processor instead of each other.
const AT_ONCE: usize = 3;

/// A program that cargo built from tests.
struct Program {
    name: String,
    path: PathBuf,
    /// Where its crate is: tests run there.
    directory: PathBuf,
}

/// Builds every test, runs all of them though some may fail, and names those that did.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut programs = build(workspace)?;
    programs.reverse();
    let (waiting, failed) = (Mutex::new(programs), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(program) = take(&waiting) {
                    if !program.run() {
                        failed.lock().expect("no test thread panics").push(program.name);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().map_err(|_| "a test thread panicked")?;
    if !workspace.cargo(["test", "--workspace", "--doc"]).status().is_ok_and(|status| status.success()) {
        failed.push("the examples in the documentation".to_owned());
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn take(waiting: &Mutex<Vec<Program>>) -> Option<Program> {
    waiting.lock().expect("no test thread panics").pop()
}

/// The programs, in cargo's order.
fn build(workspace: &Workspace) -> Result<Vec<Program>> {
    let arguments = ["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
    let mut command = workspace.cargo(arguments);
    let built =
        command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !built.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let text = String::from_utf8(built.stdout).map_err(|error| format!("cargo test: {error}"))?;
    Ok(text.lines().filter_map(program).collect())
}

/// The test program that a line of cargo's names, if it names one.
fn program(line: &str) -> Option<Program> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let path = PathBuf::from(message["executable"].as_str()?);
    if message["profile"]["test"] != true {
        return None;
    }
    let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = directory.file_name()?.to_str()?;
    let target = message["target"]["name"].as_str()?;
    Some(Program { name: format!("{package}/{target}"), path, directory })
}

impl Program {
    /// Runs it to its end, then shows what it said; true if it passed.
    fn run(&self) -> bool {
        let start = Instant::now();
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        let output = command.stdin(Stdio::null()).output();
        let (passed, said) = match &output {
            Ok(output) => {
                let (out, err) =
                    (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
                (output.status.success(), format!("{out}{err}"))
            }
            Err(error) => (false, format!("cannot run {}: {error}\n", self.path.display())),
        };
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("-- {}: {verdict} in {:.1} s\n{said}", self.name, start.elapsed().as_secs_f64());
        passed
    }
}
