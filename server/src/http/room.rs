//! Room for a bounded number of HTTP connections, none of which may fall silent for long.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// How many connections there may be: scrapers, probes and a few people.
const CONNECTIONS: usize = 256;
/// How long a connection may say nothing before it is closed.
const SILENCE: Duration = Duration::from_secs(30);
/// How long accepting rests after the system refused, as when no descriptor is left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Accepts a connection only when there is room for it; others wait in the system's queue.
#[derive(Debug)]
pub struct Room {
    listener: TcpListener,
    room: Arc<Semaphore>,
}

impl Room {
    /// Room for the usual number of connections.
    #[must_use]
    pub fn new(listener: TcpListener) -> Room {
        Room { listener, room: Arc::new(Semaphore::new(CONNECTIONS)) }
    }
}

impl Listener for Room {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        let permit = Arc::clone(&self.room).acquire_owned().await.expect("the room is never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, from)) => return (Guest::new(stream, permit), from),
                Err(_) => tokio::time::sleep(ACCEPT_REST).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its peer has been silent for too long.
#[derive(Debug)]
pub struct Guest {
    stream: TcpStream,
    silent: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Guest {
    fn new(stream: TcpStream, permit: OwnedSemaphorePermit) -> Guest {
        Guest { stream, silent: Box::pin(tokio::time::sleep(SILENCE)), _permit: permit }
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                self.silent.as_mut().reset(Instant::now() + SILENCE);
                Poll::Ready(read)
            }
            // Reading nothing is the end of the stream.
            Poll::Pending => self.silent.as_mut().poll(context).map(Ok),
        }
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn beyond_the_room_a_connection_waits_until_another_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("an address");
        let mut room = Room { listener, room: Arc::new(Semaphore::new(1)) };
        let _first = TcpStream::connect(at).await.expect("connected");
        let _second = TcpStream::connect(at).await.expect("connected");
        let (guest, _) = room.accept().await;
        assert_eq!(room.room.available_permits(), 0);
        drop(guest);
        room.accept().await;
    }

    #[tokio::test]
    async fn a_silent_connection_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("an address");
        let _client = TcpStream::connect(at).await.expect("connected");
        let (mut guest, _) = Room::new(listener).accept().await;
        guest.silent.as_mut().reset(Instant::now());
        assert_eq!(guest.read(&mut [0; 8]).await.expect("an end"), 0);
    }
}
