//! Tells the story as it goes, and counts what was checked.

use std::time::{Duration, Instant};

use serde::Serialize;

/// How long lines may be.
const WIDTH: usize = 110;
/// What lines within a scene begin with.
const INDENT: &str = "    ";

/// Tells, or keeps quiet for a program that wants numbers.
#[derive(Debug)]
pub(super) struct Narrator {
    is_quiet: bool,
    pub(super) began: Instant,
    scene: usize,
    pub(super) passed: u64,
    pub(super) failures: Vec<String>,
}

/// What a run added up to.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The seed.
    pub seed: u64,
    /// How many checks passed.
    pub passed: u64,
    /// How many failed.
    pub failed: u64,
    /// Which, in words.
    pub failures: Vec<String>,
    /// How long it took.
    pub seconds: f64,
    /// The longest that a connected device believed an old address after the new one was acknowledged.
    pub longest_behind_ms: u64,
    /// How long that may be.
    pub bound_ms: u64,
    /// How often devices got new addresses.
    pub changes: u64,
    /// How long leases were.
    pub lease_ms: u64,
}

impl Narrator {
    pub(super) fn new(is_quiet: bool) -> Narrator {
        Narrator { is_quiet, began: Instant::now(), scene: 0, passed: 0, failures: Vec::new() }
    }

    /// A new scene begins.
    pub(super) fn scene(&mut self, words: &str) {
        self.scene += 1;
        if !self.is_quiet {
            println!();
            print(&format!("{:>2}. ", self.scene), words);
        }
    }

    /// The scene goes on.
    pub(super) fn tell(&self, words: &str) {
        if !self.is_quiet {
            print(INDENT, words);
        }
    }

    /// Something must be true.
    pub(super) fn check(&mut self, must: &str, is_true: bool) {
        if is_true {
            self.passed += 1;
        } else {
            self.failures.push(format!("scene {}: not true: {must}", self.scene));
            self.tell(&format!("FAILED: not true: {must}"));
        }
    }
}

/// Prints words in lines that are not too long.
fn print(head: &str, words: &str) {
    let mut line = head.to_owned();
    for word in words.split(' ') {
        if line.len() + word.len() > WIDTH {
            println!("{}", line.trim_end());
            INDENT.clone_into(&mut line);
        }
        line.push_str(word);
        line.push(' ');
    }
    println!("{}", line.trim_end());
}

/// A duration for people.
pub(super) fn words(time: Duration) -> String {
    let ms = time.as_millis();
    if ms < 1000 { format!("{ms} ms") } else { format!("{:.1} s", time.as_secs_f64()) }
}

/// So many of something, of which there are words for one and for many.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}
