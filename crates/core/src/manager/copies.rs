//! Copies of state that an Owner has before it has the lease: which of them no grant can follow, and who is drained therefore.

use std::collections::BTreeMap;

use crate::id::{Generation, Namespace, SessionId};
use crate::injected_bug::{Bug, injected};
use crate::key::KeyRange;
use crate::manager_state::ManagerState;
use crate::message::ImportedCopy;
use crate::range_set::RangeSet;

use super::leader::Leader;

impl Leader {
    /// Whether a session that wants to be emptied has nothing left, and nobody can say any more that it moved state there.
    pub(super) fn is_drained(
        &self,
        namespace: &Namespace,
        session: SessionId,
        void: &[ImportedCopy],
    ) -> bool {
        let report = self.report(namespace, session).filter(|report| report.draining);
        let has_any = |group: &ManagerState| {
            let stored = group.namespaces.get(namespace);
            stored.is_some_and(|stored| stored.table.has_any(session))
        };
        !has_any(&self.draft)
            && !has_any(&self.committed)
            && report.is_some_and(|report| report.imports.len() == void.len())
    }

    /// The copies in a session's report that no grant can follow any more: nobody who has the lease that a copy is of can
    /// say that it moved the state there.
    pub(super) fn void_copies(&self, namespace: &Namespace, session: SessionId) -> Vec<ImportedCopy> {
        let (Some(report), Some(runtime), Some(draft), Some(committed)) = (
            self.report(namespace, session),
            self.runtimes.get(namespace).filter(|runtime| runtime.rebuild.is_none()),
            self.draft.namespaces.get(namespace),
            self.committed.namespaces.get(namespace),
        ) else {
            return Vec::new();
        };
        if report.imports.is_empty() {
            return Vec::new();
        }
        // By the number under which state was held: the keys whose lease may still follow it.
        let mut follows: BTreeMap<Generation, RangeSet> =
            report.imports.iter().map(|copy| (copy.source, RangeSet::new())).collect();
        let mut note = |number: Option<Generation>, range: KeyRange| {
            if let Some(keys) = number.and_then(|number| follows.get_mut(&number)) {
                keys.insert(range);
            }
        };
        let keys: RangeSet = report.imports.iter().map(|copy| copy.range).collect();
        let mut may_move: BTreeMap<Option<SessionId>, bool> = BTreeMap::new();
        for (range, entry) in keys
            .iter()
            .flat_map(|range| draft.table.overlapping(range).chain(committed.table.overlapping(range)))
        {
            if entry.owner == Some(session) {
                note(entry.source, range);
            }
            let moves = *may_move.entry(entry.owner).or_insert_with(|| {
                let conversation = entry.owner.map(|owner| runtime.conversations.open.get(&owner));
                conversation.is_some_and(|conversation| {
                    conversation.is_none_or(|conversation| conversation.may_move_to(session))
                })
            });
            if moves {
                note(Some(entry.generation), range);
                note(entry.merge.filter(|_| !injected(Bug::CopyVoidUnderNewNumber)), range);
            }
        }
        let is_void = |copy: &&ImportedCopy| {
            !follows[&copy.source].overlaps(copy.range) && !runtime.awaited.overlaps(copy.range)
        };
        report.imports.iter().filter(is_void).copied().collect()
    }
}
