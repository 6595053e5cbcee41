//! The Manager: partitions namespaces, grants and recalls leases, and publishes the map.

mod admin;
mod assign;
mod broken;
mod claim;
mod commit;
mod conversation;
mod conversations;
mod copies;
mod decide;
mod desired;
mod event;
mod grant_times;
mod holds;
mod leader;
mod listed;
mod lookups;
mod merge;
mod moves;
mod namespace_runtime;
mod offers;
mod overview;
mod quarantine;
mod recalls;
mod sessions;
mod suspects;
mod trimming;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use event::{
    AdminCommand, AdminError, ClaimSkip, ElectionCommand, ElectionEvent, ManagerAction, ManagerEvent,
    MessageSkip, RoleName, Skip, StoreCommand, StoreEvent, StreamId, TrimNews, TrimTally,
};
pub use overview::{NamespaceOverview, RebuildOverview, SessionOverview, TrimOverview};

use crate::id::{ManagerId, Namespace, Term};
use crate::injected_bug::{Bug, injected};
use crate::machine::{Machine, Output};
use crate::manager_state::ManagerState;
use crate::message::{ManagerToLookup, ManagerToOwner};
use crate::namespace_kind::NamespaceKind;
use crate::random::Random;
use crate::settings::{Drift, Settings};
use crate::time::Instant;

use leader::Leader;

/// How many records make a batch full, usually: what is left to decide waits for the next one. Each change is valid by itself, and between
/// two batches the leader hears others, so that the work for one namespace never holds up the renewals of another for long.
pub const MAX_BATCH: usize = 256;

#[cfg(feature = "serde")]
fn usual_batch() -> usize {
    MAX_BATCH
}

/// What a Manager is told at its start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ManagerConfig {
    /// Its name.
    pub id: ManagerId,
    /// How long it may act after the send of a renewal that succeeded, by its own clock.
    pub leader_lease: Duration,
    /// How long anyone waits for that to be over, by their own clocks.
    pub leader_hold: Duration,
    /// How often a standby tries for the leader lease.
    pub campaign_interval: Duration,
    /// The assumed bound on clock rates.
    pub drift: Drift,
    /// After how many commits the log is compacted.
    pub compact_every: u64,
    /// The most namespaces that operators can create; `None`: as many as they want.
    #[cfg_attr(feature = "serde", serde(default))]
    pub max_namespaces: Option<usize>,
    /// How many records make a batch full; see [`MAX_BATCH`].
    #[cfg_attr(feature = "serde", serde(default = "usual_batch"))]
    pub max_batch: usize,
    /// How long no Owner arrives before the first assignment of a pool in which nobody has anything yet. What the first Owners of a
    /// pool that starts got at once would have to move at once.
    #[cfg_attr(feature = "serde", serde(default))]
    pub arrival_pause: Duration,
    /// There is no store, and every term begins with these namespaces and what their Owners claim; `None`: there is one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub diskless: Option<Arc<BTreeMap<Namespace, DeclaredNamespace>>>,
}

/// A namespace that the configuration of Managers without a store declares.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeclaredNamespace {
    /// What it is.
    pub kind: NamespaceKind,
    /// Its settings.
    pub settings: Arc<Settings>,
}

impl ManagerConfig {
    /// The usual times for a Manager of a name.
    #[must_use]
    pub fn new(id: ManagerId) -> ManagerConfig {
        let drift = Drift::default();
        let leader_lease = Duration::from_secs(10);
        ManagerConfig {
            id,
            leader_lease,
            leader_hold: drift.hold_for(leader_lease),
            campaign_interval: Duration::from_secs(2),
            drift,
            compact_every: 1000,
            max_namespaces: None,
            max_batch: MAX_BATCH,
            arrival_pause: Duration::ZERO,
            diskless: None,
        }
    }
}

