//! S4: every loss of state is raised at every Lookup within the bound; a clean migration is never claimed where state
//! was lost.
//!
//! What counts as lost is seen twice. Applications show it: an operation that finds nothing where a value was left. The
//! table shows it: a range is released, or granted without its state. Each loss is a debt of every Lookup that had a
//! table before it, and a raised loss pays the debts on its keys. It is due when the Lookup's knowledge of the time
//! before a leader knew of the loss is too old to be relied on. A Lookup that is paused, or that has declared everything lost and is
//! still out of contact, owes nothing until it is back. Nor is state given up as lost that its Owner said it moved.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::group::Group;
use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LookupMachine, LossWhy};
use centrifuge_core::message::{OwnerToManager, Position, Release};
use centrifuge_core::owner::OwnerAction;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::{Batch, Change, Reason, Record};
use centrifuge_core::time::Instant;

use crate::oracle::Limits;
use crate::seen::{Seen, TrueTime, Value};

use super::committed::{How, Ledger, RowChange};
use super::{Facts, Verdict, later, slot};

/// The deadline of what nobody can know yet.
const NOT_YET: TrueTime = TrueTime(u64::MAX);

/// Guards S4.
#[derive(Debug, Default)]
pub struct LossesAreRaised {
    left: BTreeMap<(usize, Key), Left>,
    listeners: Vec<Listening>,
    /// Published losses of which no leader knows yet.
    unlearned: Vec<Unlearned>,
    /// The keys that Owners said they moved, by namespace and lease.
    moved: BTreeMap<(usize, Generation), RangeSet>,
    /// No debt is due before this; `None`: there is none.
    next_deadline: Option<TrueTime>,
}

/// The value that an application left at a key last.
#[derive(Clone, Copy, Debug)]
struct Left {
    value: Value,
    at: TrueTime,
}

/// What one Lookup has told its application, and what it still has to.
#[derive(Debug, Default)]
struct Listening {
    /// When it had its first table.
    since: Option<TrueTime>,
    /// It has declared everything lost, and has not been in contact since.
    out_of_contact: bool,
    raised: Vec<(TrueTime, RangeSet)>,
    debts: Vec<Debt>,
}

/// A loss that a Lookup has to raise.
#[derive(Clone, Debug)]
struct Debt {
    keys: Arc<[KeyRange]>,
    lost_at: TrueTime,
    deadline: TrueTime,
    how: HowLost,
}

/// A loss that is durable at a position of which no leader knows yet.
#[derive(Clone, Copy, Debug)]
struct Unlearned {
    space: usize,
    lost_at: TrueTime,
    position: Position,
}

/// How a loss came to light.
#[derive(Clone, Copy, Debug)]
enum HowLost {
    Published,
    Served(Generation),
}

/// An operation on a probe key.
#[derive(Clone, Copy, Debug)]
struct Service {
    space: usize,
    key: Key,
    session: SessionId,
    generation: Generation,
    before: Option<Value>,
    after: Value,
}

impl LossesAreRaised {
    /// Judges an event.
    pub fn see(&mut self, now: TrueTime, seen: &Seen<'_>, facts: &Facts) -> Verdict {
        match seen {
            Seen::LookupStarted { node, .. } | Seen::LookupEnded { node } => {
                *slot(&mut self.listeners, *node) = Listening::default();
            }
            Seen::LookupPaused { node, paused: false } => self.postpone(now, *node, facts.limits.slack),
            Seen::LookupStepped { node, machine, clock, actions } => {
                self.hear_step(now, *node, machine, clock.read(now), actions, &facts.limits);
            }
            Seen::ManagerStepped { machine, .. } if !self.unlearned.is_empty() => {
                machine.group().into_iter().for_each(|group| self.note_learned(now, group, facts));
            }
            Seen::OwnerStepped { node, actions, .. } => {
                let space = facts.holdings.space_of(*node);
                actions.iter().flat_map(releases).for_each(|release| self.note_release(space, release));
            }
            Seen::Committed { batch, .. } => {
                self.judge_batch(now, facts)?;
                self.judge_drops(now, batch, facts)?;
            }
            Seen::Served { session, namespace, key, generation, before, after } => {
                if let Some(space) = facts.spaces.find(namespace) {
                    let (session, key, generation) = (*session, *key, *generation);
                    let service = Service { space, key, session, generation, before: *before, after: *after };
                    self.serve(now, service, facts)?;
                }
            }
            _ => {}
        }
        match self.next_deadline {
            Some(deadline) if deadline < now => self.collect(now, facts),
            _ => Ok(()),
        }
    }

