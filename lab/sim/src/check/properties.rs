//! The sentences that every state must keep, and what must happen somewhere in a world that is worth its name.

use std::collections::BTreeSet;

use centrifuge_core::id::{Generation, SessionId, Term};
use centrifuge_core::manager::MessageSkip;
use centrifuge_core::owner::Renumbered;
use centrifuge_core::record::Change;
use centrifuge_core::time::Instant;
use stateright::Property;

use super::app::probes_in;
use super::nodes::OwnerNode;
use super::scenario::{PROBES, namespace};
use super::world::{State, World};

/// A sentence of protocol §11 that a state breaks, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Breach {
    /// S1: two processes hold a key at one instant.
    TwoOwners {
        /// The place of the watched key.
        probe: usize,
        /// The places of the processes.
        slots: (usize, usize),
    },
    /// S2: a grant's number is not above all before it on its keys, or is used elsewhere.
    GenerationNotNew {
        /// The number.
        generation: Generation,
        /// The one that it should be above.
        before: Generation,
    },
    /// S3: a process holds a key again under a lease that had ended.
    HeldTwice {
        /// The place of the process.
        slot: usize,
        /// The lease.
        generation: Generation,
    },
    /// S3: a process denies that it has held a key without a gap since it held it under an earlier number.
    DeniesContinuity {
        /// The place of the process.
        slot: usize,
        /// The number.
        generation: Generation,
    },
    /// S4: a lease was taken up as if its state had come with it, and it had not.
    FalselyClean {
        /// Who took it up.
        session: SessionId,
        /// The lease.
        generation: Generation,
        /// The lease under which the state was held.
        source: Generation,
    },
    /// S4: a lease whose state begins empty claims an older state.
    HidesLoss {
        /// Who took it up.
        session: SessionId,
        /// The lease.
        generation: Generation,
        /// Since when it claims to have state.
        state_since: Generation,
    },
    /// S4: the table gives up state that is at hand, and nothing befell those who have it.
    LostWithoutCause {
        /// The place of the watched key.
        probe: usize,
        /// The lease whose state is given up.
        generation: Generation,
    },
    /// S4: a Lookup tells that state is lost which is still there.
    FalseLoss {
        /// The place of the watched key.
        probe: usize,
        /// The lease under which the Lookup knew it.
        known: Generation,
        /// The lease that the Lookup is shown.
        generation: Generation,
    },
    /// S4: a Lookup does not tell that state is lost though the key has an owner again.
    MissedLoss {
        /// The place of the watched key.
        probe: usize,
        /// The lease under which the Lookup knew it.
        known: Generation,
        /// The lease that the Lookup is shown.
        generation: Generation,
    },
    /// L1: a lease is offered to a process for longer than a hold, and is nobody's.
    OfferedForTooLong {
        /// To whom.
        session: SessionId,
        /// The lease.
        generation: Generation,
    },
    /// S5: a leader wrote after its term.
    DeposedLeaderWrote {
        /// Its term.
        term: Term,
        /// The latest term.
        newest: Term,
    },
    /// S5: an Owner went back to an earlier leader.
    TermFell {
        /// The place of the Owner.
        slot: usize,
        /// The term it had seen.
        from: Term,
        /// The term it follows now.
        to: Term,
    },
    /// S6: an order names a lease that is not committed.
    NotCommitted {
        /// Whom it was sent to.
        session: SessionId,
        /// The lease.
        generation: Generation,
    },
}

