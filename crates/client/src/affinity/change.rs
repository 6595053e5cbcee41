//! What the application of an Owner in affinity mode is told.

use std::pin::Pin;
use std::task::{Context, Poll};

use centrifuge_core::id::SessionId;
use centrifuge_core::key::KeyRange;
use centrifuge_core::message::RefusedReason;
use centrifuge_core::owner::{RevokedReason, TransferId};
use tokio_stream::{Stream, StreamExt};

use crate::owner::{Change, Changes, LeftReason};

/// Something that an application may want to know. By the time it is read it may be history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AffinityChange {
    /// A range is probably this process's own from now on.
    Granted {
        /// The keys.
        range: KeyRange,
        /// Whether its state came along. If not, it begins empty here, though an Owner that was silent may still have it.
        with_state: bool,
    },
    /// A range is not this process's own any more.
    Revoked {
        /// The keys.
        range: KeyRange,
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
    /// The reader was slow, and this many changes passed it by: compare with `AffinityOwner::ranges`.
    Missed(u64),
}

impl AffinityChange {
    /// What a change means here; nothing, if only a number changed.
    pub(super) fn of(change: Change) -> Option<AffinityChange> {
        Some(match change {
            Change::Granted(lease) => {
                AffinityChange::Granted { range: lease.range, with_state: lease.source.is_some() }
            }
            Change::Renumbered { .. } => return None,
            Change::Revoked { range, why, .. } => AffinityChange::Revoked { range, why },
            Change::ImportDiscarded { range, from, transfer } => {
                AffinityChange::ImportDiscarded { range, from, transfer }
            }
            Change::Joined => AffinityChange::Joined,
            Change::Refused(why) => AffinityChange::Refused(why),
            Change::Drained => AffinityChange::Drained,
            Change::Left(why) => AffinityChange::Left(why),
            Change::Missed(missed) => AffinityChange::Missed(missed),
        })
    }
}

/// Changes as they happen, from the moment the stream was asked for.
#[derive(Debug)]
pub struct AffinityChanges {
    inner: Changes,
}

impl AffinityChanges {
    pub(super) fn new(inner: Changes) -> AffinityChanges {
        AffinityChanges { inner }
    }

    /// The next change; `None` once the Owner is gone.
    pub async fn next(&mut self) -> Option<AffinityChange> {
        StreamExt::next(self).await
    }
}

impl Stream for AffinityChanges {
    type Item = AffinityChange;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AffinityChange>> {
        loop {
            match Pin::new(&mut self.inner).poll_next(context) {
                Poll::Ready(Some(change)) => {
                    if let Some(change) = AffinityChange::of(change) {
                        return Poll::Ready(Some(change));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
