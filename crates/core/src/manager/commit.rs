//! From decisions to the store and back: one batch under way at a time, and nothing told before it is durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::id::{Index, Namespace, Nonce, Seq, SessionId};
use crate::injected_bug::{Bug, any_injected, injected};
use crate::record::{Batch, Change, Record};
use crate::time::Instant;

use super::event::{AdminError, ElectionCommand, ManagerAction, StoreCommand};
use super::leader::Leader;
use super::namespace_runtime::NamespaceRuntime;
use super::{Context, Next};

/// How long an append that failed or whose outcome is unknown rests before it is repeated.
const RETRY: Duration = Duration::from_millis(500);

/// The batch under way and what its confirmation sets free.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct InFlight {
    pub(super) index: Index,
    pub(super) batch: Option<Arc<Batch>>,
    /// Operators to be answered.
    pub(super) replies: Vec<(u64, Result<(), AdminError>)>,
    /// Reports whose effects it contains.
    pub(super) decided: Vec<Decided>,
    /// Sessions whose set of leases it changes.
    pub(super) affected: BTreeMap<(Namespace, SessionId), Affected>,
    /// When to repeat it, if its outcome is unknown.
    pub(super) retry_at: Option<Instant>,
}

/// How a batch changes what a session should be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Affected {
    /// It only takes leases from it. What is sent after this message leaves them out before the batch is durable.
    Takes { after: Seq },
    /// It gives it a lease, or wants one back: that is told once the batch is durable.
    Gives,
}

/// A report whose effects are decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Decided {
    pub(super) namespace: Namespace,
    pub(super) session: SessionId,
    /// The conversation it belongs to: another numbers anew.
    pub(super) conversation: Nonce,
    pub(super) seq: Seq,
}

impl Leader {
    /// Notes that the effects of reports are committed.
    pub(super) fn note_applied(&mut self, decided: Vec<Decided>) {
        for Decided { namespace, session, conversation: id, seq } in decided {
            let conversation = self
                .runtimes
                .get_mut(&namespace)
                .and_then(|runtime| runtime.conversations.open.get_mut(&session));
            if let Some(conversation) = conversation.filter(|conversation| conversation.side.id == id) {
                conversation.side.applied = conversation.side.applied.max(seq);
            }
        }
    }

    /// Sends the records that wait, if there are any, as the next batch.
    pub(super) fn append_next(&mut self, context: &mut Context<'_>) {
        if !self.group_records.is_empty() {
            let records = std::mem::take(&mut self.group_records);
            self.append(records, InFlight::default(), context);
        }
    }

    /// Sends a batch. The draft already contains the namespaces' part of it.
    pub(super) fn append(
        &mut self,
        records: Vec<Record>,
        mut in_flight: InFlight,
        context: &mut Context<'_>,
    ) {
        let Some(index) = self.index.next() else { return };
        let batch = Arc::new(Batch { term: self.lead.term, records });
        in_flight.index = index;
        in_flight.batch = Some(Arc::clone(&batch));
        context.push(ManagerAction::Store(StoreCommand::Append { term: self.lead.term, index, batch }));
        self.in_flight = Some(in_flight);
    }

    /// The batch is durable: apply it, and only now tell whom it concerns.
    pub(super) fn on_appended(&mut self, index: Index, context: &mut Context<'_>) -> Next {
        let Some(in_flight) = self.in_flight.take_if(|in_flight| in_flight.index == index) else {
            return Next::Stay;
        };
        let Some(batch) = in_flight.batch else { return Next::Stay };
        self.index = index;
        context.counters.commits += 1;
        context.push(ManagerAction::Committed { index, batch: Arc::clone(&batch) });
        let published = self.committed.apply(&batch);
        self.draft.term = self.committed.term;
        self.draft.earlier_leaders_hold = self.committed.earlier_leaders_hold;
        self.draft.latest_leader_hold = self.committed.latest_leader_hold;
        self.note_applied(in_flight.decided);
        self.follow_namespaces(&batch, context);
        let term = self.lead.term;
        for (namespace, entries) in published {
            let Some(stored) = self.committed.namespaces.get(&namespace) else { continue };
            let Some(runtime) = self.runtimes.get_mut(&namespace) else { continue };
            if let Some(draft) = self.draft.namespaces.get_mut(&namespace) {
                draft.lsn = stored.lsn;
            }
            if runtime.rebuild.is_some() {
                continue;
            }
            runtime.audience.publish(
                &namespace,
                term,
                stored.lsn,
                entries.into(),
                stored.settings.log_span,
                context,
            );
        }
        debug_assert!(any_injected() || self.draft == self.committed);
        self.mark_affected(&in_flight.affected);
        self.finish_rebuilds(context);
        for (request, result) in in_flight.replies {
            context.push(ManagerAction::AdminReply { request, result });
        }
        self.compact_if_due(context);
        self.after_group_records(&batch, context)
    }

    /// What the leader does once records about the group itself are durable.
    fn after_group_records(&mut self, batch: &Batch, context: &mut Context<'_>) -> Next {
        for record in &batch.records {
            match record {
                Record::LeaderStarted { .. } => self.start(context),
                Record::LeaderResigned => {
                    context.push(ManagerAction::Election(ElectionCommand::Resign { term: self.lead.term }));
                    return Next::StepDown;
                }
                _ => {}
            }
        }
        Next::Stay
    }

