//! What each Owner believes to hold, and until when in real time if it takes no further step.

use std::collections::BTreeMap;

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::owner::Renumbered;
use centrifuge_core::range_map::RangeMap;
use centrifuge_core::range_set::RangeSet;
use centrifuge_core::time::Instant;

use super::{TrueTime, slot};

/// Nothing is believed from here on.
const NEVER_BELIEVED: TrueTime = TrueTime(0);

/// A lease in an Owner's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The keys.
    pub range: KeyRange,
    /// The lease.
    pub generation: Generation,
    /// Whether new operations are refused; it is held all the same.
    pub frozen: bool,
}

/// Some keys under one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lot {
    /// The keys.
    pub range: KeyRange,
    /// The lease.
    pub generation: Generation,
}

/// What all Owners believe.
#[derive(Debug, Default)]
pub struct Holdings {
    beliefs: Vec<Belief>,
    homes: BTreeMap<SessionId, Home>,
    /// By namespace: who came to hold each key last.
    latest: Vec<RangeMap<Holder>>,
    /// What the event that is being judged changed.
    change: Option<HoldChange>,
}

/// Where a session runs or ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The node.
    pub node: usize,
    /// The namespace.
    pub space: usize,
}

/// What the process on one node believes.
#[derive(Debug, Default)]
pub struct Belief {
    /// The process.
    pub session: SessionId,
    /// Its namespace.
    pub space: usize,
    /// Whether the process runs.
    pub alive: bool,
    /// Whether its clock stands still, and what it believes reaches nobody.
    pub suspended: bool,
    /// When its set of leases last became another.
    pub set_since: TrueTime,
    leases: Vec<Held>,
    expiry: Instant,
    end: TrueTime,
}

/// Who holds or held a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    session: SessionId,
    generation: Generation,
}

/// What an event changed in one Owner's belief.
#[derive(Debug, Default)]
pub struct HoldChange {
    /// The node.
    pub node: usize,
    /// The process.
    pub session: SessionId,
    /// Its namespace.
    pub space: usize,
    /// What it holds now and did not hold before.
    pub gained: Vec<Lot>,
    /// What it held before and does not hold now.
    pub lost: Vec<Lot>,
    /// What it holds as before, under another number.
    pub renumbered: Vec<Renumbered>,
    /// Whether what is lost ran out while the process lived.
    pub expired: bool,
    /// Who came to hold what is gained last before.
    pub meetings: Vec<Meeting>,
    /// Until when it believes what it holds.
    pub end: TrueTime,
}

/// Keys that one session came to hold, and the session that came to hold them last before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meeting {
    /// The keys.
    pub range: KeyRange,
    /// The new lease.
    pub generation: Generation,
    /// Who held them.
    pub other: SessionId,
    /// Under which lease.
    pub other_generation: Generation,
    /// Until when it believes it still does; zero if it does not.
    pub other_until: TrueTime,
}

impl Holdings {
    /// A process begins, holding nothing.
    pub fn start(&mut self, node: usize, session: SessionId, space: usize) {
        self.homes.insert(session, Home { node, space });
        let belief = slot(&mut self.beliefs, node);
        *belief = Belief { session, space, alive: true, ..Belief::default() };
    }

    /// A process is gone, and believes nothing.
    pub fn end(&mut self, now: TrueTime, node: usize) {
        self.drop_all(now, node);
        let belief = slot(&mut self.beliefs, node);
        belief.alive = false;
    }

    /// A suspended process is not asked. When it goes on, only what its next step shows counts.
    pub fn suspend(&mut self, now: TrueTime, node: usize, suspended: bool) {
        self.drop_all(now, node);
        slot(&mut self.beliefs, node).suspended = suspended;
    }

    fn drop_all(&mut self, now: TrueTime, node: usize) {
        let belief = slot(&mut self.beliefs, node);
        let mut change = HoldChange::new(node, belief);
        if belief.end != NEVER_BELIEVED {
            change.lost.extend(belief.leases.iter().map(Held::lot));
        }
        change.expired = belief.end <= now && !change.lost.is_empty();
        belief.leases.clear();
        belief.expiry = Instant::ZERO;
        belief.end = NEVER_BELIEVED;
        belief.set_since = now;
        self.change = Some(change);
    }

