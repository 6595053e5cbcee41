//! S1, by application keys: at no instant of real time do two Owners both believe that they own an application key, each by the key that it
//! makes of it.
//!
//! Owners that make the same keys are judged by S1 itself. Here those are that make different ones: only one kind of them may get in.

use centrifuge_core::key::Key;

use super::{At, Seen, Verdict, slot};

/// Guards S1 where Owners make keys in different ways.
#[derive(Debug, Default)]
pub struct OneOwnerByAnyKeys {
    /// By node: the keys that its process makes of the application keys of its namespace.
    keys: Vec<Vec<Key>>,
    /// Whether some of them are different.
    is_mixed: bool,
}

impl OneOwnerByAnyKeys {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        match seen {
            Seen::OwnerStarted { node, namespace, keys, .. } => {
                self.is_mixed |= !facts.spaces.are_probes(namespace, keys);
                *slot(&mut self.keys, *node) = keys.to_vec();
                Ok(())
            }
            Seen::OwnerStepped { node, .. } if self.is_mixed && facts.limits.check_s1 => {
                let has_gained = facts.holdings.change().is_some_and(|change| !change.gained.is_empty());
                if has_gained { self.judge_gain(*node, facts) } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }

    fn judge_gain(&self, node: usize, facts: At) -> Verdict {
        let space = facts.holdings.space_of(node);
        for (place, key) in self.keys.get(node).into_iter().flatten().enumerate() {
            let owners = facts.holdings.beliefs().filter_map(|(other, belief)| {
                let theirs = *self.keys.get(other)?.get(place)?;
                let is_owner = belief.space == space && belief.holds(theirs, facts.now).is_some();
                is_owner.then_some((belief.session, theirs))
            });
            let owners: Vec<_> = owners.collect();
            let is_one = owners.iter().any(|(_, theirs)| theirs == key);
            let other = owners.iter().find(|(_, theirs)| theirs != key);
            if let (true, Some((session, theirs))) = (is_one, other) {
                let what =
                    format!("an application key has two owners: one by {key}, and {session} by {theirs}");
                return Err(facts.violation("S1", space, vec![*key, *theirs], what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, range, session, space_name};

    /// What is said when an Owner that makes these keys of the probes gains a range, while another holds all of the others.
    fn joins(keys: &[Key], held: u64) -> Verdict {
        let mut scene = Scene::new();
        let probes: Vec<Key> = scene.facts.spaces.probes().next().expect("one").1.to_vec();
        let mut guard = OneOwnerByAnyKeys::default();
        let name = space_name();
        for (node, keys) in [(0, &probes[..]), (1, keys)] {
            scene.start_owner(node, node as u64 + 1);
            let session = session(node as u64 + 1);
            let started = Seen::OwnerStarted { node, session, namespace: &name, migrates: true, keys };
            guard.see(&started, scene.facts.at(at(1))).expect("nobody owns anything");
        }
        scene.hold(at(10), 0, &[(range(0, 999), 3)], at(60));
        scene.hold(at(20), 1, &[(range(held, held), 4)], at(70));
        guard.judge_gain(1, scene.facts.at(at(20)))
    }

    #[test]
    fn an_application_key_with_two_owners_is_found() {
        let scene = Scene::new();
        let probes: Vec<Key> = scene.facts.spaces.probes().next().expect("one").1.to_vec();
        let foreign: Vec<Key> = probes.iter().map(|key| Key(key.0 + 5_000)).collect();
        let violation = joins(&foreign, foreign[0].0).expect_err("both own the first");
        assert_eq!(violation.invariant, "S1");
        assert_eq!(joins(&foreign, 9_999), Ok(()), "it holds no key that it makes");
        assert_eq!(joins(&probes, 9_999), Ok(()), "those that make the same keys are judged elsewhere");
    }
}
