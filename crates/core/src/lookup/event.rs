//! What happens to a Lookup and what it wants done.

use std::sync::Arc;

use crate::id::ManagerId;
use crate::message::{LookupRequest, ManagerToLookup, Position};
use crate::namespace_kind::KindMismatch;
use crate::range_set::RangeSet;

/// What can happen to a Lookup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum LookupEvent {
    /// The Lookup may begin to ask.
    Start,
    /// A Manager's message arrived.
    FromManager {
        /// The Manager it came from.
        from: ManagerId,
        /// The message.
        message: ManagerToLookup,
    },
    /// A watch at a Manager broke: it may be gone. A hint, never needed: silence says the same later.
    Disconnected(ManagerId),
    /// The list of Managers is another.
    ManagersChanged(Arc<[ManagerId]>),
    /// The clock stood still or jumped: it does not say how old knowledge is.
    ClockJumped,
}

/// What a Lookup wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LookupAction {
    /// Send to a Manager.
    ToManager {
        /// The Manager.
        to: ManagerId,
        /// The request.
        request: LookupRequest,
    },
    /// The table is another, at this position.
    TableChanged(Position),
    /// The application must be told that the state of these keys is lost.
    Loss {
        /// The keys.
        keys: RangeSet,
        /// How the Lookup knows.
        why: LossReason,
    },
    /// Contact with the leader is lost or regained.
    Contact(bool),
    /// The namespace does not exist, says the leader.
    UnknownNamespace,
    /// The table is gone: another namespace has the name now. The table of that one comes when it is known.
    TableGone,
    /// The namespace is not of the kind that this Lookup is built for. It has no table any more, and asks no more.
    Refused(KindMismatch),
}

/// How a Lookup knows of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossReason {
    /// The range's state began anew after the lease the Lookup knew.
    StateBeganAnew,
    /// The range has been without an owner for too long.
    Unowned,
    /// The Lookup has been out of contact for too long to know.
    OutOfContact,
    /// Another namespace has the name now, and its keys mean something else.
    NamespaceReplaced,
    /// The reader was too slow to be told which keys. No Lookup raises it: a driver that drops losses does.
    Missed,
}
