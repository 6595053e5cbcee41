//! A leader: takes events, decides when nothing is under way to the store, and answers from what is committed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::{Generation, Index, Namespace};
use crate::injected_bug::{Bug, injected};
use crate::manager_state::ManagerState;
use crate::message::OwnerToManager;
use crate::record::Record;
use crate::time::Instant;

use super::broken;
use super::claim::{configured_namespaces, floor};
use super::commit::InFlight;
use super::event::{AdminCommand, AdminError, ManagerAction, ManagerEvent, RoleName, StoreEvent};
use super::namespace_runtime::NamespaceRuntime;
use super::{Context, LeaderLease, Next};

/// A leader's state. `committed` is what everybody may be told. `draft` is that plus the batch under way, if there is
/// one. Nothing is decided while a batch is under way: what happens then waits as facts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Leader {
    pub(super) lead: LeaderLease,
    pub(super) committed: ManagerState,
    pub(super) draft: ManagerState,
    pub(super) index: Index,
    pub(super) in_flight: Option<InFlight>,
    pub(super) runtimes: BTreeMap<Namespace, NamespaceRuntime>,
    pub(super) admin: Vec<(u64, AdminCommand)>,
    /// Records of the group itself that wait for the next batch.
    pub(super) group_records: Vec<Record>,
    /// When no earlier leader can act any more.
    settles_at: Option<Instant>,
    /// Since when no earlier leader can act.
    pub(super) silent_from: Instant,
    /// The number before this term's first generation, where there is no store.
    pub(super) floor: Option<Generation>,
    pub(super) since_compaction: u64,
    /// The first namespace that a full batch had no room for.
    pub(super) decide_from: Option<Namespace>,
    /// From when the messages go that nobody asked for and that an earlier step had no time for.
    pub(super) pushes_from: Option<Instant>,
    started: bool,
    resigning: bool,
}

impl Leader {
    /// A leader that won at `won_at` and found `group` at `index`. Its first batch takes the next index, so that no
    /// append of an earlier leader can arrive there late.
    pub(super) fn new(
        lead: LeaderLease,
        won_at: Instant,
        index: Index,
        group: &ManagerState,
        context: &mut Context<'_>,
    ) -> Leader {
        let forgetful = injected(Bug::LeaderForgetsMerges).then(|| broken::without_merges(group));
        let group = forgetful.as_ref().unwrap_or(group);
        let waits = if injected(Bug::LeaderDoesNotWait) {
            Duration::ZERO
        } else if injected(Bug::StandbyUsesOwnTimes) {
            group.leader_hold() / 2
        } else {
            group.leader_hold()
        };
        let silent_from = won_at + waits;
        let runtimes = group
            .namespaces
            .iter()
            .map(|(name, stored)| (name.clone(), NamespaceRuntime::taken_over(stored, silent_from, context)))
            .collect();
        let floor = floor(lead.term, context);
        let mut group_records = vec![Record::LeaderStarted { leader_hold: context.config.leader_hold }];
        group_records.extend(configured_namespaces(floor, context));
        let mut draft = group.clone();
        for record in &group_records {
            if let Record::Namespace { namespace, change, .. } = record {
                draft.apply_change(namespace, change);
            }
        }
        let mut leader = Leader {
            lead,
            committed: group.clone(),
            draft,
            index,
            in_flight: None,
            runtimes,
            admin: Vec::new(),
            group_records,
            settles_at: Some(silent_from),
            silent_from,
            floor,
            since_compaction: 0,
            decide_from: None,
            pushes_from: None,
            started: false,
            resigning: false,
        };
        leader.append_next(context);
        leader
    }

    pub(super) fn lead(&self) -> &LeaderLease {
        &self.lead
    }

    pub(super) fn lead_mut(&mut self) -> &mut LeaderLease {
        &mut self.lead
    }

    pub(super) fn committed(&self) -> &ManagerState {
        &self.committed
    }

    /// Whether its own start is committed: before that it tells nobody anything.
    pub(super) fn has_started(&self) -> bool {
        self.started
    }

    pub(super) fn wake(&self) -> Instant {
        let retry = self.in_flight.as_ref().and_then(|in_flight| in_flight.retry_at);
        let runtime = self.runtimes.values().filter_map(|runtime| runtime.timers.next()).min();
        let settles = self.settles_at.filter(|_| self.started);
        [retry, runtime, settles, self.pushes_from].into_iter().flatten().min().unwrap_or(Instant::NEVER)
    }

