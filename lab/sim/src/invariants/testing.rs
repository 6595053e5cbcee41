//! Hand-made facts for the invariants' own tests.

use std::collections::BTreeMap;
use std::time::Duration;

use centrifuge_core::id::{Generation, Lsn, Namespace, Nonce, OwnerName, SessionId, Term};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::manager_state::ManagerState;
use centrifuge_core::message::Position;
use centrifuge_core::record::{Batch, Change, DeathEvidence, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use centrifuge_core::time::Instant;

use crate::oracle::Limits;

use super::holdings::Held;
use super::{Facts, Listener, TrueTime, slot};

/// How long after a leader knows of a loss the Lookups of a [`Scene`] must have raised it.
pub(crate) const TOLD_WITHIN: Duration = Duration::from_secs(100);

/// Facts that a test makes up.
pub(crate) struct Scene {
    pub(crate) facts: Facts,
    /// What a Manager knows, for the test to fill.
    pub(crate) group: ManagerState,
}

impl Scene {
    /// One namespace with the probe key 5, and limits in round numbers.
    pub(crate) fn new() -> Scene {
        let limits = Limits {
            hold: Duration::from_secs(65),
            contact_timeout: Duration::from_secs(90),
            unowned_delay: Duration::from_secs(30),
            leader_change: Duration::from_secs(40),
            join_pause: Duration::from_secs(10),
            slack: Duration::from_secs(10),
            slowest_message: Duration::from_millis(100),
            converge: Duration::from_secs(200),
            races_only: false,
            races_in_a_row: 8,
            clocks_within_bound: true,
            check_s1: true,
            diskless: false,
            balanced_for: None,
        };
        let facts = Facts::new(BTreeMap::from([(space_name(), vec![Key(5)])]), limits);
        Scene { facts, group: ManagerState::default() }
    }

    pub(crate) fn start_owner(&mut self, node: usize, number: u64) {
        self.facts.holdings.start(node, session(number), 0);
    }

    /// An Owner's step, after which it holds these leases until `end`.
    pub(crate) fn hold(&mut self, now: TrueTime, node: usize, leases: &[(KeyRange, u64)], end: TrueTime) {
        self.step(now, node, leases, end, false);
    }

    /// Likewise, but it refuses new operations on them.
    pub(crate) fn hold_frozen(
        &mut self,
        now: TrueTime,
        node: usize,
        leases: &[(KeyRange, u64)],
        end: TrueTime,
    ) {
        self.step(now, node, leases, end, true);
    }

    fn step(&mut self, now: TrueTime, node: usize, leases: &[(KeyRange, u64)], end: TrueTime, frozen: bool) {
        let held = || {
            leases.iter().map(|(range, number)| Held {
                range: *range,
                generation: generation(*number),
                frozen,
            })
        };
        self.facts.holdings.forget_change();
        self.facts.holdings.step(now, node, Instant(end.0), held, &[], || end);
    }

    pub(crate) fn start_lookup(&mut self, node: usize, now: TrueTime) {
        *slot(&mut self.facts.lookups, node) =
            Some(Listener { space: 0, started: now, paused: false, told_within: TOLD_WITHIN });
    }

    pub(crate) fn pause_lookup(&mut self, node: usize, paused: bool) {
        if let Some(listener) = slot(&mut self.facts.lookups, node) {
            listener.paused = paused;
        }
    }

    /// Commits changes of the namespace as one batch.
    pub(crate) fn commit(&mut self, now: TrueTime, changes: Vec<Change>) -> Batch {
        self.commit_to(&space_name(), now, changes)
    }

    pub(crate) fn commit_to(&mut self, namespace: &Namespace, now: TrueTime, changes: Vec<Change>) -> Batch {
        let record =
            |change| Record::Namespace { namespace: namespace.clone(), change, reason: Reason::Joined };
        let batch = Batch { term: Term(1), records: changes.into_iter().map(record).collect() };
        self.facts.committed.forget_changes();
        self.facts.committed.apply(now, &batch, &mut self.facts.spaces);
        batch
    }
}

pub(crate) fn space_name() -> Namespace {
    Namespace::new("presence").unwrap()
}

pub(crate) fn other_space_name() -> Namespace {
    Namespace::new("queues").unwrap()
}

/// That many seconds after the start.
pub(crate) fn at(seconds: u64) -> TrueTime {
    TrueTime(seconds * 1_000_000_000)
}

pub(crate) fn range(first: u64, last: u64) -> KeyRange {
    KeyRange::new(Key(first), Key(last)).unwrap()
}

pub(crate) fn session(number: u64) -> SessionId {
    SessionId(Nonce(u128::from(number) << 96))
}

pub(crate) fn generation(number: u64) -> Generation {
    Generation(number)
}

pub(crate) fn log_position(log: u128, lsn: u64) -> Position {
    Position { log: Nonce(log), lsn: Lsn(lsn) }
}

pub(crate) fn create(log: u128) -> Change {
    create_above(log, 0)
}

/// The beginning of a term of a leader without a store.
pub(crate) fn create_above(log: u128, floor: u64) -> Change {
    Change::Created {
        kind: Default::default(),
        settings: Settings::default().into(),
        log: Nonce(log),
        floor: generation(floor),
    }
}

/// A lease of an earlier leader goes on.
pub(crate) fn claim(first: u64, last: u64, number: u64, state_since: u64, by: u64) -> Change {
    let (range, number, state_since) = (range(first, last), generation(number), generation(state_since));
    Change::Claimed { range, generation: number, state_since, session: session(by) }
}

pub(crate) fn remove() -> Change {
    Change::Removed
}

pub(crate) fn start_session(number: u64) -> Change {
    let info = SessionInfo {
        name: OwnerName::new(&format!("owner-{number}")).unwrap(),
        url: format!("url-{number}").as_str().into(),
        weight: 100,
        virtual_nodes: 1,
        drain_requested: false,
        drain_ordered: false,
        evicted: false,
    };
    Change::SessionStarted { session: session(number), info }
}

/// A grant without its state.
pub(crate) fn grant(first: u64, last: u64, number: u64, to: u64) -> Change {
    let (range, generation, session) = (range(first, last), generation(number), session(to));
    Change::Granted { range, generation, session, source: None, state_since: None }
}

/// A grant with the state of lease `source`.
pub(crate) fn clean_grant(first: u64, last: u64, number: u64, to: u64, source: u64) -> Change {
    let (range, number, session) = (range(first, last), generation(number), session(to));
    Change::Granted {
        range,
        generation: number,
        session,
        source: Some(generation(source)),
        state_since: None,
    }
}

pub(crate) fn release(first: u64, last: u64, number: u64) -> Change {
    Change::Released { range: range(first, last), generation: generation(number) }
}

/// A range is granted to nobody any more, because these sessions died of it.
pub(crate) fn quarantine(first: u64, last: u64, died: &[u64]) -> Change {
    let death = |number: &u64| DeathEvidence {
        name: OwnerName::new(&format!("owner-{number}")).unwrap(),
        session: session(*number),
        generation: generation(*number),
        held: Duration::from_secs(1),
        ago: Duration::from_secs(60),
    };
    Change::Quarantined { range: range(first, last), evidence: died.iter().map(death).collect() }
}

pub(crate) fn unquarantine(first: u64, last: u64) -> Change {
    Change::Unquarantined { range: range(first, last) }
}
