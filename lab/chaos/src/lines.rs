//! What processes write down, a line of JSON each, and how it is read again.
//!
//! A line is written by one call that appends it, so that a process that is killed loses at most the line it had not
//! written yet. What is not written is no evidence: the checker claims only what lines that exist prove.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::time::Duration;

use centrifuge::lookup::LossReason;
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::plan::World;

/// The machine's boot-time clock in nanoseconds, which no rate makes wrong: all processes read the same one.
pub(crate) type Nanos = u64;

/// Reads the true clock.
pub(crate) fn true_now() -> Nanos {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Something happened at an instant that is not known better than this: not before the first, not after the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span(pub(crate) Nanos, pub(crate) Nanos);

impl Span {
    /// Does something, and says when.
    pub(crate) fn of<T>(deed: impl FnOnce() -> T) -> (Span, T) {
        let before = true_now();
        let outcome = deed();
        (Span(before, true_now()), outcome)
    }

    /// Whether this was surely over before the other began.
    pub(crate) fn is_before(self, other: Span) -> bool {
        self.1 < other.0
    }
}

/// What an Owner's process writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OwnerLine {
    /// It has joined, as this session. One that does not migrate loses its state with every recall.
    Joined { session: String, url: String, migrates: bool, at: Nanos },
    /// It begins to send state of a range to the Owner at this address.
    Sends { to: String, at: Nanos },
    /// It was told to end, and leaves. Unless it was drained, what it still had is lost.
    Leaves { is_drained: bool, at: Nanos },
    /// Every check of the key said yes under this lease, from the first to the last, without a pause worth mentioning.
    Held { key: u32, generation: u64, first: Span, last: Span, checks: u64 },
    /// It answered a request: the lease was held throughout the span. `state_id` names the state from its beginning,
    /// wherever it moves; `value` rises with every request.
    Served { key: u32, generation: u64, state_id: String, value: u64, at: Span },
}

/// What a caller's process writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CallerLine {
    /// Its Lookup has a table, with these leases by key; zero: no owner.
    Connected { at: Nanos, leases: Vec<u64> },
    /// A server answered; `table` is the lease by which the caller's table sent it there.
    Reply { key: u32, generation: u64, state_id: String, value: u64, table: u64, at: Span },
    /// Its Lookup said that keys are lost. Each with the lease that the table has for it a moment later; zero: no
    /// owner.
    Lost { why: Why, keys: Vec<(u32, u64)>, at: Nanos },
    /// It was told to end, and so has written everything.
    Ended { at: Nanos },
}

/// What a Flease peer's process writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PeerLine {
    /// It came to hold a cell, by a wish that began and was fulfilled then.
    Acquired { cell: u32, epoch: String, at: Span },
    /// Every check of the cell's lease said yes, from the first to the last, without a pause worth mentioning.
    Held { cell: u32, epoch: String, first: Span, last: Span, checks: u64 },
    /// It lost a cell.
    Ended { cell: u32, why: String, at: Nanos },
    /// It found its clock apart from those of others, and stepped down.
    Apart { from: Vec<u16>, at: Nanos },
    /// ... and agrees with them again.
    Agrees { at: Nanos },
}

/// How a loss is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Why {
    BeganAnew,
    Unowned,
    OutOfContact,
    NamespaceReplaced,
    Missed,
}

impl From<LossReason> for Why {
    fn from(why: LossReason) -> Why {
        match why {
            LossReason::StateBeganAnew => Why::BeganAnew,
            LossReason::Unowned => Why::Unowned,
            LossReason::OutOfContact => Why::OutOfContact,
            LossReason::NamespaceReplaced => Why::NamespaceReplaced,
            LossReason::Missed => Why::Missed,
        }
    }
}

/// What a run is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) world: World,
    pub(crate) keys: u32,
    pub(crate) contact_timeout: Nanos,
    pub(crate) notice_bound: Nanos,
    /// How long after its end a fault may still cost state.
    pub(crate) aftermath: Nanos,
    /// Pauses that add up to no more than this cost no lease.
    pub(crate) harmless_pause: Nanos,
    /// Nothing happens but planned operations, which lose nothing.
    pub(crate) is_planned_only: bool,
}

/// What the harness writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HarnessLine {
    /// What the run is about.
    Plan(Plan),
    /// A process was started; `life` counts the processes of a name.
    Started { name: String, life: u32, ppm: i32, at: Nanos },
    /// The clock of a process will be further from true time than any may be, and when it is right again.
    Astray { name: String, life: u32, from: Nanos, until: Nanos, over: Nanos, ahead: i64 },
    /// A process was killed.
    Killed { name: String, life: u32, at: Nanos },
    /// A process was told to end (SIGTERM): an Owner drains itself, a Manager resigns.
    Retired { name: String, life: u32, at: Nanos },
    /// ... and has ended.
    Gone { name: String, life: u32, at: Nanos },
    /// An operator's request was answered.
    Operated { what: String, at: Nanos },
    /// A process was stopped for a while.
    Stopped { name: String, at: Nanos },
    /// ... and continued.
    Continued { name: String, at: Nanos },
    /// A process ended though nobody told it to.
    Died { name: String, life: u32, status: String, at: Nanos },
    /// Nothing gets from the first to the second any more.
    Cut { from: String, to: String, at: Nanos },
    /// ... and does again.
    Healed { from: String, to: String, at: Nanos },
    /// Messages between the two are lost, delayed, doubled and overtake each other, more than usual.
    Storm { from: String, to: String, at: Nanos, until: Nanos },
    /// etcd is told to forget who leads.
    Deposed { at: Nanos },
    /// For so long certificates and policies were rotated, and nothing else happened.
    RotatedAlone { from: Nanos, to: Nanos },
    /// No more faults; every process runs.
    Calm { at: Nanos },
    /// The processes are told to end.
    Over { at: Nanos },
}

/// A length of time as the clock counts it.
pub(crate) fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Appends lines to a file.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

impl Journal {
    pub(crate) fn open(path: &Path) -> io::Result<Journal> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Journal { file })
    }

    /// Writes some lines in one call.
    pub(crate) fn write<L: Serialize>(&self, lines: &[L]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, line)?;
            bytes.push(b'\n');
        }
        (&self.file).write_all(&bytes)
    }
}

/// Reads a file of lines. A last line without its end was being written when its process died, and is left out.
pub(crate) fn read<L: DeserializeOwned>(path: &Path) -> io::Result<Vec<L>> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut lines = Vec::new();
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 && line.ends_with('\n') {
        let parsed = serde_json::from_str(&line).map_err(|error| {
            let words = format!("{}: line {}: {error}", path.display(), lines.len() + 1);
            io::Error::new(io::ErrorKind::InvalidData, words)
        })?;
        lines.push(parsed);
        line.clear();
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_not_finished_is_left_out() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("owner-1.1.jsonl");
        let journal = Journal::open(&path).expect("a file");
        let lines = [
            OwnerLine::Joined { session: "s".into(), url: "u".into(), migrates: true, at: 5 },
            OwnerLine::Held { key: 1, generation: 2, first: Span(3, 4), last: Span(5, 6), checks: 7 },
        ];
        journal.write(&lines).expect("written");
        (&journal.file).write_all(b"{\"held\":{\"key\":").expect("written");
        assert_eq!(read::<OwnerLine>(&path).expect("lines"), lines);
    }
}
