//! What the driver's host, the services and the status pages of one Manager share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::http::HeaderMap;
use centrifuge_core::id::Term;
use centrifuge_core::manager::{AdminError, StreamId};
use centrifuge_core::message::ManagerToOwner;
use centrifuge_net::convert::WatchFrame;
use centrifuge_net::warrants::WarrantKeys;
use tokio::sync::oneshot;
use tonic::Status;
use tracing::warn;

use crate::access::{AUDIT, Access, AuditLimit, Authority, Denial, Identity, Permission};
use crate::admission::Admission;
use crate::config::Limits;
use crate::history::History;
use crate::log_throttle::LogThrottle;
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::speakers::Speakers;
use crate::store::StoreCopier;
use crate::tls::ServerTls;
use crate::transport::Handshakes;
use crate::view::View;

/// One Manager's shared parts.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The address that clients dial.
    pub manager: String,
    /// When it started.
    pub started_at: Instant,
    /// Bounds on what a peer can grow.
    pub limits: Limits,
    /// What readers see.
    pub view: View,
    /// What was decided lately.
    pub history: History,
    /// What is counted.
    pub metrics: Metrics,
    /// What is said once a minute.
    pub quiet: LogThrottle,
    /// Who may connect.
    pub admission: Admission,
    /// Which streams speak for which sessions.
    pub speakers: Speakers,
    /// The ways back to Owners.
    pub owners: Arc<Peers<ManagerToOwner>>,
    /// The ways back to Lookups.
    pub lookups: Arc<Peers<WatchFrame>>,
    /// Operators who wait for an answer.
    pub replies: Replies,
    /// How the store is copied while it runs.
    pub copier: Mutex<Option<Arc<StoreCopier>>>,
    /// What makes and checks the codes of warrants; only where there is no store.
    pub warrants: Option<WarrantKeys>,
    /// Who may do what.
    pub authority: Authority,
    /// How many denials are logged.
    pub audit: AuditLimit,
    /// What connections are inside of, if not in the clear.
    pub tls: Option<ServerTls>,
    /// Where they get there.
    pub handshakes: Option<Handshakes>,
}

impl Shared {
    /// The parts of a Manager that has just started.
    #[must_use]
    pub(crate) fn new(
        manager: String,
        limits: Limits,
        warrants: Option<WarrantKeys>,
        tls: Option<(ServerTls, Handshakes)>,
    ) -> Shared {
        let (tls, handshakes) = tls.unzip();
        let next = Arc::new(AtomicU64::new(1));
        Shared {
            manager,
            started_at: Instant::now(),
            view: View::default(),
            history: History::default(),
            metrics: Metrics::new(),
            quiet: LogThrottle::default(),
            admission: Admission::new(limits.clone()),
            speakers: Speakers::default(),
            owners: Arc::new(Peers::new(Arc::clone(&next))),
            lookups: Arc::new(Peers::new(next)),
            replies: Replies::default(),
            copier: Mutex::default(),
            warrants,
            authority: Authority::default(),
            audit: AuditLimit::default(),
            tls,
            handshakes,
            limits,
        }
    }

    /// Takes note of the highest term that a client has seen. One that is ahead of the Managers' clock is told to the operator.
    pub(crate) fn hear_term(&self, term: Term) {
        let Some(problem) = self.view.hear_term(term) else { return };
        if let Some(suppressed) = self.quiet.admit("clock-set-back") {
            warn!(suppressed, "{problem}");
        }
    }

    /// Notes what a stream does for somebody until the guard is dropped.
    pub(crate) fn stand(
        self: &Arc<Self>,
        stream: StreamId,
        who: Option<&Arc<Identity>>,
        access: Access,
    ) -> Standing {
        self.authority.note(stream, who, access);
        Standing { shared: Arc::clone(self), stream }
    }

