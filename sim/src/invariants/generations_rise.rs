//! S2: generations rise strictly per key over its grants, and are unique in a namespace, across failovers and restarts.
//!
//! Judged twice: over the committed grants, and over what Owners come to hold, where a late message could turn the
//! order round.

use std::collections::BTreeSet;

use centrifuge_core::id::Generation;
use centrifuge_core::record::{Batch, Change, Record};

use crate::seen::{Seen, TrueTime};

use super::committed::{How, RowChange};
use super::holdings::{HoldChange, Meeting};
use super::{Facts, Verdict, slot};

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
}

impl GenerationsRise {
    /// Judges an event.
    pub fn see(&mut self, now: TrueTime, seen: &Seen<'_>, facts: &Facts) -> Verdict {
        match seen {
            Seen::Committed { batch, .. } => self.judge_batch(now, batch, facts),
            Seen::OwnerStepped { .. } => {
                facts.holdings.change().map_or(Ok(()), |change| judge_gain(now, change, facts))
            }
            _ => Ok(()),
        }
    }

    fn judge_batch(&mut self, now: TrueTime, batch: &Batch, facts: &Facts) -> Verdict {
        for change in facts.committed.changes() {
            judge_rise(now, change, facts)?;
        }
        for record in &batch.records {
            let Record::Namespace { namespace, change, .. } = record else { continue };
            let Some(space) = facts.spaces.find(namespace) else { continue };
            match change {
                Change::Granted { generation, .. } => self.judge_fresh(now, space, *generation, facts)?,
                Change::Removed => slot(&mut self.granted, space).close(),
                _ => {}
            }
        }
        Ok(())
    }

    fn judge_fresh(&mut self, now: TrueTime, space: usize, generation: Generation, facts: &Facts) -> Verdict {
        let granted = slot(&mut self.granted, space);
        if granted.all.insert(generation) && generation > granted.before_removal {
            return Ok(());
        }
        let what = format!(
            "lease {generation} was granted before in this namespace, or one above it in an earlier life"
        );
        Err(facts.violation("S2", now, space, Vec::new(), what))
    }
}

impl Granted {
    fn close(&mut self) {
        self.before_removal = self.all.last().copied().unwrap_or_default();
    }
}

fn judge_rise(now: TrueTime, change: &RowChange, facts: &Facts) -> Verdict {
    let RowChange { space, range, before, after, how } = *change;
    if how == How::Released || after.generation > before.generation {
        return Ok(());
    }
    let what = format!("{range} was granted as lease {} after lease {}", after.generation, before.generation);
    Err(facts.violation("S2", now, space, vec![range.first()], what))
}

/// A session that comes to hold a key does so under a higher lease than whoever held it before. The same lease at the
/// same node is left to S3, which asks whether it counts as continuous.
fn judge_gain(now: TrueTime, change: &HoldChange, facts: &Facts) -> Verdict {
    let not_above = |meeting: &&Meeting| {
        meeting.generation < meeting.other_generation
            || meeting.generation == meeting.other_generation && !is_same_node(meeting, change, facts)
    };
    let Some(meeting) = change.meetings.iter().find(not_above) else { return Ok(()) };
    let what = format!(
        "{} came to hold {} under lease {} after {} held it under lease {}",
        change.session, meeting.range, meeting.generation, meeting.other, meeting.other_generation,
    );
    Err(facts.violation("S2", now, change.space, vec![meeting.range.first()], what))
}

fn is_same_node(meeting: &Meeting, change: &HoldChange, facts: &Facts) -> bool {
    facts.holdings.home(meeting.other).is_some_and(|home| home.node == change.node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, create, grant, range, remove};

    fn commit(scene: &mut Scene, guard: &mut GenerationsRise, changes: Vec<Change>) -> Verdict {
        let batch = scene.commit(at(1), changes);
        guard.judge_batch(at(1), &batch, &scene.facts)
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
    fn a_late_grant_that_is_accepted_is_found() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.hold(at(1), 1, &[(range(0, 9), 5)], at(10));
        scene.hold(at(11), 0, &[(range(4, 4), 3)], at(20));
        assert!(judge_gain(at(11), scene.facts.holdings.change().unwrap(), &scene.facts).is_err());
    }

    #[test]
    fn a_higher_lease_on_the_next_session_is_right() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.hold(at(1), 1, &[(range(0, 9), 5)], at(10));
        scene.hold(at(11), 0, &[(range(4, 4), 6)], at(20));
        assert_eq!(judge_gain(at(11), scene.facts.holdings.change().unwrap(), &scene.facts), Ok(()));
    }
}