/// The Manager as a pure machine.
///
/// It promises: whatever it tells anyone is committed under its term before it is told; a range moves only when its
/// holder released it or the hold ran out; a generation is granted once; every decision has a reason. It never acts
/// past its own leader lease, and holds no state that is not rebuilt from the store and from what sessions say.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManagerMachine {
    config: ManagerConfig,
    random: Random,
    role: Role,
    /// The last request to the election or the store.
    request: u64,
    counters: ManagerCounters,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    Standby { leader: Option<ManagerId>, campaign: Option<(u64, Instant)>, next_campaign: Instant },
    Loading { lead: LeaderLease, won_at: Instant, load: u64, retry_at: Instant },
    Leader(Box<Leader>),
}

/// A leader lease, by this Manager's clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LeaderLease {
    term: Term,
    valid_until: Instant,
    /// The renewals under way and when each was sent: a lease counts from there, however late the answer comes.
    renewals: BTreeMap<u64, Instant>,
    renew_at: Instant,
}

/// What a Manager counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct ManagerCounters {
    /// Messages that changed nothing, by why.
    pub skipped: BTreeMap<MessageSkip, u64>,
    /// Grants committed.
    pub grants: u64,
    /// Leases of earlier leaders that their Owners claimed.
    pub claims: u64,
    /// Claims refused, by why.
    pub claims_refused: BTreeMap<ClaimSkip, u64>,
    /// Leases that ended without their state.
    pub losses: u64,
    /// Batches committed.
    pub commits: u64,
    /// Terms led.
    pub terms: u64,
}

/// What a step may touch besides the role: handed down so that the parts need not know the whole machine.
struct Context<'a> {
    now: Instant,
    config: &'a ManagerConfig,
    random: &'a mut Random,
    request: &'a mut u64,
    counters: &'a mut ManagerCounters,
    out: Vec<ManagerAction>,
}

impl Context<'_> {
    fn next_request(&mut self) -> u64 {
        *self.request += 1;
        *self.request
    }

    fn push(&mut self, action: ManagerAction) {
        self.out.push(action);
    }

    fn send_owner(&mut self, to: StreamId, message: ManagerToOwner) {
        self.out.push(ManagerAction::ToOwner { to, message });
    }
}

/// What the role becomes after a step.
enum Next {
    Stay,
    StepDown,
}

impl ManagerMachine {
    /// A Manager that begins with [`ManagerEvent::Start`].
    #[must_use]
    pub fn new(config: ManagerConfig, random: Random) -> ManagerMachine {
        let role = Role::Standby { leader: None, campaign: None, next_campaign: Instant::NEVER };
        let counters = ManagerCounters::default();
        ManagerMachine { config, random, role, request: 0, counters }
    }

    /// The term it leads, if it may act as leader now.
    #[must_use]
    pub fn leading(&self, now: Instant) -> Option<Term> {
        match &self.role {
            Role::Leader(leader) if leader.has_started() && now < leader.lead().valid_until => {
                Some(leader.lead().term)
            }
            _ => None,
        }
    }

    /// What is committed, as far as a leader knows.
    #[must_use]
    pub fn group(&self) -> Option<&ManagerState> {
        match &self.role {
            Role::Leader(leader) => Some(leader.committed()),
            _ => None,
        }
    }

    /// What it counts.
    #[must_use]
    pub fn counters(&self) -> &ManagerCounters {
        &self.counters
    }

    fn step(
        &mut self,
        now: Instant,
        with: impl FnOnce(&mut Role, &mut Context<'_>) -> Next,
    ) -> Output<ManagerAction> {
        let mut context = Context {
            now,
            config: &self.config,
            random: &mut self.random,
            request: &mut self.request,
            counters: &mut self.counters,
            out: Vec::new(),
        };
        if self.role.lease_is_over(now) {
            if injected(Bug::DeposedLeaderRenews) {
                let until = now + context.config.leader_lease;
                self.role.lead_mut().into_iter().for_each(|lead| lead.valid_until = until);
            } else {
                self.role.step_down(&mut context);
            }
        }
        match with(&mut self.role, &mut context) {
            Next::Stay => {}
            Next::StepDown => self.role.step_down(&mut context),
        }
        let wake = self.role.wake();
        Output { actions: context.out, wake }
    }
}

impl Machine for ManagerMachine {
    type Event = ManagerEvent;
    type Action = ManagerAction;

