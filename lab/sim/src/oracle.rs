//! The all-seeing oracle: takes in everything the world shows, has every invariant judge it, and remembers enough to
//! tell the history of a key.

mod history;

use std::collections::BTreeMap;
use std::time::Duration;

use centrifuge_core::id::Namespace;
use centrifuge_core::key::Key;

use crate::invariants::answers_are_committed::AnswersAreCommitted;
use crate::invariants::at_most_one_owner::AtMostOneOwner;
use crate::invariants::balance_comes_to_rest::BalanceComesToRest;
use crate::invariants::balance_keeps_its_bounds::BalanceKeepsItsBounds;
use crate::invariants::changes_equal_snapshots::ChangesEqualSnapshots;
use crate::invariants::committed::Ledger;
use crate::invariants::continuous_means_continuous::ContinuousMeansContinuous;
use crate::invariants::every_key_gets_an_owner::EveryKeyGetsAnOwner;
use crate::invariants::generations_rise::GenerationsRise;
use crate::invariants::keys_of_death::KeysOfDeath;
use crate::invariants::losses_are_raised::LossesAreRaised;
use crate::invariants::namespaces_share_nothing::NamespacesShareNothing;
use crate::invariants::one_manager_writes::OneManagerWrites;
use crate::invariants::one_owner_by_any_keys::OneOwnerByAnyKeys;
use crate::invariants::ownerless::Ownerless;
use crate::invariants::planned_changes_lose_nothing::PlannedChangesLoseNothing;
use crate::invariants::races_end::RacesEnd;
use crate::invariants::{At, Facts, Verdict};
use crate::seen::{Seen, TrueTime, Violation};

use history::History;

/// What a run is judged by. All times are real: they include what the slowest clock adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest hold of any namespace.
    pub hold: Duration,
    /// How old a Lookup's knowledge may become before it takes everything for lost.
    pub contact_timeout: Duration,
    /// How long a Lookup waits for a lost range's next owner.
    pub unowned_delay: Duration,
    /// The longest that a message is usually on its way.
    pub slowest_message: Duration,
    /// How long it takes at most, by anybody's clock, until there is a leader that may free what nobody holds.
    pub leader_change: Duration,
    /// The longest pause between two attempts of an Owner to join.
    pub join_pause: Duration,
    /// What messages, retries and rounding may add.
    pub slack: Duration,
    /// How long after the last fault everything must have come to rest.
    pub converge: Duration,
    /// Nothing disturbs but races: messages are neither lost nor late, and nobody stops.
    pub races_only: bool,
    /// How many reports of a session may cross the Manager's messages in a row, where only races disturb.
    pub races_in_a_row: u32,
    /// Whether every clock keeps to the drift bound.
    pub clocks_within_bound: bool,
    /// Whether S1 is judged.
    pub check_s1: bool,
    /// Whether the Managers have no store: every term begins with an empty log, and learns the table.
    pub diskless: bool,
    /// Before its end, for how long nothing may have moved because of load, if load is steady once faults end.
    pub balanced_for: Option<Duration>,
}

impl Limits {
    /// How long after the last fault every key of a namespace must have an owner: a leader is found, and the earlier
    /// one's promises are over; holds of the dead run out, while recalls that nobody follows time out; an Owner that
    /// was refused until then asks again; and if there are few Owners, the pool settles. By the slowest clock.
    pub fn owned_within(&self, ledger: &Ledger) -> Duration {
        let settings = &ledger.settings;
        let freed = ledger.longest_hold.max(settings.migration_timeout + settings.recall_timeout);
        let local = self.leader_change + freed + self.join_pause + settings.settle;
        local * 25 / 24 + self.slack
    }
}

/// Judges a run event by event. After the first violation nothing it says is of use but the history.
#[derive(Debug)]
pub struct Oracle {
    facts: Facts,
    guards: Guards,
    history: History,
}

/// Every invariant, in the order in which they judge.
#[derive(Debug, Default)]
struct Guards {
    at_most_one_owner: AtMostOneOwner,
    one_owner_by_any_keys: OneOwnerByAnyKeys,
    generations_rise: GenerationsRise,
    continuous_means_continuous: ContinuousMeansContinuous,
    losses_are_raised: LossesAreRaised,
    planned_changes_lose_nothing: PlannedChangesLoseNothing,
    one_manager_writes: OneManagerWrites,
    answers_are_committed: AnswersAreCommitted,
    changes_equal_snapshots: ChangesEqualSnapshots,
    namespaces_share_nothing: NamespacesShareNothing,
    every_key_gets_an_owner: EveryKeyGetsAnOwner,
    races_end: RacesEnd,
    balance_keeps_its_bounds: BalanceKeepsItsBounds,
    balance_comes_to_rest: BalanceComesToRest,
    keys_of_death: KeysOfDeath,
}

impl Oracle {
    /// An oracle for a world with these namespaces and their probe keys.
    pub fn new(probes: BTreeMap<Namespace, Vec<Key>>, limits: Limits) -> Oracle {
        Oracle { facts: Facts::new(probes, limits), guards: Guards::default(), history: History::default() }
    }

