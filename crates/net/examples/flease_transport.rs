//! What a round trip of a Flease packet costs on loopback: as a datagram with a code, and on a gRPC stream. And what it costs to
//! check a lease, beside a reading of the clock.
//!
//! `cargo run --release -p centrifuge-net --example flease_transport`. `docs/adr/0014-flease-transport.md` has what it showed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use centrifuge_core::flease::{Ballot, Body, Cell, Holder, Lease, Message, Packet, PeerId};
use centrifuge_core::id::Nonce;
use centrifuge_core::time::Instant as Time;
use centrifuge_net::clock;
use centrifuge_net::flease::{Deadline, PeerSocket, SyncedClock};
use centrifuge_net::proto::v1::FleasePacket;
use centrifuge_net::secrets::KeyRing;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::{Service, http};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming, body::Body as HttpBody};
use tonic_prost::ProstCodec;

/// How many messages a packet has: one cell's, a few, and as many as fit a datagram or two.
const SIZES: [usize; 3] = [1, 4, 32];
/// Round trips that are not counted, and that are.
const WARM_UP: usize = 2_000;
const COUNTED: usize = 20_000;
const HOUR: Duration = Duration::from_secs(3_600);
/// Checks of a lease in a round.
const CALLS: u32 = 100_000;

type Failed = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    println!("round trips on loopback, microseconds (median, 99th percentile)");
    println!("{:>9} {:>16} {:>16} {:>8}", "messages", "datagrams", "gRPC stream", "ratio");
    for size in SIZES {
        let datagrams = over_datagrams(size).await?;
        let stream = over_stream(size).await?;
        let ratio = stream.0.as_secs_f64() / datagrams.0.as_secs_f64();
        println!("{size:>9} {:>16} {:>16} {ratio:>8.2}", show(datagrams), show(stream));
    }
    let offset = SyncedClock::new(HOUR, 0).offset();
    let lease = Deadline::new(offset.now() + HOUR, &offset);
    let (check, clock) = (nanos(|| assert!(lease.holds())), nanos(|| assert!(clock::now().0 > 0)));
    println!("a check of a lease takes {check:.1} ns, a reading of the clock {clock:.1} ns");
    Ok(())
}

/// The quickest of some rounds, in nanoseconds a call.
fn nanos(call: impl Fn()) -> f64 {
    let round = || {
        let since = Instant::now();
        (0..CALLS).for_each(|_| call());
        since.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    (0..20).map(|_| round()).fold(f64::INFINITY, f64::min)
}

fn show((median, tail): (Duration, Duration)) -> String {
    format!("{:.1}, {:.1}", median.as_secs_f64() * 1e6, tail.as_secs_f64() * 1e6)
}

/// The answers to a step of so many cells' reads.
fn packet(messages: usize) -> Packet {
    let ballot = Ballot { time: Time(1_790_000_000_000_000_000), peer: PeerId(1) };
    let lease = Lease {
        holder: Holder { peer: PeerId(2), incarnation: Nonce(7 << 90) },
        epoch: ballot,
        until: ballot.time,
    };
    let message = |number| Message {
        cell: Cell::new(&format!("shard-{number:05}")).expect("a name"),
        ballot,
        body: Body::ReadAck { written: ballot, lease: Some(lease) },
    };
    let messages = (0..messages).map(message).collect();
    Packet { agreement: 1 << 60, sent: ballot.time, echo: ballot.time, probe: false, messages }
}

fn summary(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.drain(..WARM_UP);
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

type Received = mpsc::Receiver<(PeerId, Packet)>;

async fn peer(me: u16, bind: &str, other: (u16, SocketAddr)) -> Result<(PeerSocket, Received), Failed> {
    let (events, received) = mpsc::channel(64);
    let others = BTreeMap::from([(PeerId(other.0), other.1.to_string())]);
    let keys = KeyRing::parse(&[7; 32])?;
    let event = |from, packet| (from, packet);
    Ok((PeerSocket::start(bind, keys, PeerId(me), others, events, event).await?, received))
}

async fn over_datagrams(size: usize) -> Result<(Duration, Duration), Failed> {
    let reserved = UdpSocket::bind("127.0.0.1:0").await?;
    let address = reserved.local_addr()?;
    drop(reserved);
    let (asker, mut answers) = peer(1, "127.0.0.1:0", (2, address)).await?;
    let (answerer, mut questions) = peer(2, &address.to_string(), (1, asker.address())).await?;
    tokio::spawn(async move {
        while let Some((from, packet)) = questions.recv().await {
            answerer.send(from, packet);
        }
    });
    let question = packet(size);
    let mut times = Vec::new();
    for _ in 0..WARM_UP + COUNTED {
        let since = Instant::now();
        asker.send(PeerId(2), question.clone());
        let mut heard = 0;
        while heard < size {
            let (_, part) = answers.recv().await.ok_or("the socket ended")?;
            heard += part.messages.len();
        }
        times.push(since.elapsed());
    }
    Ok(summary(times))
}

async fn over_stream(size: usize) -> Result<(Duration, Duration), Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let served = Server::builder().add_service(Echo).serve_with_incoming(TcpListenerStream::new(listener));
    let server = tokio::spawn(served);
    let channel = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true).connect().await?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let (questions, asked) = mpsc::channel(64);
    let question = packet(size);
    questions.send(FleasePacket::from(&question)).await?;
    let codec = ProstCodec::<FleasePacket, FleasePacket>::default();
    let path = PathAndQuery::from_static("/flease.Echo/Echo");
    let mut answers =
        client.streaming(Request::new(ReceiverStream::new(asked)), path, codec).await?.into_inner();
    answers.next().await.ok_or("the stream ended")??;
    let mut times = Vec::new();
    for _ in 0..WARM_UP + COUNTED {
        let since = Instant::now();
        questions.send(FleasePacket::from(&question)).await?;
        let answer = answers.next().await.ok_or("the stream ended")??;
        assert_eq!(Packet::try_from(answer)?.messages.len(), size);
        times.push(since.elapsed());
    }
    server.abort();
    Ok(summary(times))
}

/// A service that sends every packet back, through the types of the core, as a peer would.
#[derive(Clone)]
struct Echo;

impl tonic::server::NamedService for Echo {
    const NAME: &'static str = "flease.Echo";
}

impl Service<http::Request<HttpBody>> for Echo {
    type Response = http::Response<HttpBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<HttpBody>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<FleasePacket, FleasePacket>::default();
            Ok(tonic::server::Grpc::new(codec).streaming(Echoing, request).await)
        })
    }
}

struct Echoing;

impl tonic::server::StreamingService<FleasePacket> for Echoing {
    type Response = FleasePacket;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<FleasePacket, Status>> + Send>>;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Self::ResponseStream>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<FleasePacket>>) -> Self::Future {
        let answers = request.into_inner().map(|packet| {
            let packet = Packet::try_from(packet?)?;
            Ok(FleasePacket::from(&packet))
        });
        Box::pin(async move { Ok(Response::new(Box::pin(answers) as Self::ResponseStream)) })
    }
}