    pub(super) fn on_event(&mut self, event: ManagerEvent, context: &mut Context<'_>) -> Next {
        match event {
            ManagerEvent::Store(event) => {
                if let Next::StepDown = self.on_store(event, context) {
                    return Next::StepDown;
                }
            }
            ManagerEvent::Resign => self.resigning = true,
            ManagerEvent::Admin { request, command } => self.on_admin(request, command, context),
            // Until its start is committed a leader is deaf; clients ask again.
            _ if !self.started || self.resigning => {}
            ManagerEvent::FromOwner { from, message: OwnerToManager::Hello(hello) } => {
                self.on_hello(from, hello, context);
            }
            ManagerEvent::FromOwner { from, message: OwnerToManager::Report(report) } => {
                self.on_report(from, report, context);
            }
            // What Lookups say decides nothing, and there are many of them.
            ManagerEvent::FromLookup { from, request } => {
                self.on_lookup(from, &request, context);
                return Next::Stay;
            }
            ManagerEvent::LookupGone { from, namespace, lookup } => {
                self.on_lookup_gone(from, &namespace, lookup);
                return Next::Stay;
            }
            _ => {}
        }
        self.advance(context)
    }

    pub(super) fn on_wake(&mut self, context: &mut Context<'_>) -> Next {
        if self.settles_at.is_some_and(|at| context.now >= at) && self.started {
            self.settles_at = None;
            self.group_records.push(Record::LeaderSettled);
        }
        self.retry_append(context);
        let names: Vec<Namespace> = self.due(context.now);
        for name in names {
            self.on_runtime_timers(&name, context);
        }
        self.advance(context)
    }

    fn due(&self, now: Instant) -> Vec<Namespace> {
        let due = |runtime: &NamespaceRuntime| runtime.timers.next().is_some_and(|at| at <= now);
        self.runtimes.iter().filter(|(_, runtime)| due(runtime)).map(|(name, _)| name.clone()).collect()
    }

    fn on_store(&mut self, event: StoreEvent, context: &mut Context<'_>) -> Next {
        match event {
            StoreEvent::Appended { index } => return self.on_appended(index, context),
            StoreEvent::Fenced { index } => return self.on_fenced(index, context),
            StoreEvent::NotAppended { index } => self.on_unsettled(index, false, context),
            StoreEvent::Unknown { index } => self.on_unsettled(index, true, context),
            StoreEvent::Loaded { .. } | StoreEvent::LoadFailed { .. } => {}
        }
        Next::Stay
    }

    /// Decides if nothing is under way, then says what there is to say.
    fn advance(&mut self, context: &mut Context<'_>) -> Next {
        if self.started && self.in_flight.is_none() {
            if !self.resigning {
                self.decide(context);
            }
            if self.resigning && self.in_flight.is_none() {
                self.group_records = vec![Record::LeaderResigned];
            }
            self.append_next(context);
            self.finish_rebuilds(context);
        }
        if self.started && !self.resigning {
            self.flush(context);
        }
        Next::Stay
    }

    /// The start is committed: from now on the leader acts.
    pub(super) fn start(&mut self, context: &mut Context<'_>) {
        self.started = true;
        context.counters.terms += 1;
        for runtime in self.runtimes.values_mut() {
            runtime.dirty = true;
        }
        let term = self.lead.term;
        context.push(ManagerAction::RoleChanged(RoleName::Leader { term }));
    }

    /// The term cannot go on: the next one can.
    pub(super) fn resign(&mut self) {
        self.resigning = true;
    }

    pub(super) fn is_resigning(&self) -> bool {
        self.resigning
    }

    /// Operators whose requests are undecided are told that their outcome is unknown.
    pub(super) fn abandon_admin(&mut self, context: &mut Context<'_>) {
        let waiting = self.admin.drain(..).map(|(request, _)| request);
        let under_way =
            self.in_flight.iter().flat_map(|in_flight| in_flight.replies.iter().map(|(request, _)| *request));
        let requests: Vec<u64> = waiting.chain(under_way).collect();
        for request in requests {
            context.push(ManagerAction::AdminReply { request, result: Err(AdminError::Unknown) });
        }
    }
}
