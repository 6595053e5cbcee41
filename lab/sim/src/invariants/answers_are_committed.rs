//! S6: what was answered was committed; what a new leader loads contains every answer given.
//!
//! Every lease that a Manager orders, and every table entry it publishes, is compared with the batches that were
//! durable by then; so is the table of a Manager that begins to lead. Where an answer differs in that it makes state
//! older than it is, it hides a loss, and the sentence that does not hold is S4.
//!
//! Managers without disk load nothing, so that half of the sentence is not judged there. A lease that an Owner claims was
//! committed by an earlier leader, and is compared with that.

use std::sync::Arc;

use centrifuge_core::id::{Lsn, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager::{ManagerAction, ManagerMachine, RoleName};
use centrifuge_core::manager_state::{ManagerState, NamespaceState};
use centrifuge_core::message::{
    Assign, LeaseOrder, ManagerToLookup, ManagerToOwner, Position, Update, UpdateBody,
};
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::record::{Batch, Record};
use centrifuge_core::table::{Entry, PublishedEntry};

use super::committed::rows_in;
use super::{At, Facts, Ledger, Row, Seen, Verdict, Violation, first_difference, slot};

/// Guards S6.
#[derive(Debug, Default)]
pub struct AnswersAreCommitted {
    /// The term of the latest batch.
    last_term: Term,
    /// Where each namespace's log stood when the latest leader had committed its start.
    start: (Term, Vec<Option<Position>>),
    /// By namespace: the entries that were last found right, which go to many Lookups. Keeping them keeps their
    /// address from being used for others.
    approved: Vec<Option<(Position, Arc<[PublishedEntry]>)>>,
}

impl AnswersAreCommitted {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::Committed { batch, .. } => {
                self.note_batch(batch, &facts);
                Ok(())
            }
            Seen::ManagerStepped { node, machine, actions, .. } => {
                actions.iter().try_for_each(|action| self.judge(*node, machine, action, facts))
            }
            _ => Ok(()),
        }
    }

    fn note_batch(&mut self, batch: &Batch, facts: &Facts) {
        self.last_term = batch.term;
        if batch.records.iter().any(|record| matches!(record, Record::LeaderStarted { .. })) {
            let positions = facts.committed.ledgers().map(|(_, ledger)| ledger.position()).collect();
            self.start = (batch.term, positions);
        }
    }

    fn judge(&mut self, node: usize, machine: &ManagerMachine, action: &ManagerAction, facts: At) -> Verdict {
        match action {
            ManagerAction::ToOwner { message: ManagerToOwner::Assign(assign), .. } => {
                judge_assign(node, assign, facts)
            }
            ManagerAction::ToLookup { message: ManagerToLookup::Update(update), .. } => {
                self.judge_update(node, update, facts)
            }
            // Without a store there is nothing to load: what a new leader must know it learns from the Owners (ADR 15).
            ManagerAction::RoleChanged(RoleName::Leader { term }) if !facts.limits.diskless => {
                match machine.group() {
                    Some(group) => self.judge_load(node, *term, group, facts),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn judge_update(&mut self, node: usize, update: &Update, facts: At) -> Verdict {
        let found = facts.spaces.find(&update.namespace).and_then(|space| {
            let ledger = facts.committed.ledger(space)?;
            Some((space, ledger, ledger.log(update.log)?))
        });
        let Some((space, ledger, log)) = found else {
            let what = format!("Manager {node} told a Lookup of log {}, which is not committed", update.log);
            return Err(Violation {
                namespace: Some(update.namespace.clone()),
                ..Violation::new("S6", facts.now, what)
            });
        };
        let (lsn, entries) = told(&update.body);
        let Some(version) = log.version(lsn) else {
            let what =
                format!("Manager {node} told a Lookup of LSN {lsn}, but {} is the last committed", log.end());
            return Err(facts.violation("S6", space, Vec::new(), what));
        };
        let Some(entries) = entries else { return Ok(()) };
        let position = Position { log: update.log, lsn };
        let approved = slot(&mut self.approved, space);
        if approved.as_ref().is_some_and(|(at, same)| *at == position && Arc::ptr_eq(same, entries)) {
            return Ok(());
        }
        let whole = !matches!(update.body, UpdateBody::Snapshot { .. }) || is_whole(entries);
        match (whole, wrong_entry(entries, &version.rows, ledger)) {
            (true, None) => {
                *approved = Some((position, Arc::clone(entries)));
                Ok(())
            }
            (_, wrong) => {
                let what = format!(
                    "Manager {node} told a Lookup entries of LSN {lsn} that are not the committed ones"
                );
                let invariant = wrong.map_or("S6", |wrong| wrong.invariant);
                let keys = wrong.map(|wrong| wrong.key).into_iter().collect();
                Err(facts.violation(invariant, space, keys, what))
            }
        }
    }

    /// A leader that begins knows everything that was committed before its own start.
    fn judge_load(&self, node: usize, term: Term, group: &ManagerState, facts: At) -> Verdict {
        let (started, positions) = &self.start;
        for (space, ledger) in facts.committed.ledgers() {
            let at_start = positions.get(space).copied().flatten().filter(|_| *started == term);
            // Whoever is deposed already cannot be asked for more than its own start.
            let required = if self.last_term > term { at_start } else { ledger.position() };
            let Some(required) = required else { continue };
            let stored = group.namespaces.get(facts.spaces.name(space));
            let lacks = match stored {
                Some(stored) => lacks(stored, required, ledger, self.last_term <= term),
                None => Some("the namespace itself".to_owned()),
            };
            if let Some(lacks) = lacks {
                let what =
                    format!("Manager {node} leads term {term} without what was committed before: {lacks}");
                return Err(facts.violation("S6", space, Vec::new(), what));
            }
        }
        Ok(())
    }
}

/// Every order is a lease that was committed for that very session.
fn judge_assign(node: usize, assign: &Assign, facts: At) -> Verdict {
    let space = facts.spaces.find(&assign.namespace);
    let ledger = space.and_then(|space| facts.committed.ledger(space));
    let (Some(space), Some(ledger)) = (space, ledger) else {
        let what = format!("Manager {node} orders leases of a namespace that is not committed");
        return Err(Violation {
            namespace: Some(assign.namespace.clone()),
            ..Violation::new("S6", facts.now, what)
        });
    };
    let uncommitted = |order: &&LeaseOrder| {
        [order.generation, order.holds_under()].into_iter().any(|generation| {
            ledger.grant_numbered(generation).is_none_or(|grant| {
                grant.session != assign.session || !grant.covers(order.range, order.state_since)
            })
        })
    };
    let Some(order) = assign.orders.iter().find(uncommitted) else { return Ok(()) };
    let what = format!(
        "Manager {node} orders {} as lease {} with state since {} to {}, which is not committed",
        order.range, order.generation, order.state_since, assign.session,
    );
    let grant = ledger.grant_numbered(order.generation);
    let hides_loss = grant.is_some_and(|grant| grant.began_after(order.range, order.state_since));
    let invariant = if hides_loss { "S4" } else { "S6" };
    Err(facts.violation(invariant, space, vec![order.range.first()], what))
}

/// The position that an update leads to, and the entries that lead there.
fn told(body: &UpdateBody) -> (Lsn, Option<&Arc<[PublishedEntry]>>) {
    match body {
        UpdateBody::Heartbeat { lsn } => (*lsn, None),
        UpdateBody::Unchanged { .. } => (Lsn::ZERO, None),
        UpdateBody::Changes { to, entries, .. } => (*to, Some(entries)),
        UpdateBody::Snapshot { lsn, entries } => (*lsn, Some(entries)),
    }
}

fn is_whole(entries: &[PublishedEntry]) -> bool {
    entries.first().is_some_and(|entry| entry.range.first() == Key::MIN)
        && entries.last().is_some_and(|entry| entry.range.last() == Key::MAX)
        && entries.windows(2).all(|pair| pair[0].range.touches(pair[1].range))
}

/// An entry that is not as it was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WrongEntry {
    key: Key,
    invariant: &'static str,
}

/// The first entry, later ones before earlier ones, that says something else than the rows.
fn wrong_entry(entries: &[PublishedEntry], rows: &[(KeyRange, Row)], ledger: &Ledger) -> Option<WrongEntry> {
    if let Some(entry) = entries.iter().find(|entry| !is_reached(entry, ledger)) {
        return Some(WrongEntry { key: entry.range.first(), invariant: "S6" });
    }
    if entries.iter().all(|entry| wrong_row(rows, entry.range, row_of(entry)).is_none()) {
        return None;
    }
    let last_words: RangeMap<Row> = entries.iter().map(|entry| (entry.range, row_of(entry))).collect();
    last_words.iter().find_map(|(range, row)| wrong_row(rows, range, *row))
}

/// What is wrong with one row said of a range.
fn wrong_row(rows: &[(KeyRange, Row)], range: KeyRange, said: Row) -> Option<WrongEntry> {
    let (part, committed) = rows_in(rows, range).find(|(_, committed)| *committed != said)?;
    let hides_loss = said == Row { state_since: said.state_since, ..*committed }
        && said.state_since < committed.state_since;
    let invariant = if hides_loss { "S4" } else { "S6" };
    Some(WrongEntry { key: part.first().max(range.first()), invariant })
}

fn row_of(entry: &PublishedEntry) -> Row {
    Row {
        owner: entry.owner.as_ref().map(|owner| owner.session),
        generation: entry.generation,
        state_since: entry.state_since,
        quarantined: entry.quarantined,
    }
}

/// Whether an entry names the address that its session committed.
fn is_reached(entry: &PublishedEntry, ledger: &Ledger) -> bool {
    entry.owner.as_ref().is_none_or(|owner| ledger.url(owner.session) == Some(&owner.url))
}

/// What a loaded namespace lacks of what was committed at a position.
fn lacks(stored: &NamespaceState, required: Position, ledger: &Ledger, is_latest: bool) -> Option<String> {
    if stored.log != required.log {
        return Some(format!("log {}", required.log));
    }
    if stored.lsn < required.lsn {
        return Some(format!("LSN {}, it has {}", required.lsn, stored.lsn));
    }
    let Some(version) = ledger.version(Position { log: stored.log, lsn: stored.lsn }) else {
        return Some(format!("it has LSN {} that is not committed", stored.lsn));
    };
    let loaded = stored.table.iter().map(|(range, entry)| {
        let Entry { owner, generation, state_since, quarantined, .. } = *entry;
        (range, Row { owner, generation, state_since, quarantined })
    });
    if let Some(key) = first_difference(loaded, version.rows.iter().copied()) {
        return Some(format!("the entry of key {key} at LSN {}", stored.lsn));
    }
    if is_latest && !stored.sessions.keys().eq(ledger.sessions.keys()) {
        return Some("its sessions".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{
        Scene, at, create, generation, grant, range, release, session, space_name, start_session,
    };
    use centrifuge_core::id::{Nonce, Seq};
    use centrifuge_core::message::OrderKind;
    use centrifuge_core::table::PublishedOwner;
    use std::time::Duration;

    fn scene() -> Scene {
        let mut scene = Scene::new();
        scene.commit(at(0), vec![create(1), start_session(1), grant(0, 9, 1, 1)]);
        scene
    }

    fn assign(order: (KeyRange, u64, u64), to: u64) -> Assign {
        let (range, number, state_since) = order;
        Assign {
            namespace: space_name(),
            session: session(to),
            conversation: Nonce(1),
            term: Term(1),
            seq: Seq(1),
            heard: Seq(1),
            applied: Seq(1),
            lease: Duration::from_secs(60),
            renewal: Duration::from_secs(15),
            orders: [LeaseOrder {
                range,
                generation: generation(number),
                state_since: generation(state_since),
                kind: OrderKind::Renewal,
                merge: None,
                recall: None,
                warrant: None,
            }]
            .into(),
            wants_answer: false,
            drain_waits: false,
            drained: false,
            void: Vec::new(),
            repeat: Vec::new(),
            evicted: false,
        }
    }

    fn entry(range: KeyRange, owner: Option<u64>, number: u64) -> PublishedEntry {
        let owner = owner.map(|owner| PublishedOwner {
            session: session(owner),
            url: format!("url-{owner}").as_str().into(),
        });
        let (generation, state_since) = (generation(number), generation(number));
        PublishedEntry { range, owner, generation, state_since, quarantined: false }
    }

    fn update(body: UpdateBody) -> Update {
        let (namespace, kind) = (space_name(), Default::default());
        Update { namespace, lookup: Nonce(7), term: Term(1), echo: Seq(1), log: Nonce(1), kind, body }
    }

    fn judge_update(scene: &Scene, body: UpdateBody) -> Verdict {
        AnswersAreCommitted::default().judge_update(0, &update(body), scene.facts.at(at(1)))
    }

    #[test]
    fn an_order_of_a_committed_lease_is_right() {
        let scene = scene();
        assert_eq!(judge_assign(0, &assign((range(0, 9), 1, 1), 1), scene.facts.at(at(1))), Ok(()));
        assert_eq!(judge_assign(0, &assign((range(3, 5), 1, 1), 1), scene.facts.at(at(1))), Ok(()));
    }

    #[test]
    fn an_order_is_found_if_anything_of_it_is_not_committed() {
        let scene = scene();
        for (order, to) in [
            ((range(0, 9), 2, 2), 1),
            ((range(0, 9), 1, 0), 1),
            ((range(0, 10), 1, 1), 1),
            ((range(0, 9), 1, 1), 2),
        ] {
            assert!(judge_assign(0, &assign(order, to), scene.facts.at(at(1))).is_err(), "{order:?} to {to}");
        }
    }

    #[test]
    fn committed_changes_and_snapshots_are_right() {
        let scene = scene();
        let changes: Arc<[PublishedEntry]> = Arc::new([entry(range(0, 9), Some(1), 1)]);
        let body = UpdateBody::Changes { from: Lsn(0), to: Lsn(1), entries: changes };
        assert_eq!(judge_update(&scene, body), Ok(()));
        let snapshot: Arc<[PublishedEntry]> =
            Arc::new([entry(range(0, 9), Some(1), 1), entry(range(10, u64::MAX), None, 0)]);
        assert_eq!(judge_update(&scene, UpdateBody::Snapshot { lsn: Lsn(1), entries: snapshot }), Ok(()));
        assert_eq!(judge_update(&scene, UpdateBody::Heartbeat { lsn: Lsn(1) }), Ok(()));
    }

    #[test]
    fn later_changes_overwrite_earlier_ones() {
        let mut scene = scene();
        scene.commit(at(1), vec![release(0, 9, 1)]);
        let released = PublishedEntry { owner: None, ..entry(range(0, 9), Some(1), 1) };
        let entries: Arc<[PublishedEntry]> = Arc::new([entry(range(0, 9), Some(1), 1), released]);
        assert_eq!(judge_update(&scene, UpdateBody::Changes { from: Lsn(0), to: Lsn(2), entries }), Ok(()));
    }

    #[test]
    fn an_answer_ahead_of_its_commit_is_found() {
        let scene = scene();
        assert!(judge_update(&scene, UpdateBody::Heartbeat { lsn: Lsn(2) }).is_err());
        let entries: Arc<[PublishedEntry]> = Arc::new([entry(range(0, 9), Some(1), 2)]);
        assert!(judge_update(&scene, UpdateBody::Changes { from: Lsn(0), to: Lsn(1), entries }).is_err());
    }

    #[test]
    fn an_answer_that_makes_state_older_hides_a_loss() {
        let mut scene = scene();
        scene.commit(at(1), vec![grant(0, 9, 2, 1)]);
        let older = PublishedEntry { state_since: generation(1), ..entry(range(0, 9), Some(1), 2) };
        let entries: Arc<[PublishedEntry]> = Arc::new([older]);
        let violation = judge_update(&scene, UpdateBody::Changes { from: Lsn(1), to: Lsn(2), entries });
        assert_eq!(violation.unwrap_err().invariant, "S4");
        let order = assign((range(0, 9), 2, 1), 1);
        assert_eq!(judge_assign(0, &order, scene.facts.at(at(1))).unwrap_err().invariant, "S4");
    }

    #[test]
    fn a_snapshot_with_a_hole_is_found() {
        let scene = scene();
        let entries: Arc<[PublishedEntry]> = Arc::new([entry(range(0, 9), Some(1), 1)]);
        assert!(judge_update(&scene, UpdateBody::Snapshot { lsn: Lsn(1), entries }).is_err());
    }

    /// The verdict on a leader that loaded the first `known` of two batches.
    fn lead(known: usize) -> Verdict {
        let mut scene = Scene::new();
        let batches = [
            scene.commit(at(0), vec![create(1), start_session(1), grant(0, 9, 1, 1)]),
            scene.commit(at(1), vec![grant(10, 19, 2, 1)]),
        ];
        let mut group = ManagerState::default();
        for batch in &batches[..known] {
            group.apply(batch);
        }
        AnswersAreCommitted::default().judge_load(0, Term(1), &group, scene.facts.at(at(2)))
    }

    #[test]
    fn a_leader_that_loaded_everything_is_right() {
        assert_eq!(lead(2), Ok(()));
    }

    #[test]
    fn a_leader_that_misses_a_commit_is_found() {
        assert!(lead(1).is_err());
        assert!(lead(0).is_err());
    }
}
