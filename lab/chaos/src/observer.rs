//! Watches the Managers' metrics: how a fleet of Lookups comes to a new leader, how many ask at once, how many messages
//! are dropped because they crossed another, and what comes of rotations.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge::Tls;
use centrifuge_harness::http::{metric, page, secure_page};
use centrifuge_harness::lock;
use serde::Serialize;
use tokio::task::JoinHandle;

use crate::lines::{Journal, Nanos, true_now};

/// The metrics, as they stand in the text.
const RACES: &str = "centrifuge_messages_skipped_total{why=\"race\"}";
const LEADING: &str = "centrifuge_leading";
const TERM: &str = "centrifuge_term";
const LOOKUPS: &str = "centrifuge_lookups{namespace=\"chaos\"}";
const REQUESTS: &str = "centrifuge_messages_received_total{kind=\"watch\"}";
const RELOADS_REFUSED: [&str; 2] =
    ["centrifuge_reloads_refused_total{file=\"tls\"}", "centrifuge_reloads_refused_total{file=\"policy\"}"];
const DENIED: [&str; 2] =
    ["centrifuge_denied_total{permission=\"own\"}", "centrifuge_denied_total{permission=\"lookup\"}"];
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// What a Manager says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Watched {
    /// The term that it leads, if it does.
    leads: Option<u64>,
    /// How many it keeps informed, as of a second ago at the latest.
    lookups: u64,
    /// How many requests to watch it has had.
    requests: u64,
    /// How many messages it has dropped because they crossed another.
    races: u64,
    /// How many changed files it could not use.
    reloads_refused: u64,
    /// How many streams of clients it has ended, or not begun, because it does not believe who they are.
    denied: u64,
}

impl Watched {
    /// Asks a Manager; `None` if it does not answer.
    async fn of(manager: SocketAddr, tls: Option<&Tls>) -> Option<Watched> {
        let fetch = async {
            match tls {
                Some(tls) => secure_page(tls, manager, "/metrics").await,
                None => page(manager, "/metrics").await,
            }
        };
        let (_, text) = tokio::time::timeout(ANSWER_TIMEOUT, fetch).await.ok()?.ok()?;
        Some(Watched::read(&text))
    }

    fn read(text: &str) -> Watched {
        let leads = metric(text, LEADING) == Some(1);
        let sum = |names: [&str; 2]| names.iter().filter_map(|name| metric::<u64>(text, name)).sum();
        Watched {
            leads: metric(text, TERM).filter(|_| leads),
            lookups: metric(text, LOOKUPS).unwrap_or(0),
            requests: metric(text, REQUESTS).unwrap_or(0),
            races: metric(text, RACES).unwrap_or(0),
            reloads_refused: sum(RELOADS_REFUSED),
            denied: sum(DENIED),
        }
    }
}

/// A second.
const SECOND: Nanos = 1_000_000_000;

/// What a Manager said, and when.
#[derive(Clone, Copy, Debug, Serialize)]
struct Sample {
    at: Nanos,
    watched: Watched,
}

/// The most requests from one look to the next, and within a second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Most {
    in_100_ms: u64,
    in_1_s: u64,
}

type Samples = BTreeMap<SocketAddr, Vec<Sample>>;

/// Asks the Managers all the time what they count.
pub(crate) struct Observer {
    samples: Arc<Mutex<Samples>>,
    asking: Vec<JoinHandle<()>>,
}

impl Observer {
    /// What they say is also written down, in `watched.jsonl`.
    pub(crate) fn start(
        managers: Vec<SocketAddr>,
        tls: Option<Tls>,
        interval: Duration,
        directory: &Path,
    ) -> io::Result<Observer> {
        let journal = Arc::new(Journal::open(&directory.join("watched.jsonl"))?);
        let samples: Arc<Mutex<Samples>> = Arc::default();
        let ask = |manager| {
            let (samples, journal) = (Arc::clone(&samples), Arc::clone(&journal));
            tokio::spawn(ask(manager, tls.clone(), interval, samples, journal))
        };
        Ok(Observer { asking: managers.into_iter().map(ask).collect(), samples })
    }

