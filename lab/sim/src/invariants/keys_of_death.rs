//! L5: a key that kills its Owners takes down a bounded number of them. No more than one key in a hundred is kept from everybody
//! for that, only with evidence, never while many Owners die of something else, and nobody is granted such a key.
//!
//! The evidence is compared with what was committed: who was granted the range, and whose sessions ended unplanned. How many may
//! die is judged where nothing else happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use centrifuge_core::id::{SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager_state::MAX_QUARANTINED_KEYS;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::record::{Batch, Change, DeathEvidence, Reason, Record, SessionInfo};

use super::{At, How, Ledger, Seen, TrueTime, Verdict, later, slot};

/// How many deaths speak against a range before it is quarantined, and of how many different Owners they are at least.
const DEATHS: usize = 4;
const DIFFERENT: usize = 3;
/// How many Owners may die of something else in a pool of up to 64; in a larger one it is one of 32.
const FEW: usize = 2;

/// Guards L5.
#[derive(Debug, Default)]
pub struct KeysOfDeath {
    infos: BTreeMap<SessionId, SessionInfo>,
    /// The keys that sessions which are ending have lost.
    lost: BTreeMap<SessionId, RangeSet>,
    /// By namespace: the sessions that ended unplanned.
    deaths: Vec<Vec<Death>>,
    /// Who died as earlier quarantines say, which were right. When one is over, they speak against its keys again.
    known: BTreeMap<SessionId, RangeSet>,
    /// Sessions that said that they go.
    leaving: BTreeSet<SessionId>,
    /// How many Owners died of a key.
    killed: BTreeMap<(usize, Key), u32>,
}

/// A session that ended unplanned.
#[derive(Debug)]
struct Death {
    session: SessionId,
    at: TrueTime,
    term: Term,
    /// Its hold ran out, and nothing else can have ended it.
    is_sure: bool,
    /// It was on its way out, as was committed.
    is_planned: bool,
    keys: RangeSet,
}

