//! Journals written by hand.

use super::evidence::{CallerLife, Evidence, OwnerLife};
use crate::lines::{CallerLine, Nanos, OwnerLine, Plan, Span};

pub(super) fn owners(owners: Vec<OwnerLife>) -> Evidence {
    Evidence { plan: Plan { keys: 1, ..Plan::default() }, owners, ..Evidence::default() }
}

pub(super) fn owner<const N: usize>(name: &str, lines: [OwnerLine; N]) -> OwnerLife {
    let (session, url) = (name.into(), name.into());
    OwnerLife { name: name.into(), session, url, migrates: true, lines: lines.into() }
}

pub(super) fn caller(lines: Vec<CallerLine>) -> CallerLife {
    CallerLife { name: "caller-1".into(), end: Nanos::MAX, stops: Vec::new(), lines }
}

/// Yes from one instant to another, each known to a nanosecond.
pub(super) fn held(key: u32, generation: u64, from: Nanos, to: Nanos) -> OwnerLine {
    OwnerLine::Held { key, generation, first: Span(from, from + 1), last: Span(to, to + 1), checks: 2 }
}

pub(super) fn served(key: u32, generation: u64, state_id: &str, value: u64, at: Nanos) -> OwnerLine {
    OwnerLine::Served { key, generation, state_id: state_id.into(), value, at: Span(at, at + 1) }
}

pub(super) fn reply(
    key: u32,
    generation: u64,
    state_id: &str,
    value: u64,
    table: u64,
    at: Nanos,
) -> CallerLine {
    CallerLine::Reply { key, generation, state_id: state_id.into(), value, table, at: Span(at, at + 1) }
}
