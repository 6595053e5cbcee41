//! Commands that run several at a time; what each says is shown when it has ended.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use crate::workspace::Result;

/// A command with a name.
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// Runs all of them in their order, so many at a time, though some may fail, and names those that did.
pub(crate) fn run(mut tasks: Vec<Task>, at_once: usize) -> Result<()> {
    tasks.reverse();
    let (waiting, failed) = (Mutex::new(tasks), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(task) = take(&waiting) {
                    let name = task.name.clone();
                    if !task.run() {
                        failed.lock().expect("no thread panics").push(name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().map_err(|_| "a thread panicked")?;
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn take(waiting: &Mutex<Vec<Task>>) -> Option<Task> {
    waiting.lock().expect("no thread panics").pop()
}

impl Task {
    /// Runs it to its end, then shows what it said; true if it succeeded.
    fn run(mut self) -> bool {
        let start = Instant::now();
        let (passed, said) = match self.command.stdin(Stdio::null()).output() {
            Ok(output) => {
                let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
                (output.status.success(), said)
            }
            Err(error) => (false, format!("cannot run {:?}: {error}\n", self.command)),
        };
        let verdict = if passed { "ok" } else { "FAILED" };
        println!("-- {}: {verdict} in {:.1} s\n{said}", self.name, start.elapsed().as_secs_f64());
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(name: &str, program: &str) -> Task {
        Task { name: name.to_owned(), command: Command::new(program) }
    }

    #[test]
    fn every_task_runs_and_those_that_fail_are_named() {
        assert_eq!(run(vec![task("one", "true"), task("two", "true")], 2), Ok(()));
        let tasks = ["true", "false", "true", "no-such-program"].map(|program| task(program, program));
        let told = run(Vec::from(tasks), 3).expect_err("two fail");
        assert!(
            told.contains("false") && told.contains("no-such-program") && !told.contains("true"),
            "{told}"
        );
    }
}
