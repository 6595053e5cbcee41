//! Nobody in who doesn't belong: TLS, identities and permissions at a real Manager.

#[path = "../support/mod.rs"]
#[allow(unused_imports)]
mod support;

mod audit;
mod calls;
mod hostile;
mod matrix;
mod pki;
mod reload;
mod start;
mod tokens;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use centrifuge::{Managers, Security, Tls};
use centrifuge_core::id::ManagerId;
use centrifuge_harness::Issuer;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_server::access::{TokenAlgorithm, TokenSettings};
use centrifuge_server::{Config, RunningManager, TlsFiles};
use serde_json::json;

use pki::{Pair, Pki};

const HOUR: Duration = Duration::from_secs(3600);

/// A Manager inside TLS, and an operator who may do everything.
struct Secured {
    pki: Pki,
    manager: RunningManager,
    root: Pair,
    issuer: Issuer,
    _store: tempfile::TempDir,
}

/// Everything for the operator, and these rules.
fn policy(rules: &str) -> String {
    format!(
        "[[allow]]\nwho = [\"spiffe://test/root\"]\nmay = [\"own\", \"lookup\", \"view\", \"operate\", \"administer\", \
         \"metrics\"]\nnamespaces = [\"*\"]\nowner_names = [\"*\"]\n{rules}"
    )
}

fn config(pki: &Pki, server: &Pair) -> Config {
    Config {
        tls: Some(TlsFiles {
            cert: server.cert.clone(),
            key: server.key.clone(),
            client_ca: Some(pki.ca()),
            crl: Some(pki.crl()),
        }),
        policy: Some(pki.policy()),
        tokens: Some(token_settings(pki)),
        ..support::config()
    }
}

/// Which tokens count.
fn token_settings(pki: &Pki) -> TokenSettings {
    TokenSettings {
        keys: pki.path("keys.json"),
        issuer: "https://issuer.example".to_owned(),
        audience: "centrifuge".to_owned(),
        algorithms: TokenAlgorithm::USUAL.to_vec(),
    }
}

impl Secured {
    async fn start(rules: &str) -> Secured {
        let pki = Pki::new();
        let issuer = Issuer::new("first");
        pki::replace(&pki.path("keys.json"), &Issuer::key_set(&[&issuer]));
        let server = pki.issue("manager", "localhost", HOUR);
        let root = pki.issue("root", "spiffe://test/root", HOUR);
        pki::replace(&pki.policy(), &policy(rules));
        let store = tempfile::tempdir().expect("a folder");
        let manager = support::start(store.path(), config(&pki, &server)).await;
        Secured { pki, manager, root, issuer, _store: store }
    }

    /// What a client uses that has no certificate.
    fn trusts(&self) -> Security {
        Security { tls: Some(Tls::trusting(self.pki.ca())), token_file: None }
    }

    /// A file with a token for somebody, valid until so long from now. Whatever had that name before is replaced.
    fn token(&self, file: &str, subject: &str, valid_for: Duration) -> PathBuf {
        self.token_of(&self.issuer, file, subject, valid_for)
    }

    fn token_of(&self, issuer: &Issuer, file: &str, subject: &str, valid_for: Duration) -> PathBuf {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        // A Manager grants half a minute for clocks that differ.
        let expires = (now + valid_for).as_secs().saturating_sub(30);
        let TokenSettings { issuer: iss, audience: aud, .. } = token_settings(&self.pki);
        let claims = json!({"iss": iss, "aud": aud, "sub": subject, "exp": expires});
        let path = self.pki.path(&format!("{file}.jwt"));
        pki::replace(&path, &issuer.sign(&claims));
        path
    }

    /// The Managers, as somebody with a certificate reaches them.
    fn managers(&self, tls: Tls) -> Managers {
        Managers::list([self.manager.id().as_str()]).expect("an address").tls(tls)
    }

    fn dialer(&self, tls: Tls) -> Dialer {
        Dialer::secured(Security { tls: Some(tls), token_file: None })
    }

    async fn create(&self, namespace: &str) {
        let dialer = self.dialer(self.pki.tls(&self.root));
        let mut admin = dialer.admin(&self.id()).expect("an address");
        // Short leases, so that the end of one can be waited for.
        let settings = v1::Settings {
            lease_ms: Some(6_000),
            hold_ms: Some(6_600),
            renewal_ms: Some(1_000),
            answer_allowance_ms: Some(1_000),
            ..v1::Settings::default()
        };
        let request =
            v1::CreateNamespaceRequest { namespace: namespace.into(), settings: Some(settings), kind: None };
        admin.create_namespace(request).await.expect("created");
    }

    fn id(&self) -> ManagerId {
        self.manager.id()
    }
}
