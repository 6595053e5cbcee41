//! What changes of leaders cost, for people and for programs.

use std::time::Duration;

use centrifuge_harness::StoreKind;
use serde_json::{Value, json};

use super::Ending;
use crate::checker::{Percentiles, Verdict};
use crate::lookup_fleet::Most;
use crate::report::percentiles;

/// What was measured.
pub(super) struct Outcome {
    pub(super) store: StoreKind,
    pub(super) times: u32,
    pub(super) end: Ending,
    pub(super) leader_lease: Duration,
    pub(super) gathering: Option<Gathering>,
    pub(super) first_renewal: Percentiles,
    pub(super) all_renewed: Percentiles,
    pub(super) leases_lost: u64,
    pub(super) notices: u64,
    pub(super) verdict: Verdict,
}

/// How the fleet of Lookups came to new leaders.
pub(super) struct Gathering {
    pub(super) lookups: u32,
    pub(super) all_watch: Percentiles,
    /// The most requests to watch that a leader, and any Manager, had.
    pub(super) most_requests: [Most; 2],
}

impl Outcome {
    pub(super) fn is_good(&self) -> bool {
        self.leases_lost == 0 && self.notices == 0 && self.verdict.violations.is_empty()
    }

    pub(super) fn json(&self) -> Value {
        let mut value = json!({
            "store": format!("{:?}", self.store).to_lowercase(),
            "times": self.times,
            "end": format!("{:?}", self.end).to_lowercase(),
            "leader_lease_ms": u64::try_from(self.leader_lease.as_millis()).unwrap_or(u64::MAX),
            "first_renewal_ms": percentiles(&self.first_renewal),
            "all_renewed_ms": percentiles(&self.all_renewed),
            "leases_lost": self.leases_lost,
            "false_losses": self.notices,
            "violations": self.verdict.violations.len(),
            "checks": self.verdict.checks,
            "replies": self.verdict.replies,
            "details": self.verdict.violations,
        });
        if let Some(gathering) = &self.gathering {
            value["lookups"] = json!(gathering.lookups);
            value["all_watch_ms"] = percentiles(&gathering.all_watch);
            let most = |most: Most| json!({ "in_100_ms": most.in_a_look, "in_1_s": most.in_a_second });
            let [leader, any] = gathering.most_requests.map(most);
            value["most_requests"] = json!({ "leader": leader, "any_manager": any });
        }
        value
    }

    pub(super) fn words(&self) -> String {
        let times = &self.first_renewal;
        let mut text = format!(
            "failover: the leader was ended by SIG{} {} times on store {:?}, {} requests were answered meanwhile\n\
             first renewal answered by the next leader: p50 {} ms, p99 {} ms, longest {} ms; the leader lease is {} ms\n\
             every Owner's renewal answered: p50 {} ms, p99 {} ms, longest {} ms\n\
             leases lost: {}\nfalse losses: {}\nviolations: {}\n",
            format!("{:?}", self.end).to_uppercase(),
            self.times,
            self.store,
            self.verdict.replies,
            times.p50,
            times.p99,
            times.max,
            self.leader_lease.as_millis(),
            self.all_renewed.p50,
            self.all_renewed.p99,
            self.all_renewed.max,
            self.leases_lost,
            self.notices,
            self.verdict.violations.len(),
        );
        if let Some(Gathering { lookups, all_watch, most_requests }) = &self.gathering {
            let [leader, any] = most_requests;
            text.push_str(&format!(
                "all of {lookups} Lookups watched the next leader: p50 {} ms, p99 {} ms, longest {} ms\n\
                 requests to watch in 100 ms: a leader had at most {}, any Manager {}; in a second {} and {}\n",
                all_watch.p50,
                all_watch.p99,
                all_watch.max,
                leader.in_a_look,
                any.in_a_look,
                leader.in_a_second,
                any.in_a_second,
            ));
        }
        for sentence in &self.verdict.violations {
            text.push_str(&format!("  {sentence}\n"));
        }
        text
    }
}
