//! Who is known by a token: at a Manager inside TLS, and at one on the same machine.

use std::path::Path;
use std::time::{Duration, Instant};

use centrifuge::{Managers, Owner, Security};
use centrifuge_harness::Issuer;
use centrifuge_harness::http::page_by;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_server::Config;
use tonic::Code;

use super::pki::{Pki, replace};
use super::reload::{KEY, scrape, wait, watch};
use super::{HOUR, Secured, policy, token_settings};
use crate::support::{self, within};

const RULES: &str = "[[allow]]\nwho = [\"token:system:serviceaccount:chat:{name}\"]\nmay = [\"own\", \"lookup\"]\n\
                     namespaces = [\"pool\"]\nowner_names = [\"{name}\"]\n";
const SUBJECT: &str = "system:serviceaccount:chat:web";

fn shows(secured: &Secured, token: &Path) -> Security {
    Security { token_file: Some(token.to_owned()), ..secured.trusts() }
}

async fn join(secured: &Secured, token: &Path) -> Owner {
    let tls = secured.trusts().tls.expect("TLS");
    let managers = secured.managers(tls).token_file(token);
    let owner =
        Owner::builder(managers, "pool").name("web").url("http://owner").join().await.expect("joined");
    wait(async || owner.check_lease_now(KEY).is_ok()).await;
    owner
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_token_runs_out_goes_on_with_the_next_one() {
    let secured = Secured::start(RULES).await;
    secured.create("pool").await;
    let token = secured.token("web", SUBJECT, Duration::from_secs(4));
    let owner = join(&secured, &token).await;
    let lease = owner.check_lease_now(KEY).expect("held");
    let began = Instant::now();
    let watching = watch(&secured, &Dialer::secured(shows(&secured, &token))).await;
    let ended = within(watching).await.expect("no panic").expect("a status");
    secured.token("web", SUBJECT, HOUR);
    assert!(
        ended.code() == Code::Unauthenticated && ended.message().contains("its token has expired"),
        "{ended}"
    );
    // Twice the lease later it still holds what it had, without a gap.
    wait(async || began.elapsed() >= Duration::from_secs(16)).await;
    assert!(owner.check_lease_continuous(KEY, lease));
    secured.manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_replaced_ends_the_streams_of_its_tokens() {
    let secured = Secured::start(RULES).await;
    secured.create("pool").await;
    let token = secured.token("web", SUBJECT, HOUR);
    let owner = join(&secured, &token).await;
    let lease = owner.check_lease_now(KEY).expect("held");
    let watching = watch(&secured, &Dialer::secured(shows(&secured, &token))).await;
    // Keys that cannot be used change nothing; then both count; then the new one alone.
    let (keys, next) = (secured.pki.path("keys.json"), Issuer::ed25519("second"));
    replace(&keys, "{\"keys\": [");
    wait(async || scrape(&secured).await.contains("centrifuge_reloads_refused_total{file=\"token_keys\"}"))
        .await;
    replace(&keys, &Issuer::key_set(&[&secured.issuer, &next]));
    let newer = secured.token_of(&next, "newer", SUBJECT, HOUR);
    let client = Dialer::secured(shows(&secured, &newer)).lookup(&secured.id()).expect("an address");
    let request = v1::WatchRequest {
        namespace: "pool".into(),
        lookup: vec![2; 16].into(),
        seq: 1,
        ..Default::default()
    };
    wait(async || client.clone().watch(request.clone()).await.is_ok()).await;
    std::fs::copy(&newer, &token).expect("copied");
    replace(&keys, &Issuer::key_set(&[&next]));
    let ended = within(watching).await.expect("no panic").expect("a status");
    assert!(
        ended.code() == Code::Unauthenticated && ended.message().contains("no longer its issuer's"),
        "{ended}"
    );
    let later = Instant::now() + Duration::from_secs(12);
    wait(async || Instant::now() >= later).await;
    assert!(owner.check_lease_continuous(KEY, lease), "it came back with the new token inside its lease");
    secured.manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_is_refused_in_words_on_both_ports() {
    let secured = Secured::start(RULES).await;
    let token = secured.pki.path("bad.jwt");
    replace(&token, "secret.secret.secret");
    let security = shows(&secured, &token);
    let mut admin = Dialer::secured(security.clone()).admin(&secured.id()).expect("an address");
    let refused = admin.status(v1::StatusRequest {}).await.expect_err("refused");
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(refused.message().contains("the token proves nothing: its header cannot be used"), "{refused}");
    let page = page_by(&security, secured.manager.http_addr(), "/status").await.expect("a page");
    assert!(page.0.starts_with("HTTP/1.1 401") && page.1.contains("the token proves nothing"), "{page:?}");
    assert!(!page.1.contains("secret") && !refused.message().contains("secret"), "{page:?}{refused}");
    secured.manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_one_machine_a_token_counts_without_tls() {
    let (pki, issuer) = (Pki::new(), Issuer::new("first"));
    replace(&pki.path("keys.json"), &Issuer::key_set(&[&issuer]));
    replace(
        &pki.policy(),
        &policy("[[allow]]\nwho = [\"token:alice\"]\nmay = [\"view\"]\nnamespaces = [\"*\"]\n"),
    );
    let store = tempfile::tempdir().expect("a folder");
    let config =
        Config { policy: Some(pki.policy()), tokens: Some(token_settings(&pki)), ..support::config() };
    let manager = support::start(store.path(), config).await;
    let claims = serde_json::json!({
        "iss": "https://issuer.example", "aud": "centrifuge", "sub": "alice", "exp": 4_102_444_800_u64
    });
    let token = pki.path("alice.jwt");
    replace(&token, &issuer.sign(&claims));
    let status = async |security: Security| {
        let mut admin = Dialer::secured(security).admin(&manager.id()).expect("an address");
        admin.status(v1::StatusRequest {}).await.map(drop).map_err(|status| status.code())
    };
    assert_eq!(status(Security { tls: None, token_file: Some(token) }).await, Ok(()));
    assert_eq!(status(Security::default()).await, Err(Code::Unauthenticated));
    let missing =
        Managers::list([manager.id().as_str()]).expect("an address").token_file(pki.path("none.jwt"));
    let refused = Owner::builder(missing, "pool").name("web").url("http://owner").join().await;
    let refused = refused.expect_err("no token").to_string();
    assert!(refused.contains("none.jwt: cannot be read"), "{refused}");
    manager.shutdown().await;
}
