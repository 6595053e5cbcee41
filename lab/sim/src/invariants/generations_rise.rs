//! S2: generations rise strictly per key over its grants, and are unique in a namespace, across failovers and restarts.
//!
//! Judged twice: over the committed grants, and over what Owners come to hold, where a late message could turn the
//! order round.

use std::collections::BTreeSet;

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::owner::Renumbered;
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::record::{Batch, Change, Record};

use super::{At, Facts, HoldChange, How, Lot, Meeting, RowChange, Seen, Verdict, slot};

/// Guards S2.
#[derive(Debug, Default)]
pub struct GenerationsRise {
    granted: Vec<Granted>,
}

/// The generations of one namespace.
#[derive(Debug, Default)]
struct Granted {
    all: BTreeSet<Generation>,
    /// Those of an earlier life of the namespace, whose rows are gone, were not above this.
    before_removal: Generation,
    /// The latest of each key, under whichever leader.
    latest: RangeMap<Generation>,
}

impl GenerationsRise {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::Committed { batch, .. } => self.judge_batch(batch, facts),
            Seen::OwnerStepped { .. } => {
                facts.holdings.change().map_or(Ok(()), |change| judge_gain(change, facts))
            }
            _ => Ok(()),
        }
    }

    fn judge_batch(&mut self, batch: &Batch, facts: At) -> Verdict {
        for change in facts.committed.changes() {
            judge_rise(change, facts)?;
        }
        for record in &batch.records {
            let Record::Namespace { namespace, change, .. } = record else { continue };
            let Some(space) = facts.spaces.find(namespace) else { continue };
            match change {
                Change::Granted { range, generation, .. } | Change::MergeBegun { range, generation } => {
                    self.judge_fresh(space, *generation, facts)?;
                    let lot = Lot { range: *range, generation: *generation };
                    self.judge_latest(space, lot, facts)?;
                }
                Change::Claimed { range, generation, session, .. } => {
                    judge_claim(space, Lot { range: *range, generation: *generation }, *session, facts)?;
                }
                Change::Removed => slot(&mut self.granted, space).close(),
                _ => {}
            }
        }
        Ok(())
    }

    fn judge_fresh(&mut self, space: usize, generation: Generation, facts: At) -> Verdict {
        let granted = slot(&mut self.granted, space);
        if granted.all.insert(generation) && generation > granted.before_removal {
            return Ok(());
        }
        let what = format!(
            "lease {generation} was granted before in this namespace, or one above it in an earlier life"
        );
        Err(facts.violation("S2", space, Vec::new(), what))
    }

    /// A leader without a store knows of no earlier grant, and must be above it all the same.
    fn judge_latest(&mut self, space: usize, lot: Lot, facts: At) -> Verdict {
        let Lot { range, generation } = lot;
        let latest = &mut slot(&mut self.granted, space).latest;
        let above = latest.overlapping(range).find(|(_, latest)| **latest >= generation);
        if let Some((part, latest)) = above {
            let what =
                format!("{part} was granted as lease {generation} after an earlier leader's lease {latest}");
            return Err(facts.violation("S2", space, vec![part.first()], what));
        }
        latest.insert(range, generation);
        Ok(())
    }
}

impl Granted {
    fn close(&mut self) {
        self.before_removal = self.all.last().copied().unwrap_or_default();
    }
}

fn judge_rise(change: &RowChange, facts: At) -> Verdict {
    let RowChange { space, range, before, after, how } = *change;
    if matches!(how, How::Released | How::Claimed | How::Quarantined) || after.generation > before.generation
    {
        return Ok(());
    }
    let what = format!("{range} was granted as lease {} after lease {}", after.generation, before.generation);
    Err(facts.violation("S2", space, vec![range.first()], what))
}

/// A lease goes on under a new leader only where an earlier one granted it, to the same session.
fn judge_claim(space: usize, lot: Lot, session: SessionId, facts: At) -> Verdict {
    let Lot { range, generation } = lot;
    let grant = facts.committed.ledger(space).and_then(|ledger| ledger.grant_numbered(generation));
    if grant.is_some_and(|grant| grant.session == session && grant.contains(range)) {
        return Ok(());
    }
    let what = format!("{session} goes on with {range} under lease {generation}, which it was never granted");
    Err(facts.violation("S2", space, vec![range.first()], what))
}

/// A session that comes to hold a key does so under a higher lease than whoever held it before. The same lease at the
/// same node is left to S3, which asks whether it counts as continuous.
fn judge_gain(change: &HoldChange, facts: At) -> Verdict {
    if let Some(lease) = change.renumbered.iter().find(|lease| !is_given(lease, change, &facts)) {
        let what = format!(
            "{} holds {} under lease {} instead of {}, which it was never told to",
            change.session, lease.range, lease.to, lease.from,
        );
        return Err(facts.violation("S2", change.space, vec![lease.range.first()], what));
    }
    let not_above = |meeting: &&Meeting| {
        meeting.generation < meeting.other_generation
            || meeting.generation == meeting.other_generation && !is_same_node(meeting, change, &facts)
    };
    let Some(meeting) = change.meetings.iter().find(not_above) else { return Ok(()) };
    if facts.is_affinity(change.space) {
        // Its grant was on its way while it counted as silent.
        return Ok(());
    }
    let what = format!(
        "{} came to hold {} under lease {} after {} held it under lease {}",
        change.session, meeting.range, meeting.generation, meeting.other, meeting.other_generation,
    );
    Err(facts.violation("S2", change.space, vec![meeting.range.first()], what))
}

