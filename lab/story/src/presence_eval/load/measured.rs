//! What was measured in one phase of a load.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use centrifuge_examples::Failure;
use centrifuge_examples::presence::frontend::FrontendError;
use centrifuge_examples::shared::call::Tries;
use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::time::Instant;

use super::person::Seen;

/// How many complaints are kept word for word.
const MAX_COMPLAINTS: usize = 5;

/// How long things took.
#[derive(Debug)]
pub(crate) struct Distribution {
    micros: Histogram<u64>,
}

/// A distribution in milliseconds, for reports.
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

/// One phase: what began in it.
#[derive(Debug)]
pub(crate) struct Measured {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    latency: Distribution,
    counts: Counts,
    complaints: Vec<String>,
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

impl Distribution {
    /// Nothing yet.
    pub(crate) fn new() -> Result<Distribution, Failure> {
        Ok(Distribution { micros: Histogram::new(3)? })
    }

    /// One more.
    pub(crate) fn add(&mut self, took: Duration) {
        // It grows with its values: no duration of a measurement is too large for it.
        let _ = self.micros.record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// How long it took for this share of them, from 0 to 1, in milliseconds.
    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        self.micros.value_at_quantile(share) as f64 / 1000.0
    }

    /// The usual shares.
    pub(crate) fn reading(&self) -> Reading {
        Reading {
            p50_ms: self.quantile_ms(0.5),
            p90_ms: self.quantile_ms(0.9),
            p99_ms: self.quantile_ms(0.99),
            p999_ms: self.quantile_ms(0.999),
            max_ms: self.micros.max() as f64 / 1000.0,
        }
    }
}

impl Measured {
    pub(super) fn new() -> Result<Measured, Failure> {
        let latency = Distribution::new()?;
        Ok(Measured {
            inner: Mutex::new(Inner { latency, counts: Counts::default(), complaints: Vec::new() }),
        })
    }

    /// A request that was due at `due` has ended.
    pub(super) fn note(&self, due: Instant, outcome: Result<Tries, &FrontendError>) {
        self.with(|inner| {
            inner.latency.add(due.elapsed());
            inner.counts.requests += 1;
            match outcome {
                Ok(tries) => inner.count(tries),
                Err(error) => {
                    inner.counts.failed_after_retry += 1;
                    inner.complain(error.to_string());
                }
            }
        });
    }

    /// What a read found.
    pub(super) fn saw(&self, seen: &Seen) {
        self.with(|inner| match seen {
            Seen::Right => {}
            Seen::Lost => inner.counts.lost_reads += 1,
            Seen::Wrong(words) => {
                inner.counts.wrong += 1;
                inner.complain(words.clone());
            }
        });
    }

    /// How requests went.
    pub(crate) fn counts(&self) -> Counts {
        self.with(|inner| inner.counts)
    }

    /// The first things that went wrong, in words.
    pub(crate) fn complaints(&self) -> Vec<String> {
        self.with(|inner| inner.complaints.clone())
    }

    /// How long requests took, from when they were due.
    pub(crate) fn latency<T>(&self, read: impl FnOnce(&Distribution) -> T) -> T {
        self.with(|inner| read(&inner.latency))
    }

    fn with<T>(&self, operate: impl FnOnce(&mut Inner) -> T) -> T {
        operate(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn count(&mut self, tries: Tries) {
        self.counts.misrouted += u64::from(tries.misrouted);
        self.counts.unreachable += u64::from(tries.unreachable);
        self.counts.retried += u64::from(tries != Tries::default());
    }

    fn complain(&mut self, words: String) {
        if self.complaints.len() < MAX_COMPLAINTS {
            self.complaints.push(words);
        }
    }
}
