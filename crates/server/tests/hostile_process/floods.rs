//! Floods of connections: nobody is locked out, and memory is paid for once.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use centrifuge_net::proto::v1::lookup_client::LookupClient;
use centrifuge_server::config::Limits;
use centrifuge_server::descriptors::raise_limit;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tonic::transport::Endpoint;

use crate::process::ManagerProcess;
use crate::support::{Seen, TestOwner, create, eventually, metric, watch_request, within};

/// A client's preface and its settings, which are the defaults.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The most idle connections of each flooding address.
const FROM_EACH: usize = 8_192;
/// The test's own connections are fewer. Each may have taken the place of one of the flood.
const CLIENTS: usize = 16;
/// Descriptors that the flood leaves to the rest of this program.
const LEFT_TO_OTHERS: usize = 3_000;
const FLOODING: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3))];
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 4));
/// In which time a new client is served beside connections that are idle. It waits for none of them to end, so that a few round
/// trips are enough; operators' commands leave a Manager that does not answer for two seconds. Beside connections that are just
/// coming it waits for its turn among them, which depends on the machine: that time is printed, and bounded by the test's patience.
const SERVED_WITHIN: Duration = Duration::from_secs(2);

/// How many idle connections each flooding address can make with the descriptors of this process.
fn connections_of_each() -> usize {
    raise_limit(FROM_EACH * FLOODING.len());
    let allowed = getrlimit(Resource::Nofile).current.and_then(|most| usize::try_from(most).ok());
    let room = allowed.unwrap_or(usize::MAX).saturating_sub(LEFT_TO_OTHERS);
    FROM_EACH.min(room / FLOODING.len())
}

/// How many connections of the flood the Manager keeps at least: each address gets as much as is left beside the test's own clients.
fn kept_of(each: usize) -> usize {
    let limits = Limits::default();
    let kept = FLOODING.iter().fold(0, |kept, _| {
        kept + each.min(limits.max_connections_per_address).min((limits.max_connections - kept) / 2)
    });
    kept - CLIENTS
}

/// A health check of HTTP/2 without a library: what a connection that may stay must have asked.
fn health_check() -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    let headers = [
        // The method POST and the scheme http, by their numbers in the static table (RFC 7541, appendix A).
        vec![0x83, 0x86],
        [vec![0x04], text("/grpc.health.v1.Health/Check")].concat(),
        [vec![0x01], text("manager")].concat(),
        [vec![0x0f, 0x10], text("application/grpc")].concat(),
        [vec![0x00], text("te"), text("trailers")].concat(),
    ]
    .concat();
    let length = u8::try_from(headers.len()).expect("short");
    let request = [0, 0, length, 0x01, 0x04, 0, 0, 0, 1];
    let empty_message = [0, 0, 5, 0x00, 0x01, 0, 0, 0, 1, 0, 0, 0, 0, 0];
    [PREFACE, &request, &headers, &empty_message].concat()
}

async fn connect_from(from: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from((from, 0))).expect("an address of this machine");
    within(socket.connect(to)).await.expect("the system accepts it")
}

/// Idle connections from one address. Each has asked once, so that it may stay.
async fn idle_connections(from: IpAddr, to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let asked = health_check();
    let mut open = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = connect_from(from, to).await;
        // The Manager may have closed it already.
        let _ = stream.write_all(&asked).await;
        open.push(stream);
    }
    open
}

/// One watch over a connection of its own, until its first reply.
async fn try_to_watch(from: IpAddr, at: SocketAddr, number: u8) -> Option<()> {
    let endpoint = Endpoint::from_shared(format!("http://{at}")).expect("an address");
    let channel = endpoint.local_address(Some(from)).connect().await.ok()?;
    let replies = LookupClient::new(channel).watch(watch_request("presence", number)).await.ok()?;
    replies.into_inner().message().await.ok()?.map(|_| ())
}

/// How long a new client from there takes until it is served. It tries again, as clients do.
async fn served_after(from: IpAddr, at: SocketAddr, number: u8) -> Duration {
    let begun = Instant::now();
    eventually(|| try_to_watch(from, at, number)).await;
    begun.elapsed()
}

/// Waits until the Manager has answered every connection or closed it: from then on they are idle.
async fn answered(connections: &mut [TcpStream]) {
    for stream in connections {
        let _ = within(stream.read(&mut [0; 256])).await;
    }
}

