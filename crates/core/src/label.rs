//! Labels: the words for kinds and reasons, the same in logs, metrics, history, on the command line and in JSON.

use std::fmt;
use std::str::FromStr;

use crate::load::LoadPolicyKind;
use crate::lookup::LossReason;
use crate::manager::{AdminCommand, AdminError, ClaimSkip, MessageSkip, RoleName, Skip};
use crate::namespace_kind::{KeyKind, Mode};
use crate::partition::PartitionerKind;
use crate::record::{Change, Reason, Record};
use crate::trim::{Bucket, TrimReason, TrimSkip};

macro_rules! labels {
    ($type:ty { $($case:pat => $label:literal,)+ }) => {
        impl $type {
            /// The label of this kind or reason.
            #[must_use]
            pub fn as_str(&self) -> &'static str {
                match self {
                    $($case => $label,)+
                }
            }
        }
    };
}

/// Labels that users write too.
macro_rules! parsed_labels {
    ($type:ident { $($case:ident => $label:literal,)+ }) => {
        labels!($type { $($type::$case => $label,)+ });

        impl FromStr for $type {
            type Err = UnknownLabel;

            fn from_str(text: &str) -> Result<$type, UnknownLabel> {
                match text {
                    $($label => Ok($type::$case),)+
                    _ => Err(UnknownLabel { text: text.to_owned(), known: &[$($label),+] }),
                }
            }
        }
    };
}

/// A text that is none of the labels it could be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownLabel {
    /// What was written.
    pub text: String,
    /// What could have been.
    pub known: &'static [&'static str],
}

impl fmt::Display for UnknownLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is neither {}", self.text, self.known.join(" nor "))
    }
}

impl std::error::Error for UnknownLabel {}

parsed_labels!(PartitionerKind {
    ConsistentHash => "consistent-hash",
    Fixed => "fixed",
    Trim => "trim",
});

parsed_labels!(LoadPolicyKind {
    TenPercent => "ten-percent",
    Off => "off",
});

parsed_labels!(KeyKind {
    Hashed => "hashed",
    Ordered => "ordered",
});

parsed_labels!(Mode {
    Exclusive => "exclusive",
    Affinity => "affinity",
});

labels!(TrimReason {
    TrimReason::Unowned => "unowned",
    TrimReason::Draining => "draining",
    TrimReason::HotKeyAlone => "hot-key-alone",
    TrimReason::HotKeyToLarger => "hot-key-to-larger",
    TrimReason::ShedRange => "shed-range",
    TrimReason::ShedHotKey => "shed-hot-key",
    TrimReason::ShedPart => "shed-part",
    TrimReason::Swap => "swap",
    TrimReason::FeedIdle => "feed-idle",
    TrimReason::FeedNew => "feed-new",
    TrimReason::ColdKeyHome => "cold-key-home",
});

labels!(Bucket {
    Bucket::Calm => "calm",
    Bucket::Relief => "relief",
    Bucket::Free => "free",
});

labels!(TrimSkip {
    TrimSkip::NoOwners => "no-owners",
    TrimSkip::TooFewReports => "too-few-reports",
    TrimSkip::NoLoad => "no-load",
    TrimSkip::Frozen => "frozen",
    TrimSkip::BalancingOff => "balancing-off",
    TrimSkip::NothingNew => "nothing-new",
    TrimSkip::MovesFull => "moves-full",
    TrimSkip::RangesFull => "ranges-full",
    TrimSkip::ChurnBudgetSpent { .. } => "churn-budget-spent",
    TrimSkip::Resting { .. } => "resting",
    TrimSkip::NoRoom { .. } => "no-room",
});

labels!(LossReason {
    LossReason::StateBeganAnew => "state-began-anew",
    LossReason::Unowned => "unowned",
    LossReason::OutOfContact => "out-of-contact",
    LossReason::NamespaceReplaced => "namespace-replaced",
    LossReason::Missed => "missed",
});

labels!(Record {
    Record::LeaderStarted { .. } => "leader-started",
    Record::LeaderSettled => "leader-settled",
    Record::LeaderResigned => "leader-resigned",
    Record::Namespace { change: Change::Created { .. }, .. } => "created",
    Record::Namespace { change: Change::Removed, .. } => "removed",
    Record::Namespace { change: Change::Configured { .. }, .. } => "configured",
    Record::Namespace { change: Change::HoldSettled, .. } => "hold-settled",
    Record::Namespace { change: Change::SessionStarted { .. }, .. } => "session-started",
    Record::Namespace { change: Change::SessionChanged { .. }, .. } => "session-changed",
    Record::Namespace { change: Change::SessionEnded { .. }, .. } => "session-ended",
    Record::Namespace { change: Change::Granted { .. }, .. } => "granted",
    Record::Namespace { change: Change::Claimed { .. }, .. } => "claimed",
    Record::Namespace { change: Change::Released { .. }, .. } => "released",
    Record::Namespace { change: Change::Recalled { .. }, .. } => "recalled",
    Record::Namespace { change: Change::RecallCancelled { .. }, .. } => "recall-cancelled",
    Record::Namespace { change: Change::MergeBegun { .. }, .. } => "merge-begun",
    Record::Namespace { change: Change::Merged { .. }, .. } => "merged",
    Record::Namespace { change: Change::Frozen, .. } => "frozen",
    Record::Namespace { change: Change::Unfrozen, .. } => "unfrozen",
    Record::Namespace { change: Change::Pinned { to: Some(_), .. }, .. } => "pinned",
    Record::Namespace { change: Change::Pinned { to: None, .. }, .. } => "unpinned",
    Record::Namespace { change: Change::Quarantined { .. }, .. } => "quarantined",
    Record::Namespace { change: Change::Unquarantined { .. }, .. } => "unquarantined",
});

