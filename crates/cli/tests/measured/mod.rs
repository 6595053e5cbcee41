//! Measurements as tests run them: marked, so that what they leave behind is seen.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that does much else.
const BOUND: Duration = Duration::from_secs(90);

/// A measurement; it and every process that it starts carry a mark in their environment.
pub(crate) fn bench(kind: &str, mark: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_centrifuge"));
    command.args(["bench", kind]).args(args).env("BENCH_MARK", mark).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// How many processes carry the mark.
pub(crate) fn marked(mark: &str) -> usize {
    let wanted = format!("BENCH_MARK={mark}");
    let has_mark =
        |environment: &Vec<u8>| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
    let processes = fs::read_dir("/proc").expect("processes are listed").filter_map(Result::ok);
    processes.filter_map(|entry| fs::read(entry.path().join("environ")).ok()).filter(has_mark).count()
}

/// Tells a measurement to stop once so many of its processes run: it fails, and all of them end with it.
pub(crate) fn ends_when_told_to(mut child: Child, mark: &str, processes: usize) {
    let since = Instant::now();
    while marked(mark) < processes {
        assert!(since.elapsed() < BOUND, "not all processes started");
        assert!(child.try_wait().expect("it can be waited for").is_none(), "it ended by itself");
        thread::sleep(Duration::from_millis(50));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
    assert_eq!(marked(mark), 0, "no process is left behind");
}