/// Whether a number that a session took for a lease was committed as that lease's.
fn is_given(lease: &Renumbered, change: &HoldChange, facts: &Facts) -> bool {
    let given = facts.committed.ledger(change.space).and_then(|ledger| ledger.grant_numbered(lease.to));
    given.is_some_and(|given| {
        lease.to > lease.from && given.session == change.session && given.contains(lease.range)
    })
}

fn is_same_node(meeting: &Meeting, change: &HoldChange, facts: &Facts) -> bool {
    facts.holdings.home(meeting.other).is_some_and(|home| home.node == change.node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, claim, create, create_above, grant, range, remove};

    fn commit(scene: &mut Scene, guard: &mut GenerationsRise, changes: Vec<Change>) -> Verdict {
        let batch = scene.commit(at(1), changes);
        guard.judge_batch(&batch, scene.facts.at(at(1)))
    }

    #[test]
    fn rising_generations_are_right() {
        let (mut scene, mut guard) = (Scene::new(), GenerationsRise::default());
        assert_eq!(commit(&mut scene, &mut guard, vec![create(1)]), Ok(()));
        assert_eq!(commit(&mut scene, &mut guard, vec![grant(0, 9, 1, 1), grant(10, 19, 2, 2)]), Ok(()));
        assert_eq!(commit(&mut scene, &mut guard, vec![grant(5, 9, 3, 2)]), Ok(()));
    }

    #[test]
    fn a_generation_used_twice_is_found() {
        let (mut scene, mut guard) = (Scene::new(), GenerationsRise::default());
        commit(&mut scene, &mut guard, vec![create(1), grant(0, 9, 7, 1)]).unwrap();
        assert!(commit(&mut scene, &mut guard, vec![grant(50, 59, 7, 2)]).is_err());
    }

    #[test]
    fn a_lower_generation_on_a_key_is_found() {
        let (mut scene, mut guard) = (Scene::new(), GenerationsRise::default());
        commit(&mut scene, &mut guard, vec![create(1), grant(0, 9, 7, 1)]).unwrap();
        assert!(commit(&mut scene, &mut guard, vec![grant(9, 12, 6, 2)]).is_err());
    }

    #[test]
    fn generations_go_on_after_a_namespace_was_removed() {
        let (mut scene, mut guard) = (Scene::new(), GenerationsRise::default());
        commit(&mut scene, &mut guard, vec![create(1), grant(0, 9, 7, 1)]).unwrap();
        commit(&mut scene, &mut guard, vec![remove()]).unwrap();
        commit(&mut scene, &mut guard, vec![create(2), grant(50, 59, 8, 2)]).unwrap();
        commit(&mut scene, &mut guard, vec![remove()]).unwrap();
        assert!(commit(&mut scene, &mut guard, vec![create(3), grant(90, 99, 2, 2)]).is_err());
    }

    #[test]
    fn a_leader_without_a_store_numbers_on() {
        let (mut scene, mut guard) = (Scene::new(), GenerationsRise::default());
        commit(&mut scene, &mut guard, vec![create_above(1, 10), grant(0, 9, 12, 1)]).unwrap();
        assert_eq!(commit(&mut scene, &mut guard, vec![create_above(2, 20), claim(0, 9, 12, 12, 1)]), Ok(()));
        assert_eq!(commit(&mut scene, &mut guard, vec![grant(0, 9, 21, 2)]), Ok(()));
        commit(&mut scene, &mut guard, vec![create_above(3, 5)]).unwrap();
        assert!(commit(&mut scene, &mut guard, vec![grant(5, 5, 20, 2)]).is_err(), "21 came before");
    }

    #[test]
    fn a_claim_of_what_was_never_granted_is_found() {
        let (mut scene, mut guard) = (Scene::new(), GenerationsRise::default());
        commit(&mut scene, &mut guard, vec![create_above(1, 10), grant(0, 9, 12, 1)]).unwrap();
        for wrong in [claim(0, 9, 11, 11, 1), claim(0, 9, 12, 12, 2), claim(0, 12, 12, 12, 1)] {
            let batch = vec![create_above(2, 20), wrong];
            assert!(commit(&mut scene, &mut guard, batch).is_err());
        }
        assert_eq!(commit(&mut scene, &mut guard, vec![claim(3, 4, 12, 12, 1)]), Ok(()), "a part of it");
    }

    #[test]
    fn a_late_grant_that_is_accepted_is_found() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.hold(at(1), 1, &[(range(0, 9), 5)], at(10));
        scene.hold(at(11), 0, &[(range(4, 4), 3)], at(20));
        assert!(judge_gain(scene.facts.holdings.change().unwrap(), scene.facts.at(at(11))).is_err());
    }

    #[test]
    fn a_higher_lease_on_the_next_session_is_right() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.hold(at(1), 1, &[(range(0, 9), 5)], at(10));
        scene.hold(at(11), 0, &[(range(4, 4), 6)], at(20));
        assert_eq!(judge_gain(scene.facts.holdings.change().unwrap(), scene.facts.at(at(11))), Ok(()));
    }
}
