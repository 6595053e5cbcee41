//! What injected bugs do that takes more than a line. The rule that each of them breaks asks for it in one.

use std::sync::Arc;
use std::time::Duration;

use crate::id::{OwnerName, SessionId};
use crate::key::KeyRange;
use crate::manager_state::{ManagerState, NamespaceState};
use crate::message::{ImportedCopy, MovedLease, Report, Warrant};
use crate::record::{Change, Reason, Record, SessionInfo};
use crate::table::Entry;
use crate::time::Instant;

use super::Context;
use super::commit::InFlight;
use super::conversation::Conversation;
use super::conversations::Offer;
use super::decide::{Decision, Finding};
use super::event::{ManagerAction, StoreCommand, StreamId};
use super::leader::Leader;
use super::moves::Move;
use super::namespace_runtime::NamespaceRuntime;

/// The group as a leader sees it that knows every lease under one number.
pub(super) fn without_merges(group: &ManagerState) -> ManagerState {
    let mut group = group.clone();
    for stored in group.namespaces.values_mut() {
        let entries: Vec<_> = stored.table.iter().map(|(range, entry)| (range, *entry)).collect();
        for (range, entry) in entries {
            stored.table.set(range, Entry { merge: None, ..entry });
        }
    }
    group
}

/// A report of any conversation that could be a claim opens one.
pub(super) fn open_conversation(
    runtime: &mut NamespaceRuntime,
    from: StreamId,
    report: &Report,
    now: Instant,
) {
    let known = runtime.conversations.open.contains_key(&report.session)
        || runtime.conversations.offers.contains_key(&report.session);
    let claims = report.held.iter().any(|held| held.warrant.is_some());
    if runtime.rebuild.is_none() || known || !claims {
        return;
    }
    let Ok(name) = OwnerName::new(&report.session.to_string()) else { return };
    let (id, url) = (report.conversation, "".into());
    let offer = Offer { id, name, url, takes_over: false, formerly: None, made_at: now };
    let mut conversation = Conversation::open(offer, from, None, now);
    conversation.side.seq = report.heard;
    runtime.conversations.open.insert(report.session, conversation);
}

/// Whatever one session does not list is free.
pub(super) fn absent_anywhere(stored: &NamespaceState, conversation: &Conversation) -> Vec<Finding> {
    let Some(report) = &conversation.report else { return Vec::new() };
    let listed = |range: KeyRange| report.held.iter().any(|held| held.range.overlaps(range));
    let owned = stored.table.iter().filter(|(range, entry)| entry.owner.is_some() && !listed(*range));
    let finding = |(range, entry): (KeyRange, &Entry)| Finding {
        range,
        generation: entry.generation,
        named: entry.generation,
        clean_to: None,
        given_back: false,
        refused: false,
    };
    owned.map(finding).collect()
}

/// A copy counts as if its source had spoken.
pub(super) fn copies_as_moves(runtime: &NamespaceRuntime) -> Vec<(SessionId, Move)> {
    let as_move = |session: SessionId, copy: &ImportedCopy| {
        let ImportedCopy { range, source: generation } = *copy;
        let lease = MovedLease { range, generation };
        let warrant = Some(Warrant { range, lease: Duration::ZERO, virtual_nodes: 0, code: [0; 32] });
        (session, Move { lease, state_since: generation, to: session, warrant })
    };
    let reports = runtime
        .conversations
        .open
        .iter()
        .filter_map(|(session, conversation)| Some((*session, conversation.report.as_deref()?)));
    let copies = reports.flat_map(|(session, report)| report.imports.iter().map(move |copy| (session, copy)));
    copies.map(|(session, copy)| as_move(session, copy)).collect()
}

impl Leader {
    /// The index is taken by the leader's own forgotten batch, so it uses the next.
    pub(super) fn take_next_index(&mut self, context: &mut Context<'_>) -> bool {
        let Some(in_flight) = self.in_flight.take() else { return false };
        let (Some(batch), Some(index)) = (&in_flight.batch, in_flight.index.next()) else { return false };
        self.index = in_flight.index;
        let batch = Arc::clone(batch);
        context.push(ManagerAction::Store(StoreCommand::Append { term: self.lead.term, index, batch }));
        self.in_flight = Some(InFlight { index, ..in_flight });
        true
    }

    /// The batch under way is taken for one that failed.
    pub(super) fn forget_batch(&mut self) {
        self.in_flight = None;
        self.draft = self.committed.clone();
        for runtime in self.runtimes.values_mut() {
            runtime.dirty = true;
            runtime.placement.desired = None;
            runtime.placement.members_changed = true;
            runtime.conversations.open.values_mut().for_each(|conversation| conversation.at_rest = false);
        }
    }
}

impl Decision<'_> {
    /// What the holder of a range keeps when a part of it is recalled gets a number of its own (Centrifuge figure 4).
    pub(super) fn renumber_what_stays(&mut self, change: &Change) {
        let Change::Recalled { range, .. } = change else { return };
        let (whole, entry) = self.stored().table.get(range.first());
        let (Some(owner), None, None) = (entry.owner, entry.recall, entry.merge) else { return };
        let (below, above) = whole.difference(*range);
        for rest in [below, above].into_iter().flatten() {
            self.grant_empty(rest, owner, None, Reason::Repartitioned);
        }
    }

    /// The leases of an Owner's earlier life become those of its next.
    pub(super) fn inherit(&mut self, from: SessionId, to: SessionId) {
        let leases: Vec<_> =
            self.stored().table.of_session(from).map(|(range, entry)| (range, entry.generation)).collect();
        for (range, generation) in leases {
            let (source, state_since) = (Some(generation), None);
            let granted = Change::Granted { range, generation, session: to, source, state_since };
            self.emit(granted, Reason::TakenOver);
            if let Some(conversation) = self.runtime.conversations.open.get_mut(&to) {
                conversation.offers.note_listed(range, generation);
            }
        }
    }

    /// A session becomes a member of the other namespaces too.
    pub(super) fn join_everywhere(&mut self, session: SessionId, info: &SessionInfo) {
        let others: Vec<_> =
            self.draft.namespaces.keys().filter(|name| *name != self.namespace).cloned().collect();
        for namespace in others {
            let change = Change::SessionStarted { session, info: info.clone() };
            self.draft.apply_change(&namespace, &change);
            self.plan.records.push(Record::Namespace { namespace, change, reason: Reason::Joined });
        }
    }
}
