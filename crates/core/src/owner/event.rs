//! What happens to an Owner and what it wants done.

use std::sync::Arc;

use crate::id::{Credential, Generation, ManagerId, SessionId, Term};
use crate::key::KeyRange;
use crate::load::LoadMeasurement;
use crate::message::{Destination, ManagerToOwner, OwnerToManager, RefusedReason};

/// Names one attempt to give a range back; rises with every attempt of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TransferId(pub u64);

/// What can happen to an Owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// The stream to a Manager broke: it may be gone. A hint, never needed: silence says the same later.
    Disconnected(ManagerId),
    /// The list of Managers is another.
    ManagersChanged(Arc<[ManagerId]>),
    /// The application copied the state of a range to its destination while it went on serving it.
    TransferReady(TransferId),
    /// No operation on the frozen range is in flight any more, and the destination has all of its state.
    TransferDone {
        /// The transfer whose last part the destination confirmed; not an earlier one of the same range.
        transfer: TransferId,
        /// The process that said it has all of the state.
        to: SessionId,
    },
    /// The transfer did not work. It is tried again until the Manager wants something else.
    TransferFailed(TransferId),
    /// No operation on the frozen range is in flight any more (plain recall).
    Quiesced(TransferId),
    /// The application has a complete copy of the state of a range, held elsewhere under `source`. To be fed before
    /// the source is told that the copy arrived. A copy that a later transfer made must not be overwritten by a
    /// straggler of an earlier one: transfers of one session are numbered in their order.
    ImportReady {
        /// The range.
        range: KeyRange,
        /// The lease under which its source holds it.
        source: Generation,
        /// The term in which the source began to move it: an earlier leader knows nothing of the copy.
        term: Term,
    },
    /// The load of the ranges held, measured by the driver.
    Load(LoadMeasurement),
    /// The Owner's capacity, in percent of the usual.
    Weight(u32),
    /// The application wants to be emptied.
    Drain,
    /// The application wants to keep what it has after all: an earlier [`OwnerEvent::Drain`] is over.
    Undrain,
    /// The application stops: whatever is held is given up, and the Owner goes.
    Leave,
    /// The clock stood still or jumped, or the process was restored from an earlier state: no lease can be relied on.
    ClockJumped {
        /// The session that the process is from now on. Drawn from the operating system now: a generator in the
        /// process's memory may have been restored with it.
        fresh: Credential,
    },
    /// A Manager heard two processes speak for this session: one is a copy of the other, and neither may rely on what both hold.
    Cloned {
        /// The session that this process is from now on, as after a jump of the clock.
        fresh: Credential,
    },
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
    /// Leases go on under other numbers: nothing else about them changes.
    Renumbered(Vec<Renumbered>),
    /// Leases are gone.
    Revoked(Vec<Revocation>),
    /// Copy the state of a range to its next owner, serving it on; then `TransferReady` or `TransferFailed`.
    StartTransfer {
        /// Names the transfer in what the application says of it.
        transfer: TransferId,
        /// The range.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
        /// Its next owner.
        to: Destination,
        /// The term of the leader that wants it moved. The destination hears it with the copy.
        term: Term,
    },
    /// New operations on the range are refused from now on. Let those in flight end; then, in a migration, send the
    /// rest and say `TransferDone` or `TransferFailed`, else say `Quiesced`.
    Freeze {
        /// The transfer.
        transfer: TransferId,
        /// The range.
        range: KeyRange,
        /// Its lease.
        generation: Generation,
        /// The next owner, if the state moves.
        to: Option<Destination>,
    },
    /// The transfer is void: the range stays, or is gone. What the application says of it later is ignored.
    StopTransfer(TransferId),
    /// A copy that was imported for this range will not be needed.
    DiscardImport {
        /// The range.
        range: KeyRange,
    },
    /// The copy that has just arrived is noted, and its sender may be told that it is here.
    ImportNoted {
        /// The range.
        range: KeyRange,
        /// The lease under which its source holds it.
        source: Generation,
    },
    /// The copy that has just arrived is of no use, and its sender must not be told that it is here: this Owner goes, or the copy
    /// is a straggler. Copies of other leases on the same keys stay.
    ImportRefused {
        /// The range.
        range: KeyRange,
        /// The lease under which its source holds it.
        source: Generation,
    },
    /// The process goes on as another session. Whatever was granted to the earlier one is gone, and no copy is kept.
    SessionChanged(SessionId),
    /// The drain is over: nothing is held any more, and nothing is on its way here.
    Drained,
    /// The Owner is not to be emptied any more, by its application's wish.
    Undrained,
    /// The Owner has left.
    Left,
    /// A Manager refused the hello; the Owner asks again later, unless the reason is final.
    JoinRefused(RefusedReason),
    /// A leader has committed what the Owner said in answer to its welcome: the Owner is a member, for the first time or again.
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

/// A lease that goes on under another number, which it may share with its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renumbered {
    /// The keys.
    pub range: KeyRange,
    /// The number that the lease had.
    pub from: Generation,
    /// The number that it has now.
    pub to: Generation,
}

/// A lease that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Revocation {
    /// The keys.
    pub range: KeyRange,
    /// The lease.
    pub generation: Generation,
    /// Why.
    pub why: RevokedReason,
}

/// Why a lease is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RevokedReason {
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
    /// Another process is a copy of this one and speaks for the same session.
    Cloned,
    /// The namespace was replaced by another of the same name, with other keys.
    NamespaceReplaced,
}