labels!(Reason {
    Reason::Operator(_) => "operator",
    Reason::Joined => "joined",
    Reason::Left => "left",
    Reason::HoldExpired => "hold-expired",
    Reason::TakenOver => "taken-over",
    Reason::Dropped => "dropped",
    Reason::RefusedByOwner => "refused-by-owner",
    Reason::GivenBack => "given-back",
    Reason::Migrated => "migrated",
    Reason::DestinationGone => "destination-gone",
    Reason::Unowned => "unowned",
    Reason::Repartitioned => "repartitioned",
    Reason::Draining => "draining",
    Reason::MigrationTimedOut => "migration-timed-out",
    Reason::NoLongerWanted => "no-longer-wanted",
    Reason::Reported => "reported",
    Reason::LoadBalanced => "load-balanced",
    Reason::Balanced(_) => "balanced",
    Reason::TimePassed => "time-passed",
    Reason::Claimed => "claimed",
    Reason::Neighbours => "neighbours",
    Reason::KilledOwners => "killed-owners",
    Reason::Suspected => "suspected",
});

labels!(MessageSkip {
    MessageSkip::Race => "race",
    MessageSkip::Duplicate => "duplicate",
    MessageSkip::ForeignNonce => "foreign-nonce",
    MessageSkip::OverlappingRanges => "overlapping-ranges",
    MessageSkip::NotGranted => "not-granted",
    MessageSkip::NotItsLease => "not-its-lease",
    MessageSkip::FromTheFuture => "from-the-future",
    MessageSkip::UnknownNamespace => "unknown-namespace",
    MessageSkip::WrongKind => "wrong-kind",
    MessageSkip::CounterAtEnd => "counter-at-end",
    MessageSkip::StaleTerm => "stale-term",
});

labels!(ClaimSkip {
    ClaimSkip::NoWarrant => "no-warrant",
    ClaimSkip::Impossible => "impossible",
    ClaimSkip::Outbid => "outbid",
    ClaimSkip::Decided => "decided",
});

labels!(RoleName {
    RoleName::Standby => "standby",
    RoleName::Loading => "loading",
    RoleName::Leader { .. } => "leader",
});

labels!(AdminCommand {
    AdminCommand::Create { .. } => "create",
    AdminCommand::Configure { .. } => "configure",
    AdminCommand::Remove { .. } => "delete",
    AdminCommand::Freeze { .. } => "freeze",
    AdminCommand::Unfreeze { .. } => "unfreeze",
    AdminCommand::Move { .. } => "move",
    AdminCommand::Drain { .. } => "drain",
    AdminCommand::Undrain { .. } => "undrain",
    AdminCommand::Evict { .. } => "evict",
    AdminCommand::Unquarantine { .. } => "unquarantine",
});

impl AdminError {
    /// The label of what became of a command.
    #[must_use]
    pub fn outcome(result: &Result<(), AdminError>) -> &'static str {
        match result {
            Ok(()) => "done",
            Err(AdminError::NotLeader(_)) => "not-leader",
            Err(AdminError::Unknown) => "unknown",
            Err(_) => "refused",
        }
    }
}

impl Skip {
    /// Where and why a decision was put off; `None` for a message, a claim or Trim, which are counted elsewhere.
    #[must_use]
    pub fn put_off(&self) -> Option<(&str, &'static str)> {
        Some(match self {
            Skip::Message { .. } | Skip::Claim { .. } | Skip::Trim { .. } => return None,
            Skip::Settling { namespace } => (namespace.as_str(), "settling"),
            Skip::DrainWaits { namespace, .. } => (namespace.as_str(), "drain-waits"),
            Skip::Frozen { namespace } => (namespace.as_str(), "frozen"),
            Skip::MovesFull { namespace } => (namespace.as_str(), "moves-full"),
            Skip::Load { namespace, .. } => (namespace.as_str(), "load"),
            Skip::ManyDeaths { namespace } => (namespace.as_str(), "many-deaths"),
            Skip::QuarantineFull { namespace } => (namespace.as_str(), "quarantine-full"),
            Skip::GenerationsUsedUp { namespace } => (namespace.as_str(), "generations-used-up"),
        })
    }
}
