//! S1 and S2: a key has one owner at a time, and its leases rise.
//!
//! An Owner that says yes under one lease at two instants held the key at every instant between: a lease that ended does not
//! come back. So it is enough that nobody surely says yes under a lower lease after somebody surely said yes under a higher one,
//! and that no lease is anybody's but one session's.

use std::collections::BTreeMap;

use super::Verdict;
use super::evidence::Evidence;
use crate::lines::{CallerLine, Nanos, OwnerLine, Span};

/// When a lease on a key was surely in use.
#[derive(Clone, Debug)]
struct Use {
    /// Not later than this it was in use for the first time,
    first: Nanos,
    /// ... and not earlier than this for the last.
    last: Nanos,
    who: String,
}

type Uses = BTreeMap<u32, BTreeMap<u64, Use>>;

pub(super) fn check(evidence: &Evidence, verdict: &mut Verdict) {
    let mut uses = Uses::new();
    let mut sessions: BTreeMap<u64, (String, String)> = BTreeMap::new();
    for life in &evidence.owners {
        for line in &life.lines {
            let Some((key, generation, first, last, checks)) = said_yes(line) else { continue };
            verdict.checks += checks;
            note(&mut uses, key, generation, first, last, &life.name);
            let holder = (life.name.clone(), life.session.clone());
            let known = sessions.entry(generation).or_insert_with(|| holder.clone());
            if *known != holder {
                let words = format!(
                    "S2: lease {generation} was used by {} and by {}, two sessions (key {key})",
                    known.0, holder.0
                );
                push_once(&mut verdict.violations, words);
            }
        }
    }
    for line in evidence.callers.iter().flat_map(|life| &life.lines) {
        if let CallerLine::Reply { key, generation, at, .. } = line {
            verdict.replies += 1;
            let who = sessions.get(generation).map_or("an unknown Owner", |(name, _)| name);
            note(&mut uses, *key, *generation, *at, *at, who);
        }
    }
    verdict.leases = uses.values().map(|leases| leases.len() as u64).sum();
    for (key, leases) in &uses {
        verdict.violations.extend(out_of_order(*key, leases));
    }
}

fn said_yes(line: &OwnerLine) -> Option<(u32, u64, Span, Span, u64)> {
    match line {
        OwnerLine::Joined { .. } => None,
        OwnerLine::Held { key, generation, first, last, checks } => {
            Some((*key, *generation, *first, *last, *checks))
        }
        OwnerLine::Served { key, generation, at, .. } => Some((*key, *generation, *at, *at, 1)),
    }
}

fn note(uses: &mut Uses, key: u32, generation: u64, first: Span, last: Span, who: &str) {
    let lease = uses.entry(key).or_default().entry(generation);
    let lease = lease.or_insert_with(|| Use { first: first.1, last: last.0, who: who.to_owned() });
    lease.first = lease.first.min(first.1);
    lease.last = lease.last.max(last.0);
}

/// The leases that were in use after a higher one was.
fn out_of_order(key: u32, leases: &BTreeMap<u64, Use>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut latest: Option<(u64, &Use)> = None;
    for (generation, lease) in leases {
        if let Some((lower, earlier)) = latest
            && earlier.last > lease.first
        {
            let millis = (earlier.last - lease.first) as f64 / 1e6;
            let rule = if earlier.who == lease.who { "S2" } else { "S1" };
            problems.push(format!(
                "{rule}: key {key} was {}'s under lease {lower} for {millis:.3} ms after it was {}'s under lease {generation} (at {})",
                earlier.who, lease.who, lease.first
            ));
        }
        if latest.is_none_or(|(_, earlier)| earlier.last < lease.last) {
            latest = Some((*generation, lease));
        }
    }
    problems
}

fn push_once(list: &mut Vec<String>, words: String) {
    if !list.contains(&words) {
        list.push(words);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    fn violations(evidence: &Evidence) -> Vec<String> {
        let mut verdict = Verdict::default();
        check(evidence, &mut verdict);
        verdict.violations
    }

    #[test]
    fn owners_one_after_the_other_are_in_order() {
        let evidence = owners(vec![
            owner("a", [held(0, 5, 10, 100), held(0, 9, 400, 500)]),
            owner("b", [held(0, 7, 101, 300)]),
        ]);
        assert_eq!(violations(&evidence), Vec::<String>::new());
    }

    #[test]
    fn two_owners_at_once_are_a_violation_of_s1() {
        let evidence = owners(vec![owner("a", [held(0, 5, 10, 200)]), owner("b", [held(0, 7, 100, 300)])]);
        let found = violations(&evidence);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("S1: key 0 was a's under lease 5"), "{found:?}");
    }

    #[test]
    fn one_answer_of_the_old_owner_after_the_new_one_is_enough() {
        let evidence = owners(vec![
            owner("a", [held(0, 5, 10, 50), held(0, 5, 150, 150)]),
            owner("b", [held(0, 7, 100, 300)]),
        ]);
        assert_eq!(violations(&evidence).len(), 1);
    }

    #[test]
    fn an_old_owner_is_found_behind_a_short_lease_between() {
        let evidence = owners(vec![
            owner("a", [held(0, 5, 10, 200)]),
            owner("b", [held(0, 6, 201, 210)]),
            owner("c", [held(0, 7, 100, 120)]),
        ]);
        let found = violations(&evidence);
        assert!(found.iter().any(|words| words.starts_with("S1")), "{found:?}");
    }

    #[test]
    fn what_the_clock_cannot_tell_apart_is_no_violation() {
        let at = |before, after| OwnerLine::Held {
            key: 0,
            generation: 5,
            first: Span(10, 11),
            last: Span(before, after),
            checks: 2,
        };
        let new = owner("b", [held(0, 7, 100, 300)]);
        // The last check began before the new owner's first ended: it may have been the earlier one.
        assert_eq!(violations(&owners(vec![owner("a", [at(100, 900)]), new])), Vec::<String>::new());
        let new = owner("b", [held(0, 7, 100, 300)]);
        assert_eq!(violations(&owners(vec![owner("a", [at(102, 900)]), new])).len(), 1);
    }

    #[test]
    fn a_lease_of_two_sessions_is_a_violation_of_s2() {
        let evidence = owners(vec![owner("a", [held(0, 5, 10, 20)]), owner("b", [held(1, 5, 30, 40)])]);
        let found = violations(&evidence);
        assert!(found.iter().any(|words| words.starts_with("S2: lease 5")), "{found:?}");
    }

    #[test]
    fn leases_that_fall_are_a_violation_of_s2() {
        let evidence = owners(vec![owner("a", [held(0, 7, 10, 20), held(0, 5, 30, 40)])]);
        let found = violations(&evidence);
        assert!(found[0].starts_with("S2"), "{found:?}");
    }

    #[test]
    fn a_reply_under_an_old_lease_is_found_by_the_caller() {
        let mut evidence = owners(vec![owner("a", [held(0, 5, 10, 20)]), owner("b", [held(0, 7, 100, 300)])]);
        evidence.callers.push(caller(vec![reply(0, 5, "x", 3, 5, 150)]));
        let found = violations(&evidence);
        assert!(found[0].starts_with("S1"), "{found:?}");
    }
}
