//! The sentences that every state must keep, and what must happen somewhere in a world that is worth its name.

use std::collections::BTreeSet;

use centrifuge_core::id::{Generation, Term};
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::MessageSkip;
use centrifuge_core::owner::Renumbered;
use centrifuge_core::record::Change;
use centrifuge_core::table::Entry;
use centrifuge_core::time::Instant;
use stateright::Property;

use super::{ManagerNode, OwnerNode, PROBES, Shared, State, World, address, namespace, probes_in};

/// A sentence of protocol §11 that a state breaks, and how. It names places by their addresses, and processes by their
/// sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Breach(pub(super) &'static str, pub(super) String);

/// What the oracle remembers of who held what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    /// What each place's process holds of each watched key.
    held: Vec<[Option<Generation>; PROBES.len()]>,
    /// Leases that the process at a place held on a watched key and holds no more.
    past: BTreeSet<(usize, usize, Generation)>,
    /// Earlier numbers of the leases that the process at a place holds on a watched key: those have not ended.
    earlier: BTreeSet<(usize, usize, Generation)>,
}

impl Memory {
    /// Whether a look at the process at a place would show nothing new.
    pub(super) fn is_up_to_date(&self, slot: usize, owner: Option<(&OwnerNode, Instant)>) -> bool {
        let Some(held) = self.held.get(slot) else { return false };
        let holds = |probe| owner.and_then(|(node, now)| node.holds(now, probe));
        let same = (0..PROBES.len()).all(|probe| holds(probe) == held[probe]);
        let claims = |probe| owner.and_then(|(node, now)| self.judge(slot, probe, node, now));
        same && owner.is_some() && (0..PROBES.len()).all(|probe| claims(probe).is_none())
    }

    /// The process at a place holds leases on under other numbers, without a gap.
    pub(super) fn renumber(&mut self, slot: usize, renumbered: &[Renumbered]) {
        for Renumbered { range, from, to } in renumbered {
            for (probe, _) in probes_in(*range) {
                if let Some(held) = self.held.get_mut(slot)
                    && held[probe] == Some(*from)
                {
                    held[probe] = Some(*to);
                    self.earlier.insert((slot, probe, *from));
                }
            }
        }
    }

    /// Looks at the process at a place; it must not hold again what it held before.
    pub(super) fn look(&mut self, slot: usize, owner: Option<(&OwnerNode, Instant)>) -> Option<Breach> {
        if self.held.len() <= slot {
            self.held.resize(slot + 1, Default::default());
        }
        let Some((node, now)) = owner else {
            self.held[slot] = Default::default();
            self.past.retain(|(place, ..)| *place != slot);
            self.earlier.retain(|(place, ..)| *place != slot);
            return None;
        };
        let mut breach = None;
        for probe in 0..PROBES.len() {
            let holds = node.holds(now, probe);
            let before = std::mem::replace(&mut self.held[slot][probe], holds);
            if let Some(ended) = before.filter(|_| before != holds) {
                let is_of = |(place, key, _): &(usize, usize, Generation)| (*place, *key) == (slot, probe);
                self.past.extend(self.earlier.extract_if(.., |number| is_of(number)));
                self.past.insert((slot, probe, ended));
            }
            breach = breach.or_else(|| self.judge(slot, probe, node, now));
        }
        breach
    }

    fn judge(&self, slot: usize, probe: usize, node: &OwnerNode, now: Instant) -> Option<Breach> {
        self.again(slot, probe, node, now).or_else(|| self.denied(slot, probe, node, now))
    }

    /// Held without a gap is what is held, under the number that it has and every one that it had.
    fn denied(&self, slot: usize, probe: usize, node: &OwnerNode, now: Instant) -> Option<Breach> {
        let held = self.held[slot][probe].filter(|held| node.holds(now, probe) == Some(*held))?;
        let earlier = self.earlier.iter().filter(|(place, key, _)| (*place, *key) == (slot, probe));
        let mut numbers = earlier.map(|(_, _, generation)| *generation).chain([held]);
        let denies = |number: &Generation| !node.machine.check_lease_continuous(now, PROBES[probe], *number);
        let generation = numbers.find(denies)?;
        let process = format!("the process at {}", address(slot));
        let what = format!("{process} denies that it has held on since it had lease {generation}");
        Some(Breach("S3", what))
    }

