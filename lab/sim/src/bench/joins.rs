//! What a storm of joins under new names costs a leader: each costs what it moves, not what there is.

use std::time::Duration;

use centrifuge_core::message::HeldLease;
use centrifuge_core::settings::Settings;
use serde_json::json;

use super::leader::{Cost, Leader, name, namespace, release, session, stored};
use super::tell;

/// How far apart the joins are.
const APART: Duration = Duration::from_millis(5);

/// Prints what it costs when as many Owners join, one after another, and each gives back and takes what it is told to.
pub fn run(json: bool, owners: u64) {
    let mut leader = Leader::of(stored(&namespace("bench"), Settings::default(), &[]));
    // Nothing moves before the takeover hold is over.
    leader.pass(Duration::from_secs(80));
    let mut cost = Cost::default();
    let mut steps = Vec::new();
    for number in 0..owners {
        let mut step = leader.hello(&namespace("bench"), session(number), &name(number));
        let report = leader.report(&namespace("bench"), session(number), Vec::new());
        step.add(leader.send(report));
        step.add(answer_all(&mut leader));
        step.add(leader.pass(APART));
        step.add(answer_all(&mut leader));
        steps.push(step);
        cost.add(step);
    }
    print(json, owners, &cost, &steps, leader.group().namespaces[&namespace("bench")].table.len());
}

/// Every Owner that is asked to answers once: it has what it was granted, and gives back what it is told to.
fn answer_all(leader: &mut Leader) -> Cost {
    let mut reports = Vec::new();
    for session in leader.take_unanswered() {
        let Some(assign) = leader.latest(session) else { continue };
        let (kept, given_back): (Vec<_>, Vec<_>) =
            assign.orders.iter().cloned().partition(|order| order.recall.is_none());
        let held = kept.iter().map(|order| HeldLease {
            range: order.range,
            generation: order.holds_under(),
            state_since: order.state_since,
            warrant: None,
        });
        let released = given_back.iter();
        let released =
            released.map(|order| release(order.range, order.generation, order.state_since)).collect();
        let mut report = leader.report(&namespace("bench"), session, held.collect());
        report.released = released;
        reports.push(report);
    }
    leader.send_all(reports)
}

fn print(json: bool, owners: u64, cost: &Cost, steps: &[Cost], entries: usize) {
    let quarter = steps.len() / 4;
    let mean = |steps: &[Cost]| {
        let total: Duration = steps.iter().map(|step| step.total).sum();
        total.checked_div(u32::try_from(steps.len()).unwrap_or(u32::MAX)).unwrap_or_default()
    };
    let (first, last) = (mean(&steps[..quarter]), mean(&steps[steps.len() - quarter..]));
    let line = json!({
        "owners": owners,
        "cpu_ms": cost.total.as_millis(),
        "longest_step_us": cost.longest.as_micros(),
        "records": cost.records,
        "entries": entries,
        "join_us_first_quarter": first.as_micros(),
        "join_us_last_quarter": last.as_micros(),
    });
    tell(json, &line, || {
        println!("{owners} Owners join under new names: {entries} entries, {} records", cost.records);
        println!("  all steps of the leader take    {} ms", cost.total.as_millis());
        println!("  the longest step takes          {} us", cost.longest.as_micros());
        println!("  a join of the first quarter     {} us", first.as_micros());
        println!("  a join of the last quarter      {} us", last.as_micros());
    });
}