    /// Takes in what happened and judges it. To be called for everything, in the order in which it happens.
    pub fn see(&mut self, now: TrueTime, seen: &Seen<'_>) -> Result<(), Violation> {
        self.facts.see(now, seen);
        self.history.remember(seen, self.facts.at(now));
        self.guards.see(seen, self.facts.at(now))
    }

    /// For how long probe keys had no owner, by cause.
    pub fn ownerless(&self) -> &Ownerless {
        self.guards.every_key_gets_an_owner.ownerless()
    }

    /// What happened to some keys, as far back as is remembered: one line each, oldest first.
    pub fn history(&self, namespace: &Namespace, keys: &[Key]) -> String {
        self.history.tell(namespace, keys, &self.facts)
    }
}

impl Guards {
    fn see(&mut self, seen: &Seen<'_>, facts: At) -> Verdict {
        self.at_most_one_owner.see(seen, facts)?;
        self.one_owner_by_any_keys.see(seen, facts)?;
        self.generations_rise.see(seen, facts)?;
        self.continuous_means_continuous.see(seen, facts)?;
        self.losses_are_raised.see(seen, facts)?;
        self.planned_changes_lose_nothing.see(seen, facts)?;
        self.one_manager_writes.see(seen, facts)?;
        self.answers_are_committed.see(seen, facts)?;
        self.changes_equal_snapshots.see(seen, facts)?;
        self.namespaces_share_nothing.see(seen, facts)?;
        self.every_key_gets_an_owner.see(seen, facts)?;
        self.races_end.see(seen, facts)?;
        self.balance_keeps_its_bounds.see(seen, facts)?;
        self.balance_comes_to_rest.see(seen, facts)?;
        self.keys_of_death.see(seen, facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, create, generation, grant, session, space_name};
    use crate::seen::Value;
    use centrifuge_core::id::Index;
    use centrifuge_core::record::Batch;

    fn oracle() -> Oracle {
        Oracle::new(BTreeMap::from([(space_name(), vec![Key(5)])]), Scene::new().facts.limits)
    }

    fn start(oracle: &mut Oracle, node: usize, number: u64) -> Result<(), Violation> {
        let namespace = space_name();
        let (session, namespace) = (session(number), &namespace);
        oracle.see(at(0), &Seen::OwnerStarted { node, session, namespace, migrates: true, keys: &[] })
    }

    fn commit(oracle: &mut Oracle, index: u64, batch: &Batch, by: usize) -> Result<(), Violation> {
        oracle.see(at(index), &Seen::Committed { index: Index(index), batch, by })
    }

    #[test]
    fn a_breach_of_any_sentence_is_reported_with_its_name() {
        let mut oracle = oracle();
        start(&mut oracle, 0, 1).unwrap();
        commit(&mut oracle, 1, &Scene::new().commit(at(1), vec![create(1), grant(0, 9, 1, 1)]), 0).unwrap();
        let stranger = Scene::new().commit(at(2), vec![grant(10, 19, 2, 9)]);
        assert_eq!(commit(&mut oracle, 2, &stranger, 0).unwrap_err().invariant, "S8");
        let same_term = Scene::new().commit(at(3), vec![grant(20, 29, 3, 1)]);
        assert_eq!(commit(&mut oracle, 3, &same_term, 1).unwrap_err().invariant, "S5");
        let used = Scene::new().commit(at(4), vec![grant(30, 39, 1, 1)]);
        assert_eq!(commit(&mut oracle, 4, &used, 1).unwrap_err().invariant, "S2");
    }

    #[test]
    fn service_is_judged_and_told() {
        let mut oracle = oracle();
        start(&mut oracle, 0, 1).unwrap();
        let namespace = space_name();
        let (session, key, generation) = (session(1), Key(5), generation(1));
        let value = |version| Value { lineage: 1, version };
        let mut serve = |before, after| {
            let served = Seen::Served { session, namespace: &namespace, key, generation, before, after };
            oracle.see(at(1), &served)
        };
        assert_eq!(serve(None, value(1)), Ok(()));
        assert_eq!(serve(Some(value(1)), value(2)), Ok(()));
        assert_eq!(serve(Some(value(1)), value(2)).unwrap_err().invariant, "S4");
        assert!(oracle.history(&space_name(), &[key]).contains("finds 1/1"));
    }

    #[test]
    fn an_end_without_an_owner_is_judged_only_after_calm() {
        let mut oracle = oracle();
        start(&mut oracle, 0, 1).unwrap();
        commit(&mut oracle, 1, &Scene::new().commit(at(1), vec![create(1)]), 0).unwrap();
        oracle.see(at(2), &Seen::FaultsEnded).unwrap();
        assert_eq!(oracle.see(at(3), &Seen::Ended), Ok(()));
        assert_eq!(oracle.see(at(900), &Seen::Ended).unwrap_err().invariant, "L1");
    }
}
