//! The worlds that are put under faults, and what differs between them beside their processes.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::plan::{EPSILON, RECOVERY, ROUND, Times};

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
