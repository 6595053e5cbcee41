//! What a seed draws before anything happens: who there is, how clocks and network behave, and which faults are likely.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::flease::FleaseConfig;
use centrifuge_core::id::{ManagerId, Namespace, OwnerName, Url};
use centrifuge_core::key::Key;
use centrifuge_core::lookup::LookupConfig;
use centrifuge_core::manager::ManagerConfig;
use centrifuge_core::namespace_kind::{ExpectedKind, KeyKind, Mode, NamespaceKind};
use centrifuge_core::settings::{Drift, Settings};

use crate::clock::Clock;

use super::death::DeathPlan;
use super::network::Layout;
use super::trim::LoadPlan;
use super::{Fault, Profile};

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MILLISECOND;

/// Everything a seed draws at once; what happens later is drawn as it happens.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) managers: Vec<ManagerPlan>,
    pub(crate) manager_ids: Arc<[ManagerId]>,
    pub(crate) namespaces: Vec<NamespacePlan>,
    pub(crate) owners: Vec<OwnerPlan>,
    pub(crate) lookups: Vec<LookupPlan>,
    pub(crate) store: StorePlan,
    pub(crate) network: Profile,
    pub(crate) faults: FaultPlan,
    pub(crate) apps: AppPlan,
    /// How often, in a thousand, a timer fires late, and by how much at most.
    pub(crate) late_wakes: (u64, u64),
    /// How often, in a thousand, a packet that arrives is kept, to be replayed.
    pub(crate) kept: u64,
    /// How often, in a thousand, a report also arrives with another namespace's name.
    pub(crate) misaddressed: u64,
    /// For how long faults happen.
    pub(crate) safety: u64,
    /// How long the world then has to converge.
    pub(crate) convergence: u64,
    /// Nothing fails, but messages cross.
    pub(crate) races_only: bool,
    /// How Managers that have no store find their leader; `None`: they have one.
    pub(crate) diskless: Option<DisklessPlan>,
    /// The load of every key, where Trim balances it; `None`: applications make loads up.
    pub(crate) load: Option<LoadPlan>,
    /// The key that kills whoever has it, if one does.
    pub(crate) death: Option<DeathPlan>,
}

/// The peers of Flease that Managers without disk are.
#[derive(Clone, Debug)]
pub(crate) struct DisklessPlan {
    /// What all of them are told; `me` differs.
    pub(crate) flease: FleaseConfig,
    /// How packets between them fare.
    pub(crate) network: Profile,
    /// How long a synchronised clock takes to slew by one nanosecond, in nanoseconds.
    pub(crate) slowness: u64,
    /// How often a clock turns, on average.
    pub(crate) turn_every: u64,
    /// How often, in a thousand, a message within a Manager's process takes long, and how long at most.
    pub(crate) hiccups: (u64, u64),
}

#[derive(Clone, Debug)]
pub(crate) struct ManagerPlan {
    pub(crate) config: ManagerConfig,
    pub(crate) clock: Clock,
}

#[derive(Clone, Debug)]
pub(crate) struct NamespacePlan {
    pub(crate) name: Namespace,
    /// What it is, and what it is if it is created again after somebody removed it: the same, or with another prefix.
    pub(crate) kinds: [NamespaceKind; 2],
    /// The keys that applications serve and the oracle watches.
    pub(crate) keys: Vec<Key>,
    /// What whoever makes keys in the other way would make of the same application keys.
    pub(crate) foreign_keys: Vec<Key>,
    /// The place of the key that callers and operators care about most, and how often in a thousand they do.
    pub(crate) busiest: usize,
    pub(crate) busy: u64,
    /// What it is created with, and what operators change it to.
    pub(crate) settings: Vec<Arc<Settings>>,
}

#[derive(Clone, Debug)]
pub(crate) struct OwnerPlan {
    pub(crate) namespace: usize,
    pub(crate) name: OwnerName,
    pub(crate) url: Url,
    pub(crate) weight: u32,
    pub(crate) migrates: bool,
    /// What it takes its leases for. Where that is not what the namespace is, it is refused.
    pub(crate) mode: Mode,
    pub(crate) clock: Clock,
    pub(crate) part: Part,
}

/// What an Owner's node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It runs unless a fault stops it.
    Regular,
    /// It runs only in join storms.
    Spare,
    /// It runs only as a second process of this node's name.
    Second { of: usize },
    /// It makes keys in the other way than its namespace. It asks again and again, and must never get in.
    Misfit,
}

#[derive(Clone, Debug)]
pub(crate) struct LookupPlan {
    pub(crate) namespace: usize,
    pub(crate) config: LookupConfig,
    pub(crate) clock: Clock,
}

