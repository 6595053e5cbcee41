//! Which tasks there are, and when they are due.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use centrifuge::Key;

use crate::shared::call::duration;
use crate::{Failure, Result};

/// Something to be done once in every period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Task {
    pub(super) name: String,
    period: Duration,
}

impl Task {
    /// Whoever owns this key runs the task.
    pub(super) fn key(&self) -> Key {
        Key::of(self.name.as_bytes())
    }

    /// The period that it is at `now`, the time since 1970. The same at all servers, as far as their clocks agree.
    pub(super) fn period_at(&self, now: Duration) -> u64 {
        u64::try_from(now.as_nanos() / self.period.as_nanos()).unwrap_or(u64::MAX)
    }

    /// How long it is from `now` to the next period.
    pub(super) fn until_next(&self, now: Duration) -> Duration {
        let gone = now.as_nanos() % self.period.as_nanos();
        self.period.saturating_sub(Duration::from_nanos_u128(gone))
    }
}

/// The time since 1970.
pub(super) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Reads a name and a period from every line.
pub(super) fn read(text: &str) -> Result<Vec<Task>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| read_line(line).ok_or_else(|| complaint(line))).collect()
}

fn read_line(line: &str) -> Option<Task> {
    let (name, period) = line.split_once(char::is_whitespace)?;
    let period = duration(period.trim()).ok().filter(|period| !period.is_zero())?;
    // The name becomes a part of a path at the sink.
    let is_plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    is_plain.then(|| Task { name: name.to_owned(), period })
}

fn complaint(line: &str) -> Failure {
    format!(
        "not a task: {line:?}. Write a name of letters, digits, -, _ and . and a period, such as: backup 30s"
    )
    .into()
}

/// Tasks with made-up names.
pub(super) fn make_up(count: u32, period: Duration) -> Vec<Task> {
    let period = period.max(Duration::from_millis(1));
    (1..=count).map(|number| Task { name: format!("task-{number}"), period }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_name_and_a_period_in_every_line() {
        let tasks = read("backup 30s\n\n  report\t1h \n").expect("read");
        let expected = [("backup", 30), ("report", 3600)];
        assert_eq!(tasks, expected.map(|(name, seconds)| task(name, seconds)));
        for wrong in ["backup", "backup often", "backup 0s", "backup 30s daily", "back/up 30s"] {
            let complaint = read(wrong).expect_err(wrong).to_string();
            assert!(complaint.contains("such as: backup 30s"), "{complaint}");
        }
    }

    #[test]
    fn periods_are_aligned_to_the_clock() {
        let task = task("backup", 30);
        let at = |ms| Duration::from_millis(ms);
        assert_eq!([0, 29_999, 30_000, 61_000].map(|ms| task.period_at(at(ms))), [0, 0, 1, 2]);
        assert_eq!(task.until_next(at(29_999)), at(1));
        assert_eq!(task.until_next(at(30_000)), at(30_000));
    }

    fn task(name: &str, seconds: u64) -> Task {
        Task { name: name.to_owned(), period: Duration::from_secs(seconds) }
    }
}