    fn again(&self, slot: usize, probe: usize, node: &OwnerNode, now: Instant) -> Option<Breach> {
        let ended = self.past.iter().filter(|(place, key, _)| (*place, *key) == (slot, probe));
        let again = |(_, _, generation): &&(usize, usize, Generation)| {
            node.machine.check_lease_continuous(now, PROBES[probe], *generation)
                || self.held[slot][probe] == Some(*generation)
        };
        let (_, _, generation) = ended.into_iter().find(again)?;
        let process = format!("the process at {}", address(slot));
        Some(Breach("S3", format!("{process} holds lease {generation} again after a gap")))
    }

    /// Two processes that hold the same key now.
    pub(super) fn two_owners(&self) -> Option<Breach> {
        (0..PROBES.len()).find_map(|probe| {
            let mut holders = (0..self.held.len()).filter(|slot| self.held[*slot][probe].is_some());
            let (one, other) = (address(holders.next()?), address(holders.next()?));
            let what = format!("the processes at {one} and {other} both hold key {}", PROBES[probe]);
            Some(Breach("S1", what))
        })
    }

    /// What the process at a place holds of a watched key.
    pub(super) fn holds(&self, slot: usize, probe: usize) -> Option<Generation> {
        self.held.get(slot)?[probe]
    }

    /// Whether the process at a place holds a watched key.
    fn holds_any(&self, slot: usize) -> bool {
        (0..PROBES.len()).any(|probe| self.holds(slot, probe).is_some())
    }

    /// Whether the process at a place has lost a lease.
    fn has_lost(&self, slot: usize) -> bool {
        self.past.iter().any(|(place, ..)| *place == slot)
    }
}