    /// Who sends a request; if its token proves nobody, says so to the operator and in the status.
    pub(crate) fn identify(
        &self,
        headers: &HeaderMap,
        certificate: Option<&Arc<Identity>>,
        from: SocketAddr,
        access: &Access,
    ) -> Result<Option<Arc<Identity>>, Status> {
        let is_private = self.tls.is_some() || from.ip().to_canonical().is_loopback();
        self.authority
            .identify(headers, certificate, is_private)
            .map_err(|denial| self.deny(certificate.map(Arc::as_ref), &from, access, denial))
    }

    /// Whether somebody may do something now; if not, says so to the operator and in the status.
    pub(crate) fn authorize(
        &self,
        who: Option<&Identity>,
        from: &dyn std::fmt::Display,
        access: &Access,
    ) -> Result<(), Status> {
        self.authority.decide(who, access).map_err(|denial| self.deny(who, from, access, denial))
    }

    /// Counts what is denied always, and logs it unless there is a flood. The status says nothing of what exists.
    pub(crate) fn deny(
        &self,
        who: Option<&Identity>,
        from: &dyn std::fmt::Display,
        access: &Access,
        denial: Denial,
    ) -> Status {
        let permission = access.permission().map_or("any", Permission::as_str);
        let needed = match access.permission() {
            Some(permission) => format!("the permission `{}`", permission.as_str()),
            None => "any permission at all".to_owned(),
        };
        let name = who.map_or("(nobody)", Identity::name);
        let namespace = access.namespace().unwrap_or_default().escape_default().to_string();
        let place = if namespace.is_empty() { String::new() } else { format!(" in `{namespace}`") };
        self.metrics.denied.with([permission]).inc();
        if let Some(suppressed) = self.audit.admit() {
            let owner = access.owner().unwrap_or_default().escape_default().to_string();
            warn!(target: AUDIT, who = name, %from, what = permission, namespace, owner, why = ?denial, suppressed, "denied");
        }
        match denial {
            Denial::Anonymous => Status::unauthenticated(format!(
                "this needs {needed}{place}, and nobody has proven who asks: show a client certificate or a token"
            )),
            Denial::BadToken(why) => Status::unauthenticated(format!("the token proves nothing: {why}")),
            Denial::Flawed(why) => Status::unauthenticated(format!(
                "{name} is not proven any more: {why}; connect with a new one"
            )),
            Denial::Forbidden => Status::permission_denied(format!(
                "{name} does not have {needed}{place}: the Managers' policy decides"
            )),
        }
    }

    /// Counts refused input always, and logs it once per kind and minute.
    pub(crate) fn refused_input(
        &self,
        kind: &'static str,
        from: &dyn std::fmt::Display,
        why: &dyn std::fmt::Display,
    ) {
        self.metrics.rejected_input.with([kind]).inc();
        if let Some(suppressed) = self.quiet.admit(kind) {
            warn!(kind, %from, %why, suppressed, "input refused; further ones of this kind are counted, and logged in a minute");
        }
    }
}

/// A stream that goes on while what it does is allowed.
#[derive(Debug)]
pub(crate) struct Standing {
    shared: Arc<Shared>,
    stream: StreamId,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.shared.authority.forget(self.stream);
    }
}

/// Operators who wait for an answer of the machine.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    last: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Result<(), AdminError>>>>,
}

impl Replies {
    /// A new request's number, and where its answer comes. An answer that nobody gives is dropped with the Manager.
    pub(crate) fn expect(&self) -> (u64, oneshot::Receiver<Result<(), AdminError>>) {
        let request = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (answer, answered) = oneshot::channel();
        self.lock().insert(request, answer);
        (request, answered)
    }

    /// Nobody waits for it any more.
    pub(crate) fn forget(&self, request: u64) {
        self.lock().remove(&request);
    }

    /// Answers a request.
    pub(crate) fn answer(&self, request: u64, result: Result<(), AdminError>) {
        if let Some(answer) = self.lock().remove(&request) {
            // An operator who hung up wants no answer.
            let _ = answer.send(result);
        }
    }

    /// Tells all who wait that there will be no answer.
    pub(crate) fn abandon(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<(), AdminError>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
