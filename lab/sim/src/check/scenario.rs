//! What one small world has in it, and where it ends.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{ManagerId, Namespace, OwnerName, Url};
use centrifuge_core::injected_bug::Bug;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{LoadPolicyKind, RangeLoad};
use centrifuge_core::manager::{AdminCommand, ManagerConfig};
use centrifuge_core::owner::{OwnerConfig, OwnerEvent};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::settings::{Drift, Settings};

use crate::clock::Clock;

use super::properties::Milestone;

/// The keys that are watched: the lowest and the highest, which a split tells apart.
pub(super) const PROBES: [Key; 2] = [Key::MIN, Key::MAX];

/// Leases last exactly as long as the drift bound lets them under the hold.
pub(super) const LEASE: Duration = Duration::from_secs(12);
/// The Manager's hold: 65 to 60.
pub(super) const HOLD: Duration = Duration::from_secs(13);
/// How often Owners report.
pub(super) const RENEWAL: Duration = Duration::from_secs(3);

/// What a model should turn out to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Expect {
    /// No state breaks a sentence.
    #[default]
    Clean,
    /// Some state does: a control that the checker can find one.
    Violation,
}

/// One small world.
#[derive(Clone, Debug, Default)]
pub(super) struct Scenario {
    /// The name by which it is reported.
    pub(super) name: &'static str,
    /// What is expected of it.
    pub(super) expect: Expect,
    /// What it covers, in a sentence.
    pub(super) covers: &'static str,
    /// Where it ends.
    pub(super) boundary: Boundary,
    /// The Managers; the first leads at the start.
    pub(super) managers: Vec<ManagerPlan>,
    /// The places where Owner processes run.
    pub(super) owners: Vec<OwnerPlan>,
    /// What happens, in this order and undisturbed, before the exploration begins.
    pub(super) prelude: Vec<Prelude>,
    /// What an operator asks for, in this order, at any time.
    pub(super) commands: Vec<Command>,
    /// What applications tell their Owners, each at any time and once at most.
    pub(super) wishes: Vec<(usize, OwnerEvent)>,
    /// What every process at a place counts as its load.
    pub(super) loads: Vec<(usize, Vec<RangeLoad>)>,
    /// The namespace's settings.
    pub(super) settings: Settings,
    /// Whether the store takes time: then a batch waits until the store is done with it.
    pub(super) slow_store: bool,
    /// Whether applications take time to end operations and to copy state.
    pub(super) slow_apps: bool,
    /// Whether every loss of state needs a cause: in worlds that give it none, state only moves.
    pub(super) losses_need_causes: bool,
    /// Whether there are Lookups: all that there could be, each as stale as it may be.
    pub(super) lookups: bool,
    /// What must happen somewhere, so that a world in which nothing happens does not pass for a clean one.
    pub(super) milestones: &'static [Milestone],
    /// The fault planted in every machine.
    pub(super) bug: Option<Bug>,
}

/// Where a world ends. Within it everything that can happen does: every message that was ever sent may arrive at any
/// time, in any order, any number of times or never, whatever became of its sender and receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct Boundary {
    /// The instants of real time at which things happen, in milliseconds. A machine that is due at one of them may
    /// also be late.
    pub(super) instants: &'static [u64],
    /// How many different messages may be sent.
    pub(super) messages: usize,
    /// Whether a message arrives once at most, as on a stream. Messages may still overtake each other and be lost.
    pub(super) no_duplicates: bool,
    /// How often each thing that is counted may happen.
    pub(super) most: Counts,
}

impl Boundary {
    /// Messages may arrive again and again. What `most` does not list never happens.
    pub(super) fn new(instants: &'static [u64], messages: usize, most: &[(Counted, u8)]) -> Boundary {
        let mut counts = Counts::default();
        most.iter().for_each(|(counted, most)| counts.0[*counted as usize] = *most);
        Boundary { instants, messages, no_duplicates: false, most: counts }
    }

    /// The same, but a message arrives once at most.
    pub(super) fn once(instants: &'static [u64], messages: usize, most: &[(Counted, u8)]) -> Boundary {
        Boundary { no_duplicates: true, ..Boundary::new(instants, messages, most) }
    }
}

/// What may happen so often and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// A hello arrives: each one that does opens another offer, also a repeated one.
    Hellos,
    /// A process dies.
    Crashes,
    /// A process is started.
    Starts,
    /// There is a new leader.
    Elections,
    /// The store leaves a batch in doubt.
    Doubts,
    /// An application serves a write.
    Writes,
    /// A transfer fails.
    Failures,
    /// The stream of an Owner breaks.
    Breaks,
    /// The state of a process is kept, which is restored from it at any time.
    Restores,
}

/// How often each thing that is counted happened, or may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Counts([u8; Counted::Restores as usize + 1]);

impl Counts {
    /// How often one of them did.
    pub(super) fn of(self, counted: Counted) -> u8 {
        self.0[counted as usize]
    }

    /// One of them happens once more.
    pub(super) fn add(&mut self, counted: Counted) {
        self.0[counted as usize] += 1;
    }
}

/// A Manager.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManagerPlan {
    /// Its clock.
    pub(super) clock: Clock,
    /// How long it may lead without a renewal.
    pub(super) leader_lease: Duration,
    /// Whether its timers are starved: then it does nothing but answer.
    pub(super) starved: bool,
}

/// A place where an Owner process runs, dies and is started again.
#[derive(Clone, Debug)]
pub(super) struct OwnerPlan {
    /// The name that all its processes use.
    pub(super) name: &'static str,
    /// Its clock.
    pub(super) clock: Clock,
    /// Whether its processes vouch that the one before them is gone.
    pub(super) takes_over: bool,
    /// Whether its application moves state.
    pub(super) migrates: bool,
    /// The first of the Managers that it has heard of; it knows all after that one too.
    pub(super) first_manager: usize,
}

