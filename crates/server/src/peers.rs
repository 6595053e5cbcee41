//! The ways back to Owners and Lookups: one bounded queue for each stream.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};

use centrifuge_core::manager::StreamId;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tonic::Status;

/// The open streams that carry messages of type `T`.
#[derive(Debug)]
pub(crate) struct Peers<T> {
    next: Arc<AtomicU64>,
    outlets: Mutex<HashMap<StreamId, Outlet<T>>>,
}

/// The sending side of one stream.
#[derive(Debug)]
struct Outlet<T> {
    queue: mpsc::Sender<T>,
    end: Arc<OnceLock<Status>>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It waits in the stream's queue.
    Queued,
    /// There is no such stream any more.
    Gone,
    /// The stream's queue is full.
    Full,
}

impl<T> Peers<T> {
    /// No streams. Those of several kinds are numbered together, by `next`.
    #[must_use]
    pub(crate) fn new(next: Arc<AtomicU64>) -> Peers<T> {
        Peers { next, outlets: Mutex::default() }
    }

    /// A new stream with room for so many messages. It ends when it is dropped, or by [`Peers::end`].
    pub(crate) fn open(self: &Arc<Self>, room: usize) -> Outflow<T> {
        let peer = StreamId(self.next.fetch_add(1, Ordering::Relaxed));
        let (queue, messages) = mpsc::channel(room);
        let end = Arc::new(OnceLock::new());
        self.lock().insert(peer, Outlet { queue, end: Arc::clone(&end) });
        Outflow { peer, messages, end: Some(end), peers: Arc::clone(self) }
    }

    /// Puts a message into a stream's queue, without waiting.
    pub(crate) fn send(&self, to: StreamId, message: T) -> Sent {
        match self.lock().get(&to).map(|outlet| outlet.queue.try_send(message)) {
            Some(Ok(())) => Sent::Queued,
            Some(Err(mpsc::error::TrySendError::Full(_))) => Sent::Full,
            Some(Err(mpsc::error::TrySendError::Closed(_))) | None => Sent::Gone,
        }
    }

    /// Ends a stream after what is queued: with a status, or well without one.
    pub(crate) fn end(&self, peer: StreamId, status: Option<Status>) {
        if let Some(outlet) = self.lock().remove(&peer) {
            outlet.finish(status);
        }
    }

    /// Ends all streams.
    pub(crate) fn end_all(&self, status: &Status) {
        for (_, outlet) in self.lock().drain() {
            outlet.finish(Some(status.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StreamId, Outlet<T>>> {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Outlet<T> {
    fn finish(self, status: Option<Status>) {
        if let Some(status) = status {
            // Set before the queue closes, so that the stream finds it at its end.
            let _ = self.end.set(status);
        }
    }
}

/// The receiving side of one stream, as the transport reads it.
#[derive(Debug)]
pub(crate) struct Outflow<T> {
    peer: StreamId,
    messages: mpsc::Receiver<T>,
    /// The status that ends it, until it was given.
    end: Option<Arc<OnceLock<Status>>>,
    peers: Arc<Peers<T>>,
}

impl<T> Outflow<T> {
    /// The machine's name for this stream.
    #[must_use]
    pub(crate) fn peer(&self) -> StreamId {
        self.peer
    }
}

impl<T> Stream for Outflow<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.messages.poll_recv(context) {
            Poll::Ready(Some(message)) => Poll::Ready(Some(Ok(message))),
            Poll::Ready(None) => {
                let status = self.end.take().and_then(|end| end.get().cloned());
                Poll::Ready(status.map(Err))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> Drop for Outflow<T> {
    fn drop(&mut self) {
        self.peers.end(self.peer, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_stream::StreamExt;

    #[tokio::test]
    async fn a_full_queue_says_so_and_an_ended_stream_gives_its_status_last() {
        let peers = Arc::new(Peers::new(Arc::default()));
        let mut stream = peers.open(1);
        let peer = stream.peer();
        assert_eq!(peers.send(peer, 1), Sent::Queued);
        assert_eq!(peers.send(peer, 2), Sent::Full);
        peers.end(peer, Some(Status::resource_exhausted("slow")));
        assert_eq!(peers.send(peer, 3), Sent::Gone);
        assert_eq!(stream.next().await.expect("a message").expect("well"), 1);
        let end = stream.next().await.expect("an end").expect_err("a status");
        assert_eq!(end.code(), tonic::Code::ResourceExhausted);
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn a_dropped_stream_is_forgotten() {
        let peers = Arc::new(Peers::<u8>::new(Arc::default()));
        let stream = peers.open(1);
        let peer = stream.peer();
        drop(stream);
        assert_eq!(peers.send(peer, 1), Sent::Gone);
        assert!(peers.lock().is_empty());
    }
}
