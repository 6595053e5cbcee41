//! A bounded number of HTTP connections. None is refused: a new connection replaces the one that has waited longest.
//!
//! A page is asked for and sent at once, so that a connection mostly waits for its peer. Where there is no room, the address with the
//! most connections gives its oldest up. A request must be complete soon after it begins.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, Sleep};

use crate::access::Identity;
use crate::admission::origin;
use crate::shared::Shared;
use crate::transport::Transport;

/// How many connections there may be: scrapers, probes and a few people.
const CONNECTIONS: usize = 256;
/// How long a connection may be idle between an answer and the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long accepting rests after the system refused, as when no descriptor is left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Accepts every connection, and closes another where there are too many.
#[derive(Debug)]
pub(crate) struct Room {
    listener: TcpListener,
    at_most: usize,
    request_timeout: Duration,
    guests: Arc<Mutex<Guests>>,
    /// The Manager, if connections are inside TLS.
    secured: Option<Arc<Shared>>,
    /// Handshakes under way, the oldest first. Dropping one ends it.
    handshakes: VecDeque<oneshot::Sender<()>>,
    /// Those that succeeded.
    ready: (mpsc::Sender<Ready>, mpsc::Receiver<Ready>),
}

type Ready = (Transport, SocketAddr);

/// The open connections by number: the oldest has the lowest.
#[derive(Debug, Default)]
struct Guests {
    last: u64,
    present: HashMap<u64, Present>,
}

#[derive(Debug)]
struct Present {
    from: IpAddr,
    /// Closes the connection when it is dropped.
    _stay: oneshot::Sender<()>,
}

impl Guests {
    /// Closes the oldest connection of the address that has the most.
    fn make_room(&mut self) {
        let mut by_address: HashMap<IpAddr, (usize, u64)> = HashMap::new();
        for (number, guest) in &self.present {
            let (count, oldest) = by_address.entry(guest.from).or_insert((0, *number));
            *count += 1;
            *oldest = (*oldest).min(*number);
        }
        let most = by_address.values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)));
        if let Some((_, oldest)) = most.copied() {
            self.present.remove(&oldest);
        }
    }
}

impl Room {
    /// Room for the usual number of connections.
    #[must_use]
    pub(crate) fn new(listener: TcpListener, shared: &Arc<Shared>) -> Room {
        let secured = shared.tls.is_some().then(|| Arc::clone(shared));
        Room::with(listener, CONNECTIONS, shared.limits.first_request, secured)
    }

    fn with(
        listener: TcpListener,
        at_most: usize,
        request_timeout: Duration,
        secured: Option<Arc<Shared>>,
    ) -> Room {
        let ready = mpsc::channel(at_most);
        let (guests, handshakes) = (Arc::default(), VecDeque::new());
        Room { listener, at_most, request_timeout, guests, secured, handshakes, ready }
    }

    /// Begins a handshake beside the others; the oldest ends where there are too many.
    fn secure(&mut self, stream: TcpStream, from: SocketAddr, shared: &Shared) {
        let Some((tls, handshakes)) = shared.tls.as_ref().zip(shared.handshakes.as_ref()) else { return };
        self.handshakes.retain(|handshake| !handshake.is_closed());
        if self.handshakes.len() >= self.at_most {
            self.handshakes.pop_front();
        }
        let (stay, told_to_leave) = oneshot::channel::<()>();
        self.handshakes.push_back(stay);
        let made = tokio::time::timeout(self.request_timeout, handshakes.make(stream, tls.http()));
        let ready = self.ready.0.clone();
        tokio::spawn(async move {
            let made = tokio::select! {
                made = made => made,
                _ = told_to_leave => return,
            };
            if let Ok(Ok(transport)) = made {
                // A server that is gone serves nobody.
                let _ = ready.send((transport, from)).await;
            }
        });
    }

    fn admit(&self, transport: Transport, from: SocketAddr) -> Guest {
        let mut guests = lock(&self.guests);
        if guests.present.len() >= self.at_most {
            guests.make_room();
        }
        let (stay, told_to_leave) = oneshot::channel();
        guests.last += 1;
        let number = guests.last;
        guests.present.insert(number, Present { from: origin(from.ip()), _stay: stay });
        let identity = transport.identity().map(Arc::new);
        if let (Some(shared), Some(who)) = (&self.secured, &identity) {
            shared.authority.know(who);
        }
        Guest {
            transport,
            identity,
            number,
            guests: Arc::clone(&self.guests),
            told_to_leave,
            request_timeout: self.request_timeout,
            waits_for_request: false,
            deadline: Box::pin(tokio::time::sleep(self.request_timeout)),
        }
    }
}

