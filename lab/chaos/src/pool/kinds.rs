//! The kinds of faults, what each world has of them, and how often.

use std::time::Duration;

use centrifuge_harness::StoreKind;

use super::addresses::Part;
use super::launch::Pool;
use crate::plan::{Sizes, World};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Kill(Part),
    Stop(Part),
    /// Two machines at once, each with its node of etcd and its Manager.
    KillTwoMachines,
    CutOneWay,
    CutTwoWay,
    /// Two groups that do not hear each other.
    Split,
    Storm,
    /// etcd forgets who leads.
    Depose,
    /// A Manager and an Owner in one moment: if that one led, nobody knows what the Owner had.
    KillTogether,
}

/// How often each comes, on average in milliseconds; never less than two thirds as often, unless too many are away.
type Table = &'static [(Kind, u64)];

/// Leaders are left alone for long enough to grant something: a new one waits for a hold first.
const OF_MANAGERS: Table = &[
    (Kind::Kill(Part::Owner), 5_000),
    (Kind::Kill(Part::Manager), 20_000),
    (Kind::Kill(Part::Caller), 15_000),
    (Kind::Kill(Part::Etcd), 24_000),
    (Kind::Stop(Part::Owner), 3_000),
    (Kind::Stop(Part::Manager), 18_000),
    (Kind::Stop(Part::Caller), 9_000),
    (Kind::Stop(Part::Etcd), 24_000),
    (Kind::KillTwoMachines, 20_000),
    (Kind::Depose, 45_000),
    (Kind::CutOneWay, 3_500),
    (Kind::CutTwoWay, 5_000),
    (Kind::Storm, 2_500),
];

/// A Manager that was killed takes no part for three seconds after its start.
const OF_DISKLESS: Table = &[
    (Kind::Kill(Part::Owner), 6_000),
    (Kind::Kill(Part::Manager), 16_000),
    (Kind::Kill(Part::Caller), 15_000),
    (Kind::KillTogether, 25_000),
    (Kind::Stop(Part::Owner), 4_000),
    (Kind::Stop(Part::Manager), 16_000),
    (Kind::Stop(Part::Caller), 9_000),
    (Kind::CutOneWay, 4_000),
    (Kind::CutTwoWay, 6_000),
    (Kind::Storm, 3_000),
];

/// A peer that was killed takes no part for three seconds after its start. There are times with a majority between
/// the times without: what is never acquired cannot be lost.
const OF_PEERS: Table = &[
    (Kind::Kill(Part::Peer), 7_000),
    (Kind::Stop(Part::Peer), 4_500),
    (Kind::CutOneWay, 6_000),
    (Kind::CutTwoWay, 7_000),
    (Kind::Split, 18_000),
    (Kind::Storm, 5_000),
];

impl Kind {
    /// The faults of a pool, and how often each comes.
    pub(super) fn of(pool: &Pool) -> Vec<(Kind, Duration)> {
        let table = match pool.plan.world {
            World::Managers => OF_MANAGERS,
            World::Diskless => OF_DISKLESS,
            World::Flease => OF_PEERS,
        };
        let possible = table.iter().filter(|(kind, _)| kind.is_possible(pool));
        possible.map(|(kind, mean)| (*kind, Duration::from_millis(*mean))).collect()
    }

    pub(super) fn name(self) -> String {
        match self {
            Kind::Kill(part) => format!("kill-{}", part.name()),
            Kind::Stop(part) => format!("stop-{}", part.name()),
            Kind::KillTwoMachines => "kill-two-machines".to_owned(),
            Kind::CutOneWay => "cut-one-way".to_owned(),
            Kind::CutTwoWay => "cut-two-way".to_owned(),
            Kind::Split => "split".to_owned(),
            Kind::Storm => "storm".to_owned(),
            Kind::Depose => "depose-leader".to_owned(),
            Kind::KillTogether => "kill-manager-and-owner".to_owned(),
        }
    }

    /// Whether it can come at all. An injected bug is looked for while the Managers are well: after a change of
    /// leaders nobody is granted anything for a hold, and much that is wrong stays without consequence.
    fn is_possible(self, pool: &Pool) -> bool {
        let has_etcd = pool.plan.store == StoreKind::Etcd;
        // The bugs injected there are about leaders that learn.
        if pool.plan.world == World::Diskless {
            return true;
        }
        match self {
            Kind::Kill(Part::Manager | Part::Etcd)
            | Kind::Stop(Part::Manager | Part::Etcd)
            | Kind::Depose
                if pool.plan.bug.is_some() =>
            {
                false
            }
            Kind::Kill(Part::Etcd) | Kind::Stop(Part::Etcd) | Kind::Depose => has_etcd,
            Kind::KillTwoMachines => has_etcd && pool.plan.sizes.etcd >= 5,
            _ => true,
        }
    }
}

/// How many of a kind may be away at once. Peers that were started again and have not recovered come on top.
pub(super) fn most_away(part: Part, sizes: Sizes) -> usize {
    usize::from(match part {
        Part::Etcd => sizes.etcd.saturating_sub(1) / 2,
        Part::Manager => sizes.managers.saturating_sub(1).max(1),
        Part::Owner => sizes.owners / 2,
        Part::Caller => sizes.callers / 2,
        Part::LookupFleet => 0,
        Part::Peer => sizes.peers / 2,
    })
}
