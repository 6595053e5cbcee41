//! A hostile client with one valid identity: whatever it does, nothing changes for anyone else.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use centrifuge::{Owner, Tls};
use centrifuge_core::id::ManagerId;
use centrifuge_net::convert::write_session;
use centrifuge_net::credential;
use centrifuge_net::dial::{Dialer, Security};
use centrifuge_net::proto::v1;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::calls::ask;
use super::matrix::{Needs, methods, request};
use super::reload::{KEY, wait};
use super::{HOUR, Secured};
use crate::support::{absurd_messages, hostile_hello, within};

const RULES: &str = "[[allow]]\nwho = [\"spiffe://test/hostile\"]\nmay = [\"own\"]\nnamespaces = [\"pool\"]\n\
                     owner_names = [\"a-*\"]\n\
                     [[allow]]\nwho = [\"spiffe://test/victim\"]\nmay = [\"own\"]\n\
                     namespaces = [\"pool\", \"other\"]\nowner_names = [\"victim\"]\n";

/// A session that is spoken by hand, so that what it says is known.
struct Session {
    sender: mpsc::Sender<v1::OwnerMessage>,
    replies: Streaming<v1::ManagerMessage>,
    report: v1::Report,
    /// What was said, in order.
    said: Vec<v1::OwnerMessage>,
}

impl Session {
    /// Joins, and reports until it has every key.
    async fn join(dialer: &Dialer, manager: &ManagerId, name: &str) -> Session {
        let credential = credential::draw().expect("random bits");
        let hello = hostile_hello("pool", name, |hello| {
            hello.session = write_session(credential.session);
            hello.secret = credential.secret.0.to_vec().into();
        });
        let (sender, messages) = mpsc::channel(16);
        sender.send(hello.clone()).await.expect("room");
        let mut client = dialer.owner(manager).expect("an address");
        let replies = client.session(ReceiverStream::new(messages)).await.expect("a session").into_inner();
        let report = v1::Report {
            namespace: "pool".into(),
            session: write_session(credential.session),
            weight: 100,
            ..v1::Report::default()
        };
        let mut session = Session { sender, replies, report, said: vec![hello] };
        let v1::manager_message::Kind::Welcome(welcome) = session.next().await else { panic!("not welcome") };
        session.report.conversation = welcome.conversation;
        while session.report.held.is_empty() {
            session.renew().await;
        }
        session
    }

    async fn next(&mut self) -> v1::manager_message::Kind {
        within(self.replies.message()).await.expect("a stream").expect("a message").kind.expect("a kind")
    }

    /// Reports what it holds until that is answered, and takes what it is given.
    async fn renew(&mut self) {
        self.report.seq += 1;
        let message = v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Report(self.report.clone())) };
        self.said.push(message.clone());
        self.sender.send(message).await.expect("room");
        let v1::manager_message::Kind::Assign(assign) = self.next().await else { panic!("no assignment") };
        (self.report.heard, self.report.applied) = (assign.seq, assign.seq);
        let lease = |order: &v1::LeaseOrder| {
            let (first, last, generation) = (order.first, order.last, order.generation);
            v1::HeldLease { first, last, generation, state_since: order.state_since, warrant: None }
        };
        self.report.held = assign.orders.iter().map(lease).collect();
    }
}

/// Says these things on a stream of its own, and waits for how it ends.
async fn say(dialer: &Dialer, manager: &ManagerId, messages: Vec<v1::OwnerMessage>) -> Option<Status> {
    let (sender, stream) = mpsc::channel(messages.len().max(1));
    for message in messages {
        sender.try_send(message).expect("room");
    }
    drop(sender);
    let mut client = dialer.owner(manager).expect("an address");
    let mut replies = match client.session(ReceiverStream::new(stream)).await {
        Ok(session) => session.into_inner(),
        Err(status) => return Some(status),
    };
    loop {
        match within(replies.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => return None,
            Err(status) => return Some(status),
        }
    }
}