impl Breach {
    /// The sentence's name.
    pub(super) fn sentence(self) -> &'static str {
        match self {
            Breach::TwoOwners { .. } => "S1",
            Breach::GenerationNotNew { .. } => "S2",
            Breach::HeldTwice { .. } | Breach::DeniesContinuity { .. } => "S3",
            Breach::FalselyClean { .. } | Breach::HidesLoss { .. } | Breach::LostWithoutCause { .. } => "S4",
            Breach::FalseLoss { .. } | Breach::MissedLoss { .. } => "S4",
            Breach::OfferedForTooLong { .. } => "L1",
            Breach::DeposedLeaderWrote { .. } | Breach::TermFell { .. } => "S5",
            Breach::NotCommitted { .. } => "S6",
        }
    }
}

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
        Some(Breach::DeniesContinuity { slot, generation })
    }

    fn again(&self, slot: usize, probe: usize, node: &OwnerNode, now: Instant) -> Option<Breach> {
        let ended = self.past.iter().filter(|(place, key, _)| (*place, *key) == (slot, probe));
        let again = |(_, _, generation): &&(usize, usize, Generation)| {
            node.machine.check_lease_continuous(now, PROBES[probe], *generation)
                || self.held[slot][probe] == Some(*generation)
        };
        let (_, _, generation) = ended.into_iter().find(again)?;
        Some(Breach::HeldTwice { slot, generation: *generation })
    }

    /// Two processes that hold the same key now.
    pub(super) fn two_owners(&self) -> Option<Breach> {
        (0..PROBES.len()).find_map(|probe| {
            let mut holders = (0..self.held.len()).filter(|slot| self.held[*slot][probe].is_some());
            let slots = (holders.next()?, holders.next()?);
            Some(Breach::TwoOwners { probe, slots })
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

/// Something that must happen in some state of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Milestone {
    /// The highest key is held at the second place.
    Moved,
    /// A process holds a lease again, under another number.
    HeldAgain,
    /// An Owner dropped a message that crossed its own.
    RaceAtOwner,
    /// A Manager dropped a report that crossed its message.
    RaceAtManager,
    /// A lease ran out.
    Expired,
    /// A process that was started in the course of things holds a key.
    NewProcessHolds,
    /// A leader after the first has granted.
    NewLeaderGrants,
    /// Two Managers lead by their own clocks.
    TwoLeaders,
    /// A lease that came with its state is held.
    HeldClean,
    /// A range was released without its state.
    Lost,
    /// The store left a batch in doubt.
    InDoubt,
    /// Neighbours begin to become one lease.
    MergeBegun,
    /// Neighbours have become one lease.
    Merged,
    /// A leader goes on with what an earlier one began: neighbours have become one lease.
    MergedByNextLeader,
    /// A lease that became one with its neighbour moved with its state, in whole or in part.
    MergedMoved,
    /// A Lookup that knew a lease by an earlier number sees that it is one with its neighbours.
    SeenMerged,
    /// The same, but the state was lost since the Lookup looked before.
    SeenLostAndMerged,
}

impl Milestone {
    /// The milestone as a property of the world.
    pub(super) fn property(self) -> Property<World> {
        let (name, condition): (_, fn(&World, &State) -> bool) = match self {
            Milestone::Moved => ("a move is completed", |_, state| state.memory.holds(1, 1).is_some()),
            Milestone::HeldAgain => ("a lease follows one that ended", |_, state| {
                let memory = &state.memory;
                (0..state.owners.len()).any(|slot| memory.holds_any(slot) && memory.has_lost(slot))
            }),
            Milestone::RaceAtOwner => ("an Owner drops a racing message", |_, state| {
                state.processes().any(|node| node.machine.counters().races > 0)
            }),
            Milestone::RaceAtManager => ("a Manager drops a racing report", |_, state| {
                let raced = |skip| skip > &0;
                let managers = &mut state.managers.iter();
                managers
                    .any(|node| node.machine.counters().skipped.get(&MessageSkip::Race).is_some_and(raced))
            }),
            Milestone::Expired => ("a lease runs out", |_, state| {
                state.processes().any(|node| node.machine.counters().expired > 0)
            }),
            Milestone::NewProcessHolds => ("a new process holds a lease", |world, state| {
                let is_new = |slot: &usize| state.owners[*slot].life > world.start.owners[*slot].life;
                (0..state.owners.len()).filter(is_new).any(|slot| state.memory.holds_any(slot))
            }),
            Milestone::NewLeaderGrants => ("a new leader grants", |world, state| {
                let leader = state.election.leader.map(|leader| &state.managers[leader].machine);
                let is_new = state.election.term > world.start.election.term;
                is_new && leader.is_some_and(|machine| machine.counters().grants > 0)
            }),
            Milestone::TwoLeaders => ("two Managers lead by their own clocks", |world, state| {
                let leads = |manager: &usize| {
                    let now = world.stage.manager_time(state, *manager);
                    state.managers[*manager].machine.leading(now).is_some()
                };
                (0..state.managers.len()).filter(leads).count() > 1
            }),
            Milestone::HeldClean => ("a lease is held that came with its state", |_, state| {
                let table = state.store.group.namespaces.get(&namespace()).map(|stored| &stored.table);
                let entry = table.map(|table| *table.get(PROBES[1]).1);
                entry.is_some_and(|entry| {
                    entry.source.is_some() && state.memory.holds(1, 1) == Some(entry.generation)
                })
            }),
            Milestone::Lost => ("a lease ends without its state", |_, state| {
                state.managers.iter().any(|node| node.machine.counters().losses > 0)
            }),
            Milestone::MergeBegun => ("neighbours begin to become one lease", |_, state| {
                state.store.has_change_after(Term::ZERO, |change| matches!(change, Change::MergeBegun { .. }))
            }),
            Milestone::Merged => {
                ("neighbours have become one lease", |_, state| has_merged(state, Term::ZERO))
            }
            Milestone::MergedByNextLeader => {
                ("a new leader makes neighbours one lease that another began to", |world, state| {
                    let first = world.start.election.term;
                    let began = |change: &Change| matches!(change, Change::MergeBegun { .. });
                    has_merged(state, first) && !state.store.has_change_after(first, began)
                })
            }
            Milestone::MergedMoved => ("what became one lease moves with its state", |_, state| {
                let table = state.store.group.namespaces.get(&namespace()).map(|stored| &stored.table);
                let entry = table.map(|table| *table.get(PROBES[1]).1);
                has_merged(state, Term::ZERO)
                    && entry.is_some_and(|entry| {
                        entry.source.is_some() && state.memory.holds(1, 1) == Some(entry.generation)
                    })
            }),
            Milestone::SeenMerged => {
                ("a Lookup sees that neighbours have become one lease", |_, state| state.lookups.met.merge)
            }
            Milestone::SeenLostAndMerged => {
                ("a Lookup sees a merge and a loss at once", |_, state| state.lookups.met.loss_and_merge)
            }
            Milestone::InDoubt => ("a batch is in doubt", |_, state| !state.store.late.is_empty()),
        };
        Property::sometimes(name, condition)
    }
}

/// Whether neighbours have become one lease in a term above one.
fn has_merged(state: &State, term: Term) -> bool {
    state.store.has_change_after(term, |change| matches!(change, Change::Merged { .. }))
}

/// The sentences, as properties of every state.
pub(super) fn sentences() -> Vec<Property<World>> {
    fn keeps(state: &State, sentence: &str) -> bool {
        state.breach.is_none_or(|breach| breach.sentence() != sentence)
    }
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