    fn on_event(&mut self, now: Instant, event: ManagerEvent) -> Output<ManagerAction> {
        self.step(now, |role, context| role.on_event(event, context))
    }

    fn on_wake(&mut self, now: Instant) -> Output<ManagerAction> {
        self.step(now, |role, context| role.on_wake(context))
    }
}

impl Role {
    fn lead(&self) -> Option<&LeaderLease> {
        match self {
            Role::Standby { .. } => None,
            Role::Loading { lead, .. } => Some(lead),
            Role::Leader(leader) => Some(leader.lead()),
        }
    }

    fn lead_mut(&mut self) -> Option<&mut LeaderLease> {
        match self {
            Role::Standby { .. } => None,
            Role::Loading { lead, .. } => Some(lead),
            Role::Leader(leader) => Some(leader.lead_mut()),
        }
    }

    fn lease_is_over(&self, now: Instant) -> bool {
        self.lead().is_some_and(|lead| now >= lead.valid_until)
    }

    /// Everything a leader knew and did not commit is forgotten with its lease.
    fn step_down(&mut self, context: &mut Context<'_>) {
        if let Role::Leader(leader) = self {
            leader.abandon_admin(context);
        }
        let pause = context.random.around(context.config.campaign_interval);
        *self = Role::Standby { leader: None, campaign: None, next_campaign: context.now + pause };
        context.push(ManagerAction::RoleChanged(RoleName::Standby));
    }

    fn wake(&self) -> Option<Instant> {
        match self {
            Role::Standby { next_campaign, .. } => Some(*next_campaign),
            Role::Loading { lead, retry_at, .. } => Some(lead.wake().min(*retry_at)),
            Role::Leader(leader) => Some(leader.lead().wake().min(leader.wake())),
        }
    }

    fn on_event(&mut self, event: ManagerEvent, context: &mut Context<'_>) -> Next {
        match event {
            ManagerEvent::Start => {
                if let Role::Standby { next_campaign, .. } = self {
                    *next_campaign = context.now;
                }
                return self.on_wake(context);
            }
            ManagerEvent::ClockJumped => {
                // A lease that is won counts from the send of the campaign, which this clock cannot place any more.
                if let Role::Standby { campaign, .. } = self {
                    *campaign = None;
                }
                return if self.lead().is_some() { Next::StepDown } else { Next::Stay };
            }
            ManagerEvent::Election(event) => return self.on_election(event, context),
            ManagerEvent::Store(StoreEvent::Loaded { request, index, group }) => {
                self.on_loaded(request, |lead, won_at| Leader::new(lead, won_at, index, &group, context))
            }
            ManagerEvent::Store(StoreEvent::LoadFailed { .. }) => {}
            event => match self {
                Role::Leader(leader) => return leader.on_event(event, context),
                Role::Standby { leader, .. } => refer(event, leader.as_ref(), context),
                Role::Loading { .. } => refer(event, None, context),
            },
        }
        Next::Stay
    }

    fn on_wake(&mut self, context: &mut Context<'_>) -> Next {
        let now = context.now;
        if let Some(lead) = self.lead_mut() {
            lead.renew_if_due(context);
        }
        match self {
            Role::Standby { campaign, next_campaign, .. } if now >= *next_campaign => {
                let request = context.next_request();
                *campaign = Some((request, now));
                *next_campaign = now + context.random.around(context.config.campaign_interval * 2);
                context.push(ManagerAction::Election(ElectionCommand::Campaign { request }));
            }
            Role::Loading { load, retry_at, .. } if now >= *retry_at => {
                *load = context.next_request();
                *retry_at = now + context.config.leader_lease / 4;
                context.push(ManagerAction::Store(StoreCommand::Load { request: *load }));
            }
            Role::Leader(leader) => return leader.on_wake(context),
            _ => {}
        }
        Next::Stay
    }

