//! The sentences of protocol §11 that the oracle guards, one file each, and the facts by which it judges them.

pub mod answers_are_committed;
pub mod at_most_one_holder;
pub mod at_most_one_owner;
pub mod balance_comes_to_rest;
pub mod balance_keeps_its_bounds;
pub mod changes_equal_snapshots;
pub mod continuous_means_continuous;
pub mod epochs_rise;
pub mod every_key_gets_an_owner;
pub mod free_cells_are_acquired;
pub mod generations_rise;
pub mod keys_of_death;
pub mod losses_are_raised;
pub mod namespaces_share_nothing;
pub mod one_manager_writes;
pub mod one_owner_by_any_keys;
pub mod planned_changes_lose_nothing;
pub mod races_end;

pub mod committed;
pub mod holdings;
pub mod ownerless;
pub mod pending_losses;

#[cfg(test)]
pub(crate) mod testing;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::time::Duration;

use centrifuge_core::id::{Generation, Namespace, SessionId};
use centrifuge_core::key::Key;
use centrifuge_core::namespace_kind::Mode;
use centrifuge_core::owner::{OwnerAction, OwnerMachine, Renumbered};

use crate::clock::Clock;
use crate::oracle::Limits;
use crate::seen::{Seen, TrueTime, Value, Violation};

use committed::{Committed, How, Ledger, Row, RowChange, first_difference};
use holdings::{Held, HoldChange, Holdings, Lot, Meeting};

/// What an invariant says to each event: all is well, or what is not.
pub type Verdict = Result<(), Violation>;

/// What the oracle has gathered from all it was shown, by its own arithmetic and in real time.
#[derive(Debug)]
pub struct Facts {
    /// What the run is judged by.
    pub limits: Limits,
    /// The namespaces, each known by its place here.
    pub spaces: Spaces,
    /// The sum of all batches.
    pub committed: Committed,
    /// What Owners believe.
    pub holdings: Holdings,
    /// The sessions that do not take their leases for exclusive.
    pub in_affinity: BTreeSet<SessionId>,
    /// The Lookups, by node.
    pub lookups: Vec<Option<Listener>>,
    /// When the faults ended, if they have.
    pub faults_ended: Option<TrueTime>,
}

/// A Lookup process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its namespace.
    pub space: usize,
    /// When it began.
    pub started: TrueTime,
    /// Whether it is paused.
    pub paused: bool,
    /// How long after a leader knows of a loss it must have raised it.
    pub told_within: Duration,
}

impl Facts {
    /// Nothing has happened yet.
    pub fn new(probes: BTreeMap<Namespace, Vec<Key>>, limits: Limits) -> Facts {
        Facts {
            limits,
            spaces: Spaces { spaces: probes.into_iter().collect() },
            committed: Committed::default(),
            holdings: Holdings::default(),
            in_affinity: BTreeSet::new(),
            lookups: Vec::new(),
            faults_ended: None,
        }
    }

    /// Takes in what happened; to be done before any invariant judges it.
    pub fn see(&mut self, now: TrueTime, seen: &Seen<'_>) {
        self.committed.forget_changes();
        self.holdings.forget_change();
        match seen {
            Seen::OwnerStarted { node, session, namespace, .. } => {
                let space = self.spaces.place(namespace);
                self.holdings.start(*node, *session, space);
            }
            Seen::OwnerEnded { node, .. } => self.holdings.end(now, *node),
            Seen::OwnerSuspended { node, suspended } => self.holdings.suspend(now, *node, *suspended),
            Seen::OwnerStepped { .. } => self.owner_stepped(now, seen),
            Seen::LookupStarted { node, namespace, told_within } => {
                let (space, told_within) = (self.spaces.place(namespace), *told_within);
                let listener = Listener { space, started: now, paused: false, told_within };
                *slot(&mut self.lookups, *node) = Some(listener);
            }
            Seen::LookupEnded { node } => *slot(&mut self.lookups, *node) = None,
            Seen::LookupPaused { node, paused } => {
                if let Some(listener) = slot(&mut self.lookups, *node) {
                    listener.paused = *paused;
                }
            }
            Seen::Committed { batch, .. } => self.committed.apply(now, batch, &mut self.spaces),
            Seen::FaultsEnded => self.faults_ended = Some(now),
            Seen::ManagerStepped { .. }
            | Seen::LookupStepped { .. }
            | Seen::OwnerLeaves { .. }
            | Seen::KilledByKey { .. }
            | Seen::TransferTroubled { .. }
            | Seen::Disturbed { .. }
            | Seen::Served { .. }
            | Seen::Ended => {}
        }
    }

    fn owner_stepped(&mut self, now: TrueTime, seen: &Seen<'_>) {
        let Seen::OwnerStepped { node, machine, clock, actions } = *seen else { return };
        let leases = || {
            machine.leases().iter().map(|(range, lease)| Held {
                range,
                generation: lease.generation,
                frozen: lease.frozen,
            })
        };
        let renumbered = actions.iter().flat_map(|action| match action {
            OwnerAction::Renumbered(renumbered) => renumbered.as_slice(),
            _ => &[],
        });
        let renumbered: Vec<Renumbered> = renumbered.copied().collect();
        if machine.mode() == Mode::Affinity {
            self.in_affinity.insert(machine.session());
        }
        let end = || belief_ends(machine, clock);
        self.holdings.step(now, node, machine.expiry(), leases, &renumbered, end);
    }

