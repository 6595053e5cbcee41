//! S4: every loss of state is raised at every Lookup within the bound; a clean migration is never claimed where state
//! was lost.
//!
//! What counts as lost is seen twice. Applications show it: an operation that finds nothing where a value was left. The
//! table shows it: a range is released, or granted without its state. Each loss is pending for every Lookup that had a
//! table before it, until that raises it; `pending_losses.rs` keeps them. The other way round, state comes along with
//! a lease only from who held it until then, and is not given up as lost if its Owner said that it moved it.

use std::collections::BTreeMap;

use centrifuge_core::id::Generation;
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::message::{OwnerToManager, Release};
use centrifuge_core::owner::OwnerAction;
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::{Batch, Change, Reason, Record};

use super::pending_losses::PendingLosses;
use super::{At, Facts, How, RowChange, Seen, Service, TrueTime, Value, Verdict, slot};

/// Guards S4.
#[derive(Debug, Default)]
pub struct LossesAreRaised {
    left: BTreeMap<(usize, Key), Left>,
    pending: PendingLosses,
    /// The keys that Owners said they moved, by namespace and lease.
    moved: BTreeMap<(usize, Generation), RangeSet>,
    /// By namespace: the last lease that was given up on each key.
    given_up: Vec<RangeMap<Generation>>,
}

/// The value that an application left at a key last.
#[derive(Clone, Copy, Debug)]
struct Left {
    value: Value,
    at: TrueTime,
}

