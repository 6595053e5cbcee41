//! A Manager on a file of its own, and an Owner that is core's machine over a plain client.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use centrifuge_core::id::{Generation, ManagerId, Namespace, OwnerName, Secret, Url};
use centrifuge_core::key::KeyRange;
use centrifuge_core::manager::RoleName;
use centrifuge_core::message::{ManagerToOwner, OwnerToManager, RefusedReason};
use centrifuge_core::owner::{OwnerAction, OwnerConfig, OwnerEvent, OwnerMachine};
use centrifuge_core::random::Random;
use centrifuge_core::time::Instant;
use centrifuge_harness::http;
pub use centrifuge_harness::wait::{eventually, within};
use centrifuge_net::convert::write_session;
use centrifuge_net::credential;
use centrifuge_net::driver::{Driver, Host};
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::admin_client::AdminClient;
use centrifuge_net::proto::v1::lookup_client::LookupClient;
use centrifuge_net::proto::v1::owner_client::OwnerClient;
use centrifuge_server::store::Backend;
use centrifuge_server::{Config, Manager, RunningManager};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

/// Any free ports.
pub fn config() -> Config {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Config { grpc_listen: any, http_listen: any, ..Config::default() }
}

/// A Manager that leads, on a file in `folder`.
pub async fn start(folder: &Path, config: Config) -> RunningManager {
    let store = Backend::File(folder.join("centrifuge.db"));
    let manager = Manager::start(config, store).await.expect("it starts");
    within(manager.leads()).await;
    manager
}

/// Waits until one of them knows who leads and does not lead itself.
pub async fn stands_by(manager: &RunningManager, leader: &RunningManager) {
    let id = leader.id();
    let mut roles = manager.view().roles();
    within(roles.wait_for(|role| role.role == RoleName::Standby && role.leader.as_ref() == Some(&id)))
        .await
        .expect("it runs");
}

pub async fn shut_down(managers: impl IntoIterator<Item = RunningManager>) {
    for manager in managers {
        manager.shutdown().await;
    }
}

/// A connection of its own.
pub async fn channel(at: SocketAddr) -> Result<Channel, tonic::transport::Error> {
    // A small window, so that a reader that does not read holds its sender up soon.
    let endpoint = Endpoint::from_shared(format!("http://{at}"))?.initial_stream_window_size(1 << 14);
    endpoint.connect().await
}

pub async fn admin(at: SocketAddr) -> AdminClient<Channel> {
    AdminClient::new(channel(at).await.expect("connected"))
}

pub async fn lookup(at: SocketAddr) -> LookupClient<Channel> {
    LookupClient::new(channel(at).await.expect("connected"))
}

pub async fn owner(at: SocketAddr) -> OwnerClient<Channel> {
    OwnerClient::new(channel(at).await.expect("connected"))
}

/// Leases of a few seconds, so that tests need not wait.
pub fn short_leases() -> v1::Settings {
    v1::Settings {
        lease_ms: Some(6_000),
        hold_ms: Some(7_000),
        renewal_ms: Some(500),
        answer_allowance_ms: Some(1_000),
        heartbeat_ms: Some(200),
        ..v1::Settings::default()
    }
}

pub async fn create(at: SocketAddr, namespace: &str) {
    let request = v1::CreateNamespaceRequest {
        namespace: namespace.to_owned(),
        settings: Some(short_leases()),
        kind: None,
    };
    admin(at).await.create_namespace(request).await.expect("created");
}

/// The bytes of a backup that a running Manager takes.
pub async fn take_backup(at: SocketAddr) -> Result<Vec<u8>, tonic::Status> {
    let mut parts = within(admin(at).await.backup(v1::BackupRequest {})).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(reply) = within(parts.message()).await? {
        bytes.extend_from_slice(&reply.part);
    }
    Ok(bytes)
}

/// The first request of a new Lookup.
pub fn watch_request(namespace: &str, number: u8) -> v1::WatchRequest {
    v1::WatchRequest {
        namespace: namespace.to_owned(),
        lookup: vec![number; 16].into(),
        seq: 1,
        position: None,
        ..Default::default()
    }
}