#[derive(Clone, Debug)]
pub(crate) struct StorePlan {
    pub(crate) clock: Clock,
    /// The shortest and longest way to the store or back.
    pub(crate) delay: (u64, u64),
    /// How much longer a slow store takes at most.
    pub(crate) slow: u64,
    /// How late an append of unknown outcome can arrive.
    pub(crate) late: u64,
    /// How long each Manager's leader lease keeps the others out, by the store's clock.
    pub(crate) leader_holds: Vec<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct FaultPlan {
    pub(crate) mix: Vec<(Fault, u64)>,
    /// The mean time between two faults.
    pub(crate) interval: u64,
    pub(crate) first: u64,
    /// How often, in a thousand, a fault is followed by a time without new ones, long enough for leases to run out.
    pub(crate) lulls: u64,
    /// The longest pause and the longest cut, but for those that are meant to outlast a lease.
    pub(crate) longest: u64,
    /// How often, in a thousand, a pause or a cut is meant to outlast a lease.
    pub(crate) outlasting: u64,
    /// The longest time until a dead node starts again.
    pub(crate) slowest_restart: u64,
    /// How often, in a thousand, a restarted Owner vouches that its earlier process is gone.
    pub(crate) takeovers: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AppPlan {
    /// The mean time between two operations in a namespace.
    pub(crate) interval: u64,
    /// How often, in a thousand, an operation takes time.
    pub(crate) lasting: u64,
    /// How long an operation or a copy takes at most.
    pub(crate) longest: u64,
    /// How often, in a thousand, an application never answers its library.
    pub(crate) hangs: u64,
    /// How often, in a thousand, an application cannot send a copy.
    pub(crate) fails: u64,
    /// How often an application tries to send a copy.
    pub(crate) attempts: u32,
    /// Whether applications report load.
    pub(crate) loads: bool,
}

impl NamespacePlan {
    /// What it is at first. Only the prefix of its keys may be another later.
    pub(crate) fn kind(&self) -> &NamespaceKind {
        &self.kinds[0]
    }
}

impl Plan {
    /// The keys that an Owner makes of the application keys of its namespace.
    pub(crate) fn keys_of(&self, owner: usize) -> &[Key] {
        let OwnerPlan { namespace, part, .. } = self.owners[owner];
        let space = &self.namespaces[namespace];
        if part == Part::Misfit { &space.foreign_keys } else { &space.keys }
    }

    /// The kind of namespace that an Owner is built for.
    pub(crate) fn expected_by(&self, owner: usize) -> ExpectedKind {
        let OwnerPlan { namespace, part, mode, .. } = self.owners[owner];
        let keys = self.namespaces[namespace].kind().keys.kind();
        let other = if keys == KeyKind::Hashed { KeyKind::Ordered } else { KeyKind::Hashed };
        ExpectedKind { keys: if part == Part::Misfit { other } else { keys }, mode }
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout { managers: self.managers.len(), owners: self.owners.len(), lookups: self.lookups.len() }
    }

    /// Whether all clocks of Owners and Managers are within half the drift bound of real time.
    pub(crate) fn clocks_within_bound(&self) -> bool {
        let owners = self.owners.iter().map(|owner| owner.clock);
        let clocks = owners.chain(self.managers.iter().map(|manager| manager.clock));
        let within = |clock: Clock| {
            let (local, real) = (clock.numerator * 25, clock.denominator);
            real * 24 <= local && local <= real * 26
        };
        clocks.into_iter().all(within)
    }

    /// The longest hold that any settings of a namespace ask for.
    pub(crate) fn longest_hold(&self) -> Duration {
        longest_hold(&self.namespaces)
    }
}

/// Without a store, claims are waited for until every lease has ended, whatever the mode.
fn longest_hold(namespaces: &[NamespacePlan]) -> Duration {
    let hold = |kind: &NamespaceKind, settings: &Settings| {
        kind.hold(settings).max(Drift::default().hold_for(settings.lease))
    };
    let holds = namespaces.iter().flat_map(|space| space.settings.iter().map(|of| hold(space.kind(), of)));
    holds.max().unwrap_or_default()
}

pub(crate) fn longest_leader_hold(managers: &[ManagerPlan]) -> Duration {
    managers.iter().map(|manager| manager.config.leader_hold).max().unwrap_or_default()
}

/// The longest that a world without faults may take until every key has its owner and every Lookup knows it: a dead
/// leader's lease at the store, an election, the new leader's wait and its holds; then a migration whose application
/// hangs, its recall, and the lease that is not renewed any more. By the slowest clock.
pub(crate) fn convergence(managers: &[ManagerPlan], namespaces: &[NamespacePlan]) -> u64 {
    let hold = longest_hold(namespaces);
    let leader = longest_leader_hold(managers);
    let campaign = managers.iter().map(|manager| manager.config.campaign_interval).max().unwrap_or_default();
    let settings = || namespaces.iter().flat_map(|namespace| &namespace.settings);
    let migration = settings().map(|s| s.migration_timeout + s.recall_timeout).max().unwrap_or_default();
    let settle = settings().map(|s| s.settle).max().unwrap_or_default();
    let local = leader * 2 + campaign + hold * 2 + migration + settle;
    let nanos = u64::try_from(local.as_nanos()).expect("settings are minutes at most");
    nanos * 25 / 24 + 20 * SECOND
}
