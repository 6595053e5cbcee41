//! S8: namespaces share nothing: no message of one changes another.
//!
//! A session belongs to the namespace it was started in, and a Lookup likewise. No record of another namespace names
//! the session, no other namespace's orders are sent to it, and no other namespace's log becomes a Lookup's table.

use std::collections::BTreeMap;

use centrifuge_core::id::{Namespace, Nonce, SessionId};
use centrifuge_core::lookup::LookupAction;
use centrifuge_core::manager::ManagerAction;
use centrifuge_core::message::{ManagerToLookup, ManagerToOwner};
use centrifuge_core::record::{Batch, Change, Record};

use super::{At, Facts, Seen, TrueTime, Verdict, Violation, slot};

/// Guards S8.
#[derive(Debug, Default)]
pub struct NamespacesShareNothing {
    /// The namespace of each Lookup, by the nonce of its requests.
    lookups: BTreeMap<Nonce, usize>,
    /// By node: the log that its Lookup's table is of.
    logs: Vec<Option<Nonce>>,
}

impl NamespacesShareNothing {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::Committed { batch, .. } => judge_batch(batch, facts),
            Seen::ManagerStepped { node, actions, .. } => {
                actions.iter().try_for_each(|action| self.judge_message(*node, action, facts))
            }
            Seen::LookupStepped { node, machine, actions, .. } => {
                actions.iter().for_each(|action| self.note_request(*node, action, &facts));
                let log = machine.position().map(|position| position.log);
                self.judge_table(*node, log, facts)
            }
            _ => Ok(()),
        }
    }

    fn judge_message(&self, node: usize, action: &ManagerAction, facts: At) -> Verdict {
        let (namespace, home, whom) = match action {
            ManagerAction::ToOwner { message: ManagerToOwner::Assign(assign), .. } => {
                let home = facts.holdings.home(assign.session).map(|home| home.space);
                (&assign.namespace, home, Recipient::Session(assign.session))
            }
            ManagerAction::ToLookup { message: ManagerToLookup::Update(update), .. } => {
                let home = self.lookups.get(&update.lookup).copied();
                (&update.namespace, home, Recipient::Lookup(update.lookup))
            }
            _ => return Ok(()),
        };
        if home.is_some_and(|home| facts.spaces.name(home) == namespace) {
            return Ok(());
        }
        Err(breach(
            facts.now,
            namespace,
            format!("Manager {node} sent {whom} news of {namespace}, which is not its namespace"),
        ))
    }

    fn note_request(&mut self, node: usize, action: &LookupAction, facts: &Facts) {
        if let (LookupAction::ToManager { request, .. }, Some(lookup)) = (action, facts.lookup(node)) {
            self.lookups.entry(request.lookup).or_insert(lookup.space);
        }
    }

    fn judge_table(&mut self, node: usize, log: Option<Nonce>, facts: At) -> Verdict {
        let before = std::mem::replace(slot(&mut self.logs, node), log);
        let (Some(log), Some(lookup)) = (log, facts.lookup(node)) else { return Ok(()) };
        let is_own = || facts.committed.ledger(lookup.space).is_some_and(|ledger| ledger.log(log).is_some());
        if before == Some(log) || is_own() {
            return Ok(());
        }
        let namespace = facts.spaces.name(lookup.space);
        Err(breach(
            facts.now,
            namespace,
            format!("Lookup {node} has a table of log {log}, which is not one of {namespace}"),
        ))
    }
}

/// Whom a Manager's message is for.
enum Recipient {
    Session(SessionId),
    Lookup(Nonce),
}

impl std::fmt::Display for Recipient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Recipient::Session(session) => write!(f, "{session}"),
            Recipient::Lookup(nonce) => write!(f, "Lookup {nonce}"),
        }
    }
}

fn judge_batch(batch: &Batch, facts: At) -> Verdict {
    for record in &batch.records {
        let Record::Namespace { namespace, change, .. } = record else { continue };
        let Some(session) = named(change) else { continue };
        let home = facts.holdings.home(session);
        if home.is_none_or(|home| facts.spaces.name(home.space) != namespace) {
            let what =
                format!("a record of {namespace} names {session}, which was not started in it: {change:?}");
            return Err(breach(facts.now, namespace, what));
        }
    }
    Ok(())
}

/// The session that a record names.
fn named(change: &Change) -> Option<SessionId> {
    match change {
        Change::SessionStarted { session, .. }
        | Change::SessionChanged { session, .. }
        | Change::SessionEnded { session }
        | Change::Granted { session, .. }
        | Change::Claimed { session, .. } => Some(*session),
        Change::Recalled { to, .. } => *to,
        _ => None,
    }
}

fn breach(at: TrueTime, namespace: &Namespace, what: String) -> Violation {
    Violation { invariant: "S8", at, what, keys: Vec::new(), namespace: Some(namespace.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, create, grant, other_space_name};
    use centrifuge_core::id::{Seq, Term};
    use centrifuge_core::manager::StreamId;
    use centrifuge_core::message::{Update, UpdateBody};

    /// Session 1 is of the first namespace, session 2 of the other.
    fn scene() -> Scene {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        let other = scene.facts.spaces.place(&other_space_name());
        scene.facts.holdings.start(1, crate::invariants::testing::session(2), other);
        scene.commit(at(0), vec![create(1)]);
        scene.commit_to(&other_space_name(), at(0), vec![create(2)]);
        scene.start_lookup(0, at(0));
        scene
    }

    #[test]
    fn a_record_of_its_own_sessions_is_right() {
        let mut scene = scene();
        let batch = scene.commit(at(1), vec![grant(0, 9, 1, 1)]);
        assert_eq!(judge_batch(&batch, scene.facts.at(at(1))), Ok(()));
    }

    #[test]
    fn a_record_of_anothers_session_is_found() {
        let mut scene = scene();
        for stranger in [2, 99] {
            let batch = scene.commit(at(1), vec![grant(0, 9, stranger, stranger)]);
            assert!(judge_batch(&batch, scene.facts.at(at(1))).is_err());
        }
    }

    fn update(namespace: Namespace) -> ManagerAction {
        let body = UpdateBody::Heartbeat { lsn: centrifuge_core::id::Lsn(0) };
        let (lookup, log) = (Nonce(7), Nonce(1));
        let update =
            Update { namespace, lookup, term: Term(1), echo: Seq(1), log, kind: Default::default(), body };
        ManagerAction::ToLookup { to: StreamId(1), message: ManagerToLookup::Update(update) }
    }

    #[test]
    fn a_lookup_hears_of_its_own_namespace_alone() {
        let scene = scene();
        let mut guard = NamespacesShareNothing::default();
        guard.lookups.insert(Nonce(7), 0);
        let own = update(crate::invariants::testing::space_name());
        assert_eq!(guard.judge_message(0, &own, scene.facts.at(at(1))), Ok(()));
        assert!(guard.judge_message(0, &update(other_space_name()), scene.facts.at(at(1))).is_err());
    }

    #[test]
    fn a_table_of_anothers_log_is_found() {
        let scene = scene();
        let mut guard = NamespacesShareNothing::default();
        assert_eq!(guard.judge_table(0, Some(Nonce(1)), scene.facts.at(at(1))), Ok(()));
        assert!(guard.judge_table(0, Some(Nonce(2)), scene.facts.at(at(1))).is_err());
    }
}
