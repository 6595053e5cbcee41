//! Reads the Managers' metrics: messages dropped because they crossed another, and how many Lookups watch.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_harness::http::{metric, page};
use serde::Serialize;

/// The metrics, as they stand in the text.
const RACES: &str = "centrifuge_messages_skipped_total{why=\"race\"}";
const LEADING: &str = "centrifuge_leading";
const TERM: &str = "centrifuge_term";
const LOOKUPS: &str = "centrifuge_lookups{namespace=\"chaos\"}";
const REQUESTS: &str = "centrifuge_messages_received_total{kind=\"watch\"}";
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Adds up what each life of each Manager counted. What a Manager counted after the last look before it was killed is
/// missing.
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
            if let Some(text) = fetch(*manager).await
                && let Some(count) = metric(&text, RACES)
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

/// A Manager's metrics; `None` if it does not answer.
async fn fetch(manager: SocketAddr) -> Option<String> {
    let fetched = tokio::time::timeout(ANSWER_TIMEOUT, page(manager, "/metrics")).await;
    Some(fetched.ok()?.ok()?.1)
}

/// What a Manager says of the Lookups that watch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Watched {
    /// The term that it leads, if it does.
    pub(crate) leads: Option<u64>,
    /// How many it keeps informed, as of a second ago at the latest.
    pub(crate) lookups: u64,
    /// How many requests to watch it has had.
    pub(crate) requests: u64,
}

impl Watched {
    /// Asks a Manager; `None` if it does not answer.
    pub(crate) async fn of(manager: SocketAddr) -> Option<Watched> {
        fetch(manager).await.map(|text| Watched::read(&text))
    }

    fn read(text: &str) -> Watched {
        let leads = metric(text, LEADING) == Some(1);
        Watched {
            leads: metric(text, TERM).filter(|_| leads),
            lookups: metric(text, LOOKUPS).unwrap_or(0),
            requests: metric(text, REQUESTS).unwrap_or(0),
        }
    }
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
        assert_eq!(metric("# HELP x\ncentrifuge_messages_skipped_total{why=\"race\"} 7\n", RACES), Some(7));
        assert_eq!(metric::<u64>("centrifuge_messages_skipped_total{why=\"old\"} 7\n", RACES), None);
    }

    #[test]
    fn a_standby_leads_no_term() {
        let text = "centrifuge_leading 0\ncentrifuge_term 4\ncentrifuge_terms_total 2\n";
        assert_eq!(Watched::read(text), Watched { leads: None, lookups: 0, requests: 0 });
        let text = "centrifuge_leading 1\ncentrifuge_term 4\ncentrifuge_lookups{namespace=\"chaos\"} 9\n\
                    centrifuge_messages_received_total{kind=\"watch\"} 30\n";
        assert_eq!(Watched::read(text), Watched { leads: Some(4), lookups: 9, requests: 30 });
    }
}