/// The hello of somebody who means no good.
pub fn hostile_hello(namespace: &str, name: &str, change: impl FnOnce(&mut v1::Hello)) -> v1::OwnerMessage {
    let mut hello = v1::Hello {
        namespace: namespace.to_owned(),
        session: write_session(credential::session_of(&Secret([1; 32]))),
        secret: vec![1; 32].into(),
        version: 2,
        number: 1,
        name: name.to_owned(),
        ..v1::Hello::default()
    };
    change(&mut hello);
    v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Hello(hello)) }
}

/// Messages that no Owner would send, each with the field that a Manager blames.
pub fn absurd_messages(namespace: &str, name: &str) -> Vec<(&'static str, v1::OwnerMessage)> {
    let hello = |change: fn(&mut v1::Hello)| hostile_hello(namespace, name, change);
    let report = |change: fn(&mut v1::Report)| {
        let mut report = v1::Report {
            namespace: namespace.to_owned(),
            session: write_session(credential::session_of(&Secret([1; 32]))),
            conversation: vec![2; 16].into(),
            seq: 1,
            ..v1::Report::default()
        };
        change(&mut report);
        v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Report(report)) }
    };
    const HELD: v1::HeldLease =
        v1::HeldLease { first: 0, last: 9, generation: 1, state_since: 1, warrant: None };
    vec![
        ("kind", v1::OwnerMessage { kind: None }),
        ("hello.namespace", hello(|hello| hello.namespace = "No Label".into())),
        ("hello.session", hello(|hello| hello.session = vec![1; 15].into())),
        ("hello.url", hello(|hello| hello.url = "u".repeat(1 << 20))),
        ("report.seq", report(|report| report.seq = 0)),
        (
            "report.held[0].last",
            report(|report| report.held = vec![v1::HeldLease { first: 9, last: 3, ..HELD }]),
        ),
        ("hello.url", hello(|hello| hello.url = "http://a\n2026-11-17 INFO forged".into())),
        ("hello.name", hello(|hello| hello.name += "\u{202e}")),
        ("report.held[1]", report(|report| report.held = vec![HELD, HELD])),
        (
            "report.held[0].state_since",
            report(|report| report.held = vec![v1::HeldLease { state_since: 9, ..HELD }]),
        ),
        ("report.held", report(|report| report.held = vec![v1::HeldLease::default(); 200_000])),
    ]
}

/// A page of the Manager's HTTP port: its status line and its body.
pub async fn page(at: SocketAddr, path: &str) -> (String, String) {
    within(http::page(at, path)).await.expect("answered")
}

/// The value of a metric, by its name with labels; 0 if nothing was counted.
pub async fn metric(at: SocketAddr, name: &str) -> f64 {
    http::metric(&page(at, "/metrics").await.1, name).unwrap_or(0.0)
}

/// What an Owner is, after its latest step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    pub held: Vec<(KeyRange, Generation)>,
    pub granted: usize,
    pub revoked: usize,
    pub joined: usize,
    pub refused: Option<RefusedReason>,
}

impl Seen {
    pub fn holds_everything(&self) -> bool {
        self.held.iter().map(|(range, _)| range.key_count()).sum::<u128>() == KeyRange::ALL.key_count()
    }
}

/// When each Manager last answered for leases.
pub type Answered = Arc<Mutex<BTreeMap<ManagerId, std::time::Instant>>>;

/// An Owner that runs until it is dropped; then it is silent, as a crashed one.
pub struct TestOwner {
    pub seen: watch::Receiver<Seen>,
    pub answered: Answered,
    pub events: mpsc::Sender<OwnerEvent>,
    tasks: Vec<JoinHandle<()>>,
}

impl TestOwner {
    pub fn start(at: SocketAddr, namespace: &str, name: &str) -> TestOwner {
        TestOwner::start_among(&[at], namespace, name)
    }

