//! What happens to a peer, what it wants done, and what it counts.

use super::message::{Ballot, Cell, Lease, Packet, PeerId};
use crate::time::Instant;

/// What can happen to a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum FleaseEvent {
    /// The process has started; its recovery begins.
    Start,
    /// The application wants the cell, and to keep it.
    Acquire(Cell),
    /// The application wants the cell no more; if it is held, others may have it now.
    Release(Cell),
    /// The application wants the cell that it holds renewed by a round that begins now, or as soon as the one under way is
    /// over; nothing if it does not hold it.
    Renew(Cell),
    /// A packet of another peer arrived.
    Receive {
        /// The peer, as the transport knows it for sure.
        from: PeerId,
        /// What it says.
        packet: Packet,
    },
    /// The clock stood still or jumped: nothing that was counted with it holds.
    ClockJumped,
}

/// What a peer wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FleaseAction {
    /// Send to another peer.
    Send {
        /// The peer.
        to: PeerId,
        /// What to say.
        packet: Packet,
    },
    /// The cell is held from now on, or held longer.
    Held {
        /// The cell.
        cell: Cell,
        /// The lease's epoch: another one than before means that it was not held in between.
        epoch: Ballot,
        /// Until when, by the peer's own clock.
        until: Instant,
    },
    /// The cell is held no more.
    Ended {
        /// The cell.
        cell: Cell,
        /// The epoch of the lease that ended.
        epoch: Ballot,
        /// Why.
        why: EndedReason,
    },
    /// A round found that another one holds the cell. The peer goes on waiting for it.
    HeldByOther {
        /// The cell.
        cell: Cell,
        /// The lease.
        lease: Lease,
    },
    /// A release is over: others have heard of it, or the lease would have ended by now.
    Released(Cell),
    /// The cell cannot be acquired here: this peer is not one of its members, or they are not all peers.
    NotAMember(Cell),
    /// This peer's clock is certainly more than epsilon away from so many others that no majority is left: it takes no
    /// part until that is over.
    ClockApart {
        /// From which peers.
        from: Vec<PeerId>,
    },
    /// This peer's clock is not known to be apart any more; it recovers.
    ClockAgrees,
}

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EndedReason {
    /// It was not renewed in time.
    Expired,
    /// The application released it.
    Released,
    /// The peer's clock cannot be trusted.
    Clock,
}

/// What a peer has met so far. Each refused message is counted under the one reason it was refused for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct FleaseCounters {
    /// Rounds started.
    pub rounds: u64,
    /// Leases acquired.
    pub acquired: u64,
    /// Leases renewed.
    pub renewed: u64,
    /// Leases that ended before the application wanted it.
    pub lost: u64,
    /// Rounds that a higher ballot ended.
    pub aborted: u64,
    /// Rounds that were given up for their age.
    pub timed_out: u64,
    /// Rounds not started because the cell was known to be held by another.
    pub kept_silent: u64,
    /// Rounds that had to wait for the end of a safety period.
    pub safety_waits: u64,
    /// Packets sent.
    pub packets: u64,
    /// Messages in them.
    pub messages: u64,
    /// Packets refused: the sender is no other peer, or does not agree on peers and times.
    pub disagreeing: u64,
    /// Packets refused: the sender's clock is certainly too far away.
    pub apart: u64,
    /// Packets refused: this peer takes no part yet.
    pub recovering: u64,
    /// Messages refused: not about a cell of both, or not of the peer that sent them, or with an impossible lease.
    pub malformed: u64,
    /// Requests refused: their round is too old.
    pub stale: u64,
    /// Requests refused: their round starts in the future.
    pub ahead: u64,
    /// Requests refused: as many registers are kept as may be.
    pub full: u64,
    /// Replies to rounds that are over.
    pub late_replies: u64,
    /// Registers forgotten.
    pub forgotten: u64,
}
