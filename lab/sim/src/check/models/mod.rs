//! The small worlds that are exhausted.
//!
//! Each says what it covers. Their boundaries are as wide as a minute of a small machine allows, and wide enough that
//! the injected bugs which can show in such worlds do.

mod conversation;
mod leaders;
mod merges;
mod time;
mod transfers;

use super::scenario::{Clock, OwnerPlan, Prelude, Scenario, move_all};

/// All of them.
pub(super) fn all() -> Vec<Scenario> {
    vec![
        conversation::race(),
        conversation::join(),
        conversation::restart(),
        conversation::leaving(),
        conversation::evicted(),
        conversation::jumped(),
        time::expiry(),
        time::recall(),
        time::shortened(),
        leaders::failover(),
        leaders::deposed(),
        leaders::resigned(),
        leaders::reborn(),
        leaders::fenced(),
        leaders::doubt(),
        transfers::migration(),
        transfers::recopied(),
        transfers::overdue(),
        transfers::handover(),
        transfers::relieved(),
        transfers::rejoined(),
        transfers::restored(),
        transfers::late(),
        merges::merged(),
        merges::merge_moved(),
        merges::merge_back(),
        merges::merge_torn(),
        merges::merge_slow(),
        merges::merge_led(),
        merges::merge_two(),
        merges::merge_lost(),
        time::drift(),
    ]
}

/// One Manager, and two Owners of whom the first has all keys because an operator wants it so.
fn pair(name: &'static str, covers: &'static str) -> Scenario {
    let mut scenario = Scenario::new(name, covers);
    scenario.owners =
        vec![OwnerPlan::plain("a", Clock::steady(200)), OwnerPlan::plain("b", Clock::steady(300))];
    scenario.prelude = vec![Prelude::Start(0), Prelude::Operate(move_all("a")), Prelude::Start(1)];
    scenario
}