    /// When a leader of a term after this one was first seen with so many Lookups.
    pub(crate) fn gathered(&self, term: u64, wanted: u64) -> Option<Nanos> {
        let samples = lock(&self.samples);
        let is_it = |sample: &&Sample| {
            sample.watched.leads.is_some_and(|later| later > term) && sample.watched.lookups >= wanted
        };
        samples.values().filter_map(|samples| samples.iter().find(is_it)).map(|sample| sample.at).min()
    }

    /// How many messages were dropped through races, by all processes of all Managers. What one counted after the last
    /// look before it was killed is missing.
    pub(crate) fn races(&self) -> u64 {
        self.total(|watched| watched.races)
    }

    /// How many changed files Managers could not use.
    pub(crate) fn reloads_refused(&self) -> u64 {
        self.total(|watched| watched.reloads_refused)
    }

    /// How many streams Managers ended, or did not begin, because they did not believe who the client is.
    pub(crate) fn denied(&self) -> u64 {
        self.total(|watched| watched.denied)
    }

    fn total(&self, count: fn(&Watched) -> u64) -> u64 {
        lock(&self.samples).values().map(|samples| total_in(samples, count)).sum()
    }

    /// The most requests that a leader, and any Manager, had since an instant.
    pub(crate) fn most_since(&self, since: Nanos) -> [Most; 2] {
        let samples = lock(&self.samples);
        [true, false].map(|leaders| {
            let most = |span: Nanos| {
                let each = samples.values().map(|samples| most_within(samples, since, span, leaders));
                each.max().unwrap_or(0)
            };
            Most { in_100_ms: most(0), in_1_s: most(SECOND) }
        })
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.asking.iter().for_each(JoinHandle::abort);
    }
}

async fn ask(
    manager: SocketAddr,
    tls: Option<Tls>,
    interval: Duration,
    samples: Arc<Mutex<Samples>>,
    journal: Arc<Journal>,
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(watched) = Watched::of(manager, tls.as_ref()).await {
            let sample = Sample { at: true_now(), watched };
            lock(&samples).entry(manager).or_default().push(sample);
            // For people who wonder what happened; nothing depends on it.
            let _ = journal.write(&[(manager, sample)]);
        }
    }
}

/// How much higher a count is than before. A lower one is that of a new process.
fn rise(before: &mut u64, now: u64) -> u64 {
    let earlier = std::mem::replace(before, now);
    now.checked_sub(earlier).unwrap_or(now)
}

fn total_in(samples: &[Sample], count: fn(&Watched) -> u64) -> u64 {
    let mut before = 0;
    samples.iter().map(|sample| rise(&mut before, count(&sample.watched))).sum()
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
            came += rise(&mut before, next.watched.requests);
        }
        most = most.max(came);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Watched =
        Watched { leads: None, lookups: 0, requests: 0, races: 0, reloads_refused: 0, denied: 0 };

    fn sample(millis: u64, requests: u64) -> Sample {
        let watched = Watched { leads: Some(1), requests, ..NOTHING };
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

    #[test]
    fn lives_are_added_up() {
        let dropped = |races| Sample { at: 0, watched: Watched { races, ..NOTHING } };
        assert_eq!(total_in(&[3, 5, 1, 4].map(dropped), |watched| watched.races), 9);
        assert_eq!(metric("# HELP x\ncentrifuge_messages_skipped_total{why=\"race\"} 7\n", RACES), Some(7));
        assert_eq!(metric::<u64>("centrifuge_messages_skipped_total{why=\"old\"} 7\n", RACES), None);
    }

    #[test]
    fn a_standby_leads_no_term() {
        let text = "centrifuge_leading 0\ncentrifuge_term 4\ncentrifuge_terms_total 2\n";
        assert_eq!(Watched::read(text), NOTHING);
        let text = "centrifuge_leading 1\ncentrifuge_term 4\ncentrifuge_lookups{namespace=\"chaos\"} 9\n\
                    centrifuge_messages_received_total{kind=\"watch\"} 30\n";
        assert_eq!(Watched::read(text), Watched { leads: Some(4), lookups: 9, requests: 30, ..NOTHING });
        let text = "centrifuge_denied_total{permission=\"own\"} 3\ncentrifuge_denied_total{permission=\"lookup\"} 4\n\
                    centrifuge_reloads_refused_total{file=\"policy\"} 2\n";
        assert_eq!(Watched::read(text), Watched { denied: 7, reloads_refused: 2, ..NOTHING });
    }
}
