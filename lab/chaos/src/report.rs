//! What a run found, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bug::Bug;
use crate::checker::{Percentiles, Verdict};
use crate::world::World;

/// How many sentences of each kind are shown.
const SHOWN: usize = 20;

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) world: World,
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) store: String,
    pub(crate) network: String,
    pub(crate) bug: Option<Bug>,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) operations: BTreeMap<String, u64>,
    pub(crate) race_drops: u64,
    pub(crate) verdict: Verdict,
    /// Where the journals are, if they were kept.
    pub(crate) kept: Option<PathBuf>,
}

impl Report {
    /// A run is good if no promise was broken; with a bug injected, if that was found.
    pub(crate) fn is_good(&self) -> bool {
        match self.bug {
            None => self.verdict.is_clean(),
            Some(bug) => bug.is_found(&self.verdict),
        }
    }

    pub(crate) fn json(&self) -> Value {
        let verdict = &self.verdict;
        let mut value = json!({
            "world": self.world,
            "seed": self.seed,
            "seconds": self.seconds,
            "network": self.network,
            "faults": self.faults,
            "checks": verdict.checks,
            "leases": verdict.leases,
            "violations": verdict.violations.len(),
            "unavailable_ms": percentiles(&verdict.unavailable_ms),
            "details": self.sentences(),
        });
        match self.world {
            World::Managers | World::Diskless => self.add_managers(&mut value),
            World::Flease => self.add_peers(&mut value),
        }
        if let Some(bug) = self.bug {
            value["bug"] = json!(bug);
            value["found"] = json!(bug.is_found(verdict));
        }
        if let Some(kept) = &self.kept {
            value["kept"] = json!(kept);
        }
        value
    }

    fn add_managers(&self, value: &mut Value) {
        let verdict = &self.verdict;
        value["store"] = json!(self.store);
        value["operations"] = json!(self.operations);
        value["replies"] = json!(verdict.replies);
        value["losses"] = json!(verdict.losses);
        value["notices"] = json!(verdict.notices);
        value["missed_losses"] = json!(verdict.missed_losses.len());
        value["false_losses"] = json!(verdict.false_losses.len());
        value["race_drops"] = json!(self.race_drops);
    }

    fn add_peers(&self, value: &mut Value) {
        let peers = &self.verdict.peers;
        value["acquired"] = json!(peers.acquired);
        value["lost"] = json!(peers.lost);
        value["clocks_astray"] = json!(peers.astray);
        value["stepped_down"] = json!(peers.stepped_down);
    }

    pub(crate) fn words(&self) -> String {
        let gaps = &self.verdict.unavailable_ms;
        let mut text = format!("chaos: {} s, seed {}, network {}", self.seconds, self.seed, self.network);
        text.push_str(&match self.world {
            World::Managers | World::Diskless => self.words_of_managers(),
            World::Flease => self.words_of_peers(),
        });
        let whose = match self.world {
            World::Managers | World::Diskless => "an owner",
            World::Flease => "a holder",
        };
        text.push_str(&format!(
            "without {whose}: {} times, p50 {} ms, p99 {} ms, longest {} ms\n",
            gaps.count, gaps.p50, gaps.p99, gaps.max
        ));
        for sentence in self.sentences() {
            text.push_str(&format!("  {sentence}\n"));
        }
        if let Some(bug) = self.bug {
            let outcome = if bug.is_found(&self.verdict) { "found" } else { "NOT found" };
            text.push_str(&format!("injected bug: {bug:?}: {outcome}\n"));
        }
        if let Some(kept) = &self.kept {
            text.push_str(&format!("journals and logs: {}\n", kept.display()));
        }
        text
    }

    fn words_of_managers(&self) -> String {
        let verdict = &self.verdict;
        format!(
            ", store {}\nfaults: {}\nplanned operations: {}\n\
             seen: {} checks said yes, {} requests answered, {} leases in use, {} losses of state, notices: {}\n\
             violations: {}\nmissed losses: {}\nfalse losses: {}\nmessages dropped through races: {}\n",
            self.store,
            list(&self.faults),
            list(&self.operations),
            verdict.checks,
            verdict.replies,
            verdict.leases,
            verdict.losses,
            list(&verdict.notices),
            verdict.violations.len(),
            verdict.missed_losses.len(),
            verdict.false_losses.len(),
            self.race_drops,
        )
    }

    fn words_of_peers(&self) -> String {
        let (verdict, peers) = (&self.verdict, &self.verdict.peers);
        format!(
            ", Flease\nfaults: {}\n\
             seen: {} checks said yes, {} leases in use; acquired: {}; lost: {}\n\
             clocks astray: {}, {} of them stepped down and said so\nviolations: {}\n",
            list(&self.faults),
            verdict.checks,
            verdict.leases,
            list(&peers.acquired),
            list(&peers.lost),
            peers.astray,
            peers.stepped_down,
            verdict.violations.len(),
        )
    }

    fn sentences(&self) -> Vec<&str> {
        let verdict = &self.verdict;
        let kinds = [&verdict.violations, &verdict.missed_losses, &verdict.false_losses];
        kinds.iter().flat_map(|kind| kind.iter().take(SHOWN)).map(String::as_str).collect()
    }
}

/// What there was, and how often.
fn list<K: Display>(counts: &BTreeMap<K, u64>) -> String {
    counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}

/// As JSON.
pub(crate) fn percentiles(times: &Percentiles) -> Value {
    json!({ "count": times.count, "p50": times.p50, "p99": times.p99, "max": times.max })
}
