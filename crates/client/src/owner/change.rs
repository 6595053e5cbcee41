//! What an Owner's application is told: by a callback, or as a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use centrifuge_core::id::{Generation, SessionId};
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::RefusedReason;
use centrifuge_core::owner::{RevokedReason, TransferId};
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::{Stream, StreamExt};

use crate::hot::Lease;

/// How many changes wait for a slow reader before it misses the oldest.
pub(super) const BACKLOG: usize = 4096;

/// Something that an application may want to know.
///
/// Nothing is ever decided by these: by the time one is read it may be history. `check_lease_now` knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A lease is new.
    Granted(Lease),
    /// A lease goes on under another number, as one with its neighbours. Nothing else about it changes: what was checked under
    /// the earlier number is still continuous. Only a message that is on its way under the earlier one may be refused by a
    /// [`Fence`](crate::Fence) that has seen the later.
    Renumbered {
        /// The keys.
        range: KeyRange,
        /// The number that the lease had.
        from: Generation,
        /// The number that it has now; its end will name this one.
        to: Generation,
    },
    /// A lease is gone.
    Revoked {
        /// The keys.
        range: KeyRange,
        /// The lease that ended.
        generation: Generation,
        /// Why.
        why: RevokedReason,
    },
    /// A copy that was imported will not be needed: forget the one of that transfer, and no newer one.
    ImportDiscarded {
        /// The keys.
        range: KeyRange,
        /// The process that sent the copy.
        from: SessionId,
        /// Its number at that process.
        transfer: TransferId,
    },
    /// A leader has committed that the Owner is a member, for the first time or again.
    Joined,
    /// A Manager does not take the Owner; it asks again by itself, unless [`RefusedReason::is_final`].
    Refused(RefusedReason),
    /// The drain is over: nothing is held any more.
    Drained,
    /// The Owner holds nothing and will not hold anything again.
    Left(LeftReason),
    /// The reader was slow, and this many changes passed it by: compare with `Owner::leases`.
    Missed(u64),
}

/// Why an Owner left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LeftReason {
    /// The application wanted it.
    #[error("the application left")]
    Asked,
    /// The application gave no sign of life for longer than the heartbeat's limit.
    #[error("the application gave no sign of life within the heartbeat's limit: restart it")]
    Heartbeat,
    /// An operator evicted this process.
    #[error("an operator evicted this process: start a new one when it is welcome again")]
    Evicted,
    /// The namespace is not of the kind that this process is built for.
    #[error(
        "the namespace is not of the kind that this process is built for: name another, or build it for this one"
    )]
    WrongKind,
    /// The library's own task ended, through a panic or with its runtime.
    #[error("the Owner's task ended with its runtime or by a panic: see the log, and join again")]
    Stopped,
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

    /// The next change; `None` once the Owner is gone.
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
