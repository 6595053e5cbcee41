//! A Manager in a process of its own under hostile input: it serves on, its memory stays bounded, its log short.

mod floods;
mod process;
#[path = "../support/mod.rs"]
mod support;

use std::net::SocketAddr;

use centrifuge_net::proto::v1;
use process::ManagerProcess;
use support::{Seen, TestOwner, create, eventually, metric, owner, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

/// How much the Manager's memory may grow: far less than the hundreds of megabytes that are sent to it.
const MAY_GROW: u64 = 64 << 20;

async fn random_bytes(at: SocketAddr) {
    for round in 0..200_u32 {
        let mut stream = TcpStream::connect(at).await.expect("connected");
        let noise: Vec<u8> =
            (0..8192_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> (round % 24)) as u8 | 1).collect();
        let _ = stream.write_all(&noise).await;
        let _ = within(stream.read_to_end(&mut Vec::new())).await;
    }
}

async fn large_messages(at: SocketAddr) {
    for _ in 0..5 {
        let hello = v1::Hello { url: "u".repeat(100 << 20), ..v1::Hello::default() };
        let message = v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Hello(hello)) };
        let mut answers =
            owner(at).await.session(tokio_stream::once(message)).await.expect("a session").into_inner();
        let status = within(answers.message()).await.expect_err("refused");
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
    }
}

async fn absurd_fields(at: SocketAddr) {
    for _ in 0..200 {
        let report = v1::Report { held: vec![v1::HeldLease::default(); 1000], ..v1::Report::default() };
        let message = v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Report(report)) };
        let mut answers =
            owner(at).await.session(tokio_stream::once(message)).await.expect("a session").into_inner();
        let status = within(answers.message()).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
}

type HalfOpen = (mpsc::Sender<v1::OwnerMessage>, tonic::Streaming<v1::ManagerMessage>);

async fn half_open_streams(at: SocketAddr) -> Vec<HalfOpen> {
    let mut client = owner(at).await;
    let mut open = Vec::new();
    for _ in 0..1000 {
        let (sender, stream) = mpsc::channel(1);
        let session = client.session(ReceiverStream::new(stream)).await.expect("a session");
        open.push((sender, session.into_inner()));
    }
    open
}

#[tokio::test]
async fn a_manager_under_rejected_input_serves_on_with_bounded_memory_and_a_short_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = ManagerProcess::start(folder.path()).await;
    create(manager.grpc, "presence").await;
    let mut honest = TestOwner::start(manager.grpc, "presence", "alpha");
    honest.until(Seen::holds_everything).await;
    let before = manager.memory();

    random_bytes(manager.grpc).await;
    absurd_fields(manager.grpc).await;
    large_messages(manager.grpc).await;
    let open = half_open_streams(manager.grpc).await;
    let streams = "centrifuge_streams{kind=\"owner\"}";
    eventually(|| async { (metric(manager.http, streams).await >= 1001.0).then_some(()) }).await;
    let grown = manager.memory().saturating_sub(before);
    assert!(grown < MAY_GROW, "it grew by {grown} bytes");

    let mut second = TestOwner::start(manager.grpc, "presence", "beta");
    second.until(|seen| !seen.held.is_empty()).await;
    assert!(!honest.seen.borrow().held.is_empty(), "the honest Owner still owns");
    drop(open);

    let log = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    for kind in ["not-http2", "invalid-message", "too-large"] {
        let lines = log.lines().filter(|line| line.contains("input refused") && line.contains(kind)).count();
        assert!(
            (1..=3).contains(&lines),
            "{kind} has {lines} lines, for hundreds of inputs, in a minute or so"
        );
        let name = format!("centrifuge_rejected_input_total{{kind=\"{kind}\"}}");
        assert!(metric(manager.http, &name).await >= 5.0, "{kind} is counted always");
    }
}
