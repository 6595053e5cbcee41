//! Accepts gRPC connections: bounded in number, and only those that begin as HTTP/2 does.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;
use tonic::transport::server::Connected;

use crate::access::Identity;
use crate::admission::{Admitted, ConnectionPermit};
use crate::shared::Shared;
use crate::transport::Transport;

/// What a client of HTTP/2 says first (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a request may take until its answer begins while none was answered yet, beyond the time in which it must begin.
const FIRST_ANSWER: Duration = Duration::from_secs(60);
/// How often a client that has said a part of it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long accepting rests after the system refused, as when no descriptor is left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Accepts until the receiver of connections is gone.
pub(crate) async fn accept(listener: TcpListener, shared: Arc<Shared>, accepted: mpsc::Sender<Connection>) {
    loop {
        let next = tokio::select! {
            next = listener.accept() => next,
            () = accepted.closed() => return,
        };
        match next {
            Ok((stream, from)) => welcome(stream, from, &shared, &accepted),
            Err(error) => {
                shared.refused_input("accept-failed", &"the listener", &error);
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// Gives a connection room and lets it prove itself beside the others.
fn welcome(stream: TcpStream, from: SocketAddr, shared: &Arc<Shared>, accepted: &mpsc::Sender<Connection>) {
    let Ok(Admitted { permit, mut displaced, displaces }) = shared.admission.connection(from.ip()) else {
        return shared.refused_input("too-many-connections", &from, &"limits of connections");
    };
    if displaces {
        let why = "limits of connections: the one of its address that was idle for longest is closed";
        shared.refused_input("too-many-connections", &from, &why);
    }
    // Else an answer may wait for the client's acknowledgment of the one before, which clients put off for 40 ms. A connection
    // that is broken already says so when it is read.
    let _ = stream.set_nodelay(true);
    let open = OpenConnection::new(shared.metrics.connections.clone());
    let first_request = shared.limits.first_request;
    let (shared, accepted) = (Arc::clone(shared), accepted.clone());
    tokio::spawn(async move {
        let begun = tokio::select! {
            begun = tokio::time::timeout(first_request, begin(stream, &shared)) => begun,
            () = accepted.closed() => return,
            _ = &mut displaced => return,
        };
        match begun {
            Ok(Ok(transport)) => {
                let identity = transport.identity().map(Arc::new);
                identity.iter().for_each(|who| shared.authority.know(who));
                let connection = Connection {
                    over: identity.as_ref().map(|who| Box::pin(who.ended()) as Pin<Box<_>>),
                    transport,
                    from,
                    identity,
                    permit,
                    displaced: Some(displaced),
                    _open: open,
                    progress: Progress::default(),
                    probation: Probation::Unserved(first_request),
                };
                // Without a server the connection just ends.
                let _ = accepted.send(connection).await;
            }
            Ok(Err(Flaw::NotHttp2)) => {
                shared.refused_input("not-http2", &from, &"it did not begin as HTTP/2 does")
            }
            Ok(Err(Flaw::Handshake(why))) => shared.refused_input("tls-handshake", &from, &why),
            Err(_) => shared.refused_input("half-open", &from, &"it said nothing whole in time"),
            // It hung up before it said anything; port checks do that.
            Ok(Err(Flaw::Gone)) => {}
        }
    });
}

/// Why a connection does not come about.
enum Flaw {
    NotHttp2,
    Handshake(io::Error),
    Gone,
}

/// Lets a client prove that it speaks as it should: by its first bytes, or by a handshake.
async fn begin(stream: TcpStream, shared: &Shared) -> Result<Transport, Flaw> {
    let Some((tls, handshakes)) = shared.tls.as_ref().zip(shared.handshakes.as_ref()) else {
        return match begins_well(&stream).await {
            Ok(true) => Ok(Transport::Plain(stream)),
            Ok(false) => Err(Flaw::NotHttp2),
            Err(_) => Err(Flaw::Gone),
        };
    };
    match handshakes.make(stream, tls.grpc()).await {
        Ok(transport) => Ok(transport),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Flaw::Gone),
        Err(error) => Err(Flaw::Handshake(error)),
    }
}

/// Counts a connection while it is open.
#[derive(Debug)]
struct OpenConnection(Gauge);

impl OpenConnection {
    fn new(connections: Gauge) -> OpenConnection {
        connections.inc();
        OpenConnection(connections)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Whether the first bytes are those of HTTP/2. They stay in the socket for the server to read.
async fn begins_well(stream: &TcpStream) -> io::Result<bool> {
    let mut bytes = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut bytes).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !PREFACE.starts_with(&bytes[..seen]) {
            return Ok(false);
        }
        if seen == PREFACE.len() {
            return Ok(true);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// How far a connection has come with its first request. The services advance it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<AtomicU8>);

impl Progress {
    const SILENT: u8 = 0;
    const ASKED: u8 = 1;
    const ANSWERED: u8 = 2;

    /// A request has begun.
    pub(crate) fn asked(&self) {
        self.0.fetch_max(Self::ASKED, Ordering::Relaxed);
    }

    /// A request was read, and its answer begins.
    pub(crate) fn answered(&self) {
        self.0.fetch_max(Self::ANSWERED, Ordering::Relaxed);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection with the room it takes. It ends by itself if its first request does not come in time, or if
/// it is idle while another connection needs the room.
pub(crate) struct Connection {
    transport: Transport,
    from: SocketAddr,
    identity: Option<Arc<Identity>>,
    /// Ends when who is at the other end is not proven any more.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    permit: ConnectionPermit,
    /// Ends when it must give way to another connection; `None` once it has.
    displaced: Option<oneshot::Receiver<()>>,
    _open: OpenConnection,
    progress: Progress,
    probation: Probation,
}

/// How long a connection may go on without having asked anything.
#[derive(Debug)]
enum Probation {
    /// Nothing of it was read yet. Its time begins when the server comes to it: a client is not blamed for the server's backlog.
    Unserved(Duration),
    /// Until when a request must have begun.
    Request(Pin<Box<Sleep>>),
    /// Until when its answer must have begun.
    Answer(Pin<Box<Sleep>>),
    /// A request was answered.
    Passed,
}

impl Connection {
    /// Whether it must give way, or its time is over and no request has come.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(displaced) = &mut self.displaced else { return Poll::Ready(()) };
        if Pin::new(displaced).poll(context).is_ready() {
            self.displaced = None;
            return Poll::Ready(());
        }
        if let Some(over) = &mut self.over
            && over.as_mut().poll(context).is_ready()
        {
            self.displaced = None;
            return Poll::Ready(());
        }
        loop {
            if self.progress.get() == Progress::ANSWERED {
                self.probation = Probation::Passed;
            }
            match &mut self.probation {
                Probation::Unserved(time) => {
                    self.probation = Probation::Request(Box::pin(tokio::time::sleep(*time)));
                }
                Probation::Request(until) => {
                    std::task::ready!(until.as_mut().poll(context));
                    if self.progress.get() == Progress::SILENT {
                        return Poll::Ready(());
                    }
                    self.probation = Probation::Answer(Box::pin(tokio::time::sleep(FIRST_ANSWER)));
                }
                Probation::Answer(until) => return until.as_mut().poll(context),
                Probation::Passed => return Poll::Pending,
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Caller;

    fn connect_info(&self) -> Caller {
        Caller {
            address: self.from,
            identity: self.identity.clone(),
            progress: self.progress.clone(),
            connection: self.permit.clone(),
        }
    }
}

/// The sender of a request, and the state of its connection.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Where it comes from.
    pub address: SocketAddr,
    /// Who it is, if that is proven.
    pub identity: Option<Arc<Identity>>,
    /// How far its connection has come.
    pub progress: Progress,
    /// The permit of its connection, which no other connection gets during a request.
    pub connection: ConnectionPermit,
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Reading nothing is the end of the stream.
        if self.poll_over(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.transport).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.transport).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}
