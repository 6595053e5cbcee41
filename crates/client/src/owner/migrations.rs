//! Ranges that should move away, as a stream: for applications that would rather loop than be called.

use std::pin::Pin;
use std::task::{Context, Poll};

use centrifuge_core::id::SessionId;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::{Stream, StreamExt};

use super::migration::{BoxError, MigrationOut, MigrationVoid};

/// The ranges that should move to other Owners; see [`OwnerBuilder::migrations`](super::OwnerBuilder::migrations).
///
/// While the stream is not read, ranges wait to be moved, and the Manager's patience with each of them ends its migration.
#[derive(Debug)]
pub struct Migrations {
    waiting: mpsc::Receiver<Migration>,
}

/// One range that should move. Dropping it says that the move failed; the library tries again if need be.
#[derive(Debug)]
pub struct Migration {
    /// What moves and where to.
    pub out: MigrationOut,
    answer: oneshot::Sender<Result<SessionId, BoxError>>,
}

impl Migration {
    /// Everything is there: `session` is what the destination acknowledged with.
    pub fn done(self, session: SessionId) {
        // Whoever does not wait any more has given the migration up.
        let _ = self.answer.send(Ok(session));
    }

    /// It did not work; the reason goes to the log.
    pub fn failed(self, why: impl Into<BoxError>) {
        let _ = self.answer.send(Err(why.into()));
    }

    /// Whether the Manager or the lease has ended the migration: nothing needs to be sent any more.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.answer.is_closed()
    }
}

impl Migrations {
    /// The next range; `None` once the Owner is gone.
    pub async fn next(&mut self) -> Option<Migration> {
        StreamExt::next(self).await
    }
}

impl Stream for Migrations {
    type Item = Migration;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Migration>> {
        self.waiting.poll_recv(context)
    }
}

/// The end that puts ranges into the stream.
#[derive(Clone, Debug)]
pub(super) struct Source {
    waiting: mpsc::Sender<Migration>,
}

impl Source {
    /// Puts a range into the stream and waits for what became of it.
    pub(super) async fn offer(self, out: MigrationOut) -> Result<SessionId, BoxError> {
        let (answer, answered) = oneshot::channel();
        self.waiting.send(Migration { out, answer }).await.map_err(|_| MigrationVoid)?;
        answered.await.map_err(|_| MigrationVoid)?
    }
}

/// A stream and its source. A range that waits, waits with its own task: the stream needs no room of its own.
pub(super) fn stream() -> (Source, Migrations) {
    let (sender, waiting) = mpsc::channel(1);
    (Source { waiting: sender }, Migrations { waiting })
}