/// Something that must happen in some state of a world, in words and as a condition.
pub(super) type Milestone = (&'static str, fn(&World, &State) -> bool);

/// The highest key is held at the second place.
pub(super) const MOVED: Milestone = ("a move is completed", |_, state| state.memory.holds(1, 1).is_some());
/// A process holds a lease again, under another number.
pub(super) const HELD_AGAIN: Milestone = ("a lease follows one that ended", |_, state| {
    let memory = &state.memory;
    (0..state.owners.len()).any(|slot| memory.holds_any(slot) && memory.has_lost(slot))
});
/// An Owner dropped a message that crossed its own.
pub(super) const RACE_AT_OWNER: Milestone = ("an Owner drops a racing message", |_, state| {
    state.processes().any(|node| node.machine.counters().races > 0)
});
/// A Manager dropped a report that crossed its message.
pub(super) const RACE_AT_MANAGER: Milestone = ("a Manager drops a racing report", |_, state| {
    let races = |node: &Shared<ManagerNode>| {
        node.machine.counters().skipped.get(&MessageSkip::Race).copied().unwrap_or_default()
    };
    state.managers.iter().any(|node| races(node) > 0)
});
/// A lease ran out.
pub(super) const EXPIRED: Milestone =
    ("a lease runs out", |_, state| state.processes().any(|node| node.machine.counters().expired > 0));
/// A process that was started in the course of things holds a key.
pub(super) const NEW_PROCESS_HOLDS: Milestone = ("a new process holds a lease", |world, state| {
    let is_new = |slot: &usize| state.owners[*slot].life > world.start.owners[*slot].life;
    (0..state.owners.len()).filter(is_new).any(|slot| state.memory.holds_any(slot))
});
/// A leader after the first has granted.
pub(super) const NEW_LEADER_GRANTS: Milestone = ("a new leader grants", |world, state| {
    let leader = state.election.leader.map(|leader| &state.managers[leader].machine);
    let is_new = state.election.term > world.start.election.term;
    is_new && leader.is_some_and(|machine| machine.counters().grants > 0)
});
/// Two Managers lead by their own clocks.
pub(super) const TWO_LEADERS: Milestone = ("two Managers lead by their own clocks", |world, state| {
    let leads = |manager: &usize| {
        let now = world.stage.manager_time(state, *manager);
        state.managers[*manager].machine.leading(now).is_some()
    };
    (0..state.managers.len()).filter(leads).count() > 1
});
/// A lease that came with its state is held.
pub(super) const HELD_CLEAN: Milestone =
    ("a lease is held that came with its state", |_, state| is_held_clean(state));
/// A range was released without its state.
pub(super) const LOST: Milestone = ("a lease ends without its state", |_, state| {
    state.managers.iter().any(|node| node.machine.counters().losses > 0)
});
/// The store left a batch in doubt.
pub(super) const IN_DOUBT: Milestone = ("a batch is in doubt", |_, state| !state.store.late.is_empty());
/// Neighbours begin to become one lease.
pub(super) const MERGE_BEGUN: Milestone =
    ("neighbours begin to become one lease", |_, state| has_begun_merge(state, Term::ZERO));
/// Neighbours have become one lease.
pub(super) const MERGED: Milestone =
    ("neighbours have become one lease", |_, state| has_merged(state, Term::ZERO));
/// A leader goes on with what an earlier one began: neighbours have become one lease.
pub(super) const MERGED_BY_NEXT_LEADER: Milestone =
    ("a new leader makes neighbours one lease that another began to", |world, state| {
        let first = world.start.election.term;
        has_merged(state, first) && !has_begun_merge(state, first)
    });
/// A lease that became one with its neighbour moved with its state, in whole or in part.
pub(super) const MERGED_MOVED: Milestone = ("what became one lease moves with its state", |_, state| {
    has_merged(state, Term::ZERO) && is_held_clean(state)
});
/// A Lookup that knew a lease by an earlier number sees that it is one with its neighbours.
pub(super) const SEEN_MERGED: Milestone =
    ("a Lookup sees that neighbours have become one lease", |_, state| state.lookups.met.merge);
/// The same, but the state was lost since the Lookup looked before.
pub(super) const SEEN_LOST_AND_MERGED: Milestone =
    ("a Lookup sees a merge and a loss at once", |_, state| state.lookups.met.loss_and_merge);

/// A range was split, and a part of it moved with its state; its neighbour has the number that both had.
pub(super) const SPLIT: Milestone =
    ("a part of a range has moved, and the rest kept its number", |_, state| has_split(state));

/// Whether some lease came with its state from one that its neighbour goes on with.
fn has_split(state: &State) -> bool {
    let Some(stored) = state.store.group.namespaces.get(&namespace()) else { return false };
    let entries: Vec<_> = stored.table.iter().collect();
    let is_split = |pair: &[(KeyRange, &Entry)]| {
        let (one, other) = (pair[0].1, pair[1].1);
        let from =
            |moved: &Entry, kept: &Entry| moved.source == Some(kept.generation) && moved.owner != kept.owner;
        from(one, other) || from(other, one)
    };
    entries.windows(2).any(is_split)
}

/// Whether the second place holds the highest key under a lease that came with its state.
fn is_held_clean(state: &State) -> bool {
    let Some(stored) = state.store.group.namespaces.get(&namespace()) else { return false };
    let entry = stored.table.get(PROBES[1]).1;
    entry.source.is_some() && state.memory.holds(1, 1) == Some(entry.generation)
}

/// Whether neighbours began to become one lease in a term above one.
fn has_begun_merge(state: &State, term: Term) -> bool {
    state.store.has_change_after(term, |change| matches!(change, Change::MergeBegun { .. }))
}

/// Whether neighbours have become one lease in a term above one.
fn has_merged(state: &State, term: Term) -> bool {
    state.store.has_change_after(term, |change| matches!(change, Change::Merged { .. }))
}

/// Whether a state does not break a sentence.
fn keeps(state: &State, sentence: &str) -> bool {
    state.breach.as_ref().is_none_or(|breach| breach.0 != sentence)
}

/// The sentences, as properties of every state.
pub(super) fn sentences() -> Vec<Property<World>> {
    vec![
        Property::always("S1", |_, state| keeps(state, "S1")),
        Property::always("S2", |_, state| keeps(state, "S2")),
        Property::always("S3", |_, state| keeps(state, "S3")),
        Property::always("S4", |_, state| keeps(state, "S4")),
        Property::always("S5", |_, state| keeps(state, "S5")),
        Property::always("S6", |_, state| keeps(state, "S6")),
        Property::always("L1", |_, state| keeps(state, "L1")),
    ]
}
