//! Rotations of certificates and policies cost no lease: while nothing else happens, every key stays with its lease, and
//! no caller is told of a loss.

use std::collections::BTreeMap;

use super::Verdict;
use super::evidence::Evidence;
use crate::lines::{CallerLine, HarnessLine, Nanos, OwnerLine};

/// So long before the end of that time every key was still held. What was held for less may not be written down.
const END: Nanos = 2_000_000_000;

pub(super) fn check(evidence: &Evidence, verdict: &mut Verdict) {
    let alone = evidence.harness.iter().find_map(|line| match line {
        HarnessLine::RotatedAlone { from, to } => Some((*from, *to)),
        _ => None,
    });
    let Some((from, to)) = alone else { return };
    let leases = leases_within(evidence, from, to);
    for key in 0..evidence.plan.keys {
        verdict.lost_by_rotation.extend(lost(key, leases.get(&key), to));
    }
    for life in &evidence.callers {
        let told = |line: &CallerLine| match line {
            CallerLine::Lost { why, at, .. } if *at >= from && *at <= to => Some((*why, *at)),
            _ => None,
        };
        verdict.lost_by_rotation.extend(life.lines.iter().filter_map(told).map(|(why, at)| {
            format!("{} was told of a loss at {at} ({why:?}), and nothing happened but rotations", life.name)
        }));
    }
}

/// When each lease was last in use in this time, by key.
fn leases_within(evidence: &Evidence, from: Nanos, to: Nanos) -> BTreeMap<u32, BTreeMap<u64, Nanos>> {
    let mut leases: BTreeMap<u32, BTreeMap<u64, Nanos>> = BTreeMap::new();
    for line in evidence.owners.iter().flat_map(|life| &life.lines) {
        let (key, generation, first, last) = match line {
            OwnerLine::Held { key, generation, first, last, .. } => (key, generation, first, last),
            OwnerLine::Served { key, generation, at, .. } => (key, generation, at, at),
            _ => continue,
        };
        if last.1 >= from && first.0 <= to {
            let seen = leases.entry(*key).or_default().entry(*generation).or_default();
            *seen = last.0.max(*seen);
        }
    }
    leases
}

/// What became of the lease on a key, unless it was the same all the time.
fn lost(key: u32, leases: Option<&BTreeMap<u64, Nanos>>, to: Nanos) -> Option<String> {
    let numbers: Vec<String> = leases.into_iter().flatten().map(|(number, _)| number.to_string()).collect();
    let last = leases.into_iter().flatten().map(|(_, last)| *last).max().unwrap_or(0);
    let what = match numbers.as_slice() {
        [number] if last + END < to => format!("lost its lease {number} at {last}"),
        [_] => return None,
        [] => "had no owner".to_owned(),
        several => format!("had the leases {}", several.join(", ")),
    };
    Some(format!("key {key} {what}, and nothing happened but rotations"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;
    use crate::lines::Why;

    const S: Nanos = 1_000_000_000;

    fn lost_by_rotation(lines: Vec<OwnerLine>, told_at: Option<Nanos>) -> Vec<String> {
        let mut life = owner("owner-1", []);
        life.lines = lines;
        let mut evidence = owners(vec![life]);
        evidence.harness = vec![HarnessLine::RotatedAlone { from: 10 * S, to: 30 * S }];
        let told = told_at.map(|at| CallerLine::Lost { why: Why::BeganAnew, keys: vec![(0, 5)], at });
        evidence.callers.push(caller(told.into_iter().collect()));
        let mut verdict = Verdict::default();
        check(&evidence, &mut verdict);
        verdict.lost_by_rotation
    }

    #[test]
    fn one_lease_all_the_time_is_none_lost_and_what_happens_before_and_after_does_not_count() {
        let lines = vec![held(0, 4, S, 9 * S), held(0, 5, 9 * S, 31 * S), held(0, 6, 32 * S, 40 * S)];
        assert_eq!(lost_by_rotation(lines.clone(), None), Vec::<String>::new());
        assert_eq!(lost_by_rotation(lines.clone(), Some(35 * S)), Vec::<String>::new());
        assert_eq!(lost_by_rotation(lines, Some(20 * S)).len(), 1);
    }

    #[test]
    fn a_lease_that_ends_or_gives_way_to_another_is_lost() {
        let found = lost_by_rotation(vec![held(0, 5, 9 * S, 20 * S)], None);
        assert_eq!(found.len(), 1, "{found:?}");
        let found = lost_by_rotation(vec![held(0, 5, 9 * S, 20 * S), held(0, 6, 21 * S, 40 * S)], None);
        assert_eq!(found, ["key 0 had the leases 5, 6, and nothing happened but rotations"]);
        assert_eq!(lost_by_rotation(Vec::new(), None).len(), 1);
    }
}
