//! S1: at no instant of real time do two Owners both believe they hold a lease on a key (clock rates within the bound).
//!
//! A belief grows only by a step of its Owner, so it is enough to look, at each step that gains keys, at the sessions
//! that came to hold these keys last before. A belief lasts until its end even if its process is paused: whoever asks
//! it is answered by the clock. Applications show the same from outside: no operation is served under a lease lower
//! than one under which the key was served before.
//!
//! Owners in affinity mode do not believe that nobody else has their keys, so two of them may meet. Nobody may meet an Owner that does.

use std::collections::BTreeMap;

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::key::Key;

use super::{At, HoldChange, Meeting, Seen, Verdict};

/// Clocks are read in whole nanoseconds: two beliefs may seem to touch for less than this.
const TOLERANCE_NANOS: u64 = 100;

/// Guards S1.
#[derive(Debug, Default)]
pub struct AtMostOneOwner {
    served: BTreeMap<(usize, Key), Served>,
}

/// Who answered for a key, and under which lease.
#[derive(Clone, Copy, Debug)]
struct Served {
    generation: Generation,
    session: SessionId,
}

impl AtMostOneOwner {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        if !facts.limits.check_s1 {
            return Ok(());
        }
        match seen {
            Seen::OwnerStepped { .. } => {
                facts.holdings.change().map_or(Ok(()), |change| judge_gain(change, facts))
            }
            Seen::Served { namespace, key, generation, session, .. } => {
                let by = Served { generation: *generation, session: *session };
                let space = facts.spaces.find(namespace);
                let space = space.filter(|space| !facts.is_affinity(*space));
                space.map_or(Ok(()), |space| self.judge_service(space, *key, by, facts))
            }
            _ => Ok(()),
        }
    }

    /// Answers rise with the leases they are given under. Only a session whose lease has got another number meanwhile may
    /// give one under the number with which it began: S3 asks whether it held the key throughout.
    fn judge_service(&mut self, space: usize, key: Key, by: Served, facts: At) -> Verdict {
        let highest = self.served.entry((space, key)).or_insert(by);
        if by.generation < highest.generation && by.session != highest.session {
            let what = format!(
                "key {key} was served under lease {} after it was served under lease {}",
                by.generation, highest.generation,
            );
            return Err(facts.violation("S1", space, vec![key], what));
        }
        if by.generation > highest.generation {
            *highest = by;
        }
        Ok(())
    }
}

