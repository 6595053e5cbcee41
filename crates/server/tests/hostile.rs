//! Whatever comes to the gRPC port, the Manager goes on serving, counts it, and keeps its room.

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use centrifuge_net::proto::v1;
use centrifuge_server::config::Limits;
use centrifuge_server::{Config, RunningManager};
use support::{
    Seen, TestOwner, absurd_messages, config, create, eventually, hostile_hello, lookup, metric, owner, page,
    start, watch_request, within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

/// Opens a session with these messages and waits for the status that ends it.
async fn refused(at: SocketAddr, messages: Vec<v1::OwnerMessage>) -> Status {
    let (sender, stream) = mpsc::channel(messages.len().max(1));
    for message in messages {
        sender.try_send(message).expect("room");
    }
    let mut answers = match owner(at).await.session(ReceiverStream::new(stream)).await {
        Ok(session) => session.into_inner(),
        Err(status) => return status,
    };
    loop {
        match within(answers.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a bad end was expected"),
            Err(status) => return status,
        }
    }
}

fn hello(change: impl FnOnce(&mut v1::Hello)) -> v1::OwnerMessage {
    hostile_hello("presence", "mallory", change)
}

async fn hostile_count(manager: &RunningManager, kind: &str) -> f64 {
    metric(manager.http_addr(), &format!("centrifuge_rejected_input_total{{kind=\"{kind}\"}}")).await
}

/// Waits until so much input of a kind was refused.
async fn counted(manager: &RunningManager, kind: &str, at_least: f64) {
    eventually(|| async { (hostile_count(manager, kind).await >= at_least).then_some(()) }).await;
}

#[tokio::test]
async fn absurd_fields_end_the_stream_and_name_the_field() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut honest = TestOwner::start(at, "presence", "alpha");
    honest.until(Seen::holds_everything).await;
    let cases = absurd_messages("presence", "mallory");
    let count = cases.len();
    for (field, message) in cases {
        let status = refused(at, vec![message]).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{field}: {status}");
        assert!(status.message().contains(field), "{field}: {status}");
    }
    counted(&manager, "invalid-message", count as f64).await;

    let mut request = watch_request("presence", 1);
    request.seq = 0;
    let status = lookup(at).await.watch(request).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("seq"), "{status}");

    let seen = honest.seen.borrow().clone();
    assert!(seen.holds_everything() && seen.revoked == 0, "nobody else's leases are disturbed");
    manager.shutdown().await;
}

#[tokio::test]
async fn random_bytes_are_not_answered_and_do_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..50 {
        let mut stream = TcpStream::connect(at).await.expect("connected");
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (noise >> 56) as u8 | 0x80
        })
        .take(4096)
        .collect();
        // It may hang up at the first bytes.
        let _ = stream.write_all(&bytes).await;
        let mut answer = Vec::new();
        let _ = within(stream.read_to_end(&mut answer)).await;
        assert!(answer.is_empty());
    }
    counted(&manager, "not-http2", 50.0).await;
    // The beginning of HTTP/2 and then noise is refused by the transport.
    for _ in 0..20 {
        let mut stream = TcpStream::connect(at).await.expect("connected");
        let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        let _ = stream.write_all(&[0xff; 4096]).await;
        let mut answer = Vec::new();
        let _ = within(stream.read_to_end(&mut answer)).await;
    }
    let mut honest = TestOwner::start(at, "presence", "alpha");
    honest.until(Seen::holds_everything).await;
    eventually(|| async {
        (metric(manager.http_addr(), "centrifuge_connections").await <= 2.0).then_some(())
    })
    .await;
    manager.shutdown().await;
}

#[tokio::test]
async fn a_hundred_megabytes_are_refused_before_they_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let status = refused(at, vec![hello(|hello| hello.url = "u".repeat(100 << 20))]).await;
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    counted(&manager, "too-large", 1.0).await;
    assert!(
        metric(manager.http_addr(), "centrifuge_bytes_received_total{kind=\"hello\"}").await < 1e6,
        "nothing of it was taken for a message"
    );
    let mut request = watch_request("presence", 1);
    request.namespace = "n".repeat(100 << 20);
    let status = lookup(at).await.watch(request).await.expect_err("refused");
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    counted(&manager, "too-large", 2.0).await;
    let mut honest = TestOwner::start(at, "presence", "alpha");
    honest.until(Seen::holds_everything).await;
    manager.shutdown().await;
}

