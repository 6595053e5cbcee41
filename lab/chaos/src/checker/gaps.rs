//! How long keys were without anybody who answered for them, and whether all have an owner in the end (L1; of cells,
//! L3).

use std::collections::BTreeMap;
use std::time::Duration;

use centrifuge_harness::Samples;

use super::Verdict;
use super::evidence::Evidence;
use crate::lines::{Nanos, OwnerLine, PeerLine};
use crate::plan::World;
use crate::roles::LONGEST_PAUSE;

/// So long before the end every key was held by somebody.
const END: Nanos = 2_000_000_000;

pub(super) fn check(evidence: &Evidence, verdict: &mut Verdict) {
    let mut held: BTreeMap<u32, Vec<(Nanos, Nanos)>> = BTreeMap::new();
    for line in evidence.owners.iter().flat_map(|life| &life.lines) {
        if let OwnerLine::Held { key, first, last, .. } = line {
            held.entry(*key).or_default().push((first.0, last.1));
        }
    }
    for line in evidence.peers.iter().flat_map(|life| &life.lines) {
        if let PeerLine::Held { cell, first, last, .. } = line {
            held.entry(*cell).or_default().push((first.0, last.1));
        }
    }
    let mut gaps = Vec::new();
    for spans in held.values_mut() {
        spans.sort_unstable();
        gaps.extend(between(spans));
    }
    let gaps: Samples = gaps.into_iter().map(Duration::from_nanos).collect();
    verdict.unavailable_ms = gaps.percentiles(Duration::from_millis(1));
    verdict.violations.extend(without_holder(evidence, &held));
}

/// The keys or cells that nobody held in the calm end.
fn without_holder(evidence: &Evidence, held: &BTreeMap<u32, Vec<(Nanos, Nanos)>>) -> Vec<String> {
    let Some((calm, over)) = evidence.calm() else { return Vec::new() };
    let rule = evidence.plan.world.rules().held_in_the_end;
    let (thing, whose) = match evidence.plan.world {
        World::Managers | World::Diskless => ("key", "owner"),
        World::Flease => ("cell", "holder"),
    };
    let mut problems = Vec::new();
    for key in 0..evidence.plan.keys {
        let last = held.get(&key).and_then(|spans| spans.iter().map(|(_, end)| *end).max()).unwrap_or(0);
        if last + END < over {
            let seconds = (over - last.max(calm)) as f64 / 1e9;
            problems.push(format!(
                "{rule}: {thing} {key} had no {whose} for the last {seconds:.1} s, though there were no faults any more"
            ));
        }
    }
    problems
}

/// The times between spans, which are in order.
fn between(spans: &[(Nanos, Nanos)]) -> Vec<Nanos> {
    let mut gaps = Vec::new();
    let mut end = None;
    for (first, last) in spans {
        if let Some(end) = end
            && *first > end + LONGEST_PAUSE
        {
            gaps.push(first - end);
        }
        end = end.max(Some(*last));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;
    use crate::lines::HarnessLine;

    const S: Nanos = 1_000_000_000;

    #[test]
    fn a_gap_is_what_no_owner_covers() {
        assert_eq!(between(&[(0, 2 * S), (S, 5 * S), (7 * S, 8 * S), (8 * S, 9 * S)]), [2 * S]);
    }

    #[test]
    fn a_key_without_an_owner_in_the_end_is_a_violation_of_l1() {
        let mut evidence = owners(vec![owner("a", [held(0, 5, S, 30 * S), held(1, 5, S, 12 * S)])]);
        evidence.plan.keys = 2;
        evidence.harness = vec![HarnessLine::Calm { at: 10 * S }, HarnessLine::Over { at: 30 * S }];
        let mut verdict = Verdict::default();
        check(&evidence, &mut verdict);
        assert_eq!(
            verdict.violations,
            ["L1: key 1 had no owner for the last 18.0 s, though there were no faults any more"]
        );
    }
}
