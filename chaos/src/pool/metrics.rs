//! Reads from the Managers' metrics how many messages were dropped because they crossed another.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The counter, as it stands in the text.
const RACES: &str = "centrifuge_messages_skipped_total{why=\"race\"}";
/// How long an answer may take.
const ANSWER: Duration = Duration::from_millis(500);

/// Adds up what each life of each Manager counted. What a Manager counted after the last look before it was killed is missing.
#[derive(Debug, Default)]
pub(crate) struct RaceDrops {
    last: BTreeMap<SocketAddr, u64>,
    total: u64,
}

impl RaceDrops {
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Asks each of them; one that does not answer is asked again another time.
    pub(crate) async fn look(&mut self, managers: &[SocketAddr]) {
        for manager in managers {
            let read = tokio::time::timeout(ANSWER, fetch(*manager)).await;
            if let Ok(Ok(text)) = read
                && let Some(count) = races(&text)
            {
                self.note(*manager, count);
            }
        }
    }

    /// A lower count than before is that of a new life.
    fn note(&mut self, manager: SocketAddr, count: u64) {
        let last = self.last.insert(manager, count).unwrap_or(0);
        self.total += if count >= last { count - last } else { count };
    }
}

async fn fetch(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: manager\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

fn races(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(RACES)).and_then(|rest| rest.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_added_up() {
        let manager = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut drops = RaceDrops::default();
        for count in [3, 5, 1, 4] {
            drops.note(manager, count);
        }
        assert_eq!(drops.total(), 9);
        assert_eq!(races("# HELP x\ncentrifuge_messages_skipped_total{why=\"race\"} 7\n"), Some(7));
        assert_eq!(races("centrifuge_messages_skipped_total{why=\"old\"} 7\n"), None);
    }
}
