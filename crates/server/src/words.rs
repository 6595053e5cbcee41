//! The words for what was decided and why, the same in the log, the metrics and the status.

use centrifuge_core::manager::{AdminCommand, AdminError, ClaimSkip, MessageSkip, RoleName, Skip};
use centrifuge_core::record::Reason;

/// Why it was decided.
#[must_use]
pub fn reason(reason: &Reason) -> &'static str {
    match reason {
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
        Reason::TimePassed => "time-passed",
        Reason::Claimed => "claimed",
        Reason::Neighbours => "neighbours",
    }
}

/// Why a message changed nothing.
#[must_use]
pub fn message_skip(why: MessageSkip) -> &'static str {
    match why {
        MessageSkip::Race => "race",
        MessageSkip::Duplicate => "duplicate",
        MessageSkip::ForeignNonce => "foreign-nonce",
        MessageSkip::OverlappingRanges => "overlapping-ranges",
        MessageSkip::NotGranted => "not-granted",
        MessageSkip::NotItsLease => "not-its-lease",
        MessageSkip::FromTheFuture => "from-the-future",
        MessageSkip::UnknownNamespace => "unknown-namespace",
        MessageSkip::CounterAtEnd => "counter-at-end",
        MessageSkip::StaleTerm => "stale-term",
    }
}

/// Why a claim is refused.
#[must_use]
pub fn claim_skip(why: ClaimSkip) -> &'static str {
    match why {
        ClaimSkip::NoWarrant => "no-warrant",
        ClaimSkip::Impossible => "impossible",
        ClaimSkip::Outbid => "outbid",
        ClaimSkip::Decided => "decided",
    }
}

/// Where and why a decision was put off; `None` for a message or a claim, which are counted elsewhere.
#[must_use]
pub fn put_off(skip: &Skip) -> Option<(&str, &'static str)> {
    Some(match skip {
        Skip::Message { .. } | Skip::Claim { .. } => return None,
        Skip::Settling { namespace } => (namespace.as_str(), "settling"),
        Skip::DrainWaits { namespace, .. } => (namespace.as_str(), "drain-waits"),
        Skip::Frozen { namespace } => (namespace.as_str(), "frozen"),
        Skip::MovesFull { namespace } => (namespace.as_str(), "moves-full"),
        Skip::Load { namespace, .. } => (namespace.as_str(), "load"),
        Skip::GenerationsUsedUp { namespace } => (namespace.as_str(), "generations-used-up"),
    })
}

/// What a Manager is.
#[must_use]
pub fn role(role: RoleName) -> &'static str {
    match role {
        RoleName::Standby => "standby",
        RoleName::Loading => "loading",
        RoleName::Leader { .. } => "leader",
    }
}

/// What an operator wants.
#[must_use]
pub fn command(command: &AdminCommand) -> &'static str {
    match command {
        AdminCommand::Create { .. } => "create",
        AdminCommand::Configure { .. } => "configure",
        AdminCommand::Remove { .. } => "delete",
        AdminCommand::Freeze { .. } => "freeze",
        AdminCommand::Unfreeze { .. } => "unfreeze",
        AdminCommand::Move { .. } => "move",
        AdminCommand::Drain { .. } => "drain",
        AdminCommand::Undrain { .. } => "undrain",
        AdminCommand::Evict { .. } => "evict",
    }
}

/// What came of it.
#[must_use]
pub fn outcome(result: &Result<(), AdminError>) -> &'static str {
    match result {
        Ok(()) => "done",
        Err(AdminError::NotLeader(_)) => "not-leader",
        Err(AdminError::Unknown) => "unknown",
        Err(_) => "refused",
    }
}
