//! Which losses each Lookup has still to raise, and until when.
//!
//! A loss is due when the Lookup's knowledge of the time before a leader knew of the loss is too old to be relied on.
//! A Lookup that is paused, or that has declared everything lost and is still out of contact, has nothing to raise
//! until it is back.

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::Generation;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::lookup::{LookupAction, LossReason, Row};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::message::Position;
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::range_set::RangeSet;

use super::{At, Facts, Ledger, Seen, TrueTime, Verdict, later, slot};

/// The deadline of what nobody can know yet.
const NOT_YET: TrueTime = TrueTime(u64::MAX);

/// The pending losses of all Lookups.
#[derive(Debug, Default)]
pub struct PendingLosses {
    listeners: Vec<Listening>,
    /// Published losses of which no leader knows yet.
    unlearned: Vec<Unlearned>,
    /// None is due before this; `None`: none is pending.
    next_deadline: Option<TrueTime>,
}

/// What one Lookup has told its application, and what it still has to.
#[derive(Debug, Default)]
struct Listening {
    /// When it had its first table with a lease.
    since: Option<TrueTime>,
    /// It has declared everything lost, and has not been in contact since.
    out_of_contact: bool,
    raised: Vec<(TrueTime, RangeSet)>,
    pending: Vec<PendingLoss>,
}

/// A loss that a Lookup has to raise.
#[derive(Clone, Debug)]
struct PendingLoss {
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

impl PendingLosses {
    /// A Lookup process begins or is gone: nothing is pending.
    pub fn forget(&mut self, node: usize) {
        *slot(&mut self.listeners, node) = Listening::default();
    }

    /// An operation on a key found nothing, under this lease, where a value was left at `lost_at`.
    pub fn add_from_service(
        &mut self,
        space: usize,
        (key, generation): (Key, Generation),
        lost_at: TrueTime,
        facts: At,
    ) {
        let (keys, how) = (Arc::new([KeyRange::one(key)]), HowLost::Served(generation));
        let pending = PendingLoss { keys, lost_at, deadline: NOT_YET, how };
        self.add(space, &pending, Some(facts.now), &facts, |listening| {
            listening.since.is_some_and(|since| since < lost_at) && !listening.has_raised(key, lost_at)
        });
    }

    /// A loss that is durable, though perhaps no leader knows yet: until one does no Lookup can, and its time begins.
    pub fn add_published(&mut self, space: usize, lost: Vec<KeyRange>, facts: At) {
        let pending =
            PendingLoss { keys: lost.into(), lost_at: facts.now, deadline: NOT_YET, how: HowLost::Published };
        self.add(space, &pending, None, &facts, |listening| listening.since.is_some());
        let position = facts.committed.ledger(space).and_then(Ledger::position);
        self.unlearned.extend(position.map(|position| Unlearned { space, lost_at: facts.now, position }));
    }

    /// The state of keys that was given up is there after all: its owner was only out of reach, and says so to a leader that
    /// has no store. Nobody has to raise that any more; whoever did has told of a loss that had a cause.
    pub fn forgive(&mut self, space: usize, found: &RangeSet, facts: &Facts) {
        let concerned = |node: usize| facts.lookup(node).is_some_and(|lookup| lookup.space == space);
        for (_, listening) in self.listeners.iter_mut().enumerate().filter(|(node, _)| concerned(*node)) {
            let is_published = |pending: &PendingLoss| matches!(pending.how, HowLost::Published);
            listening.pending.retain_mut(|pending| !is_published(pending) || !pending.is_raised_by(found));
        }
    }

    /// A Manager's idea of the table may now contain losses that it did not contain before.
    pub fn note_learned(&mut self, group: &ManagerState, facts: At) {
        let unlearned = std::mem::take(&mut self.unlearned);
        for loss in unlearned {
            let stored = group.namespaces.get(facts.spaces.name(loss.space));
            let position = stored.map(|stored| Position { log: stored.log, lsn: stored.lsn });
            if position.is_some_and(|at| at.log == loss.position.log && at.lsn >= loss.position.lsn) {
                self.fall_due(loss, facts.now, &facts);
            } else {
                self.unlearned.push(loss);
            }
        }
    }

    fn fall_due(&mut self, loss: Unlearned, known_since: TrueTime, facts: &Facts) {
        for (node, listening) in self.listeners.iter_mut().enumerate() {
            let Some(lookup) = facts.lookup(node) else { continue };
            let deadline = later(known_since, lookup.told_within);
            let waits =
                |pending: &&mut PendingLoss| pending.deadline == NOT_YET && pending.lost_at == loss.lost_at;
            for pending in listening.pending.iter_mut().filter(waits) {
                pending.deadline = deadline;
                self.next_deadline = sooner(self.next_deadline, deadline);
            }
        }
    }

