//! S1 and S2, of cells F1 and F2: a key has one owner at a time, and its leases rise.
//!
//! An Owner that says yes under one lease at two instants held the key at every instant between: a lease that ended
//! does not come back. So it is enough that nobody surely says yes under a lower lease after somebody surely said yes
//! under a higher one, and that no lease is anybody's but one session's.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::Verdict;
use super::evidence::Evidence;
use crate::lines::{CallerLine, Nanos, OwnerLine, Span};
use crate::plan::{Rules, World};

/// When a lease on a key was surely in use.
#[derive(Clone, Debug)]
struct Use {
    /// Not later than this it was in use for the first time,
    first: Nanos,
    /// ... and not earlier than this for the last.
    last: Nanos,
    who: String,
}

/// When leases were surely in use, by key and by number.
#[derive(Debug)]
pub(super) struct Uses<N> {
    rules: Rules,
    /// What a key is called.
    thing: &'static str,
    keys: BTreeMap<u32, BTreeMap<N, Use>>,
}

impl<N: Ord + Display> Uses<N> {
    pub(super) fn new(rules: Rules, thing: &'static str) -> Uses<N> {
        Uses { rules, thing, keys: BTreeMap::new() }
    }

    pub(super) fn note(&mut self, key: u32, lease: N, (first, last): (Span, Span), who: &str) {
        let seen = self.keys.entry(key).or_default().entry(lease);
        let seen = seen.or_insert_with(|| Use { first: first.1, last: last.0, who: who.to_owned() });
        seen.first = seen.first.min(first.1);
        seen.last = seen.last.max(last.0);
    }

    /// How many leases were seen, over all keys.
    pub(super) fn count(&self) -> u64 {
        self.keys.values().map(|leases| leases.len() as u64).sum()
    }

    /// The leases that were in use after a higher one was.
    pub(super) fn out_of_order(&self) -> Vec<String> {
        self.keys.iter().flat_map(|(key, leases)| self.out_of_order_of(*key, leases)).collect()
    }

    fn out_of_order_of(&self, key: u32, leases: &BTreeMap<N, Use>) -> Vec<String> {
        let mut problems = Vec::new();
        let mut latest: Option<(&N, &Use)> = None;
        for (number, lease) in leases {
            if let Some((lower, earlier)) = latest
                && earlier.last > lease.first
            {
                let millis = (earlier.last - lease.first) as f64 / 1e6;
                let Rules { one_holder, rising, .. } = self.rules;
                let rule = if earlier.who == lease.who { rising } else { one_holder };
                problems.push(format!(
                    "{rule}: {} {key} was {}'s under lease {lower} for {millis:.3} ms after it was {}'s under lease {number} (at {})",
                    self.thing, earlier.who, lease.who, lease.first
                ));
            }
            if latest.is_none_or(|(_, earlier)| earlier.last < lease.last) {
                latest = Some((number, lease));
            }
        }
        problems
    }
}

pub(super) fn check(evidence: &Evidence, verdict: &mut Verdict) {
    let mut uses = Uses::new(World::Managers.rules(), "key");
    let mut sessions: BTreeMap<u64, (String, String)> = BTreeMap::new();
    for life in &evidence.owners {
        for line in &life.lines {
            let Some((key, generation, first, last, checks)) = said_yes(line) else { continue };
            verdict.checks += checks;
            uses.note(key, generation, (first, last), &life.name);
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
            uses.note(*key, *generation, (*at, *at), who);
        }
    }
    verdict.leases = uses.count();
    verdict.violations.extend(uses.out_of_order());
}

fn said_yes(line: &OwnerLine) -> Option<(u32, u64, Span, Span, u64)> {
    match line {
        OwnerLine::Joined { .. } | OwnerLine::Sends { .. } | OwnerLine::Leaves { .. } => None,
        OwnerLine::Held { key, generation, first, last, checks } => {
            Some((*key, *generation, *first, *last, *checks))
        }
        OwnerLine::Served { key, generation, at, .. } => Some((*key, *generation, *at, *at, 1)),
    }
}

pub(super) fn push_once(list: &mut Vec<String>, words: String) {
    if !list.contains(&words) {
        list.push(words);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
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
