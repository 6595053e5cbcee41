//! The small worlds that are exhausted.
//!
//! Each says what it covers. Their boundaries are as wide as a minute of a small machine allows, and wide enough that
//! the injected bugs which can show in such worlds do.

mod conversation;
mod leaders;
mod merges;
mod time;
mod transfers;
mod trims;

use super::scenario::{OwnerPlan, Prelude, Scenario, move_all, steady};

/// All of them.
pub(super) fn all() -> Vec<Scenario> {
    let models =
        [conversation::ALL, time::ALL, leaders::ALL, transfers::ALL, merges::ALL, trims::ALL, &[time::drift]]
            .concat();
    models.into_iter().map(|model| model()).collect()
}

/// Those that take minutes, which are exhausted only if somebody asks for it.
pub(super) fn long() -> Vec<Scenario> {
    trims::LONG.iter().map(|model| model()).collect()
}

/// How a world is made.
type Model = fn() -> Scenario;

/// One Manager, and two Owners of whom the first has all keys because an operator wants it so.
fn pair(name: &'static str, covers: &'static str) -> Scenario {
    let mut scenario = Scenario::new(name, covers);
    scenario.owners = vec![OwnerPlan::plain("a", steady(200)), OwnerPlan::plain("b", steady(300))];
    scenario.prelude = vec![Prelude::Start(0), Prelude::Operate(move_all("a")), Prelude::Start(1)];
    scenario
}