    /// Whether there are losses of which no leader knows yet.
    pub fn wait_for_a_leader(&self) -> bool {
        !self.unlearned.is_empty()
    }

    /// Makes a loss pending for every Lookup of the namespace that it concerns; the time of each runs by its own settings.
    fn add(
        &mut self,
        space: usize,
        pending: &PendingLoss,
        known_since: Option<TrueTime>,
        facts: &Facts,
        concerns: impl Fn(&Listening) -> bool,
    ) {
        for (node, listening) in self.listeners.iter_mut().enumerate() {
            let Some(lookup) = facts.lookup(node).filter(|lookup| lookup.space == space) else { continue };
            if concerns(listening) {
                let deadline = known_since.map_or(NOT_YET, |since| later(since, lookup.told_within));
                listening.pending.push(PendingLoss { deadline, ..pending.clone() });
                self.next_deadline = sooner(self.next_deadline, deadline);
            }
        }
    }

    /// A Lookup took a step, and perhaps raised losses.
    pub fn hear_step(&mut self, seen: &Seen<'_>, facts: At) {
        let Seen::LookupStepped { node, machine, clock, actions } = *seen else { return };
        // In a table without leases nothing is known that could be lost.
        let has_leases = |rows: &RangeMap<Row>| rows.values().any(|row| row.generation > Generation::ZERO);
        if machine.table().is_some_and(has_leases) {
            self.note_table(facts.now, node);
        }
        for action in actions {
            if let LookupAction::Loss { keys, why } = action {
                self.note_raised(facts.now, node, keys, *why);
            }
        }
        if slot(&mut self.listeners, node).out_of_contact && machine.in_contact(clock.read(facts.now)) {
            self.note_contact(node, facts);
        }
    }

    /// A Lookup has a table with a lease.
    pub fn note_table(&mut self, now: TrueTime, node: usize) {
        slot(&mut self.listeners, node).since.get_or_insert(now);
    }

    /// A Lookup raised a loss.
    pub fn note_raised(&mut self, now: TrueTime, node: usize, keys: &RangeSet, why: LossReason) {
        slot(&mut self.listeners, node).hear(now, keys, why);
    }

    /// A Lookup that was out of contact is in contact again.
    pub fn note_contact(&mut self, node: usize, facts: At) {
        slot(&mut self.listeners, node).out_of_contact = false;
        let told_within = facts.lookup(node).map_or(Duration::ZERO, |lookup| lookup.told_within);
        self.postpone(facts.now, node, told_within);
    }

    /// A Lookup that is back has some time for what it could not know.
    pub fn postpone(&mut self, now: TrueTime, node: usize, by: Duration) {
        let deadline = later(now, by);
        for pending in
            slot(&mut self.listeners, node).pending.iter_mut().filter(|pending| pending.deadline != NOT_YET)
        {
            pending.deadline = pending.deadline.max(deadline);
            self.next_deadline = sooner(self.next_deadline, pending.deadline);
        }
    }

    /// Finds a loss that is overdue, and when the next will be.
    pub fn find_overdue(&mut self, facts: At) -> Verdict {
        if self.next_deadline.is_none_or(|deadline| facts.now <= deadline) {
            return Ok(());
        }
        self.next_deadline = None;
        for (node, listening) in self.listeners.iter().enumerate() {
            let Some(lookup) = facts.lookup(node) else { continue };
            if lookup.paused || listening.out_of_contact {
                continue;
            }
            for pending in &listening.pending {
                if pending.deadline < facts.now {
                    let keys = pending.keys.iter().map(|range| range.first()).take(4).collect();
                    return Err(facts.violation("S4", lookup.space, keys, pending.describe(node)));
                }
                self.next_deadline = sooner(self.next_deadline, pending.deadline);
            }
        }
        Ok(())
    }
}

impl Listening {
    fn hear(&mut self, now: TrueTime, keys: &RangeSet, why: LossReason) {
        self.pending.retain_mut(|pending| !pending.is_raised_by(keys));
        self.out_of_contact |= why == LossReason::OutOfContact;
        self.raised.push((now, keys.clone()));
    }