    pub(super) fn mark_affected(&mut self, affected: &BTreeMap<(Namespace, SessionId), Affected>) {
        if injected(Bug::PushesWithoutLimit) {
            for runtime in self.runtimes.values_mut() {
                let sessions: Vec<SessionId> = runtime.conversations.open.keys().copied().collect();
                sessions.into_iter().for_each(|session| runtime.conversations.push(session));
            }
            return;
        }
        for ((namespace, session), how) in affected {
            let Some(runtime) = self.runtimes.get_mut(namespace) else { continue };
            let is_told = match how {
                Affected::Takes { after } => runtime.conversations.was_told(*session, *after),
                Affected::Gives => false,
            };
            if !is_told {
                runtime.conversations.push(*session);
            }
            runtime.conversations.look_at_waiting();
        }
    }

    /// Begins and forgets the volatile side of namespaces and sessions with their stored side.
    fn follow_namespaces(&mut self, batch: &Batch, context: &mut Context<'_>) {
        for record in &batch.records {
            let Record::Namespace { namespace, change, .. } = record else { continue };
            match change {
                Change::Created { .. } => {
                    if let Some(stored) = self.committed.namespaces.get(namespace) {
                        let mut runtime = NamespaceRuntime::new(stored, context.now);
                        runtime.holds.follow(stored);
                        if self.floor.is_some() {
                            let leases_end_within = context.config.drift.hold_for(stored.settings.lease);
                            runtime.begin_rebuild(self.silent_from, leases_end_within);
                        }
                        self.runtimes.insert(namespace.clone(), runtime);
                    }
                }
                Change::Removed => {
                    self.runtimes.remove(namespace);
                }
                Change::Configured { .. } | Change::HoldSettled => self.follow_hold(namespace, context),
                Change::SessionEnded { session } => {
                    // The last word: it has nothing any more, and what it said is applied.
                    if self.has_started() {
                        self.send(namespace, *session, context);
                    }
                    if let Some(runtime) = self.runtimes.get_mut(namespace) {
                        runtime.forget(*session);
                    }
                }
                Change::MergeBegun { range, .. } | Change::Merged { range, .. } => {
                    let stored = self.committed.namespaces.get(namespace);
                    let entries = stored.into_iter().flat_map(|stored| stored.table.overlapping(*range));
                    if let Some(runtime) = self.runtimes.get_mut(namespace) {
                        entries
                            .filter_map(|(_, entry)| entry.owner)
                            .for_each(|owner| runtime.conversations.disturb(owner));
                    }
                }
                Change::SessionStarted { session, .. } => {
                    if let Some(runtime) = self.runtimes.get_mut(namespace) {
                        runtime.placement.members_changed = true;
                        // It waits for the word that it has joined, and gets nothing else while others are waited for.
                        let arrival = runtime.placement.latest_arrival;
                        if context.now < arrival + context.config.arrival_pause {
                            runtime.conversations.answer(*session);
                        }
                    }
                }
                Change::SessionChanged { .. } => {
                    if let Some(runtime) = self.runtimes.get_mut(namespace) {
                        runtime.placement.members_changed = true;
                    }
                }
                Change::Granted { .. } => context.counters.grants += 1,
                Change::Claimed { .. } => context.counters.claims += 1,
                Change::Released { .. } => context.counters.losses += 1,
                _ => {}
            }
        }
    }

    /// Leases under earlier settings may have been promised until this very commit, and by an earlier leader even until
    /// it could not act any more: a longer hold of theirs counts from the later of the two.
    fn follow_hold(&mut self, namespace: &Namespace, context: &mut Context<'_>) {
        let stored = self.committed.namespaces.get(namespace);
        let (Some(stored), Some(runtime)) = (stored, self.runtimes.get_mut(namespace)) else { return };
        runtime.holds.follow(stored);
        runtime.holds.settles_at = None;
        if stored.longest_hold > stored.hold() {
            runtime.settle_hold_at(context.now.max(runtime.holds.silent_from) + stored.longest_hold);
        }
    }

    /// Another leader's batch is there, or the term is over.
    pub(super) fn on_fenced(&mut self, index: Index, context: &mut Context<'_>) -> Next {
        if self.in_flight.as_ref().is_none_or(|in_flight| in_flight.index != index) {
            return Next::Stay;
        }
        if injected(Bug::UnknownTakenAsFailed) && self.has_started() && self.take_next_index(context) {
            return Next::Stay;
        }
        Next::StepDown
    }

    /// Whatever became of the batch, nothing else may be put at its index: it is repeated until the store is sure.
    pub(super) fn on_unsettled(&mut self, index: Index, may_be_there: bool, context: &mut Context<'_>) {
        let Some(in_flight) = self.in_flight.as_mut().filter(|in_flight| in_flight.index == index) else {
            return;
        };
        in_flight.retry_at = Some(context.now + RETRY);
        if may_be_there && self.has_started() && !self.is_resigning() {
            if injected(Bug::UnknownTakenAsFailed) {
                self.forget_batch();
            } else if injected(Bug::UnknownThenNextIndex) {
                let _ = self.on_appended(index, context);
            }
        }
    }

    pub(super) fn retry_append(&mut self, context: &mut Context<'_>) {
        let term = self.lead.term;
        let Some(in_flight) = &mut self.in_flight else { return };
        if in_flight.retry_at.is_none_or(|at| context.now < at) {
            return;
        }
        in_flight.retry_at = None;
        if let Some(batch) = &in_flight.batch {
            let batch = Arc::clone(batch);
            context.push(ManagerAction::Store(StoreCommand::Append { term, index: in_flight.index, batch }));
        }
    }

    fn compact_if_due(&mut self, context: &mut Context<'_>) {
        self.since_compaction += 1;
        if self.since_compaction >= context.config.compact_every {
            self.since_compaction = 0;
            let group = Arc::new(self.committed.clone());
            context.push(ManagerAction::Store(StoreCommand::Compact { index: self.index, group }));
        }
    }
}
