//! S3: `check_lease_continuous` is true only if the same session held that key at every instant since. It is true of a lease that
//! goes on under another number.
//!
//! Whatever a node's process stops holding, by expiry, loss, suspension or its own end, is a broken handle. The oracle
//! keeps the latest of them, also those of the node's earlier processes, and asks the machine about them.

use std::collections::VecDeque;

use centrifuge_core::id::Generation;
use centrifuge_core::key::Key;

use super::{At, HoldChange, Lot, Seen, Verdict, slot};

/// How many broken handles are kept of each node.
const KEPT: usize = 64;
/// How many of them are asked about when nothing was gained.
const ASKED_OFTEN: usize = 4;

/// Guards S3.
#[derive(Debug, Default)]
pub struct ContinuousMeansContinuous {
    nodes: Vec<Broken>,
}

/// What the processes of a node held once and do not hold any more, the latest first.
#[derive(Debug, Default)]
struct Broken {
    space: usize,
    lots: VecDeque<Lot>,
    /// What its process has held all along, under numbers that the leases do not have any more.
    renumbered: VecDeque<Lot>,
}

impl ContinuousMeansContinuous {
    /// Judges an event.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        let Some(change) = facts.holdings.change() else { return Ok(()) };
        slot(&mut self.nodes, change.node).add(change);
        match seen {
            Seen::OwnerStepped { machine, clock, .. } => {
                let local = clock.read(facts.now);
                let says = |key, handle| machine.check_lease_continuous(local, key, handle);
                self.judge(change, says, facts)
            }
            _ => Ok(()),
        }
    }

    fn judge(
        &self,
        change: &HoldChange,
        says_continuous: impl Fn(Key, Generation) -> bool,
        facts: At,
    ) -> Verdict {
        let Some(broken) = self.nodes.get(change.node) else { return Ok(()) };
        let HoldChange { session, space, .. } = change;
        let denied =
            |lot: &&Lot| change.end > facts.now && !says_continuous(lot.range.first(), lot.generation);
        if let Some(lot) = broken.renumbered.iter().find(denied) {
            let (key, lease) = (lot.range.first(), lot.generation);
            let denies = format!("{session} denies that it held key {key} without a gap since lease {lease}");
            let what = format!("{denies}, which only has another number now");
            return Err(facts.violation("S3", *space, vec![key], what));
        }
        let asked = if change.gained.is_empty() { ASKED_OFTEN } else { KEPT };
        let refuted = |lot: &&Lot| says_continuous(lot.range.first(), lot.generation);
        let Some(lot) = broken.lots.iter().take(asked).find(refuted) else { return Ok(()) };
        let (key, lease) = (lot.range.first(), lot.generation);
        let says = format!("{session} says it held key {key} without a gap since lease {lease}");
        let what = format!("{says}, but that was held by an earlier process or for a while not at all");
        Err(facts.violation("S3", *space, vec![key], what))
    }
}

impl Broken {
    fn add(&mut self, change: &HoldChange) {
        if self.space != change.space {
            self.lots.clear();
            self.renumbered.clear();
            self.space = change.space;
        }
        for lot in &change.lost {
            self.lots.push_front(*lot);
            self.renumbered.retain(|other| !other.range.overlaps(lot.range));
        }
        for lease in &change.renumbered {
            self.renumbered.push_front(Lot { range: lease.range, generation: lease.from });
        }
        self.lots.truncate(KEPT);
        self.renumbered.truncate(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, generation, range};
    use crate::seen::TrueTime;

    /// Shows a hold to the guard and asks about it a machine that says `continuous` of lease 3 on any key.
    fn see(guard: &mut ContinuousMeansContinuous, now: TrueTime, scene: &Scene, continuous: bool) -> Verdict {
        let change = scene.facts.holdings.change().unwrap();
        slot(&mut guard.nodes, change.node).add(change);
        guard.judge(change, |_, handle| continuous && handle == generation(3), scene.facts.at(now))
    }

    #[test]
    fn an_unbroken_lease_may_be_called_continuous() {
        let (mut scene, mut guard) = (Scene::new(), ContinuousMeansContinuous::default());
        scene.start_owner(0, 1);
        scene.hold(at(0), 0, &[(range(0, 9), 3)], at(60));
        assert_eq!(see(&mut guard, at(0), &scene, true), Ok(()));
        scene.hold(at(30), 0, &[(range(0, 9), 3)], at(90));
        assert_eq!(see(&mut guard, at(30), &scene, true), Ok(()));
    }

    #[test]
    fn a_lease_revived_after_its_end_is_found() {
        let (mut scene, mut guard) = (Scene::new(), ContinuousMeansContinuous::default());
        scene.start_owner(0, 1);
        scene.hold(at(0), 0, &[(range(0, 9), 3)], at(60));
        see(&mut guard, at(0), &scene, true).unwrap();
        scene.hold(at(61), 0, &[(range(0, 9), 3)], at(121));
        assert_eq!(see(&mut guard, at(61), &scene, true).unwrap_err().invariant, "S3");
    }

    #[test]
    fn a_lost_lease_that_is_denied_is_right() {
        let (mut scene, mut guard) = (Scene::new(), ContinuousMeansContinuous::default());
        scene.start_owner(0, 1);
        scene.hold(at(0), 0, &[(range(0, 9), 3)], at(60));
        see(&mut guard, at(0), &scene, true).unwrap();
        scene.hold(at(10), 0, &[(range(0, 4), 3)], at(70));
        assert_eq!(see(&mut guard, at(10), &scene, false), Ok(()));
        scene.hold(at(20), 0, &[(range(0, 4), 3), (range(5, 9), 8)], at(80));
        assert_eq!(see(&mut guard, at(20), &scene, false), Ok(()));
    }

    #[test]
    fn a_restarted_process_that_goes_on_is_found() {
        let (mut scene, mut guard) = (Scene::new(), ContinuousMeansContinuous::default());
        scene.start_owner(0, 1);
        scene.hold(at(0), 0, &[(range(0, 9), 3)], at(60));
        see(&mut guard, at(0), &scene, true).unwrap();
        scene.facts.holdings.end(at(5), 0);
        slot(&mut guard.nodes, 0).add(scene.facts.holdings.change().unwrap());
        scene.start_owner(0, 2);
        scene.hold(at(6), 0, &[(range(0, 9), 3)], at(66));
        assert!(see(&mut guard, at(6), &scene, true).is_err());
    }
}
