//! What readers outside the machine may see of it, for status pages and metrics. Nothing here decides anything.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::{LoadDimension, ManagerId, Namespace, SessionId};
use crate::key::KeyRange;
use crate::message::Report;
use crate::time::Instant;
use crate::trim::{TrimHotKey, TrimMove, TrimSkip, TrimSummary};

use super::event::RoleName;
use super::namespace_runtime::NamespaceRuntime;
use super::{ManagerMachine, Role};

/// The volatile side of a namespace, as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NamespaceOverview {
    /// How many Lookups want to hear of changes.
    pub lookups: usize,
    /// How many changes the change log reaches back.
    pub changes: usize,
    /// How old the oldest of them is.
    pub log_span: Duration,
    /// Since when this leader has known of each range in quarantine.
    pub quarantines: BTreeMap<KeyRange, Instant>,
    /// What a leader that has no store has yet to learn; `None` once it knows the table.
    pub rebuilding: Option<RebuildOverview>,
    /// What the loads of the namespace are counted in. Loads in anything else are ignored.
    pub load_dimension: LoadDimension,
    /// The sessions that this leader talks with.
    pub sessions: BTreeMap<SessionId, SessionOverview>,
    /// What Trim made of the loads; `None` where it does not divide the keys, or has not decided yet.
    pub trim: Option<Box<TrimOverview>>,
}

/// What Trim made of the loads, as readers see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrimOverview {
    /// When the latest decision was made.
    pub decided_at: Instant,
    /// How even the load was, and what is left of the budgets.
    pub summary: TrimSummary,
    /// The largest of the keys that are larger than a share: read replicas would help.
    pub hot_keys: Vec<TrimHotKey>,
    /// How many of them there are in all.
    pub hot_key_count: usize,
    /// The most urgent move of the latest decision that had one, and when that was.
    pub latest_move: Option<(Instant, TrimMove)>,
    /// The first reason of the latest decision that left load where it is, and when that was.
    pub latest_skip: Option<(Instant, TrimSkip)>,
}

/// What a leader that has no store has yet to learn, as readers see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildOverview {
    /// How many keys nobody has claimed.
    pub unclaimed_keys: u128,
    /// When they are nobody's, at the latest.
    pub ends_at: Instant,
}

/// A session that a leader talks with, as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOverview {
    /// When it was last heard from.
    pub heard: Instant,
    /// The load of everything it holds, as it reported last.
    pub load: u64,
    /// What that load is counted in.
    pub load_dimension: LoadDimension,
}

impl NamespaceOverview {
    /// The load of all sessions that report it in the namespace's dimension.
    #[must_use]
    pub fn load(&self) -> u64 {
        let comparable = self.sessions.values().filter(|it| it.load_dimension == self.load_dimension);
        comparable.fold(0, |sum, session| sum.saturating_add(session.load))
    }
}

impl ManagerMachine {
    /// What the Manager is.
    #[must_use]
    pub fn role(&self) -> RoleName {
        match &self.role {
            Role::Standby { .. } => RoleName::Standby,
            Role::Leader(leader) if leader.has_started() => RoleName::Leader { term: leader.lead().term },
            Role::Loading { .. } | Role::Leader(_) => RoleName::Loading,
        }
    }

    /// Who leads, as far as a standby has heard.
    #[must_use]
    pub fn known_leader(&self) -> Option<&ManagerId> {
        match &self.role {
            Role::Standby { leader, .. } => leader.as_ref(),
            Role::Loading { .. } | Role::Leader(_) => None,
        }
    }

    /// What a leader knows of its namespaces besides what is stored; empty if it does not lead. Costs a visit to every
    /// session.
    #[must_use]
    pub fn overview(&self, now: Instant) -> BTreeMap<Namespace, NamespaceOverview> {
        match &self.role {
            Role::Leader(leader) => {
                leader.runtimes.iter().map(|(name, runtime)| (name.clone(), runtime.overview(now))).collect()
            }
            _ => BTreeMap::new(),
        }
    }
}

impl NamespaceRuntime {
    fn overview(&self, now: Instant) -> NamespaceOverview {
        let heard = |session| self.holds.heard.get(session);
        let sessions = self.conversations.open.iter().filter_map(|(session, conversation)| {
            let report = conversation.report.as_deref();
            let load_dimension = report.map(|report| report.load_dimension.clone()).unwrap_or_default();
            let load = report.map_or(0, total_load);
            Some((*session, SessionOverview { heard: heard(session)?, load, load_dimension }))
        });
        NamespaceOverview {
            lookups: self.audience.subscribers.len(),
            changes: self.audience.log.len(),
            log_span: self.audience.log.span(now),
            quarantines: self.quarantined_since.clone(),
            rebuilding: self.rebuild.as_ref().map(|rebuild| RebuildOverview {
                unclaimed_keys: rebuild.unclaimed_keys(),
                ends_at: self.placement.balance_from,
            }),
            load_dimension: self.conversations.load_dimension().unwrap_or_default(),
            sessions: sessions.collect(),
            trim: self.placement.trimming.overview.clone(),
        }
    }
}

fn total_load(report: &Report) -> u64 {
    report.loads.iter().fold(0, |sum, range| sum.saturating_add(range.load))
}