    /// A process took a step. `leases` and `expiry` are what the machine says, `end` when its belief would end; what it says
    /// it `renumbered` counts as far as it held that before and holds it after.
    pub fn step<I: Iterator<Item = Held>>(
        &mut self,
        now: TrueTime,
        node: usize,
        expiry: Instant,
        leases: impl Fn() -> I,
        renumbered: &[Renumbered],
        end: impl FnOnce() -> TrueTime,
    ) {
        let belief = slot(&mut self.beliefs, node);
        let same_leases = belief.leases.iter().copied().eq(leases());
        let still_believed = belief.end > now;
        let settled = still_believed || belief.end == NEVER_BELIEVED;
        if same_leases && settled && (belief.expiry == expiry || belief.leases.is_empty()) {
            return;
        }
        let mut change = HoldChange::new(node, belief);
        let incoming: Vec<Held> = leases().collect();
        let end = end();
        change.end = if end > now && !incoming.is_empty() { end } else { NEVER_BELIEVED };
        if !(same_leases && still_believed && change.end > now) {
            belief.compare(still_believed, &incoming, &mut change);
            change.set_apart(renumbered);
            belief.set_since = now;
        }
        belief.leases = incoming;
        belief.expiry = expiry;
        belief.end = change.end;
        self.meet(now, &mut change);
        self.change = Some(change);
    }

    /// Finds who held before what was gained, and notes who holds it now.
    fn meet(&mut self, now: TrueTime, change: &mut HoldChange) {
        let HoldChange { session, space, gained, meetings, renumbered, .. } = change;
        slot(&mut self.latest, *space);
        for lot in gained.iter() {
            let before = self.latest[*space].overlapping(lot.range);
            meetings.extend(before.map(|(range, holder)| Meeting {
                range,
                generation: lot.generation,
                other: holder.session,
                other_generation: holder.generation,
                other_until: self.until(holder.session, range, now),
            }));
            let holder = Holder { session: *session, generation: lot.generation };
            self.latest[*space].insert(lot.range, holder);
        }
        for lease in renumbered.iter() {
            self.latest[*space].insert(lease.range, Holder { session: *session, generation: lease.to });
        }
    }

    /// Until when a session believes it holds some key of `range`; zero if it does not now.
    fn until(&self, session: SessionId, range: KeyRange, now: TrueTime) -> TrueTime {
        let belief = self.homes.get(&session).and_then(|home| self.beliefs.get(home.node));
        let believed = belief.filter(|belief| belief.session == session && belief.overlaps(range, now));
        believed.map_or(NEVER_BELIEVED, |belief| belief.end)
    }

    /// What the event that is being judged changed.
    pub fn change(&self) -> Option<&HoldChange> {
        self.change.as_ref()
    }

    /// The next event begins.
    pub fn forget_change(&mut self) {
        self.change = None;
    }

    /// Where a session runs or ran.
    pub fn home(&self, session: SessionId) -> Option<Home> {
        self.homes.get(&session).copied()
    }

    /// The namespace of the process on a node.
    pub fn space_of(&self, node: usize) -> usize {
        self.beliefs.get(node).map_or(0, |belief| belief.space)
    }

    /// What the process on each node believes.
    pub fn beliefs(&self) -> impl Iterator<Item = (usize, &Belief)> {
        self.beliefs.iter().enumerate()
    }
}

impl Belief {
    /// What it believes to hold at an instant from its latest step on.
    pub fn held(&self, now: TrueTime) -> &[Held] {
        if self.end > now { &self.leases } else { &[] }
    }

    /// The lease it believes to hold on a key.
    pub fn holds(&self, key: Key, now: TrueTime) -> Option<&Held> {
        let held = self.held(now);
        let index = held.partition_point(|lease| lease.range.last() < key);
        held.get(index).filter(|lease| lease.range.contains(key))
    }

    fn overlaps(&self, range: KeyRange, now: TrueTime) -> bool {
        let held = self.held(now);
        let index = held.partition_point(|lease| lease.range.last() < range.first());
        held.get(index).is_some_and(|lease| lease.range.overlaps(range))
    }

    /// Notes what the step from the present leases to `incoming` gains and loses.
    fn compare(&self, still_believed: bool, incoming: &[Held], change: &mut HoldChange) {
        let after = if change.end == NEVER_BELIEVED { &[] } else { incoming };
        if still_believed {
            missing(after, &self.leases, &mut change.gained);
            missing(&self.leases, after, &mut change.lost);
            return;
        }
        change.gained.extend(after.iter().map(Held::lot));
        if self.end != NEVER_BELIEVED {
            change.lost.extend(self.leases.iter().map(Held::lot));
            change.expired = !change.lost.is_empty();
        }
    }
}

impl HoldChange {
    /// Nothing of what a process believes has changed yet.
    fn new(node: usize, belief: &Belief) -> HoldChange {
        HoldChange { node, session: belief.session, space: belief.space, ..HoldChange::default() }
    }

    /// What was lost under one number and gained under another in the same step, as the process says, was held throughout.
    fn set_apart(&mut self, renumbered: &[Renumbered]) {
        for lease in renumbered {
            let lost = keys_under(&self.lost, lease.from);
            let gained = keys_under(&self.gained, lease.to);
            for range in lost.intersection(&gained).intersect_range(lease.range).iter() {
                take_out(&mut self.lost, range, lease.from);
                take_out(&mut self.gained, range, lease.to);
                self.renumbered.push(Renumbered { range, ..*lease });
            }
        }
    }
}

