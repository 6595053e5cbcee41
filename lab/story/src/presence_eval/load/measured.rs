//! What was measured in one phase of a load.

use centrifuge_examples::presence::frontend::FrontendError;
use centrifuge_examples::shared::call::Tries;
use centrifuge_harness::Samples;
use serde::Serialize;
use tokio::time::Instant;

use super::person::Seen;

/// How many complaints are kept word for word.
const MAX_COMPLAINTS: usize = 5;

/// How long things took in milliseconds, for reports.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Reading {
    /// Half took no longer.
    pub(crate) p50_ms: f64,
    /// Nine of ten took no longer.
    pub(crate) p90_ms: f64,
    /// All but one of a hundred took no longer.
    pub(crate) p99_ms: f64,
    /// All but one of a thousand took no longer.
    pub(crate) p999_ms: f64,
    /// None took longer.
    pub(crate) max_ms: f64,
}

impl Reading {
    pub(crate) fn of(took: &Samples) -> Reading {
        let at = |share| quantile_ms(took, share);
        Reading { p50_ms: at(0.5), p90_ms: at(0.9), p99_ms: at(0.99), p999_ms: at(0.999), max_ms: at(1.0) }
    }
}

/// How long it took for this share of them, from 0 to 1, in milliseconds.
pub(crate) fn quantile_ms(took: &Samples, share: f64) -> f64 {
    took.percentile(share * 100.0).as_micros() as f64 / 1000.0
}

/// One phase: what began in it.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// From when requests were due.
    pub(crate) latency: Samples,
    pub(crate) counts: Counts,
    /// The first things that went wrong, in words.
    pub(crate) complaints: Vec<String>,
}

/// How requests went.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Counts {
    /// All of them.
    pub(crate) requests: u64,
    /// Those that were not answered by the first server they were sent to.
    pub(crate) retried: u64,
    /// How often a server said that a name is not its own.
    pub(crate) misrouted: u64,
    /// How often a server did not answer.
    pub(crate) unreachable: u64,
    /// Those that failed though they were tried again.
    pub(crate) failed_after_retry: u64,
    /// Reads that found nothing, or something old, of which a loss was told.
    pub(crate) lost_reads: u64,
    /// Reads that found what they must not.
    pub(crate) wrong: u64,
}

impl Measured {
    /// A request that was due at `due` has ended.
    pub(super) fn note(&mut self, due: Instant, outcome: Result<Tries, &FrontendError>) {
        self.latency.add(due.elapsed());
        self.counts.requests += 1;
        match outcome {
            Ok(tries) => {
                self.counts.misrouted += u64::from(tries.misrouted);
                self.counts.unreachable += u64::from(tries.unreachable);
                self.counts.retried += u64::from(tries != Tries::default());
            }
            Err(error) => {
                self.counts.failed_after_retry += 1;
                self.complain(error.to_string());
            }
        }
    }

    /// What a read found.
    pub(super) fn saw(&mut self, seen: &Seen) {
        match seen {
            Seen::Right => {}
            Seen::Lost => self.counts.lost_reads += 1,
            Seen::Wrong(words) => {
                self.counts.wrong += 1;
                self.complain(words.clone());
            }
        }
    }

    fn complain(&mut self, words: String) {
        if self.complaints.len() < MAX_COMPLAINTS {
            self.complaints.push(words);
        }
    }
}
