//! What a run found, for people and for programs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::checker::{Percentiles, Verdict};
use crate::plant::Plant;

/// How many sentences of each kind are shown.
const SHOWN: usize = 20;

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) store: String,
    pub(crate) network: String,
    pub(crate) plant: Option<Plant>,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) race_drops: u64,
    pub(crate) verdict: Verdict,
    /// Where the journals are, if they were kept.
    pub(crate) kept: Option<PathBuf>,
}

impl Report {
    /// A run is good if no promise was broken; with something wrong planted in it, if that was found.
    pub(crate) fn is_good(&self) -> bool {
        match self.plant {
            None => self.verdict.is_clean(),
            Some(plant) => plant.is_found(&self.verdict),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let verdict = &self.verdict;
        let mut value = json!({
            "seed": self.seed,
            "seconds": self.seconds,
            "store": self.store,
            "network": self.network,
            "faults": self.faults,
            "checks": verdict.checks,
            "replies": verdict.replies,
            "leases": verdict.leases,
            "losses": verdict.losses,
            "notices": verdict.notices,
            "violations": verdict.violations.len(),
            "missed_losses": verdict.missed_losses.len(),
            "false_losses": verdict.false_losses.len(),
            "race_drops": self.race_drops,
            "unavailable_ms": percentiles(&verdict.unavailable_ms),
            "details": self.sentences(),
        });
        if let Some(plant) = self.plant {
            value["plant"] = json!(plant);
            value["found"] = json!(plant.is_found(verdict));
        }
        if let Some(kept) = &self.kept {
            value["kept"] = json!(kept);
        }
        value
    }

    pub(crate) fn words(&self) -> String {
        let verdict = &self.verdict;
        let list = |counts: Vec<String>| counts.join(", ");
        let faults = list(self.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect());
        let notices = list(verdict.notices.iter().map(|(why, count)| format!("{count} {why}")).collect());
        let gaps = &verdict.unavailable_ms;
        let mut text = format!(
            "chaos: {} s, seed {}, store {}, network {}\n\
             faults: {faults}\n\
             seen: {} checks said yes, {} requests answered, {} leases in use, {} losses of state, notices: {notices}\n\
             violations: {}\nmissed losses: {}\nfalse losses: {}\nmessages dropped through races: {}\n\
             without an owner: {} times, p50 {} ms, p99 {} ms, longest {} ms\n",
            self.seconds,
            self.seed,
            self.store,
            self.network,
            verdict.checks,
            verdict.replies,
            verdict.leases,
            verdict.losses,
            verdict.violations.len(),
            verdict.missed_losses.len(),
            verdict.false_losses.len(),
            self.race_drops,
            gaps.count,
            gaps.p50,
            gaps.p99,
            gaps.max,
        );
        for sentence in self.sentences() {
            text.push_str(&format!("  {sentence}\n"));
        }
        if let Some(plant) = self.plant {
            let outcome = if plant.is_found(verdict) { "found" } else { "NOT found" };
            text.push_str(&format!("planted: {plant:?}: {outcome}\n"));
        }
        if let Some(kept) = &self.kept {
            text.push_str(&format!("journals and logs: {}\n", kept.display()));
        }
        text
    }

    fn sentences(&self) -> Vec<&str> {
        let verdict = &self.verdict;
        let kinds = [&verdict.violations, &verdict.missed_losses, &verdict.false_losses];
        kinds.iter().flat_map(|kind| kind.iter().take(SHOWN)).map(String::as_str).collect()
    }
}

/// As JSON.
pub(crate) fn percentiles(times: &Percentiles) -> Value {
    json!({ "count": times.count, "p50": times.p50, "p99": times.p99, "max": times.max })
}