    /// One that knows several Managers.
    pub fn start_among(managers: &[SocketAddr], namespace: &str, name: &str) -> TestOwner {
        let config = OwnerConfig {
            namespace: Namespace::new(namespace).expect("a label"),
            name: OwnerName::new(name).expect("a name"),
            url: Url::from(format!("http://{name}").as_str()),
            managers: managers.iter().map(|at| ManagerId::from(at.to_string().as_str())).collect(),
            takes_over_previous: false,
            weight: 100,
            load_dimension: Default::default(),
            migrates: false,
            credential: Some(credential::draw().expect("random bits")),
            expects: Default::default(),
        };
        let number = name.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte));
        let machine = OwnerMachine::new(config, Random::from_number(number));
        let (show, seen) = watch::channel(Seen::default());
        let (outgoing, to_send) = mpsc::channel(64);
        let (events, fed) = mpsc::channel(64);
        let host = OwnerHost { outgoing, show, events: events.clone() };
        let driver = Driver::new(machine, host, Duration::from_secs(1));
        let driving = tokio::spawn(async move {
            driver.run(fed).await;
        });
        let answered = Answered::default();
        let pumping = tokio::spawn(pump(to_send, events.clone(), Arc::clone(&answered)));
        events.try_send(OwnerEvent::Start).expect("room");
        TestOwner { seen, answered, events, tasks: vec![driving, pumping] }
    }

    pub async fn until(&mut self, is: impl FnMut(&Seen) -> bool) -> Seen {
        within(self.seen.wait_for(is)).await.expect("it runs").clone()
    }
}

impl Drop for TestOwner {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct OwnerHost {
    events: mpsc::Sender<OwnerEvent>,
    outgoing: mpsc::Sender<(ManagerId, OwnerToManager)>,
    show: watch::Sender<Seen>,
}

impl Host<OwnerMachine> for OwnerHost {
    fn perform(&mut self, action: OwnerAction) {
        match action {
            OwnerAction::ToManager { to, message } => drop(self.outgoing.try_send((to, message))),
            OwnerAction::Granted(grants) => self.show.send_modify(|seen| seen.granted += grants.len()),
            OwnerAction::Revoked(gone) => self.show.send_modify(|seen| seen.revoked += gone.len()),
            OwnerAction::JoinRefused(why) => self.show.send_modify(|seen| seen.refused = Some(why)),
            OwnerAction::Freeze { transfer, .. } => {
                drop(self.events.try_send(OwnerEvent::Quiesced(transfer)))
            }
            OwnerAction::Joined => self.show.send_modify(|seen| seen.joined += 1),
            _ => {}
        }
    }

    fn stepped(&mut self, _: Instant, machine: &OwnerMachine) {
        let held = machine.leases().iter().map(|(range, lease)| (range, lease.generation)).collect();
        self.show.send_modify(|seen| seen.held = held);
    }
}

/// Carries messages over one stream to each Manager; what cannot be sent is lost.
async fn pump(
    mut to_send: mpsc::Receiver<(ManagerId, OwnerToManager)>,
    events: mpsc::Sender<OwnerEvent>,
    answered: Answered,
) {
    let mut streams: BTreeMap<ManagerId, mpsc::Sender<v1::OwnerMessage>> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    while let Some((manager, message)) = to_send.recv().await {
        streams.retain(|_, stream| !stream.is_closed());
        let stream = streams.entry(manager.clone()).or_insert_with(|| {
            let (sender, messages) = mpsc::channel(64);
            tasks.spawn(converse(manager, messages, events.clone(), Arc::clone(&answered)));
            sender
        });
        drop(stream.try_send(v1::OwnerMessage::from(&message)));
    }
}

/// One stream, until it ends.
async fn converse(
    manager: ManagerId,
    messages: mpsc::Receiver<v1::OwnerMessage>,
    events: mpsc::Sender<OwnerEvent>,
    answered: Answered,
) {
    let at = manager.to_string().parse().expect("an address");
    let Ok(channel) = channel(at).await else { return };
    let Ok(session) = OwnerClient::new(channel).session(ReceiverStream::new(messages)).await else { return };
    let mut answers = session.into_inner();
    while let Ok(Some(message)) = answers.message().await {
        let message = ManagerToOwner::try_from(message).expect("a message");
        if matches!(message, ManagerToOwner::Assign(_)) {
            answered.lock().expect("no panic").insert(manager.clone(), std::time::Instant::now());
        }
        let event = OwnerEvent::FromManager { from: manager.clone(), message };
        if events.send(event).await.is_err() {
            return;
        }
    }
}
