//! What the Manager's process costs: its processor time and memory by the system's books, its messages by its own
//! metrics.

use std::net::SocketAddr;
use std::time::Instant;

use centrifuge_harness::http::page_by;
use centrifuge_net::dial::Security;

use crate::{Failure, Result};

/// How many ticks of processor time Linux shows for a second.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads one Manager.
pub(crate) struct Meter {
    pub(super) process: u32,
    pub(super) http: SocketAddr,
    pub(super) security: Security,
}

/// What it had cost by a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    at: Instant,
    ticks: u64,
    resident_bytes: u64,
    counts: Counts,
}

/// What the Manager has counted since its start, or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    lease_messages: u64,
    lease_bytes: u64,
}

/// What it cost between two moments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) counts: Counts,
}

impl Meter {
    pub(crate) async fn read(&self) -> Result<Reading> {
        let text = self.metrics().await?;
        // The name in parentheses may hold anything; after it come the state and numbers.
        let stat = self.file("stat")?;
        let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |place: usize| numbers.split_whitespace().nth(place)?.parse::<u64>().ok();
        let ticks = field(11).zip(field(12)).map(|(user, system)| user + system);
        let status = self.file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(Reading {
            at: Instant::now(),
            ticks: ticks.ok_or_else(|| self.unreadable("stat"))?,
            resident_bytes: kibibytes.ok_or_else(|| self.unreadable("status"))? * 1024,
            counts: Counts::parse(&text),
        })
    }

    /// What the Manager has counted, as text.
    pub(crate) async fn metrics(&self) -> Result<String> {
        let page = page_by(&self.security, self.http, "/metrics").await;
        let unreadable = |error| format!("the Manager's metrics at {} cannot be read: {error}", self.http);
        Ok(page.map_err(unreadable)?.1)
    }

    fn file(&self, name: &str) -> Result<String> {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.process)).map_err(|_| self.unreadable(name))
    }

    fn unreadable(&self, name: &str) -> Failure {
        Failure::from(format!(
            "/proc/{}/{name} cannot be read: this measurement needs Linux and a Manager that runs",
            self.process
        ))
    }
}

impl Counts {
    fn parse(text: &str) -> Counts {
        let sum = |prefix: &str| {
            let counted = text.lines().filter(|line| line.starts_with(prefix));
            counted.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
        };
        Counts {
            messages_in: sum("centrifuge_messages_received_total"),
            messages_out: sum("centrifuge_messages_sent_total"),
            bytes_in: sum("centrifuge_bytes_received_total"),
            bytes_out: sum("centrifuge_bytes_sent_total"),
            lease_messages: sum("centrifuge_messages_sent_total{kind=\"owner\"}"),
            lease_bytes: sum("centrifuge_bytes_sent_total{kind=\"owner\"}"),
        }
    }
}

impl Reading {
    /// What it cost from then until now.
    pub(crate) fn cost_until(&self, now: &Reading) -> Cost {
        let (before, after) = (&self.counts, &now.counts);
        Cost {
            seconds: now.at.duration_since(self.at).as_secs_f64().max(0.001),
            cpu_seconds: (now.ticks - self.ticks) as f64 / TICKS_PER_SECOND,
            resident_bytes: now.resident_bytes,
            counts: Counts {
                messages_in: after.messages_in.saturating_sub(before.messages_in),
                messages_out: after.messages_out.saturating_sub(before.messages_out),
                bytes_in: after.bytes_in.saturating_sub(before.bytes_in),
                bytes_out: after.bytes_out.saturating_sub(before.bytes_out),
                lease_messages: after.lease_messages.saturating_sub(before.lease_messages),
                lease_bytes: after.lease_bytes.saturating_sub(before.lease_bytes),
            },
        }
    }
}

impl Cost {
    /// So many a second.
    pub(crate) fn rate(&self, count: u64) -> u64 {
        (count as f64 / self.seconds).round() as u64
    }

    /// Bytes of a message to an Owner, on average; nothing if there was none.
    pub(crate) fn bytes_per_lease_message(&self) -> Option<u64> {
        self.counts.lease_bytes.checked_div(self.counts.lease_messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_kinds_are_added_up() {
        let text = "# TYPE centrifuge_messages_sent counter\n\
                    centrifuge_messages_sent_total{kind=\"owner\"} 3\n\
                    centrifuge_messages_sent_total{kind=\"lookup\"} 4\n\
                    centrifuge_bytes_sent_total{kind=\"owner\"} 300\n\
                    centrifuge_commits_total 9\n";
        let wanted = Counts {
            messages_out: 7,
            bytes_out: 300,
            lease_messages: 3,
            lease_bytes: 300,
            ..Counts::default()
        };
        assert_eq!(Counts::parse(text), wanted);
    }
}
