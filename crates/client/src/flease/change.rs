//! What a peer's application is told, as a stream.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use centrifuge_core::flease::{Ballot, Cell, EndedReason, Lease};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::{Stream, StreamExt};

/// How many changes wait for a slow reader before it misses the oldest.
pub(super) const BACKLOG: usize = 4096;

/// The number of one acquisition of a cell: it rises with every acquisition, by whomever, and renewals keep it.
///
/// What leaves the holder carries it, and the receiver refuses a lower one than it has seen for that cell. Its text is 20
/// hexadecimal digits, which compare as texts as the epochs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(Ballot);

impl Epoch {
    /// The same as a number, of 80 bits.
    #[must_use]
    pub fn to_u128(self) -> u128 {
        u128::from(self.0.time.0) << 16 | u128::from(self.0.peer.0)
    }
}

impl From<Ballot> for Epoch {
    fn from(ballot: Ballot) -> Epoch {
        Epoch(ballot)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020x}", self.to_u128())
    }
}

/// Something that an application may want to know.
///
/// Nothing is ever decided by these: by the time one is read it may be history. `Lease::is_valid` knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This process holds a cell.
    Acquired {
        /// The cell's name.
        cell: String,
        /// The lease's epoch.
        epoch: Epoch,
    },
    /// This process holds a cell no more.
    Ended {
        /// The cell's name.
        cell: String,
        /// The epoch of the lease that ended.
        epoch: Epoch,
        /// Why.
        why: LeaseEnd,
    },
    /// This process wants a cell that another one holds; it goes on waiting.
    HeldByOther {
        /// The cell's name.
        cell: String,
        /// The peer that holds it.
        peer: u16,
        /// Under which epoch.
        epoch: Epoch,
    },
    /// This peer's clock is certainly more than epsilon away from so many others that no majority is left: it has given up all
    /// its leases and takes no part until that is over. Set the clock right.
    ClockApart {
        /// From which peers.
        from: Vec<u16>,
    },
    /// This peer's clock agrees again; after its recovery the peer takes part.
    ClockAgrees,
    /// The peer has ended.
    Stopped,
    /// The reader was slow, and this many changes passed it by.
    Missed(u64),
}

/// Why a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeaseEnd {
    /// The application released it.
    #[error("it was released")]
    Released,
    /// It was not renewed in time.
    #[error(
        "it was not renewed in time: no majority of the cell's members answered; see whether they run and can be reached"
    )]
    Expired,
    /// The clock jumped, or is too far from the others'.
    #[error(
        "this peer's clock cannot be trusted: it was set, stood still, or is too far from the others'; see to its synchronisation"
    )]
    Clock,
    /// The peer ended.
    #[error(
        "the peer was stopped, or its task ended with its runtime or by a panic: see the log, and start it again"
    )]
    Stopped,
}

impl From<EndedReason> for LeaseEnd {
    fn from(why: EndedReason) -> LeaseEnd {
        match why {
            EndedReason::Expired => LeaseEnd::Expired,
            EndedReason::Released => LeaseEnd::Released,
            EndedReason::Clock => LeaseEnd::Clock,
        }
    }
}

impl Change {
    pub(super) fn acquired(cell: &Cell, epoch: Ballot) -> Change {
        Change::Acquired { cell: cell.name().to_owned(), epoch: Epoch(epoch) }
    }

    pub(super) fn ended(cell: &Cell, epoch: Ballot, why: EndedReason) -> Change {
        Change::Ended { cell: cell.name().to_owned(), epoch: Epoch(epoch), why: why.into() }
    }

    pub(super) fn held_by_other(cell: &Cell, lease: Lease) -> Change {
        let (peer, epoch) = (lease.holder.peer.0, Epoch(lease.epoch));
        Change::HeldByOther { cell: cell.name().to_owned(), peer, epoch }
    }
}

/// Changes as they happen, from the moment the stream was asked for.
#[derive(Debug)]
pub struct Changes {
    inner: BroadcastStream<Change>,
}

impl Changes {
    pub(super) fn new(receiver: broadcast::Receiver<Change>) -> Changes {
        Changes { inner: BroadcastStream::new(receiver) }
    }

    /// The next change; `None` once the peer is gone.
    pub async fn next(&mut self) -> Option<Change> {
        StreamExt::next(self).await
    }
}

impl Stream for Changes {
    type Item = Change;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Change>> {
        Pin::new(&mut self.inner).poll_next(context).map(|next| {
            next.map(|change| match change {
                Ok(change) => change,
                Err(BroadcastStreamRecvError::Lagged(missed)) => Change::Missed(missed),
            })
        })
    }
}