/// Everything there is to see of the two namespaces.
async fn seen(secured: &Secured) -> Vec<String> {
    let mut admin = secured.dialer(secured.pki.tls(&secured.root)).admin(&secured.id()).expect("an address");
    let mut seen = Vec::new();
    for namespace in ["pool", "other"] {
        let leases = v1::ListLeasesRequest { namespace: namespace.into(), ..Default::default() };
        let leases = admin.list_leases(leases).await.expect("leases").into_inner();
        let history = v1::HistoryRequest { namespace: Some(namespace.into()), ..Default::default() };
        let history = admin.history(history).await.expect("a history").into_inner();
        seen.push(format!("{:?}", leases.leases));
        seen.push(format!("{:?}", history.decisions));
    }
    seen
}

/// What the network heard of a client, and whether it changes what passes.
#[derive(Clone, Default)]
struct Network {
    heard: Arc<Mutex<Vec<u8>>>,
    meddles: Arc<AtomicBool>,
}

/// Passes bytes on to a Manager, as the network does.
async fn pass_on(to: SocketAddr) -> (ManagerId, Network) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let (id, network) = (ManagerId::from(format!("localhost:{}", at.port()).as_str()), Network::default());
    let between = network.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let manager = TcpStream::connect(to).await.expect("connected");
            let ((mut from_client, mut to_client), (mut from_manager, mut to_manager)) =
                (client.into_split(), manager.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut from_manager, &mut to_client).await });
            let between = between.clone();
            tokio::spawn(async move {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
                    bytes[read - 1] ^= u8::from(between.meddles.load(Ordering::Relaxed));
                    between.heard.lock().expect("not poisoned").extend_from_slice(&bytes[..read]);
                    if to_manager.write_all(&bytes[..read]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (id, network)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_changes_for_anyone_else() {
    let secured = Secured::start(RULES).await;
    secured.create("pool").await;
    secured.create("other").await;
    let victim = secured.pki.tls(&secured.pki.issue("victim", "spiffe://test/victim", HOUR));
    let hostile = secured.pki.tls(&secured.pki.issue("hostile", "spiffe://test/hostile", HOUR));
    let (through, network) = pass_on(secured.manager.grpc_addr()).await;
    let mut session = Session::join(&secured.dialer(victim.clone()), &through, "victim").await;
    let elsewhere = Owner::builder(secured.managers(victim), "other").name("victim").url("http://victim");
    let elsewhere = elsewhere.join().await.expect("joined");
    wait(async || elsewhere.check_lease_now(KEY).is_ok()).await;
    let lease = elsewhere.check_lease_now(KEY).expect("held");
    session.renew().await;
    let (held, before) = (session.report.held.clone(), seen(&secured).await);
    let (dialer, id) = (secured.dialer(hostile.clone()), secured.id());

    for (field, message) in absurd_messages("pool", "a-1") {
        let status = say(&dialer, &id, vec![message]).await.expect("a bad end");
        let is_refused = status.code() == Code::InvalidArgument && status.message().contains(field);
        assert!(is_refused || status.code() == Code::PermissionDenied, "{field}: {status}");
    }
    let large = hostile_hello("pool", "a-1", |hello| hello.url = "u".repeat(100 << 20));
    assert!(say(&dialer, &id, vec![large]).await.is_some());
    for (namespace, name) in
        [("pool", "victim"), ("other", "victim"), ("other", "a-1"), ("nowhere", "a-1"), ("pool", "b")]
    {
        let status = say(&dialer, &id, vec![hostile_hello(namespace, name, |_| ())]).await.expect("denied");
        assert_eq!(status.code(), Code::PermissionDenied, "{namespace} {name}: {status}");
    }
    // The very messages of the victim, with its secret, which no one can have read.
    let status = say(&dialer, &id, session.said.clone()).await.expect("denied");
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    // Its reports alone, behind a hello of one's own; the last gives everything back.
    let mut gives_back = session.report.clone();
    (gives_back.seq, gives_back.held) = (99, Vec::new());
    let mut messages = vec![hostile_hello("pool", "a-1", |_| ())];
    messages.extend(session.said[1..].iter().cloned());
    messages.push(v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Report(gives_back)) });
    assert!(say(&dialer, &id, messages).await.is_none(), "it is told that the session is unknown");
    // What crossed the network, once more.
    let bytes = network.heard.lock().expect("not poisoned").clone();
    let mut again = TcpStream::connect(secured.manager.grpc_addr()).await.expect("connected");
    let _ = again.write_all(&bytes).await;
    let mut answer = Vec::new();
    let _ = within(again.read_to_end(&mut answer)).await;
    // Noise inside TLS, and a flood of hellos under its own names.
    noise(&hostile, secured.manager.grpc_addr()).await;
    let flood =
        (1..2_000).map(|number| hostile_hello("pool", &format!("a-{number}"), |hello| hello.number = number));
    let flooding = tokio::spawn({
        let (dialer, id, flood) =
            (Dialer::secured(Security { tls: Some(hostile), token_file: None }), id, flood.collect());
        async move { say(&dialer, &id, flood).await }
    });

    for _ in 0..3 {
        session.renew().await;
    }
    flooding.abort();
    assert_eq!(session.report.held, held, "the victim holds what it held");
    assert!(elsewhere.check_lease_continuous(KEY, lease));
    assert_eq!(seen(&secured).await, before, "and nobody decided anything");
    secured.manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_can_neither_read_nor_change_what_passes() {
    let secured = Secured::start("").await;
    let (through, network) = pass_on(secured.manager.grpc_addr()).await;
    let mut admin = secured.dialer(secured.pki.tls(&secured.root)).admin(&through).expect("an address");
    let settings = None;
    let request =
        v1::CreateNamespaceRequest { namespace: "a-long-name-to-look-for".into(), settings, kind: None };
    admin.create_namespace(request).await.expect("created");
    let heard = network.heard.lock().expect("not poisoned").clone();
    for word in ["a-long-name", "CreateNamespace", "spiffe"] {
        assert!(!heard.windows(word.len()).any(|bytes| bytes == word.as_bytes()), "{word} can be read");
    }
    network.meddles.store(true, Ordering::Relaxed);
    let request = v1::DeleteNamespaceRequest { namespace: "a-long-name-to-look-for".into() };
    within(admin.delete_namespace(request)).await.expect_err("a changed message is none");
    network.meddles.store(false, Ordering::Relaxed);
    let listed = admin.list_namespaces(v1::ListNamespacesRequest::default()).await.expect("a list");
    assert_eq!(listed.into_inner().namespaces.len(), 1, "nothing was deleted");
    secured.manager.shutdown().await;
}

async fn noise(tls: &Tls, at: SocketAddr) {
    let mut stream = tls.connect("localhost", at.port()).await.expect("a connection");
    let _ = stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let _ = stream.write_all(&[0xff; 4096]).await;
    let _ = within(stream.read_to_end(&mut Vec::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forbidden_and_what_does_not_exist_look_alike() {
    let rules = "[[allow]]\nwho = [\"spiffe://test/view\"]\nmay = [\"own\", \"lookup\", \"view\", \"operate\", \
                 \"administer\"]\nnamespaces = [\"mine\"]\nowner_names = [\"a-*\"]\n";
    let secured = Secured::start(rules).await;
    for namespace in ["mine", "there-42"] {
        secured.create(namespace).await;
    }
    let pair = secured.pki.issue("view", "spiffe://test/view", HOUR);
    let dialer = secured.dialer(secured.pki.tls(&pair));
    let answer = async |path: &str, namespace: &str| {
        let (message, needs) = request(path, namespace);
        let answer = ask(&dialer, &secured.id(), path, message).await;
        let words =
            answer.map_err(|status| (status.code(), status.message().replace(namespace, "NAMESPACE")));
        (needs, words)
    };
    let mut compared = 0;
    for path in methods() {
        let (needs, there) = answer(&path, "there-42").await;
        let (_, gone) = answer(&path, "gone-42").await;
        if let Needs::In(_) = needs {
            assert!(there.is_err(), "{path}");
            assert_eq!(there, gone, "{path}");
            compared += 1;
        }
    }
    assert!(compared > 12, "{compared}");
    // Lists show what their reader may see.
    let mut admin = dialer.admin(&secured.id()).expect("an address");
    let listed =
        admin.list_namespaces(v1::ListNamespacesRequest::default()).await.expect("a list").into_inner();
    let names: Vec<&str> = listed.namespaces.iter().map(|space| space.name.as_str()).collect();
    assert_eq!(names, ["mine"]);
    let told = admin.history(v1::HistoryRequest::default()).await.expect("a history").into_inner();
    assert!(!told.decisions.is_empty());
    assert!(told.decisions.iter().all(|decision| decision.namespace.as_deref() == Some("mine")), "{told:?}");
    secured.manager.shutdown().await;
}
