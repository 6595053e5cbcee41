//! S5: at most one Manager can change a table; nothing a deposed leader does after its term reaches one.
//!
//! Terms never fall from one index of the log to the next, and a term belongs to one Manager. What Owners and Lookups
//! follow does not fall back either: the conversation an Owner reports to, and a Lookup's term and position.

use std::collections::BTreeMap;

use centrifuge_core::id::{Index, Nonce, SessionId, Term};
use centrifuge_core::manager::ManagerAction;
use centrifuge_core::message::{ManagerToOwner, OwnerToManager, Position};
use centrifuge_core::owner::OwnerAction;

use super::{At, Seen, TrueTime, Verdict, Violation, slot};

/// Guards S5.
#[derive(Debug, Default)]
pub struct OneManagerWrites {
    last: Option<Written>,
    /// The term under which each conversation was offered.
    conversations: BTreeMap<Nonce, Term>,
    /// By node: the latest conversation that its process reports to.
    owners: Vec<Follower>,
    /// By node: the furthest that its Lookup came.
    lookups: Vec<Reached>,
}

/// The latest batch.
#[derive(Clone, Copy, Debug)]
struct Written {
    index: Index,
    term: Term,
    by: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Follower {
    session: SessionId,
    conversation: Nonce,
    term: Term,
}

#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    term: Term,
    position: Option<Position>,
}

impl OneManagerWrites {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::Committed { index, batch, by } => {
                let next = Written { index: *index, term: batch.term, by: *by };
                self.judge_batch(facts.now, next, facts.limits.diskless)
            }
            Seen::ManagerStepped { actions, .. } => {
                actions.iter().for_each(|action| self.note_welcome(action));
                Ok(())
            }
            Seen::OwnerStepped { node, machine, actions, .. } => {
                let last = actions.iter().rev().find_map(reported_to);
                last.map_or(Ok(()), |to| self.judge_report(*node, machine.session(), to, facts))
            }
            Seen::LookupStarted { node, .. } => {
                *slot(&mut self.lookups, *node) = Reached::default();
                Ok(())
            }
            Seen::LookupStepped { node, machine, .. } => {
                let reached = Reached { term: machine.term(), position: machine.position() };
                self.judge_lookup(*node, reached, facts)
            }
            _ => Ok(()),
        }
    }

    /// Where there is no store no index names a place.
    fn judge_batch(&mut self, now: TrueTime, next: Written, diskless: bool) -> Verdict {
        let Some(last) = self.last.replace(next) else { return Ok(()) };
        let what = if !diskless && next.index <= last.index {
            format!("index {} was written after index {}", next.index, last.index)
        } else if next.term < last.term {
            format!(
                "Manager {} wrote index {} under term {} after Manager {} wrote under term {}",
                next.by, next.index, next.term, last.by, last.term,
            )
        } else if next.term == last.term && next.by != last.by {
            format!("Managers {} and {} both wrote under term {}", last.by, next.by, next.term)
        } else {
            return Ok(());
        };
        Err(Violation::new("S5", now, what))
    }

    fn note_welcome(&mut self, action: &ManagerAction) {
        if let ManagerAction::ToOwner { message: ManagerToOwner::Welcome(welcome), .. } = action {
            self.conversations.insert(welcome.conversation, welcome.term);
        }
    }

    fn judge_report(&mut self, node: usize, session: SessionId, conversation: Nonce, facts: At) -> Verdict {
        let last = slot(&mut self.owners, node);
        if last.session == session && last.conversation == conversation {
            return Ok(());
        }
        let term = self.conversations.get(&conversation).copied().unwrap_or_default();
        let before = std::mem::replace(last, Follower { session, conversation, term });
        if before.session != session || term >= before.term {
            return Ok(());
        }
        let what =
            format!("{session} reports to the leader of term {term} after it followed term {}", before.term);
        let namespace = facts.holdings.home(session).map(|home| facts.spaces.name(home.space).clone());
        Err(Violation { namespace, ..Violation::new("S5", facts.now, what) })
    }

    fn judge_lookup(&mut self, node: usize, reached: Reached, facts: At) -> Verdict {
        let before = std::mem::replace(slot(&mut self.lookups, node), reached);
        let what = if reached.term < before.term {
            format!("Lookup {node} follows term {} after term {}", reached.term, before.term)
        } else if let (Some(old), Some(new)) = (before.position, reached.position)
            && old.log == new.log
            && new.lsn < old.lsn
        {
            format!("Lookup {node} fell back from LSN {} to LSN {}", old.lsn, new.lsn)
        } else {
            return Ok(());
        };
        let namespace = facts.lookup(node).map(|lookup| facts.spaces.name(lookup.space).clone());
        Err(Violation { namespace, ..Violation::new("S5", facts.now, what) })
    }
}

