//! The oracle at the world's side: sees everything, and remembers the first sentence that does not hold.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::oracle::{Limits, Oracle};
use crate::seen::Violation;

use super::trim::at_rest_for;
use super::{Failure, Plan, SECOND, Seen, TrueTime, longest_leader_hold};

/// How often in a row a session's reports may cross the Manager's messages. Backoffs double with each race.
const MOST_RACES_IN_A_ROW: u32 = 8;

/// What messages and their repetition may add to a bound once faults are over.
const SLACK: Duration = Duration::from_secs(10);
/// The longest pause between two hellos of an Owner that was refused or heard nothing.
const JOIN_PAUSE: Duration = Duration::from_secs(20);

/// The oracle and its verdict.
pub(crate) struct Witness {
    oracle: Oracle,
    violation: Option<Violation>,
}

impl Witness {
    pub(crate) fn new(oracle: Oracle) -> Witness {
        Witness { oracle, violation: None }
    }

    pub(crate) fn see(&mut self, now: TrueTime, seen: &Seen<'_>) {
        if self.violation.is_none() {
            self.violation = self.oracle.see(now, seen).err();
        }
    }

    /// Accuses a machine of something that the world itself noticed.
    pub(crate) fn accuse(&mut self, now: TrueTime, invariant: &'static str, what: String) {
        let violation = Violation::new(invariant, now, what);
        self.violation.get_or_insert(violation);
    }

    pub(crate) fn has_seen_enough(&self) -> bool {
        self.violation.is_some()
    }

    /// How long each gap lasted in which a probe key had no owner, by cause.
    pub(crate) fn gaps(&self) -> BTreeMap<&'static str, Vec<Duration>> {
        let durations = self.oracle.ownerless().durations();
        durations.iter().map(|(why, durations)| (why.name(), durations.clone())).collect()
    }

    pub(crate) fn failure(self) -> Option<Failure> {
        let violation = self.violation?;
        let history = match &violation.namespace {
            Some(namespace) => self.oracle.history(namespace, &violation.keys),
            None => String::new(),
        };
        Some(Failure { violation, history })
    }
}

/// How long after a leader knows of a loss a Lookup may take to raise it: by then it has heard, or has been out of contact
/// for so long that it takes everything for lost. An earlier leader that does not know yet that it is deposed may keep it in
/// contact for as long as its own lease runs. A leader without a store may excuse it for a hold (ADR 15).
pub(crate) fn told_within(plan: &Plan, lookup: usize) -> Duration {
    let excused = if plan.diskless.is_some() { plan.longest_hold() } else { Duration::ZERO };
    let late = Duration::from_nanos(plan.late_wakes.1);
    let deposed = longest_leader_hold(&plan.managers);
    stretched(plan.lookups[lookup].config.contact_timeout + deposed + excused) + late + Duration::from_secs(1)
}

/// A dead leader's lease runs out, somebody campaigns, and the new leader waits until the old one cannot act. Without a
/// store the peers of the election recover first, and the table is learned in a full hold.
fn leader_change(plan: &Plan) -> Duration {
    let campaign = plan.managers.iter().map(|manager| manager.config.campaign_interval).max();
    let leader = longest_leader_hold(&plan.managers) * 2 + campaign.unwrap_or_default();
    let election =
        plan.diskless.as_ref().map(|diskless| diskless.flease.recovery + diskless.flease.lease * 2);
    leader + election.map_or(Duration::ZERO, |election| election + plan.longest_hold())
}

/// A time by the slowest clock, in real time.
fn stretched(local: Duration) -> Duration {
    local * 25 / 24
}

/// What the oracle may demand of a plan's world, in real time: settings are stretched by the slowest clock.
pub(crate) fn limits(plan: &Plan) -> Limits {
    let lookups = || plan.lookups.iter().map(|lookup| &lookup.config);
    let longest = |times: &mut dyn Iterator<Item = Duration>| stretched(times.max().unwrap_or_default());
    Limits {
        hold: stretched(plan.longest_hold()),
        contact_timeout: longest(&mut lookups().map(|lookup| lookup.contact_timeout)),
        unowned_delay: longest(&mut lookups().map(|lookup| lookup.unowned_delay)),
        leader_change: leader_change(plan),
        join_pause: JOIN_PAUSE,
        slack: SLACK,
        slowest_message: Duration::from_nanos(plan.network.usually_slowest()),
        converge: Duration::from_nanos(plan.convergence - 5 * SECOND),
        races_only: plan.races_only,
        races_in_a_row: MOST_RACES_IN_A_ROW,
        clocks_within_bound: plan.clocks_within_bound(),
        check_s1: true,
        diskless: plan.diskless.is_some(),
        balanced_for: at_rest_for(plan),
    }
}
