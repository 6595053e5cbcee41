//! A Manager in a process of its own under hostile input: it serves on, its memory stays bounded, its log short.

mod support;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use centrifuge_net::proto::v1;
use centrifuge_server::Manager;
use centrifuge_server::store::Backend;
use support::{Seen, TestOwner, config, create, eventually, metric, owner, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

/// Names the folder of the child's store.
const FOLDER: &str = "CENTRIFUGE_TEST_FOLDER";
/// How much the Manager's memory may grow: far less than the hundreds of megabytes that are sent to it.
const MAY_GROW: u64 = 64 << 20;

/// Not a test: the Manager that the test below starts. It runs until its standard input ends.
#[test]
fn a_manager_for_the_test() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = Backend::File(Path::new(&folder).join("centrifuge.db"));
        let manager = Manager::start(config(), store).await.expect("it starts");
        manager.leads().await;
        println!("at {} {}", manager.grpc_addr(), manager.http_addr());
        let parent_is_gone = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        parent_is_gone.await.expect("read").expect("an end");
        manager.shutdown().await;
    });
}

struct Process {
    child: Child,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl Process {
    fn start(folder: &Path) -> Process {
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "a_manager_for_the_test", "--nocapture"])
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("started");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let mut lines = out.lines().map(|line| line.expect("a line"));
        let line = lines.find_map(|line| line.split_once("at ").map(|(_, at)| at.to_owned()));
        let line = line.expect("it says where it serves");
        let (grpc, http) = line.split_once(' ').expect("two addresses");
        Process { child, grpc: grpc.parse().expect("an address"), http: http.parse().expect("an address") }
    }

    /// Bytes of memory that it has.
    fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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

/// How many connections a flood has, and how often it comes.
const FLOOD: usize = 1_500;
const ROUNDS: usize = 12;
/// After this round memory has what a flood needs, and grows no more.
const SETTLED: usize = 4;

/// Many connections that begin well and then end; as many again, in turn.
async fn flood(at: SocketAddr) {
    let mut open = Vec::with_capacity(FLOOD);
    for _ in 0..FLOOD {
        let mut stream = TcpStream::connect(at).await.expect("connected");
        let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
        open.push(stream);
    }
    for stream in &mut open {
        // The server's settings: it has made everything for the connection that it needs.
        within(stream.read_exact(&mut [0; 9])).await.expect("settings");
    }
}

#[tokio::test]
async fn floods_of_connections_cost_memory_once_and_not_each_time() {
    centrifuge_server::descriptors::raise_limit(FLOOD);
    let folder = tempfile::tempdir().expect("a folder");
    let manager = Process::start(folder.path());
    create(manager.grpc, "presence").await;
    let mut after = vec![manager.memory()];
    for _ in 0..ROUNDS {
        flood(manager.grpc).await;
        eventually(|| async { (metric(manager.http, "centrifuge_connections").await <= 1.0).then_some(()) })
            .await;
        after.push(manager.memory());
    }
    let megabytes: Vec<u64> = after.iter().map(|bytes| bytes >> 20).collect();
    println!("megabytes after each flood of {FLOOD} connections: {megabytes:?}");
    let (settled, last) = (after[SETTLED], after[ROUNDS]);
    assert!(last < settled + (16 << 20), "it grows with every flood: {megabytes:?}");
}

#[tokio::test]
async fn a_manager_under_hostile_input_serves_on_with_bounded_memory_and_a_short_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = Process::start(folder.path());
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
        let name = format!("centrifuge_hostile_input_total{{kind=\"{kind}\"}}");
        assert!(metric(manager.http, &name).await >= 5.0, "{kind} is counted always");
    }
}
