//! Who did what, and who was not let, in the log.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use centrifuge::Security;
use centrifuge_harness::http::secure_page;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use serde_json::Value;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::reload::scrape;
use super::{HOUR, Secured};

/// Everything that this process has logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

impl Lines {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8(bytes.clone()).expect("text")
    }

    /// The audit lines about somebody.
    fn of(&self, who: &str) -> Vec<Value> {
        let lines = self.text();
        let lines = lines.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let is_it = |line: &Value| line["target"] == "centrifuge::audit" && line["fields"]["who"] == who;
        lines.filter(is_it).map(|line| line["fields"].clone()).collect()
    }
}

const RULES: &str =
    "[[allow]]\nwho = [\"spiffe://test/auditor\"]\nmay = [\"operate\", \"view\"]\nnamespaces = [\"pool\"]\n";
const WHO: &str = "spiffe://test/auditor";

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_denials_are_lines_and_a_flood_of_them_is_counted() {
    let lines = Lines::default();
    let filter = EnvFilter::new("trace,h2=info,hyper=info,tower=info");
    tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(lines.clone()).init();
    let secured = Secured::start(RULES).await;
    secured.create("pool").await;
    let pair = secured.pki.issue("auditor", WHO, HOUR);
    let token = secured.token("token", "stranger", HOUR);
    let mut admin = secured.dialer(secured.pki.tls(&pair)).admin(&secured.id()).expect("an address");

    let freeze = |namespace: &str| v1::FreezeRequest { namespace: namespace.into(), why: "a test".into() };
    admin.freeze(freeze("pool")).await.expect("done");
    let evict = v1::EvictRequest { namespace: "pool".into(), owner: "a".into(), why: String::new() };
    admin.evict(evict).await.expect_err("denied");
    let drain = v1::DrainRequest { namespace: "pool".into(), owner: "nobody".into(), why: String::new() };
    admin.drain(drain).await.expect_err("there is no such Owner");
    let told = lines.of(WHO);
    let summary: Vec<_> = told
        .iter()
        .map(|line| ["what", "namespace", "message"].map(|name| line[name].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        summary,
        [["freeze", "pool", "done"], ["administer", "", "denied"], ["drain", "pool", "not done"]],
        "{told:?}"
    );
    assert!(told.iter().all(|line| line["from"].as_str().is_some_and(|from| from.starts_with("127.0.0.1:"))));
    let history = v1::HistoryRequest { namespace: Some("pool".into()), ..Default::default() };
    let history = admin.history(history).await.expect("a history").into_inner();
    assert!(format!("{history:?}").contains("a test (by spiffe://test/auditor)"), "{history:?}");

    // A flood of denials has a bounded number of lines, which say how many are missing.
    for _ in 0..300 {
        admin.freeze(freeze("other")).await.expect_err("denied");
    }
    let denied = |line: &&Value| line["message"] == "denied" && line["namespace"] == "other";
    let written = lines.of(WHO).iter().filter(denied).count();
    assert!((10..250).contains(&written), "{written}");
    let counted = "centrifuge_denied_total{permission=\"operate\"} 300";
    assert!(scrape(&secured).await.contains(counted), "all are counted");

    // Nothing secret was written by anybody, at any level, nor is any to be seen elsewhere.
    let shows = Security { token_file: Some(token.clone()), tls: Some(secured.pki.tls(&pair)) };
    Dialer::secured(shows.clone())
        .admin(&secured.id())
        .expect("an address")
        .status(v1::StatusRequest {})
        .await
        .ok();
    shows.check().expect("files that can be used");
    let root = secured.pki.tls(&secured.root);
    let status = secure_page(&root, secured.manager.http_addr(), "/status").await.expect("a page").1;
    let debug = format!("{shows:?} {:?} {:?}", secured.manager, admin);
    let text = [lines.text(), scrape(&secured).await, status, debug].concat();
    let key = std::fs::read_to_string(&pair.key).expect("a key");
    assert!(!text.contains("45, 45, 45, 45, 45, 66, 69, 71, 73, 78"), "a PEM file is shown as numbers");
    for secret in
        [std::fs::read_to_string(token).expect("a token"), key.lines().nth(1).expect("a line").to_owned()]
    {
        assert!(!text.contains(secret.trim()), "a secret is shown");
    }
    secured.manager.shutdown().await;
}