/// The conversation that an action of an Owner is part of.
fn reported_to(action: &OwnerAction) -> Option<Nonce> {
    match action {
        OwnerAction::ToManager { message: OwnerToManager::Report(report), .. } => Some(report.conversation),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, session};
    use centrifuge_core::id::Lsn;

    fn written(index: u64, term: u64, by: usize) -> Written {
        Written { index: Index(index), term: Term(term), by }
    }

    /// The verdict on the last of some batches.
    fn judge(batches: &[Written]) -> Verdict {
        let mut guard = OneManagerWrites::default();
        let verdicts = batches.iter().map(|batch| guard.judge_batch(at(1), *batch, false));
        verdicts.last().unwrap()
    }

    #[test]
    fn one_leader_after_another_is_right() {
        assert_eq!(judge(&[written(1, 1, 0), written(2, 1, 0), written(3, 2, 1), written(4, 5, 0)]), Ok(()));
    }

    #[test]
    fn without_a_store_terms_rise_and_indexes_begin_anew() {
        let mut guard = OneManagerWrites::default();
        let mut judge = |batch| guard.judge_batch(at(1), batch, true);
        assert_eq!(judge(written(1, 1, 0)), Ok(()));
        assert_eq!(judge(written(2, 1, 0)), Ok(()));
        assert_eq!(judge(written(1, 3, 1)), Ok(()));
        assert!(judge(written(3, 1, 0)).is_err());
    }

    #[test]
    fn a_deposed_leader_that_writes_is_found() {
        assert!(judge(&[written(1, 1, 0), written(2, 2, 1), written(3, 1, 0)]).is_err());
    }

    #[test]
    fn two_writers_of_a_term_are_found() {
        assert!(judge(&[written(1, 1, 0), written(2, 1, 1)]).is_err());
    }

    #[test]
    fn an_index_written_twice_is_found() {
        assert!(judge(&[written(1, 1, 0), written(1, 2, 1)]).is_err());
    }

    #[test]
    fn an_owner_follows_rising_terms_alone() {
        let scene = Scene::new();
        let mut guard = OneManagerWrites::default();
        guard.conversations.insert(Nonce(1), Term(1));
        guard.conversations.insert(Nonce(2), Term(2));
        let mut report = |session, nonce| guard.judge_report(0, session, Nonce(nonce), scene.facts.at(at(1)));
        assert_eq!(report(session(1), 1), Ok(()));
        assert_eq!(report(session(1), 2), Ok(()));
        assert!(report(session(1), 1).is_err());
        assert_eq!(report(session(2), 2), Ok(()));
        assert_eq!(report(session(3), 1), Ok(()), "another process knows nothing of the higher term");
    }

    #[test]
    fn a_lookup_neither_falls_back_in_term_nor_in_position() {
        let scene = Scene::new();
        let reached = |term, log, lsn| Reached {
            term: Term(term),
            position: Some(Position { log: Nonce(log), lsn: Lsn(lsn) }),
        };
        let mut guard = OneManagerWrites::default();
        let mut step = |next| guard.judge_lookup(0, next, scene.facts.at(at(1)));
        assert_eq!(step(reached(1, 1, 5)), Ok(()));
        assert_eq!(step(reached(2, 1, 6)), Ok(()));
        assert!(step(reached(2, 1, 5)).is_err());
        assert_eq!(step(reached(2, 9, 0)), Ok(()), "another log begins anew");
        assert!(step(reached(1, 9, 0)).is_err());
    }
}
