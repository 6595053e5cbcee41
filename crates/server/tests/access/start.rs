//! What a Manager refuses to start with, in words that say what to do.

use std::time::{Duration, SystemTime};

use centrifuge_server::store::Backend;
use centrifuge_server::{Config, Manager};

use super::pki::{Pair, Pki, replace};
use super::{HOUR, config, policy};

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
