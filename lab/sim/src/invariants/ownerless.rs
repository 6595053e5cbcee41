//! For how long probe keys have no owner, and why: what availability is given up for.

use std::collections::BTreeMap;
use std::time::Duration;

use centrifuge_core::key::Key;
use centrifuge_core::owner::{OwnerAction, RevokedReason};
use centrifuge_core::record::Record;

use super::{At, Facts, Seen, TrueTime};

/// Why a key has no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vacancy {
    /// It never had one since its namespace began.
    ColdStart,
    /// Its owner died.
    Crash,
    /// Its owner's lease ran out: it was paused or cut off.
    OutOfContact,
    /// Its owner's machine was suspended.
    Suspended,
    /// Its owner left without draining.
    Leave,
    /// Its owner was drained.
    Drain,
    /// Its state moved.
    Move,
    /// Its owner gave it back without its state, or was told to.
    PlainRecall,
    /// Whatever the reason, the leader changed before it had the next one.
    Failover,
}

impl Vacancy {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Vacancy::ColdStart => "cold_start",
            Vacancy::Crash => "crash",
            Vacancy::OutOfContact => "out_of_contact",
            Vacancy::Suspended => "suspended",
            Vacancy::Leave => "leave",
            Vacancy::Drain => "drain",
            Vacancy::Move => "move",
            Vacancy::PlainRecall => "plain_recall",
            Vacancy::Failover => "failover",
        }
    }
}

/// A key without an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The namespace.
    pub space: usize,
    /// The key.
    pub key: Key,
    /// Since when.
    pub since: TrueTime,
    /// Why.
    pub why: Vacancy,
}

/// The probe keys that have no owner now, and for how long others had none.
#[derive(Debug, Default)]
pub struct Ownerless {
    open: BTreeMap<(usize, Key), Gap>,
    durations: BTreeMap<Vacancy, Vec<Duration>>,
    /// The gaps that the event that is being judged closed.
    closed: Vec<Gap>,
}

impl Ownerless {
    /// Takes in what happened.
    pub fn see(&mut self, seen: &Seen<'_>, facts: At) {
        self.closed.clear();
        match seen {
            Seen::OwnerStepped { actions, .. } => {
                self.lose(cause_of_step(actions, &facts), facts);
                self.gain(facts);
            }
            Seen::OwnerEnded { .. } => self.lose(Vacancy::Crash, facts),
            Seen::OwnerSuspended { .. } => self.lose(Vacancy::Suspended, facts),
            Seen::Committed { batch, .. } => {
                if batch.records.iter().any(|record| matches!(record, Record::LeaderStarted { .. })) {
                    self.open.values_mut().for_each(|gap| gap.why = Vacancy::Failover);
                }
                self.begin_spaces(facts);
            }
            _ => {}
        }
    }

    /// The keys of a namespace that begins have no owner yet.
    fn begin_spaces(&mut self, facts: At) {
        for (space, keys) in facts.spaces.probes() {
            if facts.committed.ledger(space).is_some_and(|ledger| ledger.began == Some(facts.now)) {
                keys.iter().filter(|key| !is_held(space, **key, facts.now, &facts)).for_each(|key| {
                    self.open(Gap { space, key: *key, since: facts.now, why: Vacancy::ColdStart });
                });
            }
        }
    }

    fn lose(&mut self, why: Vacancy, facts: At) {
        let Some(change) = facts.holdings.change().filter(|change| !change.lost.is_empty()) else { return };
        let space = change.space;
        let why = if change.expired { Vacancy::OutOfContact } else { why };
        for (_, keys) in facts.spaces.probes().filter(|(place, _)| *place == space) {
            let lost = |key: &&Key| change.lost.iter().any(|lot| lot.range.contains(**key));
            for key in keys.iter().filter(lost).filter(|key| !is_held(space, **key, facts.now, &facts)) {
                self.open(Gap { space, key: *key, since: facts.now, why });
            }
        }
    }

