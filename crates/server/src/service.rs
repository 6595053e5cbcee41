//! The gRPC services: from the wire to events and back.

pub(crate) mod admin;
mod counted;
pub(crate) mod lookup;
pub(crate) mod owner;
mod watch_body;
mod watches;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use prometheus_client::metrics::gauge::Gauge;
use tokio_stream::Stream;
use tonic::{Request, Status};

pub(crate) use counted::Counted;

use crate::access::Identity;
use crate::admission::{Permit, Refused};
use crate::listener::Caller;
use crate::shared::Shared;

/// Where a request comes from.
fn remote<T>(request: &Request<T>) -> SocketAddr {
    let address = request.extensions().get::<Caller>().map(|caller| caller.address);
    address.unwrap_or_else(|| SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))
}

/// Who sends a request, if that is proven.
fn identity<T>(request: &Request<T>) -> Option<Arc<Identity>> {
    request.extensions().get::<Caller>().and_then(|caller| caller.identity.clone())
}

/// Asks for room and refuses with a status that says which limit is reached.
fn admit(
    shared: &Shared,
    from: SocketAddr,
    ask: impl FnOnce(IpAddr) -> Result<Permit, Refused>,
) -> Result<Permit, Status> {
    ask(from.ip()).map_err(|refused| {
        let (kind, words) = match refused {
            Refused::Connections => ("too-many-connections", "too many connections: close some"),
            Refused::Streams => (
                "too-many-streams",
                "too many streams: close some, or raise max_streams or max_streams_per_address",
            ),
            Refused::WatchRate => (
                "watch-rate",
                "too many watches at once from this address: wait, or raise watches_per_second",
            ),
        };
        shared.refused_input(kind, &from, &words);
        Status::resource_exhausted(words)
    })
}

/// A stream with what must live as long as it does.
struct Held<S, G> {
    stream: Pin<Box<S>>,
    _guard: G,
}

impl<S: Stream, G: Unpin> Stream for Held<S, G> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.stream.as_mut().poll_next(context)
    }
}

/// Counts a stream while it is open.
struct OpenStream {
    streams: Gauge,
    _permit: Permit,
}

impl OpenStream {
    fn new(streams: Gauge, permit: Permit) -> OpenStream {
        streams.inc();
        OpenStream { streams, _permit: permit }
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.dec();
    }
}