#[tokio::test]
async fn half_open_streams_take_their_limit_and_leave_the_others_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { max_streams_per_address: 200, ..Limits::default() };
    let manager = start(folder.path(), Config { limits, ..config() }).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut honest = TestOwner::start(at, "presence", "alpha");
    honest.until(Seen::holds_everything).await;

    let mut client = owner(at).await;
    let mut open = Vec::new();
    let full = loop {
        let (sender, stream) = mpsc::channel(1);
        match client.session(ReceiverStream::new(stream)).await {
            Ok(session) => open.push((sender, session)),
            Err(status) => break status,
        }
        assert!(open.len() <= 200, "the limit holds");
    };
    assert_eq!(full.code(), Code::ResourceExhausted, "{full}");
    assert_eq!(open.len(), 199, "the honest Owner's stream is the other one");
    let before = honest.seen.borrow().clone();
    assert!(before.holds_everything() && before.revoked == 0);

    drop(open);
    drop(client);
    let streams = "centrifuge_streams{kind=\"owner\"}";
    eventually(|| async { (metric(manager.http_addr(), streams).await <= 1.0).then_some(()) }).await;
    let mut second = TestOwner::start(at, "presence", "beta");
    second.until(|seen| !seen.held.is_empty()).await;
    manager.shutdown().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits { max_connections_per_address: 20, ..Limits::default() };
    let manager = start(folder.path(), Config { limits, ..config() }).await;
    let at = manager.grpc_addr();
    let mut open = Vec::new();
    for _ in 0..30 {
        open.push(TcpStream::connect(at).await.expect("connected"));
    }
    counted(&manager, "too-many-connections", 10.0).await;
    drop(open);
    eventually(|| async {
        (metric(manager.http_addr(), "centrifuge_connections").await < 1.0).then_some(())
    })
    .await;
    create(at, "presence").await;
    manager.shutdown().await;
}

/// A connection from another address of this machine.
async fn connect_from(from: &str, to: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{from}:0").parse().expect("an address")).expect("bound");
    within(socket.connect(to)).await.expect("connected")
}

#[tokio::test]
async fn idle_connections_leave_room_for_others_and_end_soon() {
    let folder = tempfile::tempdir().expect("a folder");
    let limits = Limits {
        max_connections: 64,
        max_connections_per_address: 32,
        first_request: Duration::from_secs(2),
        ..Limits::default()
    };
    let manager = start(folder.path(), Config { limits, ..config() }).await;
    let at = manager.grpc_addr();
    let mut flood = Vec::new();
    for from in ["127.0.0.2", "127.0.0.3"] {
        for _ in 0..32 {
            let mut stream = connect_from(from, at).await;
            // It begins well, and then it says nothing any more.
            let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
            flood.push(stream);
        }
    }
    // While they are there others are served.
    let before = std::time::Instant::now();
    create(at, "presence").await;
    let mut honest = TestOwner::start(at, "presence", "alpha");
    honest.until(Seen::holds_everything).await;
    println!("served beside a flood within {:?}", before.elapsed());
    // And they end, whatever they do.
    eventually(|| async {
        (metric(manager.http_addr(), "centrifuge_connections").await <= 2.0).then_some(())
    })
    .await;
    for mut stream in flood {
        // The server's settings may come first; then there is an end.
        let _ = within(stream.read_to_end(&mut Vec::new())).await;
    }
    let seen = honest.seen.borrow().clone();
    assert!(seen.holds_everything() && seen.revoked == 0, "a session is not on probation");
    manager.shutdown().await;
}

#[tokio::test]
async fn requests_that_do_not_end_starve_no_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.http_addr();
    let mut flood = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(at).await.expect("connected");
        let _ = stream.write_all(b"GET /health HTTP/1.1\r\nHost: ma").await;
        flood.push(stream);
    }
    for _ in 0..3 {
        let asked = tokio::time::timeout(Duration::from_secs(3), page(at, "/health")).await;
        let (status, body) = asked.expect("answered beside the flood, before any of it is given up");
        assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ok\n"));
    }
    manager.shutdown().await;
}

#[tokio::test]
async fn a_flood_of_hellos_is_read_slowly_and_costs_no_lease() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = start(folder.path(), config()).await;
    let at = manager.grpc_addr();
    create(at, "presence").await;
    let mut honest = TestOwner::start(at, "presence", "alpha");
    honest.until(Seen::holds_everything).await;
    let (sender, stream) = mpsc::channel(1);
    let flood = tokio::spawn(async move {
        for number in 1.. {
            let message = hello(|hello| {
                hello.number = number;
                hello.name = format!("mallory-{number}");
            });
            if sender.send(message).await.is_err() {
                return;
            }
        }
    });
    let mut answers =
        owner(at).await.session(ReceiverStream::new(stream)).await.expect("a session").into_inner();
    let reading = tokio::spawn(async move { while let Ok(Some(_)) = answers.message().await {} });
    // It is read slowly; once hundreds of small frames wait unread, the transport ends the connection.
    counted(&manager, "hello-rate", 1.0).await;
    let reports = "centrifuge_messages_received_total{kind=\"report\"}";
    let so_far = metric(manager.http_addr(), reports).await;
    eventually(|| async { (metric(manager.http_addr(), reports).await >= so_far + 3.0).then_some(()) }).await;
    assert_eq!(honest.seen.borrow().revoked, 0);
    let hellos = metric(manager.http_addr(), "centrifuge_messages_received_total{kind=\"hello\"}").await;
    assert!(hellos < 1000.0, "they wait in the sender: {hellos}");
    flood.abort();
    reading.abort();
    manager.shutdown().await;
}
