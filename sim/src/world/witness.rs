//! The oracle at the world's side: sees everything, and remembers the first sentence that does not hold.

use std::time::Duration;

use crate::oracle::{Limits, Oracle};
use crate::seen::{Seen, TrueTime, Violation};
use crate::world::Failure;
use crate::world::plan::{Plan, SECOND};

/// How often in a row a session's reports may cross the Manager's messages. Backoffs double with each race.
const MOST_RACES_IN_A_ROW: u32 = 8;

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
        let violation = Violation { invariant, at: now, what, keys: Vec::new(), namespace: None };
        self.violation.get_or_insert(violation);
    }

    pub(crate) fn has_seen_enough(&self) -> bool {
        self.violation.is_some()
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

/// What the oracle may demand of a plan's world, in real time: settings are stretched by the slowest clock.
pub(crate) fn limits(plan: &Plan) -> Limits {
    let stretched = |local: Duration| local * 25 / 24;
    let lookups = || plan.lookups.iter().map(|lookup| &lookup.config);
    let longest = |times: &mut dyn Iterator<Item = Duration>| stretched(times.max().unwrap_or_default());
    Limits {
        hold: stretched(plan.longest_hold()),
        contact_timeout: longest(&mut lookups().map(|lookup| lookup.contact_timeout)),
        unowned_delay: longest(&mut lookups().map(|lookup| lookup.unowned_delay)),
        slack: Duration::from_secs(20),
        slowest_message: Duration::from_nanos(plan.network.usually_slowest()),
        converge: Duration::from_nanos(plan.convergence - 5 * SECOND),
        races_only: plan.races_only,
        races_in_a_row: MOST_RACES_IN_A_ROW,
        check_s1: true,
        diskless: plan.diskless.is_some(),
    }
}