/// One step of the prelude; after each, every message arrives once and in order.
#[derive(Clone, Debug)]
pub(super) enum Prelude {
    /// A process starts.
    Start(usize),
    /// A process dies.
    Crash(usize),
    /// An operator wants something.
    Operate(Command),
}

/// What an operator can want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Something of the leader.
    Admin(AdminCommand),
    /// That the leader resigns.
    Resign,
}

/// A clock that runs as real time does, and shows so many seconds at the start.
pub(super) const fn steady(offset: u64) -> Clock {
    Clock { offset: offset * 1_000_000_000, numerator: 1, denominator: 1, lost: 0 }
}

impl ManagerPlan {
    /// A Manager with an exact clock that need not renew its leader lease within the boundary.
    pub(super) fn steady(offset: u64) -> ManagerPlan {
        ManagerPlan { clock: steady(offset), leader_lease: Duration::from_secs(1_000), starved: false }
    }
}

impl OwnerPlan {
    /// An Owner whose processes vouch for nothing and move no state.
    pub(super) fn plain(name: &'static str, clock: Clock) -> OwnerPlan {
        OwnerPlan { name, clock, takes_over: false, migrates: false, first_manager: 0 }
    }
}

impl Scenario {
    /// A world of one Manager with everything prompt, nothing in it and nothing allowed.
    pub(super) fn new(name: &'static str, covers: &'static str) -> Scenario {
        let (boundary, managers) = (Boundary::new(&[0], 8, &[]), vec![ManagerPlan::steady(100)]);
        Scenario { name, covers, boundary, managers, settings: settings(), ..Scenario::default() }
    }

    /// What the process at a place is told at its start.
    pub(super) fn owner_config(&self, slot: usize) -> OwnerConfig {
        let plan = &self.owners[slot];
        OwnerConfig {
            namespace: namespace(),
            name: owner_name(plan.name),
            url: address(slot),
            managers: (plan.first_manager..self.managers.len()).map(manager_id).collect(),
            takes_over_previous: plan.takes_over,
            weight: 100,
            load_dimension: Default::default(),
            migrates: plan.migrates,
            credential: None,
            expects: Default::default(),
        }
    }

    /// What a Manager is told at its start. Nobody campaigns again within the boundary.
    pub(super) fn manager_config(&self, manager: usize) -> ManagerConfig {
        let drift = Drift::default();
        let leader_lease = self.managers[manager].leader_lease;
        ManagerConfig {
            leader_lease,
            leader_hold: drift.hold_for(leader_lease),
            campaign_interval: Duration::from_secs(10_000),
            drift,
            ..ManagerConfig::new(manager_id(manager))
        }
    }
}

/// Settings with short leases, and with everything that only adds timers out of the way.
fn settings() -> Settings {
    let out_of_the_way = Duration::from_secs(10_000);
    Settings {
        lease: LEASE,
        hold: HOLD,
        renewal: RENEWAL,
        answer_allowance: Duration::from_secs(2),
        migration_timeout: out_of_the_way,
        recall_timeout: out_of_the_way,
        settle: Duration::ZERO,
        partitioner: PartitionerKind::Fixed,
        load_policy: LoadPolicyKind::TenPercent,
        load_interval: out_of_the_way,
        heartbeat: out_of_the_way,
        death_window: Duration::ZERO,
        ..Settings::default()
    }
}

/// The one namespace.
pub(super) fn namespace() -> Namespace {
    Namespace::new("pool").expect("a plain name")
}

/// An Owner's name.
pub(super) fn owner_name(name: &str) -> OwnerName {
    OwnerName::new(name).expect("a plain name")
}

/// Where the process at a place is reached.
pub(super) fn address(slot: usize) -> Url {
    format!("place-{slot}").as_str().into()
}

/// A Manager's name.
pub(super) fn manager_id(manager: usize) -> ManagerId {
    format!("manager-{}", manager + 1).as_str().into()
}

/// An operator's wish that all keys be at an Owner.
pub(super) fn move_all(to: &str) -> Command {
    move_range(Key::MIN, Key::MAX, to)
}

/// An operator's wish that the upper half of the keys be at an Owner.
pub(super) fn move_upper(to: &str) -> Command {
    move_range(Key(1 << 63), Key::MAX, to)
}

/// An operator's wish that some keys be at an Owner.
pub(super) fn move_range(first: Key, last: Key, to: &str) -> Command {
    let (namespace, to, why) = (namespace(), Some(owner_name(to)), by_hand());
    let range = KeyRange::new(first, last).expect("ranges begin before they end");
    Command::Admin(AdminCommand::Move { namespace, range, to, why })
}

/// An operator's wish that no key be anywhere in particular.
pub(super) fn unpin_all() -> Command {
    let (namespace, why) = (namespace(), by_hand());
    Command::Admin(AdminCommand::Move { namespace, range: KeyRange::ALL, to: None, why })
}

/// An operator's wish that an Owner give everything back and go.
pub(super) fn evict(owner: &str) -> Command {
    Command::Admin(AdminCommand::Evict { namespace: namespace(), owner: owner_name(owner), why: by_hand() })
}

/// An operator's wish for other settings.
pub(super) fn configure(settings: Settings) -> Command {
    let (namespace, settings) = (namespace(), settings.into());
    Command::Admin(AdminCommand::Configure { namespace, settings, expected: None, kind: None })
}

fn by_hand() -> Arc<str> {
    "by hand".into()
}