impl LossesAreRaised {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::LookupStarted { node, .. } | Seen::LookupEnded { node } => {
                self.pending.forget(*node);
            }
            Seen::LookupPaused { node, paused: false } => {
                self.pending.postpone(facts.now, *node, facts.limits.slack)
            }
            Seen::LookupStepped { .. } => self.pending.hear_step(seen, facts),
            Seen::ManagerStepped { machine, .. } if self.pending.wait_for_a_leader() => {
                machine.group().into_iter().for_each(|group| self.pending.note_learned(group, facts));
            }
            Seen::OwnerStepped { node, actions, .. } => {
                let space = facts.holdings.space_of(*node);
                actions.iter().flat_map(releases).for_each(|release| self.note_release(space, release));
            }
            Seen::Committed { batch, .. } => {
                self.judge_batch(facts)?;
                self.judge_drops(batch, facts)?;
            }
            Seen::Served { .. } => {
                // Two Owners that serve a key in affinity mode do not know of each other's state.
                if let Some(service) = Service::of(seen, &facts).filter(|by| !facts.is_affinity(by.space)) {
                    self.serve(service, facts)?;
                }
            }
            _ => {}
        }
        self.pending.find_overdue(facts)
    }

    /// An application found the latest value there is, or nothing; if nothing, the value before is lost.
    fn serve(&mut self, service: Service, facts: At) -> Verdict {
        let left = Left { value: service.after, at: facts.now };
        let before = self.left.insert((service.space, service.key), left);
        match (service.before, before) {
            (Some(found), latest) if latest.is_none_or(|latest| latest.value != found) => {
                let what = stale_service(&service, found, latest);
                Err(facts.violation("S4", service.space, vec![service.key], what))
            }
            (None, Some(lost)) => {
                self.pending.add_from_service(
                    service.space,
                    (service.key, service.generation),
                    lost.at,
                    facts,
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn judge_batch(&mut self, facts: At) -> Verdict {
        let changes = facts.committed.changes();
        for change in changes {
            judge_clean(change, facts)?;
            judge_claim(change, facts)?;
        }
        for change in changes {
            self.note_found(change, &facts);
        }
        for group in changes.chunk_by(|one, next| one.space == next.space) {
            let lost: Vec<KeyRange> = group.iter().flat_map(|change| lost_keys(change, &facts)).collect();
            for change in group.iter().filter(|change| change.how == How::Released) {
                slot(&mut self.given_up, change.space).insert(change.range, change.before.generation);
            }
            if !lost.is_empty() {
                self.pending.add_published(group[0].space, lost, facts);
            }
        }
        Ok(())
    }

    /// A lease goes on whose keys an earlier leader had given up, with state that is not younger.
    fn note_found(&mut self, change: &RowChange, facts: &Facts) {
        if change.how != How::Claimed {
            return;
        }
        let given_up = slot(&mut self.given_up, change.space);
        let is_there = |(_, lease): &(KeyRange, &Generation)| change.after.state_since <= **lease;
        let found: RangeSet =
            given_up.overlapping(change.range).filter(is_there).map(|(part, _)| part).collect();
        self.pending.forgive(change.space, &found, facts);
        given_up.remove(change.range);
    }

    fn note_release(&mut self, space: usize, release: &Release) {
        if release.clean_to.is_some() {
            self.moved.entry((space, release.generation)).or_default().insert(release.range);
        }
    }

    /// An Owner repeats that it moved a range until this is committed, so that no Manager can take it for dropped.
    fn judge_drops(&self, batch: &Batch, facts: At) -> Verdict {
        for record in &batch.records {
            let Record::Namespace { namespace, change, reason: Reason::Dropped } = record else { continue };
            let Change::Released { range, generation } = change else { continue };
            let Some(space) = facts.spaces.find(namespace) else { continue };
            if self.moved.get(&(space, *generation)).is_some_and(|moved| moved.overlaps(*range)) {
                let what = format!(
                    "{range} was given up as dropped, though the owner of lease {generation} had moved its state"
                );
                return Err(facts.violation("S4", space, vec![range.first()], what));
            }
        }
        Ok(())
    }
}

/// What an action of an Owner releases.
fn releases(action: &OwnerAction) -> &[Release] {
    match action {
        OwnerAction::ToManager { message: OwnerToManager::Report(report), .. } => &report.released,
        _ => &[],
    }
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
fn judge_clean(change: &RowChange, facts: At) -> Verdict {
    let RowChange { space, range, before, after, how: How::Granted(Some(source)) } = *change else {
        return Ok(());
    };
    // Its holder may have taken the number that was meant for it and its neighbours.
    let given = facts.committed.ledger(space).and_then(|ledger| ledger.grant_numbered(source));
    let is_given = given.is_some_and(|given| Some(given.session) == before.owner && given.contains(range));
    if before.owner.is_some() && (before.generation == source || is_given && source > before.generation) {
        return Ok(());
    }
    let what = format!(
        "{range} was granted as lease {} with the state of lease {source}, but its last lease was {}, {}",
        after.generation,
        before.generation,
        if before.owner.is_some() { "which somebody has" } else { "which nobody had any more" },
    );
    Err(facts.violation("S4", space, vec![range.first()], what))
}

/// A lease that goes on under a new leader goes on with the state that it was granted with.
fn judge_claim(change: &RowChange, facts: At) -> Verdict {
    let RowChange { space, range, after, how: How::Claimed, .. } = *change else { return Ok(()) };
    let grant = facts.committed.ledger(space).and_then(|ledger| ledger.grant_numbered(after.generation));
    if !grant.is_some_and(|grant| grant.began_after(range, after.state_since)) {
        return Ok(());
    }
    let what = format!(
        "{range} goes on under lease {} with state since {}, which began later",
        after.generation, after.state_since,
    );
    Err(facts.violation("S4", space, vec![range.first()], what))
}

/// The keys of a changed row that had state before the batch and have none of it after.
fn lost_keys(change: &RowChange, facts: &Facts) -> Vec<KeyRange> {
    let RowChange { space, range, before, after, how } = *change;
    if before.generation == Generation::ZERO {
        return Vec::new();
    }
    match how {
        How::Granted(_) if after.state_since > before.generation => vec![range],
        How::Granted(_) | How::Claimed | How::Merged | How::Quarantined => Vec::new(),
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
        Scene, at, claim, clean_grant, create, create_above, generation, grant, range, release, session,
        space_name,
    };
    use centrifuge_core::id::Term;
    use centrifuge_core::lookup::LossReason;

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
        guard.serve(service, scene.facts.at(now))
    }

    /// A namespace with a Lookup on node 0 that has had a table since the start.
    fn listening() -> (Scene, LossesAreRaised) {
        let (mut scene, mut guard) = (Scene::new(), LossesAreRaised::default());
        let batch = scene.commit(at(0), vec![create(1), grant(0, 9, 1, 1)]);
        scene.group.apply(&batch);
        scene.start_lookup(0, at(0));
        guard.pending.note_table(at(0), 0);
        (scene, guard)
    }

    fn commit(scene: &mut Scene, guard: &mut LossesAreRaised, now: TrueTime, change: Change) -> Verdict {
        let batch = scene.commit(now, vec![change]);
        guard.judge_batch(scene.facts.at(now))?;
        scene.group.apply(&batch);
        guard.pending.note_learned(&scene.group, scene.facts.at(now));
        Ok(())
    }

    fn raise(guard: &mut LossesAreRaised, now: TrueTime, keys: KeyRange, why: LossReason) {
        guard.pending.note_raised(now, 0, &RangeSet::from_ranges([keys]), why);
    }

    #[test]
    fn a_lease_goes_on_with_the_age_of_its_state() {
        let (mut scene, mut guard) = (Scene::new(), LossesAreRaised::default());
        let mut commit = |changes| {
            scene.commit(at(1), changes);
            guard.judge_batch(scene.facts.at(at(1)))
        };
        commit(vec![create_above(1, 10), grant(0, 9, 12, 1)]).unwrap();
        assert_eq!(commit(vec![create_above(2, 20), claim(0, 9, 12, 12, 1)]), Ok(()));
        assert!(commit(vec![create_above(3, 30), claim(0, 9, 12, 0, 1)]).is_err(), "it began with lease 12");
    }

    #[test]
    fn the_latest_state_may_be_served() {
        let (scene, mut guard) = listening();
        assert_eq!(serve(&mut guard, at(1), &scene, None, value(1, 1)), Ok(()));
        assert_eq!(serve(&mut guard, at(2), &scene, Some(value(1, 1)), value(1, 2)), Ok(()));
        assert_eq!(guard.pending.find_overdue(scene.facts.at(at(900))), Ok(()));
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
        assert_eq!(guard.pending.find_overdue(scene.facts.at(at(9 + ALLOWED))), Ok(()));
        let violation = guard.pending.find_overdue(scene.facts.at(at(10 + ALLOWED))).unwrap_err();
        assert_eq!((violation.invariant, violation.keys), ("S4", vec![Key(5)]));
    }

    #[test]
    fn a_loss_raised_before_the_service_or_after_it_counts() {
        for raised in [at(5), at(20)] {
            let (scene, mut guard) = listening();
            serve(&mut guard, at(1), &scene, None, value(1, 1)).unwrap();
            if raised < at(9) {
                raise(&mut guard, raised, range(0, 9), LossReason::StateBeganAnew);
            }
            serve(&mut guard, at(9), &scene, None, value(2, 1)).unwrap();
            if raised > at(9) {
                raise(&mut guard, raised, range(0, 9), LossReason::StateBeganAnew);
            }
            assert_eq!(guard.pending.find_overdue(scene.facts.at(at(900))), Ok(()));
        }
    }

    #[test]
    fn a_loss_raised_before_the_last_write_does_not_count() {
        let (scene, mut guard) = listening();
        serve(&mut guard, at(3), &scene, None, value(1, 1)).unwrap();
        raise(&mut guard, at(2), range(0, 9), LossReason::StateBeganAnew);
        serve(&mut guard, at(9), &scene, None, value(2, 1)).unwrap();
        assert!(guard.pending.find_overdue(scene.facts.at(at(900))).is_err());
    }

    #[test]
    fn a_lookup_that_came_later_has_nothing_to_raise() {
        let (scene, mut guard) = listening();
        serve(&mut guard, at(3), &scene, None, value(1, 1)).unwrap();
        guard.pending.forget(0);
        guard.pending.note_table(at(4), 0);
        serve(&mut guard, at(9), &scene, None, value(2, 1)).unwrap();
        assert_eq!(guard.pending.find_overdue(scene.facts.at(at(900))), Ok(()));
    }

    #[test]
    fn a_release_without_a_next_owner_is_a_loss_too() {
        let (mut scene, mut guard) = listening();
        commit(&mut scene, &mut guard, at(10), release(0, 9, 1)).unwrap();
        assert!(guard.pending.find_overdue(scene.facts.at(at(11 + ALLOWED))).is_err());
    }

    #[test]
    fn a_first_grant_and_a_clean_one_are_no_losses() {
        let (mut scene, mut guard) = listening();
        commit(&mut scene, &mut guard, at(10), grant(20, 29, 2, 2)).unwrap();
        commit(&mut scene, &mut guard, at(11), clean_grant(0, 9, 3, 2, 1)).unwrap();
        assert_eq!(guard.pending.find_overdue(scene.facts.at(at(900))), Ok(()));
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
        guard.note_release(
            0,
            &Release {
                range,
                generation,
                clean_to: Some(session(2)),
                state_since: generation,
                warrant: None,
            },
        );
        let change = release(5, 9, 1);
        let record = Record::Namespace { namespace: space_name(), change, reason };
        guard.judge_drops(&Batch { term: Term(1), records: vec![record] }, scene.facts.at(at(1)))
    }

    #[test]
    fn state_that_was_moved_is_not_given_up_as_dropped() {
        assert!(drop_after_move(6, Reason::Dropped).is_err());
        assert_eq!(drop_after_move(4, Reason::Dropped), Ok(()), "other keys");
        assert_eq!(drop_after_move(6, Reason::DestinationGone), Ok(()));
    }
}