    /// Whether a namespace is in affinity mode.
    pub fn is_affinity(&self, space: usize) -> bool {
        self.committed.ledger(space).is_some_and(|ledger| ledger.mode == Mode::Affinity)
    }

    /// The Lookup process on a node, if one runs.
    pub fn lookup(&self, node: usize) -> Option<&Listener> {
        self.lookups.get(node)?.as_ref()
    }

    /// Since when no fault has happened: ever, where none does.
    pub fn quiet_since(&self) -> Option<TrueTime> {
        if self.limits.races_only { Some(TrueTime(0)) } else { self.faults_ended }
    }

    /// Whether the faults ended so long ago that everything must have come to rest.
    pub fn is_calm(&self, now: TrueTime) -> bool {
        self.faults_ended.is_some_and(|ended| later(ended, self.limits.converge) <= now)
    }

    /// The facts at an instant.
    pub fn at(&self, now: TrueTime) -> At<'_> {
        At { now, facts: self }
    }
}

/// The facts at the instant of an event that is being judged.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// The instant.
    pub now: TrueTime,
    facts: &'a Facts,
}

impl Deref for At<'_> {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        self.facts
    }
}

impl At<'_> {
    /// A violation in one namespace, now.
    pub fn violation(
        &self,
        invariant: &'static str,
        space: usize,
        keys: Vec<Key>,
        what: String,
    ) -> Violation {
        let namespace = Some(self.spaces.name(space).clone());
        Violation { invariant, at: self.now, what, keys, namespace }
    }
}

/// An operation on a probe key.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The namespace.
    pub space: usize,
    /// The key.
    pub key: Key,
    /// Who served it.
    pub session: SessionId,
    /// Under which lease.
    pub generation: Generation,
    /// What was found there.
    pub before: Option<Value>,
    /// What was left there.
    pub after: Value,
}

impl Service {
    /// What was served, if anything was.
    pub fn of(seen: &Seen<'_>, facts: &Facts) -> Option<Service> {
        let Seen::Served { session, namespace, key, generation, before, after } = *seen else { return None };
        Some(Service { space: facts.spaces.find(namespace)?, key, session, generation, before, after })
    }
}

/// When an Owner that takes no further step ceases to believe in its leases. The machine is asked what it would answer
/// at their end: one that does not compare the clock believes for ever.
fn belief_ends(machine: &OwnerMachine, clock: &Clock) -> TrueTime {
    let expiry = machine.expiry();
    let open = machine.leases().iter().find(|(_, lease)| !lease.frozen);
    match open {
        Some((range, _)) if machine.check_lease_now(expiry, range.first()).is_ok() => TrueTime(u64::MAX),
        _ => clock.when(expiry),
    }
}

/// The namespaces of a run and their probe keys. Each namespace is known by its place in the list.
#[derive(Debug)]
pub struct Spaces {
    spaces: Vec<(Namespace, Vec<Key>)>,
}

impl Spaces {
    /// The place of a namespace; one that was not heard of before gets the next.
    pub fn place(&mut self, namespace: &Namespace) -> usize {
        self.find(namespace).unwrap_or_else(|| {
            self.spaces.push((namespace.clone(), Vec::new()));
            self.spaces.len() - 1
        })
    }

    /// The place of a namespace that was heard of.
    pub fn find(&self, namespace: &Namespace) -> Option<usize> {
        self.spaces.iter().position(|(name, _)| name == namespace)
    }

    /// The name of the namespace at a place.
    pub fn name(&self, space: usize) -> &Namespace {
        &self.spaces[space].0
    }

    /// Whether an Owner of a namespace makes the probe keys of the application keys that are watched; one of which nothing is known does.
    pub fn are_probes(&self, namespace: &Namespace, keys: &[Key]) -> bool {
        let probes = self.find(namespace).map(|space| &self.spaces[space].1);
        keys.is_empty() || probes.is_none_or(|probes| probes == keys)
    }

    /// Every namespace's place and probe keys.
    pub fn probes(&self) -> impl Iterator<Item = (usize, &[Key])> {
        self.spaces.iter().enumerate().map(|(space, (_, keys))| (space, keys.as_slice()))
    }
}

/// The element at `index` of a list that grows as needed.
pub fn slot<T: Default>(list: &mut Vec<T>, index: usize) -> &mut T {
    if list.len() <= index {
        list.resize_with(index + 1, T::default);
    }
    &mut list[index]
}

/// The instant that long after another.
pub fn later(from: TrueTime, by: Duration) -> TrueTime {
    TrueTime(from.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
}

/// The instant that long before another.
pub fn earlier(from: TrueTime, by: Duration) -> TrueTime {
    TrueTime(from.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
}
