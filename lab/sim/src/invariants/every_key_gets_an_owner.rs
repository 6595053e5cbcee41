//! L1: after faults end, every key gets an owner within a bounded time, unless it is in quarantine, and every Lookup converges.
//!
//! The bound is that of the guide's guarantees (`Limits::owned_within`), and is judged for each time that a key has no
//! owner. The rest is judged at the end of the run, if the faults ended long enough before. What happens to be on its way at that very
//! instant is excused: a key given up, or a change committed, within the slack before.

use std::collections::BTreeMap;

use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::message::{OwnerToManager, Position, RefusedReason};
use centrifuge_core::owner::OwnerAction;
use centrifuge_core::record::Record;

use super::holdings::Belief;
use super::ownerless::{Gap, Ownerless};
use super::{At, Facts, HoldChange, How, Ledger, Seen, TrueTime, Verdict, earlier, later, slot};

/// How many messages, one after the other, it may take from a release to the new owner.
const MESSAGES_OF_A_MOVE: u32 = 12;

/// Guards L1.
#[derive(Debug, Default)]
pub struct EveryKeyGetsAnOwner {
    /// By node: its process does not want to own, or may not.
    declines: Vec<bool>,
    /// When each probe key was last given up by anyone.
    given_up: BTreeMap<(usize, Key), TrueTime>,
    /// By node: how far its Lookup came.
    positions: Vec<Option<Position>>,
    ownerless: Ownerless,
    /// When the last process of an Owner ended.
    last_end: TrueTime,
    /// When the last leader began: a leader that ends is a fault too.
    last_leader: TrueTime,
    /// When somebody could last not have owned the keys of a namespace.
    nobody_could: Vec<TrueTime>,
    /// By namespace: the ranges that were put into quarantine or came out of it, and when.
    quarantined: Vec<Vec<(KeyRange, TrueTime)>>,
}

