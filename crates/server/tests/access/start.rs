//! What a Manager refuses to start with, in words that say what to do.

use std::time::{Duration, SystemTime};

use centrifuge::{Security, Tls};
use centrifuge_core::id::ManagerId;
use centrifuge_harness::Issuer;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_server::store::Backend;
use centrifuge_server::{Config, Manager, RunningManager};

use super::pki::{Pair, Pki, replace};
use super::{HOUR, config, policy};
use crate::support;

async fn refusal(config: Config, folder: &std::path::Path) -> String {
    let store = Backend::File(folder.join("centrifuge.db"));
    Manager::start(config, store).await.expect_err("refused").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_cannot_be_used_are_named_with_what_to_do() {
    let pki = Pki::new();
    replace(&pki.policy(), &policy(""));
    let now = SystemTime::now();
    let good = pki.issue("manager", "localhost", HOUR);
    let other = pki.issue("other", "localhost", HOUR);
    let expired = pki.issue_between("expired", "localhost", now - HOUR, now - Duration::from_secs(60));
    let early = pki.issue_between("early", "localhost", now + HOUR, now + HOUR * 2);
    let whole = std::fs::read_to_string(&good.cert).expect("read");
    let half = pki.path("half.pem");
    replace(&half, &whole[..whole.len() / 2]);
    let empty = pki.path("empty.pem");
    replace(&empty, "nothing\n");
    let pair = |cert: &Pair, key: &Pair| {
        config(&pki, &Pair { cert: cert.cert.clone(), key: key.key.clone(), serial: 0 })
    };
    let with = |change: fn(&mut centrifuge_server::TlsFiles, std::path::PathBuf), path: &std::path::Path| {
        let mut config = config(&pki, &good);
        change(config.tls.as_mut().expect("TLS"), path.to_owned());
        config
    };
    let nowhere = pki.path("nowhere.pem");
    let cases = [
        (pair(&good, &other), "other.key: is not the key of the first certificate in"),
        (pair(&expired, &expired), "expired.pem: its first certificate has expired"),
        (pair(&early, &early), "early.pem: its first certificate is not valid yet"),
        (
            with(|files, path| files.cert = path, &half),
            "half.pem: is broken in the section that begins at line 1",
        ),
        (with(|files, path| files.cert = path, &empty), "empty.pem: has no certificate"),
        (with(|files, path| files.key = path, &empty), "empty.pem: has no private key"),
        (with(|files, path| files.client_ca = Some(path), &nowhere), "nowhere.pem: cannot be read"),
        (with(|files, path| files.crl = Some(path), &empty), "empty.pem: has no revocation list"),
    ];
    for (config, words) in cases {
        let said = refusal(config, pki.folder()).await;
        assert!(said.starts_with("tls: ") && said.contains(words), "{said}\nshould say {words}");
    }
    replace(&pki.policy(), "[[allow]]\nwho = ['x']\nmay = ['fly']\nnamespaces = ['*']\n");
    let said = refusal(config(&pki, &good), pki.folder()).await;
    assert!(said.contains("policy.toml:3: `fly` is no permission"), "{said}");
}

/// Why nobody gets through to a Manager at this host.
async fn problem(manager: &RunningManager, host: &str, security: &Security) -> String {
    let id = ManagerId::from(format!("{host}:{}", manager.grpc_addr().port()).as_str());
    let mut admin = Dialer::secured(security.clone()).admin(&id).expect("an address");
    security.explain(&admin.status(v1::StatusRequest {}).await.expect_err("no connection"))
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_say_why_no_connection_comes_about() {
    let (pki, others) = (Pki::new(), Pki::new());
    replace(&pki.policy(), &policy(""));
    replace(&pki.path("keys.json"), &Issuer::key_set(&[&Issuer::new("a")]));
    let shown = pki.issue("manager", "manager.example", HOUR);
    let (ours, foreign) =
        (pki.issue("us", "spiffe://test/us", HOUR), others.issue("them", "spiffe://test/root", HOUR));
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let secured = support::start(folders[0].path(), config(&pki, &shown)).await;
    let plain = support::start(folders[1].path(), support::config()).await;
    let by = |tls: Tls| Security { tls: Some(tls), token_file: None };
    let foreign = Tls::files(pki.ca(), &foreign.cert, &foreign.key);
    let cases = [
        (&secured, "127.0.0.1", Security::default(), "if it speaks TLS, say which CA to trust"),
        (&secured, "127.0.0.1", by(Tls::trusting(others.ca())), "its certificate is of no authority in"),
        (&secured, "localhost", by(pki.tls(&ours)), "its certificate is not for localhost"),
        (&secured, "127.0.0.1", by(foreign), "it may not accept the certificate that it was shown"),
        (&plain, "127.0.0.1", by(pki.tls(&ours)), "TLS"),
    ];
    for (manager, host, security, words) in cases {
        let said = problem(manager, host, &security).await;
        assert!(said.contains(words), "{said}\nshould say {words}");
    }
    support::shut_down([secured, plain]).await;
}
