//! What a Lookup's application is told: losses, and that the table is another.

use std::pin::Pin;
use std::task::{Context, Poll};

pub use centrifuge_core::lookup::LossReason;
use centrifuge_core::message::Position;
use centrifuge_core::range_set::RangeSet;
use tokio::sync::{broadcast, watch};
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;
use tokio_stream::wrappers::{BroadcastStream, WatchStream};
use tokio_stream::{Stream, StreamExt};

use super::Status;

/// How many losses wait for a slow reader before it must take everything for lost.
pub(super) const BACKLOG: usize = 1024;

/// The state of some keys is lost: publish it again, if it is yours to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The keys.
    pub keys: RangeSet,
    /// How that is known.
    pub why: LossReason,
}

/// Losses as they are raised.
#[derive(Debug)]
pub struct Losses {
    inner: BroadcastStream<Loss>,
}

impl Losses {
    pub(super) fn new(receiver: broadcast::Receiver<Loss>) -> Losses {
        Losses { inner: BroadcastStream::new(receiver) }
    }

    /// The next loss; `None` once the Lookup is gone.
    pub async fn next(&mut self) -> Option<Loss> {
        StreamExt::next(self).await
    }
}

impl Stream for Losses {
    type Item = Loss;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Loss>> {
        Pin::new(&mut self.inner).poll_next(context).map(|next| {
            next.map(|loss| match loss {
                Ok(loss) => loss,
                Err(BroadcastStreamRecvError::Lagged(_)) => {
                    Loss { keys: RangeSet::all(), why: LossReason::Missed }
                }
            })
        })
    }
}

/// Where the table stands, whenever it is another.
#[derive(Debug)]
pub struct Positions {
    inner: WatchStream<Status>,
    told: Option<Position>,
}

impl Positions {
    pub(super) fn new(receiver: watch::Receiver<Status>) -> Positions {
        Positions { inner: WatchStream::new(receiver), told: None }
    }

    /// The next position; `None` once the Lookup is gone.
    pub async fn next(&mut self) -> Option<Position> {
        StreamExt::next(self).await
    }
}

impl Stream for Positions {
    type Item = Position;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Position>> {
        loop {
            match Pin::new(&mut self.inner).poll_next(context) {
                Poll::Ready(Some(Status { position: Some(position), .. })) if self.told != Some(position) => {
                    self.told = Some(position);
                    return Poll::Ready(Some(position));
                }
                Poll::Ready(Some(_)) => {}
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
