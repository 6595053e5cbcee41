//! Whoever sends requests, as proven by a certificate or a token.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use centrifuge_net::tls::read_certificate;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;

use super::pattern::TOKEN_PREFIX;

/// The names that are proven, and until when.
#[derive(Debug)]
pub(crate) struct Identity {
    /// URI names first, then DNS names; or the subject of a token. Empty: a certificate that names nobody.
    names: Vec<String>,
    expires_at: SystemTime,
    proof: Proof,
    revoked: AtomicBool,
    /// Becomes true when its connection has to end.
    over: watch::Sender<bool>,
}

/// What an identity was proven by, to be looked at again when the rules for that change.
#[derive(Debug)]
pub(crate) enum Proof {
    /// A chain of certificates.
    Certificate(Vec<CertificateDer<'static>>),
    /// A token that was signed by this key.
    Token(Arc<str>),
}

impl Identity {
    /// The identity that a token proves.
    pub(crate) fn of_token(name: String, expires_at: SystemTime, key: Arc<str>) -> Identity {
        Identity::proven(vec![name], expires_at, Proof::Token(key))
    }

    fn proven(names: Vec<String>, expires_at: SystemTime, proof: Proof) -> Identity {
        let (revoked, over) = (AtomicBool::new(false), watch::Sender::new(false));
        Identity { names, expires_at, proof, revoked, over }
    }

    /// The identity of a chain that was verified; `None` if its certificate cannot be read.
    pub(crate) fn of_certificate(chain: &[CertificateDer<'static>]) -> Option<Identity> {
        let shown = read_certificate(chain.first()?).ok()?;
        let names = shown.names.into_iter().filter(|name| !name.starts_with(TOKEN_PREFIX)).collect();
        Some(Identity::proven(names, shown.not_after, Proof::Certificate(chain.to_vec())))
    }

    /// Every name that it proves.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// The name by which logs call it.
    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("(a certificate without names)", String::as_str)
    }

    /// What it was proven by.
    pub(crate) fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Why it proves nothing any more, if so.
    pub(crate) fn flaw(&self, now: SystemTime) -> Option<&'static str> {
        let is_expired = now >= self.expires_at;
        match (&self.proof, self.revoked.load(Ordering::Relaxed)) {
            (Proof::Certificate(_), true) => {
                Some("its certificate was revoked, or is of an authority that is no longer trusted")
            }
            (Proof::Token(_), true) => Some("its token was signed by a key that is no longer its issuer's"),
            (Proof::Certificate(_), false) => is_expired.then_some("its certificate has expired"),
            (Proof::Token(_), false) => is_expired.then_some("its token has expired"),
        }
    }

    /// What proves it does not count any more.
    pub(crate) fn revoke(&self) {
        self.revoked.store(true, Ordering::Relaxed);
    }

    /// Ends its connection.
    pub(crate) fn end(&self) {
        self.over.send_replace(true);
    }

    /// Waits until its connection has to end.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut over = self.over.subscribe();
        async move {
            // An identity that is gone has no connection.
            let _ = over.wait_for(|over| *over).await;
        }
    }
}
