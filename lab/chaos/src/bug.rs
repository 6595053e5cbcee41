//! What can be wrong on purpose, where, and what the checker must say of it.

use centrifuge_core::injected_bug::{self, Bug as MachineBug};
use centrifuge_server::injected_bug::DriverBug;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::checker::Verdict;
use crate::plan::World;

/// Something that is wrong on purpose, which the checker must find. What concerns leaders needs etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Bug {
    /// An Owner that was stopped answers, once it goes on, for the keys it had before, without checking its lease (S1)
    UncheckedOwner,
    /// An Owner's clock runs at half speed: its leases last twice as long as others wait (S1)
    SlowOwnerClock,
    /// The Managers' clocks run at double speed: their holds are over before the leases are (S1)
    FastManagerClock,
    /// An Owner forgets the state of a key now and then, and keeps the lease (S4)
    ForgetfulOwner,
    /// An Owner goes back to an earlier state of a key now and then (S4)
    BackwardOwner,
    /// An Owner that is told to end leaves without moving its state away (a false loss)
    HastyOwner,
    /// A caller does not pass on what it is told about losses (S4)
    DeafCaller,
    /// A caller says that keys are lost which are not
    CryingCaller,
    /// With TLS: the certificate of an Owner runs out, and no new one comes (a lost lease)
    ForgottenCertificate,
    /// One Manager's clock runs at a third of its speed: it leads on when its leader lease is over (S5, seen as S1)
    OutlivedLeader,
    /// A leader goes on renewing after its leader lease ran out (S5, seen as S1)
    DeposedLeaderRenews,
    /// A keep-alive that etcd did not answer counts as a renewal of the leader lease (S5, seen as S1)
    SilenceRenews,
    /// The leader lease counts from the answer to a keep-alive, and answers come late (S5, seen as S1)
    LeaseFromAnswer,
    /// A new leader counts holds from its election without waiting for the old leader's lease (S1)
    LeaderDoesNotWait,
    /// A new leader takes no stored lease as running (S1)
    LeaderForgetsHolds,
    /// A new leader takes over with shorter times than the old one promised (S1)
    StandbyUsesOwnTimes,
    /// A new leader numbers generations from what it has granted itself (S2)
    GenerationReused,
    /// The Manager answers before the commit is confirmed (S6, seen as S1 or S2)
    AnswerBeforeCommit,
    /// After a commit with unknown outcome the leader goes on as if it had succeeded (S6, seen as S1 or S2)
    UnknownThenNextIndex,
    /// A commit compares neither the leader's key nor its place in the log (S5, seen as S1, S2, or L1: nobody can lead)
    UncomparedCommit,
    /// Without a store: a leader grants what nobody has claimed so far as soon as it leads (S1)
    UnclaimedGrantedEarly,
    /// Flease: ballots whose times are within epsilon are taken for equal, and the peer's number decides (F1)
    FleaseBallotRanges,
    /// Flease: a lease counts from its write, not from the start of its round, and rounds may take for ever (F1)
    FleaseExpiryAtWrite,
    /// Flease: a restarted peer waits for the length of a lease, and not for clocks that slew nor for old messages (F1)
    FleaseShortRecovery,
    /// Flease: a recovering peer starts rounds and counts its own vote (F1)
    FleaseOwnVoteInRecovery,
    /// Flease: every acknowledgment counts, also one that arrives twice (F1)
    FleaseAcksCountedTwice,
    /// Flease: a refusal counts as a reply and ends no round (F1)
    FleaseNackSwallowed,
    /// Flease: a lease is free for others as soon as it has ended by their own clocks (F1)
    FleaseNoSafetyPeriod,
    /// Flease: a release empties the register, whoever's lease is in it (F1)
    FleaseReleaseOfAnyLease,
    /// Flease: a lease that ran out is taken up again under its old epoch (F2)
    FleaseEpochKept,
    /// Flease: a round that fails is the last (L3)
    FleaseNeverRetries,
}

/// What happens to leaders or to Flease peers, so that what is wrong with them has consequences: for what the usual
/// faults show too rarely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A leader is cut off from etcd, with some of the Owners on its side.
    CutOff,
    /// ... and etcd forgets its key at once, so that the next leads while it still may.
    Deposed,
    /// A leader is cut off from etcd just when it has something to decide.
    Undecided,
    /// A leader gets no answers from etcd when it has something to decide, and etcd forgets its key: it writes what
    /// it can while the next leads.
    Overwritten,
    /// Two groups of peers hear each other only through one peer, which dies and comes back at once.
    SharedVoterDies,
    /// A minority of peers is cut off, and every datagram comes twice.
    DoubledMinority,
}

