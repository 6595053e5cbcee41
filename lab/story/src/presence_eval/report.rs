//! What an evaluation found, for people and for programs.

use centrifuge_examples::Result;
use centrifuge_harness::{Samples, StoreKind, lock};
use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Value, json};

use super::load::{Counts, Reading};
use super::{Running, Tally};

/// What was measured on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setup {
    pub(super) store: StoreKind,
    pub(super) managers: usize,
    pub(super) servers: usize,
    pub(super) frontends: usize,
    pub(super) users: usize,
    pub(super) requests_per_second: u32,
    pub(super) lease_ms: u128,
}

/// How the requests went that began in one phase.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Phase {
    pub(super) phase: &'static str,
    pub(super) seconds: f64,
    #[serde(flatten)]
    pub(super) counts: Counts,
    pub(super) losses_told: u64,
    pub(super) republished: u64,
    /// Leases granted: what moved, and what had no owner. Left out without a store, where nothing counts them:
    /// a leader's numbers and history end with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) moved_ranges: Option<u64>,
    #[serde(flatten)]
    pub(super) latency: Reading,
    #[serde(skip)]
    pub(super) took: Samples,
    #[serde(skip)]
    pub(super) complaints: Vec<String>,
}

impl Phase {
    /// A phase that ends now, when what only rises has come to this.
    pub(super) fn of(running: &Running, now: Tally) -> Phase {
        let (measured, then) = (lock(&running.measured), running.at_begin);
        Phase {
            phase: running.name,
            seconds: running.since.elapsed().as_secs_f64(),
            counts: measured.counts,
            losses_told: now.losses_told - then.losses_told,
            republished: now.republished - then.republished,
            moved_ranges: now.grants.zip(then.grants).map(|(now, then)| now - then),
            latency: Reading::of(&measured.latency),
            took: measured.latency.clone(),
            complaints: measured.complaints.clone(),
        }
    }
}

/// A report with what all evaluations say, and one line of it if that is wanted.
pub(super) fn print_json(mut report: Value, setup: &Setup, phases: &[Phase], passed: bool) -> Result<()> {
    let sum = |count: fn(&Phase) -> u64| phases.iter().map(count).sum::<u64>();
    let common = json!({
        "phases": phases,
        "failed_after_retry": sum(|phase| phase.counts.failed_after_retry),
        "wrong": sum(|phase| phase.counts.wrong),
        "passed": passed,
    });
    for more in [serde_json::to_value(setup)?, common] {
        if let (Some(report), Value::Object(more)) = (report.as_object_mut(), more) {
            report.extend(more);
        }
    }
    println!("{report}");
    Ok(())
}

/// What must be so, and is not.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) failures: Vec<String>,
}

impl Verdict {
    pub(super) fn must(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.failures.push(otherwise.into());
        }
    }

    pub(super) fn no_failures_in(&mut self, phases: &[Phase]) {
        for phase in phases {
            let Phase { phase: name, counts, .. } = phase;
            let words = |what: &str| format!("{what} {name}: {}", phase.complaints.join("; "));
            self.must(counts.failed_after_retry == 0, words("requests failed in the phase"));
            self.must(counts.wrong == 0, words("reads were wrong in the phase"));
        }
    }

    /// An error if anything was not as it must be.
    pub(super) fn conclude(self) -> Result<()> {
        if self.failures.is_empty() { Ok(()) } else { Err(self.failures.join("\nerror: ").into()) }
    }
}

/// A line for each phase.
pub(super) fn table(setup: &Setup, phases: &[Phase]) {
    let Setup { store, managers, servers, frontends, users, requests_per_second, lease_ms } = setup;
    let store = store.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    println!(
        "Managers: {managers}, store {store}; {servers} servers, {frontends} frontends, {users} users, {requests_per_second} requests/s, leases of {} s",
        *lease_ms as f64 / 1000.0
    );
    println!();
    println!(
        "phase         s requests  retried  failed  wrong losses  again  moved   p50 ms   p99 ms  p99.9 ms    max ms"
    );
    for phase in phases {
        let Phase { counts, latency, .. } = phase;
        println!(
            "{:8} {:6.1} {:8} {:8} {:7} {:6} {:6} {:6} {:6} {:8.2} {:8.2} {:9.2} {:9.2}",
            phase.phase,
            phase.seconds,
            counts.requests,
            counts.retried,
            counts.failed_after_retry,
            counts.wrong,
            phase.losses_told,
            phase.republished,
            phase.moved_ranges.map_or("-".to_owned(), |moved| moved.to_string()),
            latency.p50_ms,
            latency.p99_ms,
            latency.p999_ms,
            latency.max_ms
        );
    }
}
