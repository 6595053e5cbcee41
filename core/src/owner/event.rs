//! What happens to an Owner and what it wants done.

use std::sync::Arc;

use crate::id::{Generation, ManagerId, SessionId};
use crate::key::KeyRange;
use crate::load::RangeLoad;
use crate::message::{Destination, ManagerToOwner, OwnerToManager, RefusedWhy};

/// What can happen to an Owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnerEvent {
    /// The Owner may begin to look for a Manager.
    Start,
    /// A Manager's message arrived.
    FromManager {
        /// The Manager it came from.
        from: ManagerId,
        /// The message.
        message: ManagerToOwner,
    },
    /// The list of Managers is another.
    ManagersChanged(Arc<[ManagerId]>),
    /// The application copied the state of a range to its destination while it went on serving it.
    TransferReady {
        /// The range, as the transfer named it.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
    },
    /// No operation on the frozen range is in flight any more, and the destination has all of its state.
    TransferDone {
        /// The range, as the transfer named it.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
        /// The process that said it has all of the state.
        to: SessionId,
    },
    /// The application cannot move the state of a range.
    TransferFailed {
        /// The range, as the transfer named it.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
    },
    /// No operation on the frozen range is in flight any more (plain recall).
    Quiesced {
        /// The range, as the freeze named it.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
    },
    /// The application has a complete copy of the state of a range, held elsewhere under `source`. To be fed before
    /// the source is told that the copy arrived.
    ImportReady {
        /// The range.
        range: KeyRange,
        /// The lease under which its source holds it.
        source: Generation,
    },
    /// The load of the ranges held, measured by the driver.
    Load(Vec<RangeLoad>),
    /// The Owner's capacity, in percent of the usual.
    Weight(u32),
    /// The application wants to be emptied.
    Drain,
    /// The application stops: whatever is held is given up, and the Owner goes.
    Leave,
    /// The clock stood still or jumped: no lease can be relied on.
    ClockJumped,
}

/// What an Owner wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OwnerAction {
    /// Send to a Manager.
    ToManager {
        /// The Manager.
        to: ManagerId,
        /// The message.
        message: OwnerToManager,
    },
    /// Leases are new.
    Granted(Vec<Grant>),
    /// Leases are gone.
    Revoked(Vec<Revocation>),
    /// Copy the state of a range to its next owner, serving it on; then `TransferReady` or `TransferFailed`.
    StartTransfer {
        /// The range.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
        /// Its next owner.
        to: Destination,
    },
    /// New operations on the range are refused from now on. Let those in flight end; then, in a migration, send the
    /// rest and say `TransferDone` or `TransferFailed`, else say `Quiesced`.
    Freeze {
        /// The range.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
        /// The next owner, if the state moves.
        to: Option<Destination>,
    },
    /// The range stays after all: the transfer may stop, and operations are accepted again.
    StopTransfer {
        /// The range.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
    },
    /// A copy that was imported for this range will not be needed.
    DiscardImport {
        /// The range.
        range: KeyRange,
    },
    /// The drain is over: nothing is held any more.
    Drained,
    /// The Owner has left.
    Left,
    /// A Manager refused the hello; the Owner asks again later.
    JoinRefused(RefusedWhy),
    /// The Owner has a conversation with a leader.
    Joined,
}

/// A new lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The keys.
    pub range: KeyRange,
    /// The lease.
    pub generation: Generation,
    /// When the state of these keys last began empty.
    pub state_since: Generation,
    /// The lease under which the imported state was held. `None`: the state begins empty.
    pub source: Option<Generation>,
}

/// A lease that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revocation {
    /// The keys.
    pub range: KeyRange,
    /// The lease.
    pub generation: Generation,
    /// Why.
    pub why: RevokedWhy,
}

/// Why a lease is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevokedWhy {
    /// It ran out.
    Expired,
    /// The Manager does not list it any more.
    Withdrawn,
    /// Its state is at the next owner.
    Moved,
    /// It was given back.
    GivenBack,
    /// The clock stood still or jumped.
    ClockJumped,
}