    fn has_raised(&self, key: Key, after: TrueTime) -> bool {
        let recent = self.raised.iter().rev().take_while(|(at, _)| *at > after);
        recent.into_iter().any(|(_, keys)| keys.contains(key))
    }
}

impl PendingLoss {
    /// Strikes out the keys that were raised; true if none is left.
    fn is_raised_by(&mut self, raised: &RangeSet) -> bool {
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
        let PendingLoss { lost_at, deadline, .. } = self;
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

fn sooner(one: Option<TrueTime>, other: TrueTime) -> Option<TrueTime> {
    Some(one.map_or(other, |one| one.min(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, create, grant, range};

    /// With the limits of [`Scene`] a loss must be raised within this many seconds.
    const ALLOWED: u64 = 100;

    /// A namespace with a Lookup on node 0 that has had a table since the start.
    fn listening() -> (Scene, PendingLosses) {
        let (mut scene, mut pending) = (Scene::new(), PendingLosses::default());
        let batch = scene.commit(at(0), vec![create(1), grant(0, 9, 1, 1)]);
        scene.group.apply(&batch);
        scene.start_lookup(0, at(0));
        pending.note_table(at(0), 0);
        (scene, pending)
    }

    /// The state of keys 0-9 is lost at 10 s, and the leader knows at once.
    fn lose(scene: &mut Scene, pending: &mut PendingLosses) {
        let batch = scene.commit(at(10), vec![grant(0, 9, 2, 2)]);
        pending.add_published(0, vec![range(0, 9)], scene.facts.at(at(10)));
        scene.group.apply(&batch);
        pending.note_learned(&scene.group, scene.facts.at(at(10)));
    }

    fn raise(pending: &mut PendingLosses, now: TrueTime, keys: KeyRange, why: LossReason) {
        pending.note_raised(now, 0, &RangeSet::from_ranges([keys]), why);
    }

    #[test]
    fn a_published_loss_must_be_raised_for_all_its_keys() {
        let (mut scene, mut pending) = listening();
        lose(&mut scene, &mut pending);
        raise(&mut pending, at(11), range(0, 6), LossReason::StateBeganAnew);
        let violation = pending.find_overdue(scene.facts.at(at(11 + ALLOWED))).unwrap_err();
        assert_eq!(violation.keys, vec![Key(7)]);
    }

    #[test]
    fn a_published_loss_may_be_raised_part_by_part() {
        let (mut scene, mut pending) = listening();
        lose(&mut scene, &mut pending);
        raise(&mut pending, at(11), range(0, 6), LossReason::StateBeganAnew);
        raise(&mut pending, at(12), range(7, 9), LossReason::Unowned);
        assert_eq!(pending.find_overdue(scene.facts.at(at(900))), Ok(()));
    }

    #[test]
    fn a_loss_is_due_once_a_leader_knows_of_it() {
        let (mut scene, mut pending) = listening();
        let batch = scene.commit(at(10), vec![grant(0, 9, 2, 2)]);
        pending.add_published(0, vec![range(0, 9)], scene.facts.at(at(10)));
        pending.note_learned(&scene.group, scene.facts.at(at(20)));
        assert_eq!(pending.find_overdue(scene.facts.at(at(500))), Ok(()));
        scene.group.apply(&batch);
        pending.note_learned(&scene.group, scene.facts.at(at(500)));
        assert_eq!(pending.find_overdue(scene.facts.at(at(500 + ALLOWED))), Ok(()));
        assert!(pending.find_overdue(scene.facts.at(at(501 + ALLOWED))).is_err());
    }

    #[test]
    fn a_paused_lookup_has_its_time_once_it_goes_on() {
        let (mut scene, mut pending) = listening();
        lose(&mut scene, &mut pending);
        scene.pause_lookup(0, true);
        assert_eq!(pending.find_overdue(scene.facts.at(at(900))), Ok(()));
        scene.pause_lookup(0, false);
        pending.postpone(at(900), 0, scene.facts.limits.slack);
        assert_eq!(pending.find_overdue(scene.facts.at(at(910))), Ok(()));
        assert!(pending.find_overdue(scene.facts.at(at(911))).is_err());
    }

    #[test]
    fn a_lookup_that_says_it_knows_nothing_has_nothing_to_raise() {
        let (mut scene, mut pending) = listening();
        raise(&mut pending, at(9), KeyRange::ALL, LossReason::OutOfContact);
        lose(&mut scene, &mut pending);
        assert_eq!(pending.find_overdue(scene.facts.at(at(900))), Ok(()));
        pending.note_contact(0, scene.facts.at(at(900)));
        assert_eq!(pending.find_overdue(scene.facts.at(at(900 + ALLOWED))), Ok(()));
        assert!(pending.find_overdue(scene.facts.at(at(901 + ALLOWED))).is_err());
    }
}