impl EveryKeyGetsAnOwner {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        self.ownerless.see(seen, facts);
        match seen {
            Seen::OwnerStarted { node, namespace, keys, .. } => {
                *slot(&mut self.declines, *node) = !facts.spaces.are_probes(namespace, keys);
            }
            Seen::OwnerStepped { node, actions, .. } => {
                actions.iter().for_each(|action| self.note_wish(*node, action));
                self.note_loss(facts);
                self.ownerless.closed().iter().try_for_each(|gap| self.judge_gap(gap, facts))?;
            }
            Seen::OwnerEnded { .. } => {
                self.last_end = facts.now;
                self.note_loss(facts);
            }
            Seen::Committed { batch, .. } => {
                if batch.records.iter().any(|record| matches!(record, Record::LeaderStarted { .. })) {
                    self.last_leader = facts.now;
                }
                self.note_who_could(facts);
                for change in facts.committed.changes().iter().filter(|it| it.how == How::Quarantined) {
                    slot(&mut self.quarantined, change.space).push((change.range, facts.now));
                }
            }
            Seen::LookupStarted { node, .. } => *slot(&mut self.positions, *node) = None,
            Seen::LookupStepped { node, machine, .. } => {
                *slot(&mut self.positions, *node) = machine.position();
            }
            Seen::Ended if facts.is_calm(facts.now) => {
                self.ownerless.open_gaps().try_for_each(|gap| self.judge_gap(gap, facts))?;
                self.judge_keys(facts)?;
                self.judge_lookups(facts)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn note_wish(&mut self, node: usize, action: &OwnerAction) {
        let declines = match action {
            OwnerAction::ToManager { message: OwnerToManager::Report(report), .. } => {
                report.draining || report.leaving
            }
            OwnerAction::Left => true,
            OwnerAction::JoinRefused(RefusedReason::Evicted | RefusedReason::WrongMode) => true,
            _ => return,
        };
        *slot(&mut self.declines, node) = declines;
    }

    fn note_loss(&mut self, facts: At) {
        let Some(change) = facts.holdings.change() else { return };
        if change.lost.is_empty() {
            return;
        }
        for (space, keys) in facts.spaces.probes().filter(|(space, _)| *space == change.space) {
            for key in keys.iter().filter(|key| has_lost(change, **key)) {
                self.given_up.insert((space, *key), facts.now);
            }
        }
    }

    /// For how long keys had no owner, by cause.
    pub fn ownerless(&self) -> &Ownerless {
        &self.ownerless
    }

    fn note_who_could(&mut self, facts: At) {
        for (space, ledger) in facts.committed.ledgers() {
            if !self.may_own(space, ledger, &facts) {
                *slot(&mut self.nobody_could, space) = facts.now;
            }
        }
    }

    /// A key has no owner any longer than it may, counted from the last fault.
    fn judge_gap(&self, gap: &Gap, facts: At) -> Verdict {
        let ledger =
            facts.committed.ledger(gap.space).filter(|ledger| self.may_own(gap.space, ledger, &facts));
        let (Some(quiet), Some(ledger)) = (facts.quiet_since(), ledger) else { return Ok(()) };
        if is_quarantined(ledger, gap.key) {
            return Ok(());
        }
        let nobody = self.nobody_could.get(gap.space).copied().unwrap_or_default();
        let quarantines = self.quarantined.get(gap.space).into_iter().flatten();
        let ended = quarantines.filter(|(range, _)| range.contains(gap.key)).map(|(_, at)| *at).max();
        let ended = ended.unwrap_or_default();
        let faults = [gap.since, quiet, self.last_end, self.last_leader, nobody, ended];
        let since = faults.into_iter().max().unwrap_or_default();
        let bound = facts.limits.owned_within(ledger);
        if later(since, bound) >= facts.now {
            return Ok(());
        }
        let Gap { space, key, since: from, why } = gap;
        let gap = format!("key {key} had no owner from {from} ({}) to {}", why.name(), facts.now);
        let what = format!("{gap}: longer than {bound:?} after the last fault, at {since}");
        Err(facts.violation("L1", *space, vec![*key], what))
    }

    fn judge_keys(&self, facts: At) -> Verdict {
        for (space, keys) in facts.spaces.probes() {
            let Some(ledger) = facts.committed.ledger(space) else { continue };
            if !self.may_own(space, ledger, &facts) {
                continue;
            }
            for key in keys.iter().filter(|key| !is_quarantined(ledger, **key)) {
                self.judge_key(space, *key, facts)?;
            }
        }
        Ok(())
    }

    /// Whether somebody may be granted keys of the namespace.
    fn may_own(&self, space: usize, ledger: &Ledger, facts: &Facts) -> bool {
        ledger.exists && !ledger.frozen && self.somebody_could(space, ledger, facts)
    }

    /// Whether the namespace has an Owner that lives, wants to own and may.
    fn somebody_could(&self, space: usize, ledger: &Ledger, facts: &Facts) -> bool {
        facts.holdings.beliefs().any(|(node, belief)| {
            let declines = self.declines.get(node).copied().unwrap_or_default();
            let is_going =
                ledger.sessions.get(&belief.session).is_some_and(|info| info.is_draining() || info.evicted);
            belief.alive && !belief.suspended && belief.space == space && !declines && !is_going
        })
    }

    fn judge_key(&self, space: usize, key: Key, facts: At) -> Verdict {
        let answers = |belief: &Belief| {
            let held = belief.holds(key, facts.now);
            let stuck = later(belief.set_since, facts.limits.converge) < facts.now;
            belief.space == space && held.is_some_and(|held| !(held.frozen && stuck))
        };
        let just_given_up = self.given_up.get(&(space, key));
        // A move is a release, a grant and what crosses them, each as slow as the network is.
        let moving = facts.limits.slack.max(facts.limits.slowest_message * MESSAGES_OF_A_MOVE);
        if just_given_up.is_some_and(|at| later(*at, moving) >= facts.now)
            || facts.holdings.beliefs().any(|(_, belief)| answers(belief))
        {
            return Ok(());
        }
        let since = just_given_up.map_or_else(|| "ever".to_owned(), |at| format!("since {at}"));
        let what =
            format!("no Owner answers for key {key}, nor did any {since}, though the faults are long over");
        Err(facts.violation("L1", space, vec![key], what))
    }

    fn judge_lookups(&self, facts: At) -> Verdict {
        let grace = earlier(facts.now, facts.limits.slack);
        for (node, lookup) in facts.lookups.iter().enumerate() {
            let Some(lookup) = lookup.filter(|lookup| !lookup.paused && lookup.started < grace) else {
                continue;
            };
            let Some(ledger) = facts.committed.ledger(lookup.space) else { continue };
            let Some(end) = ledger.position() else { continue };
            let wanted = ledger.log(end.log).map_or(end.lsn, |log| log.end_at(grace));
            let reached = self.positions.get(node).copied().flatten();
            if reached.is_some_and(|reached| reached.log == end.log && reached.lsn >= wanted) {
                continue;
            }
            let reached = reached
                .map_or_else(|| "no table".to_owned(), |at| format!("LSN {} of log {}", at.lsn, at.log));
            let what =
                format!("Lookup {node} has {reached}, but LSN {wanted} of log {} is committed", end.log);
            return Err(facts.violation("L1", lookup.space, Vec::new(), what));
        }
        Ok(())
    }
}

/// Whether a key is kept from everybody, because Owners that got it died.
fn is_quarantined(ledger: &Ledger, key: Key) -> bool {
    ledger.rows.get(key).is_some_and(|(_, row)| row.quarantined)
}

fn has_lost(change: &HoldChange, key: Key) -> bool {
    change.lost.iter().any(|lot| lot.range.contains(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::ownerless::Vacancy;
    use crate::invariants::testing::{Scene, at, create, grant, log_position, range, session, start_session};

    /// A namespace whose keys 0-9 are granted to session 1, with the probe key 5; the faults ended at once.
    fn scene() -> Scene {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.commit(at(0), vec![create(1), start_session(1), grant(0, 9, 1, 1)]);
        scene.facts.faults_ended = Some(at(1));
        scene
    }

    fn end(scene: &Scene, guard: &mut EveryKeyGetsAnOwner, now: TrueTime) -> Verdict {
        guard.see(&Seen::Ended, scene.facts.at(now))
    }

    #[test]
    fn a_key_with_an_owner_is_right() {
        let mut scene = scene();
        scene.hold(at(900), 0, &[(range(0, 9), 1)], at(1100));
        assert_eq!(end(&scene, &mut EveryKeyGetsAnOwner::default(), at(1000)), Ok(()));
    }

    #[test]
    fn a_key_without_an_owner_is_found_once_everything_must_have_come_to_rest() {
        let scene = scene();
        let mut guard = EveryKeyGetsAnOwner::default();
        assert_eq!(end(&scene, &mut guard, at(10)), Ok(()), "there is still time");
        let violation = end(&scene, &mut guard, at(1000)).unwrap_err();
        assert_eq!((violation.invariant, violation.keys), ("L1", vec![Key(5)]));
    }

    #[test]
    fn an_expired_lease_is_no_owner() {
        let mut scene = scene();
        scene.hold(at(900), 0, &[(range(0, 9), 1)], at(960));
        assert!(end(&scene, &mut EveryKeyGetsAnOwner::default(), at(1000)).is_err());
    }

    #[test]
    fn a_range_frozen_for_ever_is_no_owner() {
        let mut scene = scene();
        scene.hold_frozen(at(10), 0, &[(range(0, 9), 1)], at(2000));
        let mut guard = EveryKeyGetsAnOwner::default();
        assert_eq!(end(&scene, &mut guard, at(20)), Ok(()));
        assert!(end(&scene, &mut guard, at(1000)).is_err());
    }

    #[test]
    fn where_nobody_could_own_nobody_must() {
        let mut scene = scene();
        let mut guard = EveryKeyGetsAnOwner::default();
        guard.note_wish(0, &OwnerAction::Left);
        assert_eq!(end(&scene, &mut guard, at(1000)), Ok(()));
        *slot(&mut guard.declines, 0) = false;
        assert!(end(&scene, &mut guard, at(1000)).is_err());
        scene.facts.holdings.end(at(1000), 0);
        assert_eq!(end(&scene, &mut guard, at(1000)), Ok(()));
    }

    #[test]
    fn a_key_that_is_just_moving_is_excused() {
        let mut scene = scene();
        let mut guard = EveryKeyGetsAnOwner::default();
        scene.hold(at(900), 0, &[(range(0, 9), 1)], at(1100));
        scene.hold(at(999), 0, &[], at(1100));
        guard.note_loss(scene.facts.at(at(999)));
        assert_eq!(end(&scene, &mut guard, at(1000)), Ok(()));
        assert!(end(&scene, &mut guard, at(1050)).is_err());
    }

    #[test]
    fn a_key_that_waits_too_long_for_its_next_owner_is_found() {
        let (scene, mut guard) = (scene(), EveryKeyGetsAnOwner::default());
        let bound = scene.facts.limits.owned_within(scene.facts.committed.ledger(0).unwrap());
        let gap = Gap { space: 0, key: Key(5), since: at(20), why: Vacancy::Crash };
        let over = TrueTime(later(at(20), bound).0 + 1);
        assert_eq!(guard.judge_gap(&gap, scene.facts.at(later(at(20), bound))), Ok(()));
        assert_eq!(guard.judge_gap(&gap, scene.facts.at(over)).unwrap_err().invariant, "L1");
        guard.last_leader = at(30);
        assert_eq!(guard.judge_gap(&gap, scene.facts.at(over)), Ok(()), "the leader changed meanwhile");
    }

    #[test]
    fn a_lookup_that_stays_behind_is_found() {
        let mut scene = scene();
        scene.hold(at(900), 0, &[(range(0, 9), 1)], at(1100));
        scene.start_lookup(0, at(0));
        let mut guard = EveryKeyGetsAnOwner::default();
        assert!(end(&scene, &mut guard, at(1000)).is_err(), "it has no table");
        *slot(&mut guard.positions, 0) = Some(log_position(1, 0));
        assert!(end(&scene, &mut guard, at(1000)).is_err(), "it has an old one");
        *slot(&mut guard.positions, 0) = Some(log_position(1, 1));
        assert_eq!(end(&scene, &mut guard, at(1000)), Ok(()));
        scene.commit(at(999), vec![grant(20, 29, 2, 1)]);
        assert_eq!(end(&scene, &mut guard, at(1000)), Ok(()), "the change is on its way");
        assert!(scene.facts.holdings.home(session(1)).is_some());
    }
}
