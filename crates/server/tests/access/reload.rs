//! Files that change while a Manager runs: nothing is lost that should stay, and nothing stays that should go.

use std::sync::Arc;
use std::time::Duration;

use centrifuge::{Key, Owner};
use centrifuge_harness::http::secure_page;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::tls::{FileContents, provider, read_roots};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tonic::{Code, Status};

use super::pki::replace;
use super::{HOUR, Secured, policy};
use crate::support::within;

pub(crate) const OWNS: &str = "[[allow]]\nwho = [\"spiffe://test/pool/{name}\"]\nmay = [\"own\", \"lookup\"]\n\
                    namespaces = [\"pool\"]\nowner_names = [\"{name}\"]\n";
pub(crate) const KEY: Key = Key(42);

async fn join(secured: &Secured, tls: centrifuge::Tls, name: &str) -> Owner {
    let owner = Owner::builder(secured.managers(tls), "pool").name(name).url("http://owner").join().await;
    let owner = owner.expect("joined");
    wait(async || owner.check_lease_now(KEY).is_ok()).await;
    owner
}

/// Begins a watch, which goes on until the stream is ended, by a status or without.
pub(crate) async fn watch(secured: &Secured, dialer: &Dialer) -> JoinHandle<Option<Status>> {
    let mut client = dialer.lookup(&secured.id()).expect("an address");
    let lookup = vec![1; 16].into();
    let request = v1::WatchRequest { namespace: "pool".into(), lookup, seq: 1, ..Default::default() };
    let mut replies = client.watch(request).await.expect("a watch").into_inner();
    tokio::spawn(async move {
        loop {
            match replies.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_certificate_of_the_manager_costs_no_lease_and_a_broken_one_changes_nothing() {
    let secured = Secured::start(OWNS).await;
    secured.create("pool").await;
    let pair = secured.pki.issue("a", "spiffe://test/pool/a", HOUR);
    let owner = join(&secured, secured.pki.tls(&pair), "a").await;
    let lease = owner.check_lease_now(KEY).expect("held");
    // Half a file, then a key that fits no certificate: the old pair stays, and is counted.
    let text = std::fs::read_to_string(secured.pki.path("manager.pem")).expect("read");
    replace(&secured.pki.path("manager.pem"), &text[..text.len() / 2]);
    wait(async || scrape(&secured).await.contains("centrifuge_reloads_refused_total{file=\"tls\"}")).await;
    assert!(status(&secured).await.is_ok(), "new connections are made with the old pair");
    let before = shown(&secured).await;
    let serial = secured.pki.issue("manager", "localhost", HOUR).serial;
    wait(async || shown(&secured).await != before).await;
    assert!(serial > 0 && status(&secured).await.is_ok());
    assert!(owner.check_lease_continuous(KEY, lease), "no lease was lost");
    secured.manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_ends_its_streams_and_its_leases_run_out_as_usual() {
    let secured = Secured::start(OWNS).await;
    secured.create("pool").await;
    let pair = secured.pki.issue("a", "spiffe://test/pool/a", HOUR);
    let owner = join(&secured, secured.pki.tls(&pair), "a").await;
    let watching = watch(&secured, &secured.dialer(secured.pki.tls(&pair))).await;
    secured.pki.revoke(&[&pair]);
    within(watching).await.expect("the watch ends");
    // Nobody else gets the key before the hold is over, though its owner cannot come back.
    assert!(owner.check_lease_now(KEY).is_ok(), "its lease runs on");
    wait(async || owner.check_lease_now(KEY).is_err()).await;
    drop(owner);
    let again = Owner::builder(secured.managers(secured.pki.tls(&pair)), "pool")
        .name("a")
        .url("http://owner")
        .join_timeout(Duration::from_secs(2));
    let refused = again.join().await.expect_err("revoked").to_string();
    assert!(refused.contains("the last problem was at"), "{refused}");
    secured.manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_certificate_runs_out_comes_back_with_the_new_one_inside_its_lease() {
    let secured = Secured::start(OWNS).await;
    secured.create("pool").await;
    let pair = secured.pki.issue("a", "spiffe://test/pool/a", Duration::from_secs(4));
    let owner = join(&secured, secured.pki.tls(&pair), "a").await;
    let lease = owner.check_lease_now(KEY).expect("held");
    let watching = watch(&secured, &secured.dialer(secured.pki.tls(&pair))).await;
    secured.pki.issue("a", "spiffe://test/pool/a", HOUR);
    let ended = within(watching).await.expect("no panic").expect("a status");
    assert!(ended.code() == Code::Unauthenticated && ended.message().contains("expired"), "{ended}");
    // Twice the lease later it still holds what it had, without a gap.
    let until = std::time::Instant::now() + Duration::from_secs(12);
    wait(async || std::time::Instant::now() >= until).await;
    assert!(owner.check_lease_continuous(KEY, lease));
    secured.manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_that_is_taken_away_ends_the_streams_that_it_carried() {
    let secured = Secured::start(OWNS).await;
    secured.create("pool").await;
    let pair = secured.pki.issue("a", "spiffe://test/pool/a", HOUR);
    let owner = join(&secured, secured.pki.tls(&pair), "a").await;
    let lease = owner.check_lease_now(KEY).expect("held");
    let watching = watch(&secured, &secured.dialer(secured.pki.tls(&pair))).await;
    // A policy that cannot be read changes nothing; then one that allows less.
    replace(&secured.pki.policy(), "[[allow]]\nwho = 7\n");
    wait(async || scrape(&secured).await.contains("centrifuge_reloads_refused_total{file=\"policy\"}")).await;
    replace(&secured.pki.policy(), &policy(&OWNS.replace(", \"lookup\"", "")));
    let ended = within(watching).await.expect("no panic").expect("a status");
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
    assert!(owner.check_lease_continuous(KEY, lease), "what is still allowed goes on");
    replace(&secured.pki.policy(), &policy(""));
    wait(async || owner.check_lease_now(KEY).is_err()).await;
    replace(&secured.pki.policy(), &policy(OWNS));
    wait(async || owner.check_lease_now(KEY).is_ok()).await;
    secured.manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_valid_identity_changes_nothing_for_anyone_else() {
    let secured = Secured::start(OWNS).await;
    secured.create("pool").await;
    secured.create("other").await;
    let (a, b) = (
        secured.pki.issue("a", "spiffe://test/pool/a", HOUR),
        secured.pki.issue("b", "spiffe://test/pool/b", HOUR),
    );
    let owner = join(&secured, secured.pki.tls(&a), "a").await;
    let lease = owner.check_lease_now(KEY).expect("held");
    for (namespace, name) in [("pool", "a"), ("other", "b"), ("nowhere", "b"), ("pool", "b-2")] {
        let hostile = Owner::builder(secured.managers(secured.pki.tls(&b)), namespace)
            .name(name)
            .url("http://hostile")
            .takes_over_previous(true)
            .join_timeout(Duration::from_secs(1));
        let refused = hostile.join().await.expect_err("denied").to_string();
        assert!(refused.contains("does not have the permission `own`"), "{namespace} {name}: {refused}");
    }
    assert!(owner.check_lease_continuous(KEY, lease));
    secured.manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_versions_of_tls_are_spoken_and_the_days_that_a_certificate_has_left_are_counted() {
    let secured = Secured::start("").await;
    let ca = FileContents::read(&secured.pki.ca()).expect("read");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(read_roots(&ca).expect("authorities"))
            .with_no_client_auth();
        for address in [secured.manager.http_addr(), secured.manager.grpc_addr()] {
            let stream = TcpStream::connect(address).await.expect("connected");
            let connector = TlsConnector::from(Arc::new(config.clone()));
            let stream = connector.connect(address.ip().into(), stream).await.expect("a handshake");
            assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
        }
    }
    // An hour is no day; then it has forty.
    wait(async || scrape(&secured).await.contains("centrifuge_tls_days_to_expiry 0")).await;
    secured.pki.issue("manager", "localhost", HOUR * 24 * 40 + HOUR);
    wait(async || scrape(&secured).await.contains("centrifuge_tls_days_to_expiry 40")).await;
    secured.manager.shutdown().await;
}

async fn status(secured: &Secured) -> Result<(), Status> {
    let dialer = secured.dialer(secured.pki.tls(&secured.root));
    let mut admin = dialer.admin(&secured.id()).expect("an address");
    admin.status(v1::StatusRequest {}).await.map(|_| ())
}

/// The certificate that a new connection is shown.
async fn shown(secured: &Secured) -> Vec<u8> {
    let tls = secured.pki.tls(&secured.root);
    let address = secured.manager.grpc_addr();
    let stream = tls.connect("localhost", address.port()).await.expect("a connection");
    let (_, session) = stream.get_ref();
    session.peer_certificates().and_then(|chain| chain.first()).expect("a certificate").to_vec()
}

pub(crate) async fn scrape(secured: &Secured) -> String {
    let tls = secured.pki.tls(&secured.root);
    secure_page(&tls, secured.manager.http_addr(), "/metrics").await.unwrap_or_default().1
}

/// Waits for something that takes a request to be seen.
pub(crate) async fn wait(holds: impl AsyncFn() -> bool) {
    let seen = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(seen).await;
}
