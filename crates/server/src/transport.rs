//! A connection in the clear or inside TLS, and the handshakes that lead to the latter.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::access::Identity;

/// How many handshakes may be under way: more wait for their turn. Enough to hide the network's delay, and few enough
/// that none waits so long for the processor that its client gives up.
const MAX_HANDSHAKES: usize = 256;

/// The bytes of a connection.
#[derive(Debug)]
pub(crate) enum Transport {
    /// As they are.
    Plain(TcpStream),
    /// Inside TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Who is at the other end, if that is proven.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match self {
            Transport::Plain(_) => None,
            Transport::Tls(stream) => {
                let (_, session) = stream.get_ref();
                Identity::of_certificate(
                    &session.peer_certificates()?.iter().cloned().map(|c| c.into_owned()).collect::<Vec<_>>(),
                )
            }
        }
    }
}

/// Where handshakes are made: on one thread, however many there are, so that the rest of the machine renews leases. After a
/// restart of the Manager all clients of a pool come at once.
#[derive(Debug)]
pub(crate) struct Handshakes {
    runtime: Handle,
    room: Arc<Semaphore>,
    /// Ends the thread when it is dropped.
    _alive: oneshot::Sender<()>,
}

impl Handshakes {
    /// Starts the thread.
    pub(crate) fn start() -> io::Result<Handshakes> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, gone) = oneshot::channel::<()>();
        thread::Builder::new().name("centrifuge-tls".to_owned()).spawn(move || {
            // The sender says nothing: it is dropped.
            let _ = runtime.block_on(gone);
        })?;
        Ok(Handshakes { runtime: handle, room: Arc::new(Semaphore::new(MAX_HANDSHAKES)), _alive: alive })
    }

    /// Makes a handshake on the thread of handshakes.
    pub(crate) fn make(
        &self,
        stream: TcpStream,
        config: Arc<ServerConfig>,
    ) -> impl Future<Output = io::Result<Transport>> + Send + 'static {
        let (runtime, room) = (self.runtime.clone(), Arc::clone(&self.room));
        async move {
            let made = AbortOnDrop(runtime.spawn(async move {
                let _turn = room.acquire_owned().await.map_err(io::Error::other)?;
                let stream = TlsAcceptor::from(config).accept(stream).await?;
                Ok(Transport::Tls(Box::new(stream)))
            }));
            made.await
        }
    }
}

/// A task that ends when nobody waits for it any more.
struct AbortOnDrop(tokio::task::JoinHandle<io::Result<Transport>>);

impl Future for AbortOnDrop {
    type Output = io::Result<Transport>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<Transport>> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|made| made.unwrap_or_else(|gone| Err(io::Error::other(gone))))
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Transport::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Transport::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Transport::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(context),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
