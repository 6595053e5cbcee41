//! L2: a message race ends; no Owner loses a lease through races alone.
//!
//! Where nothing but races can disturb, no lease may ever run out, and no session's reports may be dropped more than a
//! few times in a row. In every other world the same holds once the faults are long over.

use std::collections::BTreeMap;

use centrifuge_core::id::{Seq, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::{ManagerAction, MessageSkip, Skip};
use centrifuge_core::message::ManagerToOwner;
use centrifuge_core::owner::{OwnerAction, RevokedReason};

use super::{At, Facts, HoldChange, Seen, Verdict};

/// Guards L2.
#[derive(Debug, Default)]
pub struct RacesEnd {
    sessions: BTreeMap<SessionId, Racing>,
}

/// How a session's reports fared.
#[derive(Clone, Copy, Debug, Default)]
struct Racing {
    in_a_row: u32,
    applied: Seq,
}

impl RacesEnd {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::OwnerStepped { machine, actions, .. } if is_judged(facts) => {
                let ran_out = actions.iter().find_map(ran_out).or_else(|| believed_too_long(&facts));
                ran_out.map_or(Ok(()), |range| lease_lost(machine.session(), range, facts))
            }
            Seen::ManagerStepped { actions, .. } if facts.limits.races_only => {
                actions.iter().try_for_each(|action| self.judge_action(action, facts))
            }
            _ => Ok(()),
        }
    }

    fn judge_action(&mut self, action: &ManagerAction, facts: At) -> Verdict {
        match action {
            ManagerAction::Skip(Skip::Message { session, why: MessageSkip::Race }) => {
                self.count_race(*session, facts)
            }
            ManagerAction::ToOwner { message: ManagerToOwner::Assign(assign), .. } => {
                self.note_applied(assign.session, assign.applied);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn count_race(&mut self, session: SessionId, facts: At) -> Verdict {
        let racing = self.sessions.entry(session).or_default();
        racing.in_a_row += 1;
        if racing.in_a_row <= facts.limits.races_in_a_row {
            return Ok(());
        }
        let what =
            format!("{} reports of {session} in a row crossed a message of the Manager", racing.in_a_row);
        let space = facts.holdings.home(session).map_or(0, |home| home.space);
        Err(facts.violation("L2", space, Vec::new(), what))
    }

    /// A report took effect: the race, if there was one, is over. A new conversation numbers anew.
    fn note_applied(&mut self, session: SessionId, applied: Seq) {
        let racing = self.sessions.entry(session).or_default();
        if racing.applied != applied {
            *racing = Racing { in_a_row: 0, applied };
        }
    }
}

/// Whether a lease that runs out now could have run out through races alone.
fn is_judged(facts: At) -> bool {
    facts.limits.races_only || facts.is_calm(facts.now)
}

/// The keys of a lease that the machine says ran out.
fn ran_out(action: &OwnerAction) -> Option<KeyRange> {
    let OwnerAction::Revoked(revoked) = action else { return None };
    revoked
        .iter()
        .find(|revocation| revocation.why == RevokedReason::Expired)
        .map(|revocation| revocation.range)
}

/// The keys of a lease that, as the oracle saw, ran out before this step.
fn believed_too_long(facts: &Facts) -> Option<KeyRange> {
    let change: &HoldChange = facts.holdings.change()?;
    change.lost.first().filter(|_| change.expired).map(|lot| lot.range)
}

fn lease_lost(session: SessionId, range: KeyRange, facts: At) -> Verdict {
    let space = facts.holdings.home(session).map_or(0, |home| home.space);
    let what =
        format!("a lease of {session} on {range} ran out though nothing but races could disturb its renewal");
    Err(facts.violation("L2", space, vec![range.first()], what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, generation, range, session};
    use centrifuge_core::owner::Revocation;

    #[test]
    fn a_race_that_ends_is_right_and_one_that_does_not_is_found() {
        let scene = Scene::new();
        let mut guard = RacesEnd::default();
        for applied in 1..5 {
            for _ in 0..scene.facts.limits.races_in_a_row {
                assert_eq!(guard.count_race(session(1), scene.facts.at(at(1))), Ok(()));
            }
            guard.note_applied(session(1), Seq(applied));
        }
        guard.note_applied(session(1), Seq(4));
        for _ in 0..scene.facts.limits.races_in_a_row {
            assert_eq!(guard.count_race(session(1), scene.facts.at(at(1))), Ok(()));
            guard.note_applied(session(1), Seq(4));
        }
        assert_eq!(guard.count_race(session(1), scene.facts.at(at(1))).unwrap_err().invariant, "L2");
    }

    #[test]
    fn only_expiry_counts_as_running_out() {
        let revoked = |why| {
            OwnerAction::Revoked(vec![Revocation { range: range(0, 9), generation: generation(1), why }])
        };
        assert_eq!(ran_out(&revoked(RevokedReason::Expired)), Some(range(0, 9)));
        assert_eq!(ran_out(&revoked(RevokedReason::Moved)), None);
        assert_eq!(ran_out(&OwnerAction::Drained), None);
    }

    #[test]
    fn a_lease_that_ran_out_unsaid_is_seen() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.hold(at(0), 0, &[(range(0, 9), 1)], at(60));
        assert_eq!(believed_too_long(&scene.facts), None);
        scene.hold(at(59), 0, &[(range(0, 9), 1)], at(119));
        assert_eq!(believed_too_long(&scene.facts), None);
        scene.hold(at(119), 0, &[], at(119));
        assert_eq!(believed_too_long(&scene.facts), Some(range(0, 9)));
        assert!(lease_lost(session(1), range(0, 9), scene.facts.at(at(119))).is_err());
    }

    #[test]
    fn leases_may_run_out_while_faults_go_on() {
        let mut scene = Scene::new();
        assert!(!is_judged(scene.facts.at(at(500))));
        scene.facts.limits.races_only = true;
        assert!(is_judged(scene.facts.at(at(500))));
        scene.facts.limits.races_only = false;
        scene.facts.faults_ended = Some(at(100));
        assert!(!is_judged(scene.facts.at(at(101))));
        assert!(is_judged(scene.facts.at(at(500))));
    }
}
