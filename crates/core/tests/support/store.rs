//! The store and the election that all Managers share: correct, in memory, and as prompt as their links.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Index, ManagerId, Term};
use centrifuge_core::manager::{
    ElectionCommand, ElectionEvent, ManagerAction, ManagerEvent, StoreCommand, StoreEvent,
};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::{Batch, Change, Record};
use centrifuge_core::time::Instant;

/// A log of batches, what they add up to, and who leads until when.
#[derive(Default)]
pub struct Store {
    pub log: Vec<Arc<Batch>>,
    pub group: ManagerState,
    /// Nothing outlives a term.
    pub forgets: bool,
    term: Term,
    leader: Option<(ManagerId, Instant)>,
}

impl Store {
    /// Every change committed after the first `skip` batches, oldest first.
    pub fn changes_after(&self, skip: usize) -> impl Iterator<Item = &Change> {
        self.log.iter().skip(skip).flat_map(|batch| &batch.records).filter_map(|record| match record {
            Record::Namespace { change, .. } => Some(change),
            _ => None,
        })
    }

    /// Answers a Manager's request; `leader_hold` is how long the election keeps a leader lease from others.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        from: &ManagerId,
        leader_hold: Duration,
        request: ManagerAction,
    ) -> Option<ManagerEvent> {
        let free = self.leader.as_ref().is_none_or(|(_, until)| *until <= now);
        let leads = |term: Term| !free && term == self.term;
        Some(match request {
            ManagerAction::Election(ElectionCommand::Campaign { request }) if free => {
                self.term = self.term.next().expect("terms do not run out");
                self.leader = Some((from.clone(), now + leader_hold));
                ManagerEvent::Election(ElectionEvent::Won { request, term: self.term })
            }
            ManagerAction::Election(ElectionCommand::Campaign { request }) => {
                let leader = self.leader.as_ref().map(|(leader, _)| leader.clone());
                ManagerEvent::Election(ElectionEvent::LedBy { request, leader })
            }
            ManagerAction::Election(ElectionCommand::Renew { request, term }) if leads(term) => {
                self.leader = Some((from.clone(), now + leader_hold));
                ManagerEvent::Election(ElectionEvent::Renewed { request })
            }
            ManagerAction::Election(ElectionCommand::Renew { term, .. }) => {
                ManagerEvent::Election(ElectionEvent::Lost { term })
            }
            ManagerAction::Election(ElectionCommand::Resign { term }) => {
                self.leader.take_if(|_| leads(term));
                return None;
            }
            ManagerAction::Store(StoreCommand::Load { request }) => {
                if self.forgets {
                    (self.log, self.group) = (Vec::new(), ManagerState::default());
                }
                let (index, group) = (Index(self.log.len() as u64), Arc::new(self.group.clone()));
                ManagerEvent::Store(StoreEvent::Loaded { request, index, group })
            }
            ManagerAction::Store(StoreCommand::Append { term, index, batch }) => {
                ManagerEvent::Store(self.append(term, index, batch))
            }
            other => panic!("not a request to the store: {other:?}"),
        })
    }

    /// Commits are fenced by term; the same batch at the same index is there once.
    fn append(&mut self, term: Term, index: Index, batch: Arc<Batch>) -> StoreEvent {
        let place = index.0 as usize - 1;
        if self.log.get(place) == Some(&batch) {
            return StoreEvent::Appended { index };
        }
        if term != self.term || place != self.log.len() {
            return StoreEvent::Fenced { index };
        }
        self.group.apply(&batch);
        self.log.push(batch);
        StoreEvent::Appended { index }
    }
}