impl Bug {
    /// Where it can be injected.
    pub(crate) fn world(self) -> World {
        match self.in_machine() {
            Some(machine) if machine.name().starts_with("flease-") => World::Flease,
            Some(MachineBug::UnclaimedGrantedEarly) => World::Diskless,
            _ => World::Managers,
        }
    }

    /// Injects it into this process, before its machines start.
    pub(crate) fn inject(self) {
        let in_machine = self.in_machine().is_none_or(injected_bug::inject_into_process);
        let in_driver = self.in_driver().is_none_or(centrifuge_server::injected_bug::set);
        assert!(in_machine && in_driver, "one bug is injected, once");
    }

    /// What is wrong in the Managers' or the peers' machine: the simulator's bug of the same name.
    pub(crate) fn in_machine(self) -> Option<MachineBug> {
        let value = self.to_possible_value()?;
        MachineBug::ALL.iter().copied().find(|machine| machine.name() == value.get_name())
    }

    /// What is wrong in what drives it.
    pub(crate) fn in_driver(self) -> Option<DriverBug> {
        Some(match self {
            Bug::SilenceRenews => DriverBug::SilenceRenews,
            Bug::LeaseFromAnswer => DriverBug::LeaseFromAnswer,
            Bug::UncomparedCommit => DriverBug::UncomparedCommit,
            _ => return None,
        })
    }

    /// What must happen for it to be seen; `None`: the usual faults are enough.
    pub(crate) fn trouble(self) -> Option<Trouble> {
        Some(match self {
            Bug::OutlivedLeader | Bug::DeposedLeaderRenews | Bug::SilenceRenews | Bug::LeaseFromAnswer => {
                Trouble::CutOff
            }
            Bug::LeaderDoesNotWait
            | Bug::LeaderForgetsHolds
            | Bug::StandbyUsesOwnTimes
            | Bug::GenerationReused => Trouble::Deposed,
            Bug::AnswerBeforeCommit | Bug::UnknownThenNextIndex => Trouble::Undecided,
            Bug::UncomparedCommit => Trouble::Overwritten,
            Bug::FleaseOwnVoteInRecovery | Bug::FleaseShortRecovery => Trouble::SharedVoterDies,
            Bug::FleaseAcksCountedTwice => Trouble::DoubledMinority,
            _ => return None,
        })
    }

    /// Whether the checker found what it had to find, under the right name.
    pub(crate) fn is_found(self, verdict: &Verdict) -> bool {
        let violates = |rule: &str| verdict.violations.iter().any(|words| words.starts_with(rule));
        match self {
            Bug::BackwardOwner => violates("S4"),
            Bug::ForgetfulOwner | Bug::DeafCaller => !verdict.missed_losses.is_empty(),
            Bug::CryingCaller | Bug::HastyOwner => !verdict.false_losses.is_empty(),
            Bug::ForgottenCertificate => !verdict.lost_by_rotation.is_empty(),
            Bug::GenerationReused => violates("S2"),
            Bug::AnswerBeforeCommit | Bug::UnknownThenNextIndex => violates("S1") || violates("S2"),
            // A log that was written over is noticed, and then nobody leads any more.
            Bug::UncomparedCommit => violates("S1") || violates("S2") || violates("L1"),
            bug if bug.world() == World::Flease => {
                bug.in_machine().is_some_and(|machine| violates(machine.invariant()))
            }
            _ => violates("S1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_in_the_machine_has_the_simulators_name() {
        for bug in Bug::value_variants() {
            let name = bug.to_possible_value().map(|value| value.get_name().to_owned());
            if let Some(machine) = bug.in_machine() {
                assert_eq!(name.as_deref(), Some(machine.name()));
            }
            let is_wrong = bug.in_machine().is_some() || bug.in_driver().is_some();
            let is_in_manager = is_wrong && bug.world() == World::Managers;
            assert!(!is_in_manager || bug.trouble().is_some(), "{bug:?} would never be seen");
        }
    }
}