fn keys_under(lots: &[Lot], generation: Generation) -> RangeSet {
    lots.iter().filter(|lot| lot.generation == generation).map(|lot| lot.range).collect()
}

fn take_out(lots: &mut Vec<Lot>, range: KeyRange, generation: Generation) {
    let mut rest = keys_under(lots, generation);
    rest.remove(range);
    lots.retain(|lot| lot.generation != generation);
    lots.extend(rest.iter().map(|range| Lot { range, generation }));
}

impl Held {
    fn lot(&self) -> Lot {
        Lot { range: self.range, generation: self.generation }
    }
}

/// Adds the parts of `these` that `those` do not have under the same lease.
fn missing(these: &[Held], those: &[Held], parts: &mut Vec<Lot>) {
    for held in these {
        let Held { range, generation, .. } = *held;
        let mut rest = Some(range);
        let start = those.partition_point(|other| other.range.last() < range.first());
        for other in those[start..].iter().take_while(|other| other.range.first() <= range.last()) {
            let Some(wanted) = rest else { break };
            if other.generation == generation {
                let (before, after) = wanted.difference(other.range);
                parts.extend(before.map(|range| Lot { range, generation }));
                rest = after;
            }
        }
        parts.extend(rest.map(|range| Lot { range, generation }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, generation, range, session};

    fn lots(lots: &[Lot]) -> Vec<(KeyRange, u64)> {
        lots.iter().map(|lot| (lot.range, lot.generation.0)).collect()
    }

    fn change(scene: &Scene) -> &HoldChange {
        scene.facts.holdings.change().expect("something changed")
    }

    #[test]
    fn a_renewal_gains_and_loses_nothing() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.hold(at(0), 0, &[(range(0, 9), 1)], at(60));
        assert_eq!(lots(&change(&scene).gained), [(range(0, 9), 1)]);
        scene.hold(at(30), 0, &[(range(0, 9), 1)], at(90));
        assert!(change(&scene).gained.is_empty() && change(&scene).lost.is_empty());
        scene.hold(at(31), 0, &[(range(0, 9), 1)], at(90));
        assert!(scene.facts.holdings.change().is_none());
    }

    #[test]
    fn only_the_keys_that_differ_are_gained_and_lost() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.hold(at(0), 0, &[(range(0, 9), 1), (range(20, 29), 2)], at(60));
        scene.hold(at(1), 0, &[(range(2, 5), 1), (range(6, 7), 3), (range(20, 30), 2)], at(61));
        assert_eq!(lots(&change(&scene).lost), [(range(0, 1), 1), (range(6, 9), 1)]);
        assert_eq!(lots(&change(&scene).gained), [(range(6, 7), 3), (range(30, 30), 2)]);
    }

    #[test]
    fn a_lease_ends_by_itself() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.hold(at(0), 0, &[(range(0, 9), 1)], at(60));
        let belief = |scene: &Scene, now| {
            let (_, belief) = scene.facts.holdings.beliefs().next().unwrap();
            belief.holds(Key(5), now).map(|held| held.generation)
        };
        assert_eq!(belief(&scene, TrueTime(at(60).0 - 1)), Some(generation(1)));
        assert_eq!(belief(&scene, at(60)), None);
        scene.hold(at(60), 0, &[(range(0, 9), 1)], at(60));
        assert!(change(&scene).expired && change(&scene).gained.is_empty());
        scene.hold(at(61), 0, &[(range(0, 9), 1)], at(60));
        assert!(scene.facts.holdings.change().is_none(), "it is told once");
    }

    #[test]
    fn a_lease_that_comes_too_late_is_never_held() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.hold(at(10), 0, &[(range(0, 9), 1)], at(9));
        assert!(change(&scene).gained.is_empty());
    }

    #[test]
    fn the_holder_before_is_met() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.hold(at(0), 0, &[(range(0, 9), 1)], at(60));
        scene.hold(at(5), 0, &[(range(0, 4), 1)], at(65));
        scene.hold(at(6), 1, &[(range(3, 9), 2)], at(66));
        let meeting = |other_until| Meeting {
            range: range(3, 9),
            generation: generation(2),
            other: session(1),
            other_generation: generation(1),
            other_until,
        };
        assert_eq!(change(&scene).meetings, [meeting(at(65))]);
    }

    #[test]
    fn what_a_process_held_is_lost_with_it() {
        let mut scene = Scene::new();
        scene.start_owner(0, 1);
        scene.hold(at(0), 0, &[(range(0, 9), 1)], at(60));
        scene.facts.holdings.end(at(5), 0);
        assert_eq!(lots(&change(&scene).lost), [(range(0, 9), 1)]);
        assert!(!change(&scene).expired);
    }
}