    /// An application found the latest value there is, or nothing; if nothing, the value before is lost.
    fn serve(&mut self, now: TrueTime, service: Service, facts: &Facts) -> Verdict {
        let left = Left { value: service.after, at: now };
        let before = self.left.insert((service.space, service.key), left);
        match (service.before, before) {
            (Some(found), latest) if latest.is_none_or(|latest| latest.value != found) => {
                let what = stale_service(&service, found, latest);
                Err(facts.violation("S4", now, service.space, vec![service.key], what))
            }
            (None, Some(lost)) => {
                self.owe_service(now, &service, lost, facts);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn owe_service(&mut self, now: TrueTime, service: &Service, lost: Left, facts: &Facts) {
        let debt = Debt {
            keys: Arc::new([KeyRange::one(service.key)]),
            lost_at: lost.at,
            deadline: later(now, allowance(&facts.limits)),
            how: HowLost::Served(service.generation),
        };
        let has_raised = |listening: &Listening| listening.has_raised(service.key, lost.at);
        self.owe(service.space, &debt, facts, |listening| {
            listening.since.is_some_and(|since| since < lost.at) && !has_raised(listening)
        });
    }

    fn judge_batch(&mut self, now: TrueTime, facts: &Facts) -> Verdict {
        let changes = facts.committed.changes();
        for change in changes {
            judge_clean(now, change, facts)?;
        }
        for group in changes.chunk_by(|one, next| one.space == next.space) {
            let lost: Vec<KeyRange> = group.iter().flat_map(|change| lost_keys(change, facts)).collect();
            if !lost.is_empty() {
                self.owe_published(now, group[0].space, lost, facts);
            }
        }
        Ok(())
    }

    /// A loss that is durable, though perhaps no leader knows yet: until one does no Lookup can, and its time begins.
    fn owe_published(&mut self, now: TrueTime, space: usize, lost: Vec<KeyRange>, facts: &Facts) {
        let debt = Debt { keys: lost.into(), lost_at: now, deadline: NOT_YET, how: HowLost::Published };
        self.owe(space, &debt, facts, |listening| listening.since.is_some());
        let position = facts.committed.ledger(space).and_then(Ledger::position);
        self.unlearned.extend(position.map(|position| Unlearned { space, lost_at: now, position }));
    }

    /// A Manager's idea of the table may now contain losses that it did not contain before.
    fn note_learned(&mut self, now: TrueTime, group: &Group, facts: &Facts) {
        let unlearned = std::mem::take(&mut self.unlearned);
        for loss in unlearned {
            let stored = group.namespaces.get(facts.spaces.name(loss.space));
            let position = stored.map(|stored| Position { log: stored.log, lsn: stored.lsn });
            if position.is_some_and(|at| at.log == loss.position.log && at.lsn >= loss.position.lsn) {
                self.fall_due(loss, later(now, allowance(&facts.limits)));
            } else {
                self.unlearned.push(loss);
            }
        }
    }

    fn fall_due(&mut self, loss: Unlearned, deadline: TrueTime) {
        let debts = self.listeners.iter_mut().flat_map(|listening| &mut listening.debts);
        for debt in debts.filter(|debt| debt.deadline == NOT_YET && debt.lost_at == loss.lost_at) {
            debt.deadline = deadline;
            self.next_deadline = sooner(self.next_deadline, deadline);
        }
    }

    fn note_release(&mut self, space: usize, release: &Release) {
        if release.clean_to.is_some() {
            self.moved.entry((space, release.generation)).or_default().insert(release.range);
        }
    }

    /// An Owner repeats that it moved a range until this is committed, so that no Manager can take it for dropped.
    fn judge_drops(&self, now: TrueTime, batch: &Batch, facts: &Facts) -> Verdict {
        for record in &batch.records {
            let Record::Namespace { namespace, change, reason: Reason::Dropped } = record else { continue };
            let Change::Released { range, generation } = change else { continue };
            let Some(space) = facts.spaces.find(namespace) else { continue };
            if self.moved.get(&(space, *generation)).is_some_and(|moved| moved.overlaps(*range)) {
                let what = format!(
                    "{range} was given up as dropped, though the owner of lease {generation} had moved its state"
                );
                return Err(facts.violation("S4", now, space, vec![range.first()], what));
            }
        }
        Ok(())
    }

    /// Makes a loss a debt of every Lookup of the namespace that it concerns.
    fn owe(&mut self, space: usize, debt: &Debt, facts: &Facts, concerns: impl Fn(&Listening) -> bool) {
        for (node, listening) in self.listeners.iter_mut().enumerate() {
            let is_here = facts.lookup(node).is_some_and(|lookup| lookup.space == space);
            if is_here && concerns(listening) {
                listening.debts.push(debt.clone());
                self.next_deadline = sooner(self.next_deadline, debt.deadline);
            }
        }
    }

    fn hear_step(
        &mut self,
        now: TrueTime,
        node: usize,
        machine: &LookupMachine,
        local: Instant,
        actions: &[LookupAction],
        limits: &Limits,
    ) {
        let listening = slot(&mut self.listeners, node);
        if listening.since.is_none() && machine.position().is_some() {
            listening.since = Some(now);
        }
        for action in actions {
            if let LookupAction::Loss { keys, why } = action {
                listening.hear(now, keys, *why);
            }
        }
        if listening.out_of_contact && machine.in_contact(local) {
            listening.out_of_contact = false;
            self.postpone(now, node, allowance(limits));
        }
    }

    /// A Lookup that is back has some time for what it could not know.
    fn postpone(&mut self, now: TrueTime, node: usize, by: Duration) {
        let deadline = later(now, by);
        for debt in slot(&mut self.listeners, node).debts.iter_mut().filter(|debt| debt.deadline != NOT_YET) {
            debt.deadline = debt.deadline.max(deadline);
            self.next_deadline = sooner(self.next_deadline, debt.deadline);
        }
    }

    /// Finds a debt that is overdue, and when the next will be.
    fn collect(&mut self, now: TrueTime, facts: &Facts) -> Verdict {
        self.next_deadline = None;
        for (node, listening) in self.listeners.iter().enumerate() {
            let Some(lookup) = facts.lookup(node) else { continue };
            if lookup.paused || listening.out_of_contact {
                continue;
            }
            for debt in &listening.debts {
                if debt.deadline < now {
                    let keys = debt.keys.iter().map(|range| range.first()).take(4).collect();
                    return Err(facts.violation("S4", now, lookup.space, keys, debt.describe(node)));
                }
                self.next_deadline = sooner(self.next_deadline, debt.deadline);
            }
        }
        Ok(())
    }
}

impl Listening {
    fn hear(&mut self, now: TrueTime, keys: &RangeSet, why: LossWhy) {
        self.debts.retain_mut(|debt| !debt.is_paid_by(keys));
        self.out_of_contact |= why == LossWhy::OutOfContact;
        self.raised.push((now, keys.clone()));
    }

    fn has_raised(&self, key: Key, after: TrueTime) -> bool {
        let recent = self.raised.iter().rev().take_while(|(at, _)| *at > after);
        recent.into_iter().any(|(_, keys)| keys.contains(key))
    }
}

impl Debt {
    /// Strikes out the keys that were raised; true if none is left.
    fn is_paid_by(&mut self, raised: &RangeSet) -> bool {
        if self.keys.iter().all(|range| raised.contains_range(*range)) {
            return true;
        }
        if self.keys.iter().any(|range| raised.overlaps(*range)) {
            let rest = RangeSet::from_ranges(self.keys.iter().copied()).difference(raised);
            self.keys = rest.iter().collect();
        }
        false
    }

    fn describe(&self, node: usize) -> String {
        let keys: Vec<String> = self.keys.iter().take(4).map(ToString::to_string).collect();
        let keys = keys.join(", ");
        let Debt { lost_at, deadline, .. } = self;
        match self.how {
            HowLost::Published => format!(
                "the state of {keys} was published as lost at {lost_at}, and Lookup {node} did not raise it by {deadline}"
            ),
            HowLost::Served(generation) => format!(
                "the state left at {keys} at {lost_at} is gone, as service under lease {generation} showed, and \
                 Lookup {node} did not raise it by {deadline}"
            ),
        }
    }
}

/// What an action of an Owner releases.
fn releases(action: &OwnerAction) -> &[Release] {
    match action {
        OwnerAction::ToManager { message: OwnerToManager::Report(report), .. } => &report.released,
        _ => &[],
    }
}

/// How long after it came to light a loss may be raised. A Lookup that waits for a key's next owner does not wait
/// longer than this either.
fn allowance(limits: &Limits) -> Duration {
    limits.contact_timeout + limits.slack
}

fn sooner(one: Option<TrueTime>, other: TrueTime) -> Option<TrueTime> {
    Some(one.map_or(other, |one| one.min(other)))
}

fn stale_service(service: &Service, found: Value, latest: Option<Left>) -> String {
    let Service { key, session, generation, .. } = service;
    match latest {
        Some(latest) => format!(
            "{session} served key {key} under lease {generation} from {found:?}, but the latest state is {:?}, left at {}",
            latest.value, latest.at,
        ),
        None => {
            format!("{session} served key {key} under lease {generation} from {found:?}, which nobody left")
        }
    }
}

/// State that comes along comes from the session that held it until this very record.
fn judge_clean(now: TrueTime, change: &RowChange, facts: &Facts) -> Verdict {
    let RowChange { space, range, before, after, how: How::Granted(Some(source)) } = *change else {
        return Ok(());
    };
    if before.owner.is_some() && before.generation == source {
        return Ok(());
    }
    let what = format!(
        "{range} was granted as lease {} with the state of lease {source}, but its last lease was {}, {}",
        after.generation,
        before.generation,
        if before.owner.is_some() { "which somebody has" } else { "which nobody had any more" },
    );
    Err(facts.violation("S4", now, space, vec![range.first()], what))
}

/// The keys of a changed row that had state before the batch and have none of it after.
fn lost_keys(change: &RowChange, facts: &Facts) -> Vec<KeyRange> {
    let RowChange { space, range, before, after, how } = *change;
    if before.generation == Generation::ZERO {
        return Vec::new();
    }
    match how {
        How::Granted(_) if after.state_since > before.generation => vec![range],
        How::Granted(_) => Vec::new(),
        How::Released => {
            let Some(ledger) = facts.committed.ledger(space) else { return Vec::new() };
            let rows = ledger.rows.overlapping(range);
            rows.filter(|(_, row)| row.owner.is_none()).map(|(part, _)| part).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{
        Scene, at, clean_grant, create, generation, grant, range, release, session, space_name,
    };
    use centrifuge_core::id::Term;
    use centrifuge_core::plant::Plants;

    /// With the limits of [`Scene`] a loss must be raised within this many seconds.
    const ALLOWED: u64 = 100;

    fn value(lineage: u64, version: u64) -> Value {
        Value { lineage, version }
    }

    fn serve(
        guard: &mut LossesAreRaised,
        now: TrueTime,
        scene: &Scene,
        before: Option<Value>,
        after: Value,
    ) -> Verdict {
        let service =
            Service { space: 0, key: Key(5), session: session(1), generation: generation(1), before, after };
        guard.serve(now, service, &scene.facts)
    }

    /// A namespace with a Lookup on node 0 that has had a table since the start.
    fn listening() -> (Scene, LossesAreRaised) {
        let (mut scene, mut guard) = (Scene::new(), LossesAreRaised::default());
        let batch = scene.commit(at(0), vec![create(1), grant(0, 9, 1, 1)]);
        scene.group.apply(&batch, Plants::NONE);
        scene.start_lookup(0, at(0));
        slot(&mut guard.listeners, 0).since = Some(at(0));
        (scene, guard)
    }

    fn commit(scene: &mut Scene, guard: &mut LossesAreRaised, now: TrueTime, change: Change) -> Verdict {
        let batch = scene.commit(now, vec![change]);
        guard.judge_batch(now, &scene.facts)?;
        scene.group.apply(&batch, Plants::NONE);
        guard.note_learned(now, &scene.group, &scene.facts);
        Ok(())
    }

    fn raise(guard: &mut LossesAreRaised, now: TrueTime, keys: KeyRange, why: LossWhy) {
        guard.listeners[0].hear(now, &RangeSet::from_ranges([keys]), why);
    }

    #[test]
    fn the_latest_state_may_be_served() {
        let (scene, mut guard) = listening();
        assert_eq!(serve(&mut guard, at(1), &scene, None, value(1, 1)), Ok(()));
        assert_eq!(serve(&mut guard, at(2), &scene, Some(value(1, 1)), value(1, 2)), Ok(()));
        assert_eq!(guard.collect(at(900), &scene.facts), Ok(()));
    }

    #[test]
    fn stale_state_is_found() {
        let (scene, mut guard) = listening();
        serve(&mut guard, at(1), &scene, None, value(1, 1)).unwrap();
        serve(&mut guard, at(2), &scene, Some(value(1, 1)), value(1, 2)).unwrap();
        assert!(serve(&mut guard, at(3), &scene, Some(value(1, 1)), value(1, 2)).is_err());
    }

    #[test]
    fn state_from_nowhere_is_found() {
        let (scene, mut guard) = listening();
        assert!(serve(&mut guard, at(3), &scene, Some(value(1, 1)), value(1, 2)).is_err());
    }

    #[test]
    fn state_served_anew_without_a_loss_is_found() {
        let (scene, mut guard) = listening();
        serve(&mut guard, at(1), &scene, None, value(1, 1)).unwrap();
        serve(&mut guard, at(9), &scene, None, value(2, 1)).unwrap();
        assert_eq!(guard.collect(at(9 + ALLOWED), &scene.facts), Ok(()));
        let violation = guard.collect(at(10 + ALLOWED), &scene.facts).unwrap_err();
        assert_eq!((violation.invariant, violation.keys), ("S4", vec![Key(5)]));
    }

    #[test]
    fn a_loss_raised_before_the_service_or_after_it_pays() {
        for raised in [at(5), at(20)] {
            let (scene, mut guard) = listening();
            serve(&mut guard, at(1), &scene, None, value(1, 1)).unwrap();
            if raised < at(9) {
                raise(&mut guard, raised, range(0, 9), LossWhy::StateBeganAnew);
            }
            serve(&mut guard, at(9), &scene, None, value(2, 1)).unwrap();
            if raised > at(9) {
                raise(&mut guard, raised, range(0, 9), LossWhy::StateBeganAnew);
            }
            assert_eq!(guard.collect(at(900), &scene.facts), Ok(()));
        }
    }

    #[test]
    fn a_loss_raised_before_the_last_write_pays_nothing() {
        let (scene, mut guard) = listening();
        serve(&mut guard, at(3), &scene, None, value(1, 1)).unwrap();
        raise(&mut guard, at(2), range(0, 9), LossWhy::StateBeganAnew);
        serve(&mut guard, at(9), &scene, None, value(2, 1)).unwrap();
        assert!(guard.collect(at(900), &scene.facts).is_err());
    }

    #[test]
    fn a_lookup_that_came_later_owes_nothing() {
        let (scene, mut guard) = listening();
        serve(&mut guard, at(3), &scene, None, value(1, 1)).unwrap();
        guard.listeners[0].since = Some(at(4));
        serve(&mut guard, at(9), &scene, None, value(2, 1)).unwrap();
        assert_eq!(guard.collect(at(900), &scene.facts), Ok(()));
    }

    #[test]
    fn a_published_loss_must_be_raised_for_all_its_keys() {
        let (mut scene, mut guard) = listening();
        commit(&mut scene, &mut guard, at(10), grant(0, 9, 2, 2)).unwrap();
        raise(&mut guard, at(11), range(0, 6), LossWhy::StateBeganAnew);
        let violation = guard.collect(at(11 + ALLOWED), &scene.facts).unwrap_err();
        assert_eq!(violation.keys, vec![Key(7)]);
        raise(&mut guard, at(12), range(7, 9), LossWhy::Unowned);
        assert_eq!(guard.collect(at(900), &scene.facts), Ok(()));
    }

    #[test]
    fn a_loss_is_due_once_a_leader_knows_of_it() {
        let (mut scene, mut guard) = listening();
        let batch = scene.commit(at(10), vec![grant(0, 9, 2, 2)]);
        guard.judge_batch(at(10), &scene.facts).unwrap();
        guard.note_learned(at(20), &scene.group, &scene.facts);
        assert_eq!(guard.collect(at(500), &scene.facts), Ok(()));
        scene.group.apply(&batch, Plants::NONE);
        guard.note_learned(at(500), &scene.group, &scene.facts);
        assert_eq!(guard.collect(at(500 + ALLOWED), &scene.facts), Ok(()));
        assert!(guard.collect(at(501 + ALLOWED), &scene.facts).is_err());
    }

    #[test]
    fn a_release_without_a_next_owner_is_a_loss_too() {
        let (mut scene, mut guard) = listening();
        commit(&mut scene, &mut guard, at(10), release(0, 9, 1)).unwrap();
        assert!(guard.collect(at(11 + ALLOWED), &scene.facts).is_err());
    }

    #[test]
    fn a_first_grant_and_a_clean_one_are_no_losses() {
        let (mut scene, mut guard) = listening();
        commit(&mut scene, &mut guard, at(10), grant(20, 29, 2, 2)).unwrap();
        commit(&mut scene, &mut guard, at(11), clean_grant(0, 9, 3, 2, 1)).unwrap();
        assert_eq!(guard.collect(at(900), &scene.facts), Ok(()));
    }

    #[test]
    fn a_clean_grant_of_state_that_nobody_had_is_found() {
        let (mut scene, mut guard) = listening();
        commit(&mut scene, &mut guard, at(10), release(0, 9, 1)).unwrap();
        assert!(commit(&mut scene, &mut guard, at(11), clean_grant(0, 9, 3, 2, 1)).is_err());
    }

    /// The verdict on a release for this reason of keys 5-9, after an Owner said that it moved keys 0-`moved`.
    fn drop_after_move(moved: u64, reason: Reason) -> Verdict {
        let (scene, mut guard) = listening();
        let (range, generation) = (range(0, moved), generation(1));
        guard.note_release(0, &Release { range, generation, clean_to: Some(session(2)) });
        let change = release(5, 9, 1);
        let record = Record::Namespace { namespace: space_name(), change, reason };
        guard.judge_drops(at(1), &Batch { term: Term(1), records: vec![record] }, &scene.facts)
    }

    #[test]
    fn state_that_was_moved_is_not_given_up_as_dropped() {
        assert!(drop_after_move(6, Reason::Dropped).is_err());
        assert_eq!(drop_after_move(4, Reason::Dropped), Ok(()), "other keys");
        assert_eq!(drop_after_move(6, Reason::DestinationGone), Ok(()));
    }

    #[test]
    fn a_paused_lookup_has_its_time_once_it_goes_on() {
        let (mut scene, mut guard) = listening();
        commit(&mut scene, &mut guard, at(10), grant(0, 9, 2, 2)).unwrap();
        scene.pause_lookup(0, true);
        assert_eq!(guard.collect(at(900), &scene.facts), Ok(()));
        scene.pause_lookup(0, false);
        guard.postpone(at(900), 0, scene.facts.limits.slack);
        assert_eq!(guard.collect(at(910), &scene.facts), Ok(()));
        assert!(guard.collect(at(911), &scene.facts).is_err());
    }

    #[test]
    fn a_lookup_that_says_it_knows_nothing_owes_nothing() {
        let (mut scene, mut guard) = listening();
        raise(&mut guard, at(9), KeyRange::ALL, LossWhy::OutOfContact);
        commit(&mut scene, &mut guard, at(10), grant(0, 9, 2, 2)).unwrap();
        assert_eq!(guard.collect(at(900), &scene.facts), Ok(()));
        guard.listeners[0].out_of_contact = false;
        assert!(guard.collect(at(901), &scene.facts).is_err());
    }
}
