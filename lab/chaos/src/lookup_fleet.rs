//! How a fleet of Lookups comes to a new leader: how soon all of them watch it, and how many ask at once.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinHandle;

use crate::lines::{Journal, Nanos, true_now};
use crate::pool::Watched;

/// How often the Managers are asked. What comes within this time is not told apart.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// A second.
const SECOND: Nanos = 1_000_000_000;

/// What a Manager said, and when.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    at: Nanos,
    watched: Watched,
}

/// The most requests from one look to the next, and within a second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    pub(crate) in_a_look: u64,
    pub(crate) in_a_second: u64,
}

type Samples = BTreeMap<SocketAddr, Vec<Sample>>;

/// Asks the Managers all the time how many Lookups watch them.
pub(crate) struct LookupFleet {
    samples: Arc<Mutex<Samples>>,
    asking: Vec<JoinHandle<()>>,
}

impl LookupFleet {
    /// What they say is also written down, in `watched.jsonl`.
    pub(crate) fn observe(managers: Vec<SocketAddr>, directory: &Path) -> io::Result<LookupFleet> {
        let journal = Arc::new(Journal::open(&directory.join("watched.jsonl"))?);
        let samples: Arc<Mutex<Samples>> = Arc::default();
        let ask = |manager| tokio::spawn(ask(manager, Arc::clone(&samples), Arc::clone(&journal)));
        Ok(LookupFleet { asking: managers.into_iter().map(ask).collect(), samples })
    }

    /// When a leader of a term after this one was first seen with so many Lookups.
    pub(crate) fn gathered(&self, term: u64, wanted: u64) -> Option<Nanos> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |sample: &&Sample| {
            sample.watched.leads.is_some_and(|later| later > term) && sample.watched.lookups >= wanted
        };
        samples.values().filter_map(|samples| samples.iter().find(is_it)).map(|sample| sample.at).min()
    }

    /// The most requests that a leader, and any Manager, had since an instant.
    pub(crate) fn most_since(&self, since: Nanos) -> [Most; 2] {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        [true, false].map(|leaders| {
            let most = |span: Nanos| {
                let each = samples.values().map(|samples| most_within(samples, since, span, leaders));
                each.max().unwrap_or(0)
            };
            Most { in_a_look: most(0), in_a_second: most(SECOND) }
        })
    }
}

impl Drop for LookupFleet {
    fn drop(&mut self) {
        self.asking.iter().for_each(JoinHandle::abort);
    }
}

async fn ask(manager: SocketAddr, samples: Arc<Mutex<Samples>>, journal: Arc<Journal>) {
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(watched) = Watched::of(manager).await {
            let sample = Sample { at: true_now(), watched };
            samples.lock().unwrap_or_else(PoisonError::into_inner).entry(manager).or_default().push(sample);
            // For people who wonder what happened; nothing depends on it.
            let _ = journal.write(&[(manager, sample)]);
        }
    }
}

/// The most requests between two samples that are next to each other or at most a span apart. A lower count is that
/// of a new process, which has had so many since it began. With `leaders` only what came to one that led in the end
/// counts.
fn most_within(samples: &[Sample], since: Nanos, span: Nanos, leaders: bool) -> u64 {
    let mut most = 0;
    for (place, first) in samples.iter().enumerate().filter(|(_, first)| first.at >= since) {
        let mut came = 0;
        let mut before = first.watched.requests;
        for (step, next) in samples[place + 1..].iter().enumerate() {
            if step > 0 && next.at - first.at > span {
                break;
            }
            if leaders && next.watched.leads.is_none() {
                break;
            }
            let requests = next.watched.requests;
            came += if requests >= before { requests - before } else { requests };
            before = requests;
        }
        most = most.max(came);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(millis: u64, requests: u64) -> Sample {
        let watched = Watched { leads: Some(1), lookups: 0, requests };
        Sample { at: millis * 1_000_000, watched }
    }

    #[test]
    fn requests_are_counted_from_look_to_look_and_by_the_second() {
        let samples = [sample(0, 5), sample(100, 9), sample(200, 10), sample(900, 60), sample(2_000, 65)];
        assert_eq!(most_within(&samples, 0, 0, true), 50);
        assert_eq!(most_within(&samples, 0, SECOND, true), 55);
        assert_eq!(most_within(&samples, 901_000_000, SECOND, true), 0);
    }

    #[test]
    fn a_new_process_counts_from_nothing() {
        assert_eq!(most_within(&[sample(0, 500), sample(100, 7), sample(200, 9)], 0, SECOND, false), 9);
    }
}