    fn open(&mut self, gap: Gap) {
        self.open.entry((gap.space, gap.key)).or_insert(gap);
    }

    fn gain(&mut self, facts: At) {
        let Some(change) = facts.holdings.change().filter(|change| !change.gained.is_empty()) else { return };
        let gained = |gap: &Gap| {
            gap.space == change.space && change.gained.iter().any(|lot| lot.range.contains(gap.key))
        };
        self.closed.extend(self.open.values().copied().filter(gained));
        for gap in &self.closed {
            self.open.remove(&(gap.space, gap.key));
            let lasted = Duration::from_nanos(facts.now.0 - gap.since.0);
            self.durations.entry(gap.why).or_default().push(lasted);
        }
    }

    /// The gaps that the event that is being judged closed.
    pub fn closed(&self) -> &[Gap] {
        &self.closed
    }

    /// The keys that have no owner now.
    pub fn open_gaps(&self) -> impl Iterator<Item = &Gap> {
        self.open.values()
    }

    /// How long each gap lasted that is over, by cause.
    pub fn durations(&self) -> &BTreeMap<Vacancy, Vec<Duration>> {
        &self.durations
    }
}

fn is_held(space: usize, key: Key, now: TrueTime, facts: &Facts) -> bool {
    facts.holdings.beliefs().any(|(_, belief)| belief.space == space && belief.holds(key, now).is_some())
}

/// Why an Owner's step gives keys up.
fn cause_of_step(actions: &[OwnerAction], facts: &Facts) -> Vacancy {
    let revoked = actions.iter().find_map(|action| match action {
        OwnerAction::Revoked(revoked) => revoked.first(),
        _ => None,
    });
    let session = facts.holdings.change().map(|change| (change.space, change.session));
    let info = session.and_then(|(space, session)| facts.committed.ledger(space)?.sessions.get(&session));
    match revoked.map(|revoked| revoked.why) {
        Some(RevokedReason::Moved) if info.is_some_and(centrifuge_core::record::SessionInfo::is_draining) => {
            Vacancy::Drain
        }
        Some(RevokedReason::Moved) => Vacancy::Move,
        Some(RevokedReason::Expired) => Vacancy::OutOfContact,
        Some(RevokedReason::ClockJumped) => Vacancy::Suspended,
        Some(RevokedReason::GivenBack) if leaves(actions) => Vacancy::Leave,
        _ => Vacancy::PlainRecall,
    }
}

fn leaves(actions: &[OwnerAction]) -> bool {
    use centrifuge_core::message::OwnerToManager;
    actions.iter().any(|action| match action {
        OwnerAction::ToManager { message: OwnerToManager::Report(report), .. } => report.leaving,
        OwnerAction::Left => true,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariants::testing::{Scene, at, create, range};

    #[test]
    fn a_gap_begins_when_nobody_holds_the_key_and_ends_with_its_next_owner() {
        let (mut scene, mut ownerless) = (Scene::new(), Ownerless::default());
        scene.start_owner(0, 1);
        scene.start_owner(1, 2);
        scene.commit(at(1), vec![create(1)]);
        ownerless.begin_spaces(scene.facts.at(at(1)));
        scene.hold(at(4), 0, &[(range(0, 9), 1)], at(60));
        ownerless.gain(scene.facts.at(at(4)));
        assert_eq!(ownerless.durations()[&Vacancy::ColdStart], [Duration::from_secs(3)]);
        scene.hold(at(10), 0, &[], at(60));
        ownerless.lose(Vacancy::Move, scene.facts.at(at(10)));
        assert_eq!(ownerless.open_gaps().count(), 1);
        scene.hold(at(12), 1, &[(range(0, 9), 2)], at(70));
        ownerless.gain(scene.facts.at(at(12)));
        assert_eq!(ownerless.durations()[&Vacancy::Move], [Duration::from_secs(2)]);
        assert_eq!(ownerless.open_gaps().count(), 0);
    }
}