#[tokio::test]
async fn idle_connections_of_two_addresses_lock_nobody_out() {
    let each = connections_of_each();
    let kept = kept_of(each) as f64;
    let folder = tempfile::tempdir().expect("a folder");
    let manager = ManagerProcess::start(folder.path()).await;
    let (at, open) = (manager.grpc, || metric(manager.http, "centrifuge_connections"));
    create(at, "presence").await;
    let mut known = TestOwner::start(at, "presence", "alpha");
    let before = known.until(Seen::holds_everything).await;

    let begun = Instant::now();
    let flood = tokio::spawn(async move {
        // One after the other: how much each gets depends on the order.
        let first = idle_connections(FLOODING[0], at, each).await;
        (first, idle_connections(FLOODING[1], at, each).await)
    });
    let during_arrival = served_after(ELSEWHERE, at, 1).await;
    let (mut first, mut second) = flood.await.expect("no panic");
    let after_arrival = served_after(ELSEWHERE, at, 2).await;
    answered(&mut first).await;
    answered(&mut second).await;
    println!("{each} connections from each of two addresses in {:?}, {kept} are kept", begun.elapsed());
    println!("a new client was served after {during_arrival:?} and {after_arrival:?} as they came");
    eventually(|| async { (open().await >= kept).then_some(()) }).await;

    for (number, from) in (3..).zip([ELSEWHERE, FLOODING[0], FLOODING[1]]) {
        let time = served_after(from, at, number).await;
        println!("a new client from {from} was served after {time:?}");
        assert!(time < SERVED_WITHIN, "a new client from {from} waited for {time:?}");
    }
    assert!(open().await >= kept, "the flood was there all the time");

    let served = Instant::now();
    let is_renewed = || known.answered.lock().expect("no panic").values().any(|at| *at > served);
    eventually(|| async { is_renewed().then_some(()) }).await;
    assert_eq!(*known.seen.borrow(), before, "the known session has lost nothing and joined once");
}

/// What the Manager may keep for each connection of the largest flood, and once for all of them. Measured: 36 KB for each, the most of it
/// buffers of HTTP/2. The system's allocator keeps them for the next connections (ADR 21).
const MAY_KEEP_OF_EACH: u64 = 40 << 10;
const MAY_KEEP_ONCE: u64 = 16 << 20;
/// How much memory may vary between floods of one size once it has settled.
const MAY_VARY: u64 = 16 << 20;

/// Many connections that begin well and then end. Gives the Manager's memory while they were open.
async fn flood(manager: &ManagerProcess, connections: usize) -> u64 {
    let mut open = Vec::with_capacity(connections);
    for number in 0..connections {
        let mut stream = connect_from(FLOODING[number % FLOODING.len()], manager.grpc).await;
        let _ = stream.write_all(PREFACE).await;
        open.push(stream);
    }
    for stream in &mut open {
        // The server's settings: it has made everything for the connection that it needs.
        within(stream.read_exact(&mut [0; 9])).await.expect("settings");
    }
    manager.memory()
}

/// Floods a Manager again and again, and gives its memory before and after each of them. None of it is above the bound.
async fn flood_often(connections: usize, rounds: usize) -> Vec<u64> {
    raise_limit(connections);
    let folder = tempfile::tempdir().expect("a folder");
    let manager = ManagerProcess::start(folder.path()).await;
    create(manager.grpc, "presence").await;
    let (mut peaks, mut after) = (Vec::new(), vec![manager.memory()]);
    for _ in 0..rounds {
        peaks.push(flood(&manager, connections).await);
        eventually(|| async { (metric(manager.http, "centrifuge_connections").await <= 1.0).then_some(()) })
            .await;
        after.push(manager.memory());
    }
    let megabytes = |bytes: &[u64]| bytes.iter().map(|bytes| bytes >> 20).collect::<Vec<u64>>();
    println!("floods of {connections} connections, megabytes at their peaks: {:?}", megabytes(&peaks));
    println!("megabytes before and after each: {:?}", megabytes(&after));
    let bound = after[0] + connections as u64 * MAY_KEEP_OF_EACH + MAY_KEEP_ONCE;
    let most = peaks.iter().chain(&after).max().expect("some");
    assert!(*most < bound, "{most} bytes are more than {bound}");
    after
}

#[tokio::test]
async fn floods_of_connections_cost_memory_once_and_not_each_time() {
    let after = flood_often(1_500, 12).await;
    assert!(after[12] < after[4] + MAY_VARY, "it grows with every flood: {after:?}");
}

/// What `docs/operations/manager.md` has figures of. It needs 8,000 descriptors.
#[tokio::test]
#[ignore = "for figures: cargo test --release -p centrifuge-server --test hostile_process large_floods -- --ignored --nocapture"]
async fn large_floods_of_connections_stay_below_the_bound() {
    flood_often(8_000, 5).await;
}
