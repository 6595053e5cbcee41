//! The states of keys: where each began and ended, and that none went back to an earlier value.

use std::collections::BTreeMap;

use super::Verdict;
use super::evidence::Evidence;
use crate::lines::{OwnerLine, Span};

/// One state of a key, from its beginning, wherever it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StateLifetime {
    pub(super) name: String,
    /// The lowest and the highest lease under which it was used.
    pub(super) lowest: u64,
    pub(super) highest: u64,
    /// When it was first and last used.
    pub(super) first: Span,
    pub(super) last: Span,
}

/// The states of each key, in order. Between two of them the state of the key was lost.
pub(super) type StateLifetimes = BTreeMap<u32, Vec<StateLifetime>>;

type Values<'a> = BTreeMap<(u32, &'a str), Vec<(Span, u64)>>;

pub(super) fn check(evidence: &Evidence, verdict: &mut Verdict) -> StateLifetimes {
    let mut found: BTreeMap<(u32, &str), StateLifetime> = BTreeMap::new();
    let mut values = Values::new();
    for line in evidence.owners.iter().flat_map(|life| &life.lines) {
        let OwnerLine::Served { key, generation, state_id, value, at } = line else { continue };
        let state = found.entry((*key, state_id)).or_insert_with(|| StateLifetime {
            name: state_id.clone(),
            lowest: *generation,
            highest: *generation,
            first: *at,
            last: *at,
        });
        state.lowest = state.lowest.min(*generation);
        state.highest = state.highest.max(*generation);
        if at.0 < state.first.0 {
            state.first = *at;
        }
        if at.1 > state.last.1 {
            state.last = *at;
        }
        values.entry((*key, state_id)).or_default().push((*at, *value));
    }
    for ((key, state_id), uses) in values {
        verdict.violations.extend(went_back(key, state_id, uses));
    }
    let mut lifetimes = StateLifetimes::new();
    for ((key, _), lifetime) in found {
        lifetimes.entry(key).or_default().push(lifetime);
    }
    for states in lifetimes.values_mut() {
        states.sort_by_key(|state| (state.lowest, state.first.0));
        verdict.losses += states.len().saturating_sub(1) as u64;
    }
    lifetimes
}

/// Every request adds one: a later one that finds no more than an earlier one left has lost something, and nobody was
/// told.
fn went_back(key: u32, state_id: &str, mut uses: Vec<(Span, u64)>) -> Option<String> {
    let mut ends = uses.clone();
    ends.sort_by_key(|(at, _)| at.1);
    uses.sort_by_key(|(at, _)| at.0);
    let mut over = ends.into_iter().peekable();
    let mut highest = None;
    for (at, value) in uses {
        while let Some((_, earlier)) = over.next_if(|(end, _)| end.is_before(at)) {
            highest = highest.max(Some(earlier));
        }
        if let Some(highest) = highest.filter(|highest| *highest >= value) {
            return Some(format!(
                "S4: the state {state_id} of key {key} went back from {highest} to {value} (at {}): a part of it was lost without a word",
                at.0
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;

    #[test]
    fn a_state_that_moves_is_one_and_a_new_one_is_a_loss() {
        let evidence = owners(vec![
            owner("a", [served(0, 5, "x", 1, 10), served(0, 5, "x", 2, 20)]),
            owner("b", [served(0, 7, "x", 3, 30), served(0, 9, "y", 1, 60)]),
        ]);
        let mut verdict = Verdict::default();
        let lifetimes = check(&evidence, &mut verdict);
        let states: Vec<(&str, u64, u64)> =
            lifetimes[&0].iter().map(|state| (state.name.as_str(), state.lowest, state.highest)).collect();
        assert_eq!(states, [("x", 5, 7), ("y", 9, 9)]);
        assert_eq!((verdict.losses, verdict.violations.len()), (1, 0));
    }

    #[test]
    fn a_state_that_goes_back_is_a_violation_of_s4() {
        let evidence = owners(vec![
            owner("a", [served(0, 5, "x", 1, 10), served(0, 5, "x", 2, 20)]),
            owner("b", [served(0, 7, "x", 2, 30)]),
        ]);
        let mut verdict = Verdict::default();
        check(&evidence, &mut verdict);
        assert_eq!(verdict.violations.len(), 1);
        assert!(verdict.violations[0].starts_with("S4"), "{:?}", verdict.violations);
    }

    #[test]
    fn requests_at_the_same_time_may_be_in_any_order() {
        let at = |before, after, value| OwnerLine::Served {
            key: 0,
            generation: 5,
            state_id: "x".into(),
            value,
            at: Span(before, after),
        };
        let mut verdict = Verdict::default();
        check(&owners(vec![owner("a", [at(10, 50, 2), at(20, 40, 1)])]), &mut verdict);
        assert!(verdict.violations.is_empty());
    }
}