    fn on_election(&mut self, event: ElectionEvent, context: &mut Context<'_>) -> Next {
        let now = context.now;
        match event {
            ElectionEvent::Won { request, term } => self.on_won(request, term, context),
            ElectionEvent::LedBy { request, leader: found } => {
                if let Role::Standby { leader, campaign, .. } = self
                    && campaign.is_some_and(|(current, _)| current == request)
                {
                    *leader = found;
                }
            }
            ElectionEvent::Renewed { request } => {
                if let Some(lead) = self.lead_mut()
                    && let Some(sent_at) = lead.renewals.remove(&request)
                {
                    lead.valid_until = lead.valid_until.max(sent_at + context.config.leader_lease);
                    lead.renew_at = lead.renew_at.max(now + context.config.leader_lease / 4);
                }
            }
            ElectionEvent::Lost { term } => {
                if self.lead().is_some_and(|lead| lead.term == term) && !injected(Bug::DeposedLeaderRenews) {
                    return Next::StepDown;
                }
            }
        }
        Next::Stay
    }

    fn on_won(&mut self, request: u64, term: Term, context: &mut Context<'_>) {
        let now = context.now;
        let Role::Standby { campaign: Some((current, sent_at)), .. } = *self else { return };
        let valid_until = sent_at + context.config.leader_lease;
        if current != request || now >= valid_until {
            return;
        }
        let lead = LeaderLease {
            term,
            valid_until,
            renewals: BTreeMap::new(),
            renew_at: sent_at + context.config.leader_lease / 4,
        };
        let load = context.next_request();
        let retry_at = now + context.config.leader_lease / 4;
        *self = Role::Loading { lead, won_at: now, load, retry_at };
        context.push(ManagerAction::RoleChanged(RoleName::Loading));
        context.push(ManagerAction::Store(StoreCommand::Load { request: load }));
    }

    fn on_loaded(&mut self, request: u64, build: impl FnOnce(LeaderLease, Instant) -> Leader) {
        if let Role::Loading { lead, won_at, load, .. } = self
            && *load == request
        {
            let leader = build(lead.clone(), *won_at);
            *self = Role::Leader(Box::new(leader));
        }
    }
}

impl LeaderLease {
    fn wake(&self) -> Instant {
        self.renew_at.min(self.valid_until)
    }

    /// Renews early: a quarter of the lease leaves time for three more tries.
    fn renew_if_due(&mut self, context: &mut Context<'_>) {
        if context.now >= self.renew_at {
            let request = context.next_request();
            self.renewals.retain(|_, sent_at| *sent_at + context.config.leader_lease > context.now);
            self.renewals.insert(request, context.now);
            self.renew_at = context.now + context.config.leader_lease / 4;
            context.push(ManagerAction::Election(ElectionCommand::Renew { request, term: self.term }));
        }
    }
}

/// A Manager that does not lead says who does.
fn refer(event: ManagerEvent, leader: Option<&ManagerId>, context: &mut Context<'_>) {
    let leader = leader.cloned();
    match event {
        ManagerEvent::FromOwner { from, .. } => {
            context.send_owner(from, ManagerToOwner::NotLeader { leader })
        }
        ManagerEvent::FromLookup { from, .. } => {
            let message = ManagerToLookup::NotLeader { leader };
            context.push(ManagerAction::ToLookup { to: from, message });
        }
        ManagerEvent::Admin { request, .. } => {
            let result = Err(AdminError::NotLeader(leader));
            context.push(ManagerAction::AdminReply { request, result });
        }
        _ => {}
    }
}
