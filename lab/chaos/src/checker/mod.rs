//! Reads what the processes of a run wrote, afterwards, and says what was promised and not kept.
//!
//! It claims only what the lines prove: every instant is known no better than the two readings of the true clock
//! around it, and what was not written down is no evidence.

mod evidence;
mod gaps;
mod losses;
mod ownership;
mod peers;
mod provocation;
mod rotation;
mod state_lifetimes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use centrifuge_harness::samples::Percentiles;

use self::evidence::Evidence;
pub(crate) use self::peers::PeersSeen;
use crate::lines::{CallerLine, Nanos, OwnerLine};
use crate::plan::World;

/// What came out.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// How often an Owner said that it holds a key.
    pub(crate) checks: u64,
    /// Requests that were answered.
    pub(crate) replies: u64,
    /// Leases that were seen in use, over all keys.
    pub(crate) leases: u64,
    /// Broken promises, by the invariant that they break.
    pub(crate) violations: Vec<String>,
    /// Losses of state, over all keys.
    pub(crate) losses: u64,
    /// Losses that a caller who lived was not told of in time.
    pub(crate) missed_losses: Vec<String>,
    /// Notices, by how they were known.
    pub(crate) notices: BTreeMap<&'static str, u64>,
    /// Notices of losses that were none, and that no rule allows.
    pub(crate) false_losses: Vec<String>,
    /// Leases that were lost while nothing happened but rotations.
    pub(crate) lost_by_rotation: Vec<String>,
    /// How long keys were without anybody who answered for them.
    pub(crate) unavailable_ms: Percentiles,
    /// What Flease peers did.
    pub(crate) peers: PeersSeen,
}

impl Verdict {
    /// Whether every promise was kept.
    pub(crate) fn is_clean(&self) -> bool {
        let kinds = [&self.violations, &self.missed_losses, &self.false_losses, &self.lost_by_rotation];
        kinds.iter().all(|kind| kind.is_empty())
    }
}

/// Checks the journals in a directory.
pub(crate) fn check(directory: &Path) -> io::Result<Verdict> {
    Ok(judge(&Evidence::read(directory)?))
}

/// What changed after an instant though nothing should have: leases that were lost, and notices.
pub(crate) fn changes_since(directory: &Path, since: Nanos) -> io::Result<(u64, u64)> {
    let evidence = Evidence::read(directory)?;
    let mut leases: BTreeSet<(u32, u64)> = BTreeSet::new();
    for line in evidence.owners.iter().flat_map(|life| &life.lines) {
        match line {
            OwnerLine::Held { key, generation, last: at, .. }
            | OwnerLine::Served { key, generation, at, .. }
                if at.0 > since =>
            {
                leases.insert((*key, *generation));
            }
            _ => {}
        }
    }
    let keys: BTreeSet<u32> = leases.iter().map(|(key, _)| *key).collect();
    let told = |line: &&CallerLine| matches!(line, CallerLine::Lost { at, .. } if *at > since);
    let heard = evidence.callers.iter().flat_map(|life| &life.lines).chain(&evidence.lookup_fleets);
    let notices = heard.filter(told).count();
    Ok(((leases.len() - keys.len()) as u64, notices as u64))
}

fn judge(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict::default();
    match evidence.plan.world {
        World::Managers | World::Diskless => {
            ownership::check(evidence, &mut verdict);
            let lifetimes = state_lifetimes::check(evidence, &mut verdict);
            losses::check(evidence, &lifetimes, &mut verdict);
            rotation::check(evidence, &mut verdict);
        }
        World::Flease => peers::check(evidence, &mut verdict),
    }
    gaps::check(evidence, &mut verdict);
    verdict.violations.extend(evidence.deaths());
    verdict
}