impl Listener for Room {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some((transport, from)) = self.ready.1.recv() => return (self.admit(transport, from), from),
            };
            match (accepted, self.secured.clone()) {
                (Ok((stream, from)), None) => return (self.admit(Transport::Plain(stream), from), from),
                (Ok((stream, from)), Some(shared)) => self.secure(stream, from, &shared),
                (Err(_), _) => tokio::time::sleep(ACCEPT_REST).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its request is not complete in time, when it has been idle for too long, or when its place is needed.
#[derive(Debug)]
pub(crate) struct Guest {
    transport: Transport,
    identity: Option<Arc<Identity>>,
    number: u64,
    guests: Arc<Mutex<Guests>>,
    told_to_leave: oneshot::Receiver<()>,
    request_timeout: Duration,
    /// Whether the last request was answered and the next has not begun.
    waits_for_request: bool,
    deadline: Pin<Box<Sleep>>,
}

/// Who asks for a page.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    /// Where they are.
    pub address: SocketAddr,
    /// Who they are, if that is proven.
    pub identity: Option<Arc<Identity>>,
}

impl Connected<IncomingStream<'_, Room>> for Visitor {
    fn connect_info(stream: IncomingStream<'_, Room>) -> Visitor {
        Visitor { address: *stream.remote_addr(), identity: stream.io().identity.clone() }
    }
}

impl Guest {
    /// Whether it has to go now.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if Pin::new(&mut self.told_to_leave).poll(context).is_ready() {
            return Poll::Ready(());
        }
        self.deadline.as_mut().poll(context)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        lock(&self.guests).present.remove(&self.number);
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Reading nothing is the end of the stream. A peer that sends byte after byte gets no more time for it.
        if self.poll_over(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.transport).poll_read(context, buffer);
        if read.is_ready() && self.waits_for_request {
            self.waits_for_request = false;
            let until = Instant::now() + self.request_timeout;
            self.deadline.as_mut().reset(until);
        }
        read
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.transport).poll_write(context, bytes);
        if written.is_ready() {
            self.waits_for_request = true;
            self.deadline.as_mut().reset(Instant::now() + IDLE_TIMEOUT);
        } else if self.poll_over(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}

fn lock(guests: &Mutex<Guests>) -> MutexGuard<'_, Guests> {
    guests.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpSocket;

    const SOON: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(600);

    async fn room(at_most: usize, request_timeout: Duration) -> (Room, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("an address");
        (Room::with(listener, at_most, request_timeout, None), at)
    }

    async fn connect_from(from: &str, to: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(format!("{from}:0").parse().expect("an address")).expect("bound");
        socket.connect(to).await.expect("connected")
    }

    #[tokio::test]
    async fn a_newcomer_takes_the_place_of_the_oldest_from_where_most_come() {
        let (mut room, at) = room(3, LONG).await;
        let _prober = connect_from("127.0.0.2", at).await;
        let (mut probed, _) = room.accept().await;
        let _flood = [connect_from("127.0.0.1", at).await, connect_from("127.0.0.1", at).await];
        let (mut first, _) = room.accept().await;
        let (mut second, _) = room.accept().await;
        let _newcomer = connect_from("127.0.0.3", at).await;
        let (mut new, _) = room.accept().await;
        assert_eq!(first.read(&mut [0; 8]).await.expect("an end"), 0, "its place was needed");
        for other in [&mut probed, &mut second, &mut new] {
            let read = tokio::time::timeout(SOON, other.read(&mut [0; 8])).await;
            assert!(read.is_err(), "it stays");
        }
        drop(first);
        assert_eq!(lock(&room.guests).present.len(), 3);
    }

    #[tokio::test]
    async fn a_request_that_does_not_end_ends_its_connection_however_busy_it_is() {
        let (mut room, at) = room(3, SOON).await;
        let client = TcpStream::connect(at).await.expect("connected");
        let (mut guest, _) = room.accept().await;
        let reading = async {
            while guest.read(&mut [0; 1]).await.expect("no error") > 0 {}
            Instant::now()
        };
        let began = Instant::now();
        let writing = async {
            while client.writable().await.is_ok() && client.try_write(b"x").is_ok() {
                tokio::time::sleep(SOON / 10).await;
            }
        };
        tokio::select! {
            ended = reading => assert!(ended - began >= SOON),
            () = writing => panic!("the connection ended first"),
        }
    }
}
