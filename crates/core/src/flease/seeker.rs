//! What a peer wants of one cell, what it has of it, and when it does something about that.

use std::time::Duration;

use super::message::{Ballot, Holder, Lease};
use super::round::Round;
use crate::time::Instant;

/// A lease that this very process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeldCell {
    /// Its epoch.
    pub epoch: Ballot,
    /// When it ends, by this peer's clock.
    pub until: Instant,
}

/// What the application wants of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Aim {
    /// To hold it.
    Hold,
    /// That others can.
    Release,
}

/// The interest in one cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seeker {
    pub(super) aim: Aim,
    pub(super) held: Option<HeldCell>,
    pub(super) round: Option<Round>,
    /// When the next round starts, if none is under way.
    pub(super) next: Instant,
    /// Rounds that failed in a row.
    pub(super) failures: u32,
    /// The latest end of the leases that its rounds wrote, committed or not.
    pub(super) wrote: Instant,
    /// Whether the application wants another round after the one under way.
    pub(super) again: bool,
    /// Whom the application was told of, and by which epoch.
    pub(super) told: Option<(Holder, Ballot)>,
}

impl Seeker {
    /// The interest of an application that wants to hold the cell, with a first round at `next`.
    pub(super) fn new(next: Instant) -> Seeker {
        let (held, round, told) = (None, None, None);
        Seeker { aim: Aim::Hold, held, round, next, failures: 0, wrote: Instant::ZERO, again: false, told }
    }

    /// When something has to be done.
    pub(super) fn deadline(&self, longest_round: Duration) -> Instant {
        let next = self.round.as_ref().map_or(self.next, |round| round.ballot().time + longest_round);
        self.held.map_or(next, |held| next.min(held.until))
    }

    /// Ends the round under way; the next starts at `next`.
    pub(super) fn go_on_at(&mut self, next: Instant) {
        self.round = None;
        self.next = next;
    }

    /// Whether this is the lease that the application was told of.
    pub(super) fn was_told_of(&self, lease: Lease) -> bool {
        self.told == Some((lease.holder, lease.epoch))
    }
}

/// What a register's content means to a peer at an instant (Flease Alg. 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nobody holds the cell.
    Free,
    /// The lease of this very process, which alone knows whether it holds it.
    Mine(Lease),
    /// Another one holds it.
    Theirs(Lease),
    /// Its holder may or may not take it for valid: nobody can know before the end of the safety period.
    Fading(Lease),
}

impl Finding {
    /// Tests for the empty register first: an empty one has no end that could be in its safety period.
    pub(super) fn of(lease: Option<Lease>, me: Holder, now: Instant, safety_period: Duration) -> Finding {
        match lease {
            None => Finding::Free,
            Some(lease) if lease.holder == me => Finding::Mine(lease),
            Some(lease) if now < lease.until => Finding::Theirs(lease),
            Some(lease) if now <= lease.until + safety_period => Finding::Fading(lease),
            Some(_) => Finding::Free,
        }
    }
}
