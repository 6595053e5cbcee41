//! What a run found, for people and for programs.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde_json::{Value, json};

use crate::bug::Bug;
use crate::checker::Verdict;
use crate::plan::World;

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
    /// What was rotated, under TLS.
    pub(crate) rotated: Option<Rotated>,
    pub(crate) verdict: Verdict,
}

/// What was rotated, and what Managers did about it.
#[derive(Debug)]
pub(crate) struct Rotated {
    pub(crate) rotations: BTreeMap<String, u64>,
    pub(crate) reloads_refused: u64,
    pub(crate) ended_by_expiry: u64,
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
            "unavailable_ms": verdict.unavailable_ms,
            "details": self.sentences(),
        });
        let peers = &verdict.peers;
        let more = match self.world {
            World::Managers | World::Diskless => json!({
                "store": self.store,
                "operations": self.operations,
                "replies": verdict.replies,
                "losses": verdict.losses,
                "notices": verdict.notices,
                "missed_losses": verdict.missed_losses.len(),
                "false_losses": verdict.false_losses.len(),
                "race_drops": self.race_drops,
            }),
            World::Flease => json!({
                "acquired": peers.acquired,
                "lost": peers.lost,
                "clocks_astray": peers.astray,
                "stepped_down": peers.stepped_down,
            }),
        };
        if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
            value.extend(more);
        }
        if let Some(rotated) = &self.rotated {
            value["rotations"] = json!(rotated.rotations);
            value["reloads_refused"] = json!(rotated.reloads_refused);
            value["ended_by_expiry"] = json!(rotated.ended_by_expiry);
            value["lost_by_rotation"] = json!(verdict.lost_by_rotation.len());
        }
        if let Some(bug) = self.bug {
            value["bug"] = json!(bug);
            value["found"] = json!(bug.is_found(verdict));
        }
        value
    }

    pub(crate) fn words(&self) -> String {
        let gaps = &self.verdict.unavailable_ms;
        let mut text = format!("chaos: {} s, seed {}, network {}", self.seconds, self.seed, self.network);
        let (seen, whose) = match self.world {
            World::Managers | World::Diskless => (self.words_of_managers(), "an owner"),
            World::Flease => (self.words_of_peers(), "a holder"),
        };
        text.push_str(&format!(
            "{seen}without {whose}: {} times, p50 {} ms, p99 {} ms, longest {} ms\n",
            gaps.count, gaps.p50, gaps.p99, gaps.max
        ));
        if let Some(rotated) = &self.rotated {
            text.push_str(&format!(
                "rotations: {}\nreloads refused: {}, streams ended by expiry: {}\nleases lost by rotation: {}\n",
                list(&rotated.rotations),
                rotated.reloads_refused,
                rotated.ended_by_expiry,
                self.verdict.lost_by_rotation.len(),
            ));
        }
        for sentence in self.sentences() {
            text.push_str(&format!("  {sentence}\n"));
        }
        if let Some(bug) = self.bug {
            let outcome = if bug.is_found(&self.verdict) { "found" } else { "NOT found" };
            text.push_str(&format!("injected bug: {bug:?}: {outcome}\n"));
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
        let kinds =
            [&verdict.violations, &verdict.missed_losses, &verdict.false_losses, &verdict.lost_by_rotation];
        kinds.iter().flat_map(|kind| kind.iter().take(SHOWN)).map(String::as_str).collect()
    }
}

/// What there was, and how often.
fn list<K: Display>(counts: &BTreeMap<K, u64>) -> String {
    counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
}
