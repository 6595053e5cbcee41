//! What was decided lately, for operators who ask why.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use centrifuge_core::id::Index;
use centrifuge_core::record::Batch;
use centrifuge_net::convert::{HistoryQuery, read_session, write_decisions};
use centrifuge_net::proto::v1;

use crate::journal::Names;

/// How many decisions are kept.
const KEPT: usize = 10_000;

/// The latest decisions, newest last.
#[derive(Debug, Default)]
pub(crate) struct History {
    decisions: Mutex<VecDeque<v1::Decision>>,
}

impl History {
    /// Adds what a batch decided, with the names of the sessions it speaks of. What is there already is not added again.
    pub(crate) fn push(&self, at: SystemTime, index: Index, batch: &Batch, names: &Names) {
        let mut added = write_decisions(millis(at), index, batch);
        for decision in added.iter_mut().filter(|decision| decision.owner.is_none()) {
            decision.owner = name_of(decision, names);
        }
        let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        if decisions.back().is_some_and(|last| last.index >= index.0) {
            return;
        }
        decisions.extend(added);
        let excess = decisions.len().saturating_sub(KEPT);
        decisions.drain(..excess);
    }

    /// The latest decisions that a query wants and that may be shown, newest last.
    #[must_use]
    pub(crate) fn find(
        &self,
        query: &HistoryQuery,
        shown: impl Fn(&v1::Decision) -> bool,
    ) -> Vec<v1::Decision> {
        let decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = decisions.iter().rev().filter(|decision| query.wants(decision) && shown(decision));
        let wanted = wanted.take(query.limit);
        let mut found: Vec<_> = wanted.cloned().collect();
        found.reverse();
        found
    }
}

fn name_of(decision: &v1::Decision, names: &Names) -> Option<String> {
    let session = read_session("session", decision.session.as_ref()?).ok()?;
    names.get(&session).map(ToString::to_string)
}

fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use centrifuge_core::id::Term;
    use centrifuge_core::record::Record;

    #[test]
    fn it_keeps_the_latest_and_gives_the_newest_last() {
        let history = History::default();
        for index in 1..=KEPT as u64 + 5 {
            let batch = Batch { term: Term(1), records: vec![Record::LeaderSettled] };
            history.push(UNIX_EPOCH, Index(index), &batch, &Names::new());
        }
        let all = history.find(&HistoryQuery { namespace: None, key: None, limit: usize::MAX }, |_| true);
        assert_eq!(all.len(), KEPT);
        assert_eq!(all.first().map(|decision| decision.index), Some(6));
        let two = history.find(&HistoryQuery { namespace: None, key: None, limit: 2 }, |_| true);
        assert_eq!(two.iter().map(|decision| decision.index).collect::<Vec<_>>(), [10_004, 10_005]);
    }
}
