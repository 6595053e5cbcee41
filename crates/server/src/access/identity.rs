//! Whoever is at the other end of a connection, as proven by a certificate.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use centrifuge_net::tls::read_certificate;
use rustls::pki_types::CertificateDer;
use tokio::sync::watch;

/// The names that a verified certificate proves, and until when it does.
#[derive(Debug)]
pub(crate) struct Identity {
    /// URI names first, then DNS names. Empty: a certificate that names nobody.
    names: Vec<String>,
    expires_at: SystemTime,
    /// What it was proven by, to be verified again when the rules for that change.
    chain: Vec<CertificateDer<'static>>,
    revoked: AtomicBool,
    /// Becomes true when its connection has to end.
    over: watch::Sender<bool>,
}

impl Identity {
    /// The identity of a chain that was verified; `None` if its certificate cannot be read.
    pub(crate) fn new(chain: &[CertificateDer<'static>]) -> Option<Identity> {
        let shown = read_certificate(chain.first()?).ok()?;
        Some(Identity {
            names: shown.names,
            expires_at: shown.not_after,
            chain: chain.to_vec(),
            revoked: AtomicBool::new(false),
            over: watch::Sender::new(false),
        })
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
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// Why it proves nothing any more, if so.
    pub(crate) fn flaw(&self, now: SystemTime) -> Option<&'static str> {
        if self.revoked.load(Ordering::Relaxed) {
            return Some("its certificate was revoked, or is of an authority that is no longer trusted");
        }
        (now >= self.expires_at).then_some("its certificate has expired")
    }

    /// Its certificate does not count any more.
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
