//! Measurements as tests run them: marked, so that what they leave behind is seen.

use std::fs;
use std::process::{Command, Stdio};

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