impl KeysOfDeath {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::OwnerLeaves { session } => {
                self.leaving.insert(*session);
            }
            Seen::Committed { batch, .. } => return self.judge_batch(batch, facts),
            Seen::KilledByKey { namespace, key, most, .. } => {
                let Some(space) = facts.spaces.find(namespace) else { return Ok(()) };
                return self.judge_death(space, *key, *most, facts);
            }
            _ => {}
        }
        Ok(())
    }

    fn judge_death(&mut self, space: usize, key: Key, most: Option<u32>, facts: At) -> Verdict {
        let killed = self.killed.entry((space, key)).or_default();
        *killed += 1;
        let row = facts.committed.ledger(space).and_then(|ledger| ledger.rows.get(key));
        if row.is_some_and(|(_, row)| row.quarantined) {
            let what = format!("an Owner died of key {key} though that is in quarantine");
            return Err(facts.violation("L5", space, vec![key], what));
        }
        if most.is_some_and(|most| *killed > most) {
            let what = format!("{killed} Owners died of key {key}, one after the other");
            return Err(facts.violation("L5", space, vec![key], what));
        }
        Ok(())
    }

    fn judge_batch(&mut self, batch: &Batch, facts: At) -> Verdict {
        for change in facts.committed.changes() {
            match (change.how, change.before.owner) {
                (How::Released, Some(owner)) => self.lost.entry(owner).or_default().insert(change.range),
                (How::Granted(_), _) if change.before.quarantined => {
                    let keys = vec![change.range.first()];
                    let what = format!("{} is granted though it is in quarantine", change.range);
                    return Err(facts.violation("L5", change.space, keys, what));
                }
                _ => {}
            }
        }
        for record in &batch.records {
            let Record::Namespace { namespace, change, reason } = record else { continue };
            let Some(space) = facts.spaces.find(namespace) else { continue };
            self.judge_change(space, change, reason, batch.term, facts)?;
        }
        Ok(())
    }

    fn judge_change(
        &mut self,
        space: usize,
        change: &Change,
        reason: &Reason,
        term: Term,
        facts: At,
    ) -> Verdict {
        match change {
            Change::SessionStarted { session, info } | Change::SessionChanged { session, info } => {
                self.infos.insert(*session, info.clone());
            }
            Change::SessionEnded { session } => self.note_end(space, *session, reason, term, facts),
            // Whoever turns it off forgets the deaths there were.
            Change::Configured { settings } if settings.death_window.is_zero() => {
                slot(&mut self.deaths, space).clear();
            }
            Change::Created { .. } => slot(&mut self.deaths, space).clear(),
            Change::Quarantined { range, evidence } => {
                if let Some(what) = self.objection(space, *range, evidence, term, &facts) {
                    return Err(facts.violation("L5", space, vec![range.first()], what));
                }
                let known = evidence.iter().map(|death| death.session);
                known.for_each(|session| self.known.entry(session).or_default().insert(*range));
            }
            _ => {}
        }
        Ok(())
    }

    fn note_end(&mut self, space: usize, session: SessionId, reason: &Reason, term: Term, facts: At) {
        let keys = self.lost.remove(&session).unwrap_or_default();
        let info = self.infos.remove(&session);
        let is_planned = info.is_none_or(|info| info.is_draining() || info.evicted);
        let may_be_other = is_planned
            || self.leaving.contains(&session)
            || facts.committed.ledger(space).is_none_or(|ledger| ledger.settings.death_window.is_zero());
        let is_sure = *reason == Reason::HoldExpired && !may_be_other;
        if matches!(reason, Reason::HoldExpired | Reason::TakenOver) {
            slot(&mut self.deaths, space).push(Death {
                session,
                at: facts.now,
                term,
                is_sure,
                is_planned,
                keys,
            });
        }
    }

    /// What is wrong with a quarantine, if anything is.
    fn objection(
        &self,
        space: usize,
        range: KeyRange,
        evidence: &[DeathEvidence],
        term: Term,
        facts: &At,
    ) -> Option<String> {
        let ledger = facts.committed.ledger(space)?;
        let all: u128 = ledger.quarantines.keys().map(|range| range.key_count()).sum();
        if all > MAX_QUARANTINED_KEYS {
            return Some(format!("{all} keys are in quarantine with {range}: more than one in a hundred"));
        }
        let names: BTreeSet<_> = evidence.iter().map(|death| &death.name).collect();
        let sessions: BTreeSet<_> = evidence.iter().map(|death| death.session).collect();
        if sessions.len() < DEATHS || names.len() < DIFFERENT {
            return Some(format!("{range} is in quarantine for the death of {} Owners", names.len()));
        }
        if let Some(death) = evidence.iter().find(|death| !self.is_proven(space, range, death, ledger)) {
            return Some(format!(
                "{range} is in quarantine for the death of {}, who never had it or was on its way out",
                death.name
            ));
        }
        let others = self.unexplained(space, range, term, ledger, facts);
        let allowed = FEW.max(ledger.sessions.len() / 32);
        let what = format!("{range} is in quarantine while {others} Owners have died that never had it");
        (others > allowed).then_some(what)
    }

    /// Whether somebody was granted the range and died, and was not on its way out.
    fn is_proven(&self, space: usize, range: KeyRange, death: &DeathEvidence, ledger: &Ledger) -> bool {
        let granted = ledger.grant_numbered(death.generation);
        let had_it = granted.is_some_and(|granted| {
            granted.session == death.session && granted.contains(KeyRange::one(range.first()))
        });
        let deaths = self.deaths.get(space).into_iter().flatten();
        let died = |session: SessionId| {
            deaths.into_iter().any(|ended| ended.session == session && !ended.is_planned)
        };
        let is_known = self.known.get(&death.session).is_some_and(|keys| keys.contains(range.first()));
        is_known || (had_it && died(death.session))
    }

    /// How many Owners have died lately, as this leader knows, that never had a range, and not of one other.
    fn unexplained(&self, space: usize, range: KeyRange, term: Term, ledger: &Ledger, facts: &At) -> usize {
        let settings = &ledger.settings;
        let memory = settings.death_window + settings.hold + settings.renewal * 2;
        // By the fastest clock, and less what a commit may take.
        let memory = (memory * 24 / 26).saturating_sub(Duration::from_secs(5));
        let known: BTreeSet<SessionId> =
            ledger.quarantines.values().flat_map(|deaths| deaths.iter()).map(|death| death.session).collect();
        let deaths = self.deaths.get(space).into_iter().flatten();
        let recent = deaths
            .filter(|death| death.is_sure && death.term == term && later(death.at, memory) >= facts.now);
        let others: Vec<&Death> =
            recent.filter(|death| !death.keys.overlaps(range) && !known.contains(&death.session)).collect();
        let together = others
            .iter()
            .flat_map(|death| death.keys.iter())
            .map(|keys| others.iter().filter(|death| death.keys.contains(keys.first())).count());
        others.len() - together.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{
        Scene, at, create, grant, quarantine, release, session, space_name, start_session, unquarantine,
    };
    use centrifuge_core::id::Index;

    /// What a guard says to batches that end sessions because their holds ran out, and to whatever else they do.
    fn judge(scene: &mut Scene, guard: &mut KeysOfDeath, second: u64, changes: Vec<Change>) -> Verdict {
        let mut batch = scene.commit(at(second), changes);
        for record in &mut batch.records {
            if let Record::Namespace { reason, .. } = record {
                *reason = Reason::HoldExpired;
            }
        }
        let seen = Seen::Committed { index: Index(second), batch: &batch, by: 0 };
        guard.see(&seen, scene.facts.at(at(second)))
    }

    fn end(number: u64) -> Change {
        Change::SessionEnded { session: session(number) }
    }

    /// Sessions 1 to 4 get keys 0-9 under leases 1 to 4 and die; 5 to 9 live.
    fn four_died() -> (Scene, KeysOfDeath) {
        let (mut scene, mut guard) = (Scene::new(), KeysOfDeath::default());
        let mut changes = vec![create(1)];
        changes.extend((1..=9).map(start_session));
        judge(&mut scene, &mut guard, 1, changes).unwrap();
        for number in 1..=4 {
            let ends = vec![release(0, 9, number), end(number)];
            judge(&mut scene, &mut guard, number * 10, vec![grant(0, 9, number, number)]).unwrap();
            judge(&mut scene, &mut guard, number * 10 + 5, ends).unwrap();
        }
        (scene, guard)
    }

    #[test]
    fn a_range_that_killed_four_may_be_kept_from_everybody_and_is_granted_to_nobody() {
        let (mut scene, mut guard) = four_died();
        assert_eq!(judge(&mut scene, &mut guard, 50, vec![quarantine(3, 6, &[1, 2, 3, 4])]), Ok(()));
        let granted = judge(&mut scene, &mut guard, 51, vec![grant(0, 4, 5, 5)]);
        assert_eq!(granted.unwrap_err().invariant, "L5");
        let (mut scene, mut guard) = four_died();
        judge(&mut scene, &mut guard, 50, vec![quarantine(3, 6, &[1, 2, 3, 4])]).unwrap();
        let freed = vec![unquarantine(6, 6), grant(0, 9, 5, 5)];
        assert_eq!(judge(&mut scene, &mut guard, 51, freed), Ok(()));
    }

    #[test]
    fn too_few_deaths_or_others_than_there_were_are_no_evidence() {
        for (first, last, died) in [
            (3, 6, vec![1, 2, 3]),
            (3, 6, vec![1, 1, 2, 3]),
            (3, 6, vec![1, 2, 3, 5]),
            (20, 29, vec![1, 2, 3, 4]),
        ] {
            let (mut scene, mut guard) = four_died();
            let wrong = judge(&mut scene, &mut guard, 50, vec![quarantine(first, last, &died)]);
            assert_eq!(wrong.map_err(|wrong| wrong.invariant), Err("L5"), "{died:?}");
        }
    }

    #[test]
    fn an_owner_that_was_on_its_way_out_is_no_evidence() {
        let (mut scene, mut guard) = four_died();
        let Change::SessionStarted { session, mut info } = start_session(5) else {
            unreachable!("it starts")
        };
        info.drain_ordered = true;
        let drained = Change::SessionChanged { session, info };
        let ends = vec![grant(0, 9, 5, 5), drained, release(0, 9, 5), end(5)];
        judge(&mut scene, &mut guard, 48, ends).unwrap();
        let wrong = judge(&mut scene, &mut guard, 50, vec![quarantine(3, 6, &[1, 2, 3, 5])]).unwrap_err();
        assert!(wrong.what.contains("on its way out"), "{}", wrong.what);
    }

    #[test]
    fn one_key_in_a_hundred_is_the_most() {
        let (mut scene, mut guard) = four_died();
        let large = u64::try_from(MAX_QUARANTINED_KEYS).unwrap();
        let wrong = judge(&mut scene, &mut guard, 50, vec![quarantine(0, large, &[1, 2, 3, 4])]).unwrap_err();
        assert!(wrong.what.contains("more than one in a hundred"), "{}", wrong.what);
    }

    #[test]
    fn while_many_others_die_no_range_is_to_blame() {
        for (others, is_right) in [(3, true), (4, false)] {
            let (mut scene, mut guard) = four_died();
            for number in 5..5 + others {
                let (first, last) = (number * 100, number * 100 + 9);
                let died =
                    vec![grant(first, last, number, number), release(first, last, number), end(number)];
                judge(&mut scene, &mut guard, 46, died).unwrap();
            }
            let judged = judge(&mut scene, &mut guard, 50, vec![quarantine(3, 6, &[1, 2, 3, 4])]);
            assert_eq!(judged.is_ok(), is_right, "{others} others: one of them may have died of another key");
        }
    }

    #[test]
    fn more_deaths_than_there_may_be_are_found_and_so_is_one_in_quarantine() {
        let (mut scene, mut guard) = four_died();
        let namespace = space_name();
        let killed =
            Seen::KilledByKey { session: session(5), namespace: &namespace, key: Key(5), most: Some(2) };
        assert_eq!(guard.see(&killed, scene.facts.at(at(50))), Ok(()));
        assert_eq!(guard.see(&killed, scene.facts.at(at(51))), Ok(()));
        assert_eq!(guard.see(&killed, scene.facts.at(at(52))).unwrap_err().invariant, "L5");
        judge(&mut scene, &mut guard, 53, vec![quarantine(3, 6, &[1, 2, 3, 4])]).unwrap();
        let killed =
            Seen::KilledByKey { session: session(6), namespace: &namespace, key: Key(6), most: None };
        assert_eq!(guard.see(&killed, scene.facts.at(at(54))).unwrap_err().invariant, "L5");
    }
}
