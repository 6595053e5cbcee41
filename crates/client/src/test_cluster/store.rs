//! The Manager's store and election: in memory, correct and prompt.

use std::sync::Arc;

use centrifuge_core::id::{Index, Term};
use centrifuge_core::manager::{
    ElectionCommand, ElectionEvent, ManagerAction, ManagerConfig, ManagerEvent, StoreCommand, StoreEvent,
};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::record::Batch;
use centrifuge_core::time::Instant;

use super::managers;

/// What is committed, and who leads until when.
#[derive(Default)]
pub(super) struct Store {
    group: ManagerState,
    index: Index,
    last: Option<Arc<Batch>>,
    term: Term,
    led_until: Instant,
}

impl Store {
    /// Answers a Manager; `None`: there is nothing to say.
    pub(super) fn answer(&mut self, now: Instant, action: ManagerAction) -> Option<ManagerEvent> {
        let until = now + ManagerConfig::new(managers()[0].clone()).leader_hold;
        let leads = |store: &Store, term| now < store.led_until && term == store.term;
        Some(match action {
            ManagerAction::Election(ElectionCommand::Campaign { request }) if now >= self.led_until => {
                self.term = self.term.next().expect("a test does not use terms up");
                self.led_until = until;
                ManagerEvent::Election(ElectionEvent::Won { request, term: self.term })
            }
            ManagerAction::Election(ElectionCommand::Campaign { request }) => {
                ManagerEvent::Election(ElectionEvent::LedBy { request, leader: None })
            }
            ManagerAction::Election(ElectionCommand::Renew { request, term }) if leads(self, term) => {
                self.led_until = until;
                ManagerEvent::Election(ElectionEvent::Renewed { request })
            }
            ManagerAction::Election(ElectionCommand::Renew { term, .. }) => {
                ManagerEvent::Election(ElectionEvent::Lost { term })
            }
            ManagerAction::Election(ElectionCommand::Resign { term }) => {
                if leads(self, term) {
                    self.led_until = now;
                }
                return None;
            }
            ManagerAction::Store(StoreCommand::Load { request }) => {
                let (index, group) = (self.index, Arc::new(self.group.clone()));
                ManagerEvent::Store(StoreEvent::Loaded { request, index, group })
            }
            ManagerAction::Store(StoreCommand::Append { term, index, batch }) => {
                ManagerEvent::Store(self.append(term, index, batch))
            }
            _ => return None,
        })
    }

    /// Commits are fenced by term; the same batch at the same index is there once.
    fn append(&mut self, term: Term, index: Index, batch: Arc<Batch>) -> StoreEvent {
        if index == self.index && self.last.as_ref() == Some(&batch) {
            return StoreEvent::Appended { index };
        }
        if term != self.term || Some(index) != self.index.next() {
            return StoreEvent::Fenced { index };
        }
        self.group.apply(&batch);
        self.index = index;
        self.last = Some(batch);
        StoreEvent::Appended { index }
    }
}
