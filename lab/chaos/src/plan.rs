//! What a run consists of: how many processes, which times, and what is deliberately wrong.

use std::time::Duration;

use centrifuge_net::proto::v1;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The pool's namespace.
pub(crate) const NAMESPACE: &str = "chaos";

/// How far a clock may be from true time, in parts per million: 1.04 to 0.96 is 65 to 60, the drift bound between any
/// two.
pub(crate) const MOST_SKEW_PPM: i32 = 40_000;

/// The most by which Flease peers' clocks differ, unless one is astray.
pub(crate) const EPSILON: Duration = Duration::from_millis(200);

/// How long a round of Flease may take.
pub(crate) const ROUND: Duration = Duration::from_millis(500);

/// How long peers, and Managers without a store, take no part after their start.
pub(crate) const RECOVERY: Duration = Duration::from_millis(3_100);

/// How long leases and everything around them last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) lease: Duration,
    pub(crate) renewal: Duration,
    pub(crate) answer_allowance: Duration,
    pub(crate) recall: Duration,
    pub(crate) migration: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) poll: Duration,
    pub(crate) contact: Duration,
    pub(crate) unowned_delay: Duration,
    pub(crate) silence: Duration,
    /// Whether load moves keys.
    pub(crate) balances: bool,
}

/// How long an Owner that is told to end may take to move its state away.
pub(crate) const DRAIN: Duration = Duration::from_secs(40);

impl Times {
    /// Leases that are short, so that many pauses are longer.
    pub(crate) const SHORT: Times = Times {
        lease: Duration::from_millis(3_000),
        renewal: Duration::from_millis(700),
        answer_allowance: Duration::from_millis(500),
        recall: Duration::from_millis(1_000),
        migration: Duration::from_millis(3_000),
        heartbeat: Duration::from_millis(500),
        poll: Duration::from_millis(1_500),
        contact: Duration::from_millis(10_000),
        unowned_delay: Duration::from_millis(4_000),
        silence: Duration::from_millis(1_000),
        balances: true,
    };

    /// Leases that outlast a change of leaders with a leader lease of several seconds, and nothing that moves them.
    pub(crate) const LASTING: Times = Times {
        lease: Duration::from_millis(30_000),
        renewal: Duration::from_millis(1_000),
        answer_allowance: Duration::from_millis(1_000),
        contact: Duration::from_millis(40_000),
        balances: false,
        ..Times::SHORT
    };

    /// Leases of Flease peers: with what else a peer waits for, one that starts takes part after three seconds.
    pub(crate) const PEERS: Times = Times { lease: Duration::from_millis(2_000), ..Times::SHORT };

    /// The hold that belongs to the lease: 65 to 60.
    pub(crate) fn hold(&self) -> Duration {
        self.lease * 65 / 60
    }

    /// How soon every caller that lives is told of a loss (S4): the hold, the recall, and what a Lookup may be out of
    /// contact; with clocks that are as wrong as they may be, and a little for machines that are busy.
    pub(crate) fn notice_bound(&self) -> Duration {
        (self.hold() + self.recall + self.contact) * 65 / 60 + Duration::from_secs(2)
    }

    /// How long after its end a fault may still cost state that was used since: a hold until it is noticed, another
    /// if the leader changed, and a migration that ended as a plain recall.
    pub(crate) fn aftermath(&self) -> Duration {
        (self.hold() * 2 + self.migration + self.recall) * 65 / 60
    }

    /// Pauses that add up to no more than this cost no lease: two renewals may be lost in a row.
    pub(crate) fn harmless_pause(&self) -> Duration {
        self.renewal
    }

    /// The settings of the namespace.
    pub(crate) fn settings(&self) -> v1::Settings {
        let millis = |time: Duration| Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let policy = if self.balances { v1::LoadPolicy::TenPercent } else { v1::LoadPolicy::Off };
        v1::Settings {
            lease_ms: millis(self.lease),
            hold_ms: millis(self.hold()),
            renewal_ms: millis(self.renewal),
            answer_allowance_ms: millis(self.answer_allowance),
            migration_timeout_ms: millis(self.migration),
            recall_timeout_ms: millis(self.recall),
            settle_ms: Some(500),
            load_policy: Some(policy.into()),
            load_interval_ms: Some(10_000),
            heartbeat_ms: millis(self.heartbeat),
            ..v1::Settings::default()
        }
    }
}

/// How processes reach each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NetworkKind {
    /// Namespaces where the machine allows them, otherwise loopback.
    Auto,
    /// Every process in a network namespace of its own; cuts drop packets.
    Namespaces,
    /// Everything on loopback through relays of the harness; cuts hold bytes back and drop messages.
    Loopback,
}

/// How many processes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) etcd: u8,
    pub(crate) managers: u8,
    pub(crate) owners: u8,
    /// Owners that come and go in join storms.
    pub(crate) joiners: u8,
    pub(crate) callers: u8,
    /// Processes with many Lookups.
    pub(crate) lookup_fleets: u8,
    /// Flease peers.
    pub(crate) peers: u8,
    /// How many keys are watched, or cells wanted.
    pub(crate) keys: u32,
}

/// The name of a key that is watched.
pub(crate) fn key_name(key: u32) -> String {
    format!("key-{key}")
}

/// What is put under faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum World {
    /// Managers with their store, Owners and callers
    #[default]
    Managers,
    /// Managers without a store, Owners and callers
    Diskless,
    /// Flease peers that want cells
    Flease,
}

impl World {
    /// How long leases and everything around them last.
    pub(crate) fn times(self) -> Times {
        match self {
            World::Managers | World::Diskless => Times::SHORT,
            World::Flease => Times::PEERS,
        }
    }

    /// How soon every caller that lives is told of a loss (S4). A leader that has no store may take a hold to learn
    /// the table (ADR 15).
    pub(crate) fn notice_bound(self, times: &Times) -> Duration {
        let learning = if self == World::Diskless { times.hold() * 65 / 60 } else { Duration::ZERO };
        times.notice_bound() + learning
    }

    /// How long it is calm in the end: until every notice that is due has come, or until peers that started last have
    /// recovered, what anybody held has run out, and every cell was acquired again.
    pub(crate) fn calm(self) -> Duration {
        let times = self.times();
        match self {
            World::Managers => times.notice_bound() + Duration::from_secs(1),
            World::Diskless => self.notice_bound(&times) + RECOVERY + Duration::from_secs(1),
            World::Flease => (times.lease + EPSILON * 3 + ROUND) * 2 + times.lease * 3,
        }
    }

    /// What the invariants are called: one holder at a time, numbers that rise, and a holder in the end.
    pub(crate) fn rules(self) -> Rules {
        match self {
            World::Managers | World::Diskless => {
                Rules { one_holder: "S1", rising: "S2", held_in_the_end: "L1" }
            }
            World::Flease => Rules { one_holder: "F1", rising: "F2", held_in_the_end: "L3" },
        }
    }
}

/// The invariants that both worlds have, by their names in protocol §11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) one_holder: &'static str,
    pub(crate) rising: &'static str,
    pub(crate) held_in_the_end: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_of_two_processes_stay_within_the_drift_bound() {
        let (fast, slow) = (1_000_000 + MOST_SKEW_PPM, 1_000_000 - MOST_SKEW_PPM);
        assert!(fast * 60 <= slow * 65);
        assert_eq!(Times::SHORT.hold(), Duration::from_millis(3_250));
    }
}