fn judge_gain(change: &HoldChange, facts: At) -> Verdict {
    let may_meet = |other| facts.in_affinity.contains(&change.session) && facts.in_affinity.contains(&other);
    let both = |meeting: &&Meeting| {
        meeting.other != change.session
            && !may_meet(meeting.other)
            && meeting.other_until.0 > facts.now.0.saturating_add(TOLERANCE_NANOS)
    };
    let Some(meeting) = change.meetings.iter().find(both) else { return Ok(()) };
    let HoldChange { session, space, .. } = change;
    let Meeting { range, generation, other, other_generation, other_until } = meeting;
    let gain = format!("{session} came to hold {range} under lease {generation}");
    let held = format!("{other} still holds keys of it under lease {other_generation}, until {other_until}");
    Err(facts.violation("S1", *space, vec![range.first()], format!("{gain} while {held}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::Facts;
    use crate::invariants::testing::{Scene, at, generation, range, session, space_name};
    use crate::seen::TrueTime;
    use crate::seen::Value;

    /// What S1 says when session 2 gains keys 5-9 at `second`, after session 1 came to hold 0-9 until 60 s.
    fn meet(second: TrueTime) -> Verdict {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.hold(at(10), 0, &[(range(0, 9), 3)], at(60));
        scene.hold(second, 1, &[(range(5, 9), 4)], TrueTime(second.0 + 1_000));
        judge(second, &scene)
    }

    fn judge(now: TrueTime, scene: &Scene) -> Verdict {
        scene.facts.holdings.change().map_or(Ok(()), |change| judge_gain(change, scene.facts.at(now)))
    }

    #[test]
    fn two_owners_at_once_are_found() {
        let violation = meet(at(59)).expect_err("both hold key 5");
        assert_eq!(violation.invariant, "S1");
        assert!(violation.what.contains(&session(1).to_string()), "{}", violation.what);
        assert!(
            violation.what.contains("lease 3") && violation.what.contains("lease 4"),
            "{}",
            violation.what
        );
    }

    #[test]
    fn only_owners_that_both_expect_a_rival_may_meet() {
        let meet = |in_affinity: &[u64]| {
            let mut scene = Scene::new();
            scene.facts.in_affinity = in_affinity.iter().map(|number| session(*number)).collect();
            scene.start_owner(0, 1);
            scene.start_owner(1, 2);
            scene.hold(at(10), 0, &[(range(0, 9), 3)], at(60));
            scene.hold(at(50), 1, &[(range(5, 9), 4)], at(110));
            judge(at(50), &scene)
        };
        assert_eq!(meet(&[1, 2]), Ok(()));
        assert!(meet(&[1]).is_err() && meet(&[2]).is_err() && meet(&[]).is_err());
    }

    #[test]
    fn one_after_the_other_is_right() {
        assert_eq!(meet(at(60)), Ok(()));
        assert_eq!(meet(TrueTime(at(60).0 - TOLERANCE_NANOS)), Ok(()));
    }

    #[test]
    fn a_run_that_expects_breaches_is_not_judged() {
        let mut scene = Scene::new();
        let mut guard = AtMostOneOwner::default();
        let namespace = space_name();
        let mut serve = |process, number, facts: &Facts| {
            let (before, after) = (None, Value { lineage: 1, version: 1 });
            let (key, session, generation) = (Key(7), session(process), generation(number));
            let served = Seen::Served { session, namespace: &namespace, key, generation, before, after };
            guard.see(&served, facts.at(at(1)))
        };
        assert_eq!(serve(1, 3, &scene.facts), Ok(()));
        assert_eq!(serve(1, 2, &scene.facts), Ok(()), "the lease got another number meanwhile");
        assert!(serve(2, 2, &scene.facts).is_err());
        scene.facts.limits.check_s1 = false;
        assert_eq!(serve(2, 1, &scene.facts), Ok(()));
    }

    #[test]
    fn a_crashed_owner_believes_nothing() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.hold(at(10), 0, &[(range(0, 9), 3)], at(60));
        scene.facts.holdings.end(at(20), 0);
        scene.hold(at(21), 1, &[(range(0, 9), 4)], at(70));
        assert_eq!(judge(at(21), &scene), Ok(()));
    }

    #[test]
    fn an_expired_lease_that_comes_back_is_found() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.hold(at(10), 0, &[(range(0, 9), 3)], at(20));
        scene.hold(at(30), 1, &[(range(0, 9), 4)], at(80));
        assert_eq!(judge(at(30), &scene), Ok(()));
        scene.hold(at(31), 0, &[(range(0, 9), 3)], at(81));
        assert!(judge(at(31), &scene).is_err());
    }

    #[test]
    fn a_suspended_owner_is_judged_again_by_its_first_step() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.hold(at(10), 0, &[(range(0, 9), 3)], at(60));
        scene.facts.holdings.suspend(at(11), 0, true);
        scene.hold(at(30), 1, &[(range(0, 9), 4)], at(80));
        assert_eq!(judge(at(30), &scene), Ok(()));
        scene.facts.holdings.suspend(at(40), 0, false);
        scene.hold(at(40), 0, &[(range(0, 9), 3)], at(90));
        assert!(judge(at(40), &scene).is_err());
    }

    #[test]
    fn service_under_a_lower_lease_is_found() {
        let scene = Scene::new();
        let mut guard = AtMostOneOwner::default();
        let by = |process, number| Served { generation: generation(number), session: session(process) };
        assert_eq!(guard.judge_service(0, Key(7), by(1, 3), scene.facts.at(at(1))), Ok(()));
        assert_eq!(guard.judge_service(0, Key(7), by(1, 3), scene.facts.at(at(2))), Ok(()));
        assert_eq!(guard.judge_service(0, Key(7), by(2, 5), scene.facts.at(at(3))), Ok(()));
        assert!(guard.judge_service(0, Key(7), by(1, 3), scene.facts.at(at(4))).is_err());
    }
}
