//! Sessions of Owners: one stream each, messages and nothing else.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use centrifuge_core::id::{Namespace, Secret, SessionId};
use centrifuge_core::manager::{ManagerEvent, StreamId};
use centrifuge_core::message::{Hello, ManagerToOwner, OwnerToManager, Report};
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::owner_server::{Owner, OwnerServer};
use prometheus_client::metrics::counter::Counter;
use prost::Message;
use tokio::sync::{oneshot, watch};
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

use super::{Held, OpenStream, admit, identity, remote};
use crate::access::{Access, Identity};
use crate::heavy;
use crate::inbox::{Inbox, Stopped};
use crate::listener::{Caller, Progress};
use crate::rate::Bucket;
use crate::shared::Shared;
use crate::speakers::Spoken;
use crate::view::RoleView;

/// How often it is noted that a session is served: others from its address find room then.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// How many leases of a report about many count as a report of their own: what is limited is work.
const LEASES_PER_REPORT: usize = 64;

/// How many sessions may say hello on one stream.
const MAX_SESSIONS: usize = 64;

/// Where Owners meet this Manager.
#[derive(Clone, Debug)]
pub(crate) struct OwnerService {
    shared: Arc<Shared>,
    inbox: Inbox,
}

impl OwnerService {
    /// The service, with its limit on the size of messages.
    pub(crate) fn server(shared: Arc<Shared>, inbox: Inbox) -> OwnerServer<OwnerService> {
        let at_most = shared.limits.max_message_bytes;
        OwnerServer::new(OwnerService { shared, inbox }).max_decoding_message_size(at_most)
    }
}

#[tonic::async_trait]
impl Owner for OwnerService {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<v1::ManagerMessage, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::OwnerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let shared = &self.shared;
        let from = remote(&request);
        let progress = request.extensions().get::<Caller>().map(|caller| caller.progress.clone());
        let permit = admit(shared, from, |address| shared.admission.stream(address))?;
        let open = OpenStream::new(shared.metrics.streams.with(["owner"]), permit);
        let outflow = shared.owners.open(shared.limits.owner_queue);
        let (alive, ended) = oneshot::channel();
        let reader = Reader::new(from, identity(&request), outflow.peer(), shared, &self.inbox, progress);
        tokio::spawn(reader.run(request.into_inner(), ended));
        let (messages, bytes) =
            (shared.metrics.messages_sent.with(["owner"]), shared.metrics.bytes_sent.with(["owner"]));
        let warrants = shared.warrants.clone();
        let (admission, mut noted) = (shared.admission.clone(), None::<Instant>);
        let wire = outflow.map(move |message| {
            message.map(|mut message| {
                if matches!(message, ManagerToOwner::Assign(_))
                    && noted.is_none_or(|at| at.elapsed() > NOTE_EVERY)
                {
                    noted = Some(Instant::now());
                    admission.know(from.ip());
                }
                // Here rather than where messages are decided: codes take time, and each stream has a task of its own.
                if let (Some(keys), ManagerToOwner::Assign(assign)) = (&warrants, &mut message) {
                    keys.sign(assign);
                }
                let leases = match &message {
                    ManagerToOwner::Assign(assign) => assign.orders.len(),
                    _ => 0,
                };
                let (message, length) = heavy::apart_if_many(leases, || {
                    let message = v1::ManagerMessage::from(&message);
                    let length = message.encoded_len();
                    (message, length)
                });
                messages.inc();
                bytes.inc_by(length as u64);
                message
            })
        });
        Ok(Response::new(Box::pin(Held { stream: Box::pin(wire), _guard: (alive, open) })))
    }
}

/// Reads one Owner's stream until it or its answering side ends.
struct Reader {
    from: SocketAddr,
    who: Option<Arc<Identity>>,
    peer: StreamId,
    shared: Arc<Shared>,
    inbox: Inbox,
    hellos: Bucket,
    reports: Bucket,
    counts: Counts,
    roles: watch::Receiver<RoleView>,
    /// The sessions that have said hello on this stream, and where: one process, and a few more if its clock jumped.
    sessions: Vec<(SessionId, Namespace)>,
    /// What the connection has to know of its first request.
    progress: Option<Progress>,
    /// The last message, if it is a hello that came while this Manager did not lead.
    unheard: Option<OwnerToManager>,
}

/// Counters that a message should not have to look up.
struct Counts {
    hellos: Counter,
    hello_bytes: Counter,
    reports: Counter,
    report_bytes: Counter,
}

impl Reader {
    fn new(
        from: SocketAddr,
        who: Option<Arc<Identity>>,
        peer: StreamId,
        shared: &Arc<Shared>,
        inbox: &Inbox,
        progress: Option<Progress>,
    ) -> Reader {
        let (limits, metrics) = (&shared.limits, &shared.metrics);
        let double = |rate: u32| rate.saturating_mul(2);
        Reader {
            from,
            who,
            peer,
            shared: Arc::clone(shared),
            inbox: inbox.clone(),
            hellos: Bucket::new(limits.hellos_per_second, double(limits.hellos_per_second)),
            reports: Bucket::new(limits.reports_per_second, double(limits.reports_per_second)),
            counts: Counts {
                hellos: metrics.messages_received.with(["hello"]),
                hello_bytes: metrics.bytes_received.with(["hello"]),
                reports: metrics.messages_received.with(["report"]),
                report_bytes: metrics.bytes_received.with(["report"]),
            },
            roles: shared.view.roles(),
            sessions: Vec::new(),
            progress,
            unheard: None,
        }
    }

    async fn run(mut self, messages: Streaming<v1::OwnerMessage>, ended: oneshot::Receiver<()>) {
        let status = tokio::select! {
            status = self.read(messages) => status,
            _ = ended => None,
        };
        let sessions: Vec<SessionId> = self.sessions.iter().map(|(session, _)| *session).collect();
        self.shared.speakers.forget(&sessions, self.peer);
        self.shared.authority.forget(self.peer);
        self.shared.owners.end(self.peer, status);
    }

    /// Reads to the end; gives the status of a bad one.
    async fn read(&mut self, mut messages: Streaming<v1::OwnerMessage>) -> Option<Status> {
        let first = tokio::time::timeout(self.shared.limits.first_request, messages.message());
        let mut next = match first.await {
            Ok(next) => {
                self.progress.iter().for_each(Progress::answered);
                next
            }
            Err(_) => {
                let words = "no message came after the stream was opened";
                return Some(self.refuse("silent-stream", Status::deadline_exceeded(words)));
            }
        };
        loop {
            match next {
                Ok(Some(message)) => {
                    if let Err(status) = self.take(message).await {
                        return Some(status);
                    }
                }
                Ok(None) => return None,
                Err(status) => return self.unreadable(status),
            }
            next = self.next(&mut messages).await;
        }
    }

    /// Waits for the next message. If this Manager comes to lead meanwhile it hears the last hello once more, as if the network
    /// had been slow: an Owner that looks for a leader need not ask again.
    async fn next(
        &mut self,
        messages: &mut Streaming<v1::OwnerMessage>,
    ) -> Result<Option<v1::OwnerMessage>, Status> {
        let leads = tokio::select! {
            next = messages.message() => return next,
            leads = self.roles.wait_for(RoleView::is_leading), if self.unheard.is_some() => leads.is_ok(),
        };
        if let Some(message) = self.unheard.take().filter(|_| leads) {
            // A Manager that stops takes no more messages, and ends the stream with that status.
            let _ = self.inbox.request(ManagerEvent::FromOwner { from: self.peer, message }).await;
        }
        messages.message().await
    }

    async fn take(&mut self, message: v1::OwnerMessage) -> Result<(), Status> {
        let leases = leases_of(&message);
        let (bytes, read) = heavy::apart_if_many(leases, || {
            (message.encoded_len() as u64, OwnerToManager::try_from(message))
        });
        let mut message = read.map_err(|error| self.refuse("invalid-message", Status::from(error)))?;
        if let OwnerToManager::Report(report) = &message {
            self.check_size(report)?;
        }
        if !self.is_from_its_session(&mut message)? {
            return Ok(());
        }
        let from = self.peer;
        self.unheard = None;
        let sent = match message {
            OwnerToManager::Hello(ref hello) => {
                let term = hello.term;
                if !self.roles.borrow().is_leading() {
                    self.unheard = Some(message.clone());
                }
                self.counts.hellos.inc();
                self.counts.hello_bytes.inc_by(bytes);
                while let Err(wait) = self.hellos.take(Instant::now()) {
                    self.slow_down("hello-rate", wait).await;
                }
                self.shared.hear_term(term);
                self.inbox.request(ManagerEvent::FromOwner { from, message }).await
            }
            OwnerToManager::Report(mut report) => {
                self.counts.reports.inc();
                self.counts.report_bytes.inc_by(bytes);
                while let Err(wait) = self.reports.take(Instant::now()) {
                    self.slow_down("report-rate", wait).await;
                }
                self.check_warrants(&mut report);
                let message = OwnerToManager::Report(report);
                let event = ManagerEvent::FromOwner { from, message };
                if leases > heavy::MANY {
                    self.reports.charge(leases / LEASES_PER_REPORT);
                    return self.inbox.large_report(event).await.map_err(stopping);
                }
                self.inbox.report(event).await
            }
        };
        sent.map_err(stopping)
    }

    /// Whether a message comes from the process that it speaks for. A hello has proven that by its secret, which ends here; a report
    /// counts on the stream on which its session said hello.
    fn is_from_its_session(&mut self, message: &mut OwnerToManager) -> Result<bool, Status> {
        match message {
            OwnerToManager::Hello(hello) => {
                hello.secret = Secret::default();
                self.may_own(hello)?;
                let speakers = &self.shared.speakers;
                hello.formerly = hello.formerly.filter(|former| speakers.speaks(*former, self.peer));
                match speakers.hear(hello.session, self.peer, hello.number) {
                    Spoken::Speaks => self.note_session(hello.session, &hello.namespace)?,
                    Spoken::Stale => return Ok(false),
                    Spoken::Cloned(other) => {
                        let status = Status::aborted(format!(
                            "two processes speak for the session {}: one is a copy of the other; both have to begin anew",
                            hello.session
                        ));
                        self.shared.owners.end(other, Some(status.clone()));
                        return Err(self.refuse("cloned-session", status));
                    }
                }
                Ok(true)
            }
            OwnerToManager::Report(report)
                if self.shared.speakers.speaks(report.session, self.peer)
                    && self.is_in_its_namespace(report) =>
            {
                Ok(true)
            }
            OwnerToManager::Report(report) => {
                let (session, conversation) = (report.session, report.conversation);
                let words = format!("a report of {session}, which has not said hello on this stream");
                self.shared.refused_input("unproven-session", &self.from, &words);
                // A process that lost its stream says hello; one that is full of messages has other worries.
                let _ = self.shared.owners.send(self.peer, ManagerToOwner::Unknown { session, conversation });
                Ok(false)
            }
        }
    }

    /// Whether the caller may be this Owner, which is noted so that it can be taken back.
    fn may_own(&self, hello: &Hello) -> Result<(), Status> {
        let access = Access::Own { namespace: hello.namespace.to_string(), name: hello.name.to_string() };
        self.shared.authorize(self.who.as_deref(), &self.from, &access)?;
        self.shared.authority.note(self.peer, self.who.as_ref(), access);
        Ok(())
    }

    /// Whether a report is about the namespace for which its session said hello.
    fn is_in_its_namespace(&self, report: &Report) -> bool {
        self.sessions
            .iter()
            .any(|(session, namespace)| *session == report.session && *namespace == report.namespace)
    }

    fn note_session(&mut self, session: SessionId, namespace: &Namespace) -> Result<(), Status> {
        if self.sessions.iter().any(|known| known.0 == session && known.1 == *namespace) {
            return Ok(());
        }
        if self.sessions.len() >= MAX_SESSIONS {
            let words = format!("{MAX_SESSIONS} sessions have said hello on one stream: open another");
            return Err(self.refuse("too-many-sessions", Status::resource_exhausted(words)));
        }
        self.sessions.push((session, namespace.clone()));
        Ok(())
    }

    /// Rests, so that the stream fills up and its sender has to wait: that costs nobody else anything.
    async fn slow_down(&self, kind: &'static str, wait: Duration) {
        self.shared.refused_input(kind, &self.from, &"messages come too fast and are read slowly");
        tokio::time::sleep(wait).await;
    }

    fn check_size(&self, report: &Report) -> Result<(), Status> {
        let at_most = self.shared.limits.max_ranges_per_report;
        let lists = [
            ("held", report.held.len()),
            ("released", report.released.len()),
            ("refused", report.refused.len()),
            ("loads", report.loads.len()),
        ];
        match lists.into_iter().find(|(_, len)| *len > at_most) {
            None => Ok(()),
            Some((field, len)) => {
                let words = format!("report.{field}: has {len} items; at most {at_most} are allowed");
                Err(self.refuse("too-many-ranges", Status::invalid_argument(words)))
            }
        }
    }

    /// Takes from a report what no Manager made. What it says of these leases is then no claim, and it goes on as any other.
    fn check_warrants(&self, report: &mut Report) {
        let Some(keys) = &self.shared.warrants else { return };
        let wrong = keys.check(report);
        if wrong > 0 {
            let words =
                format!("{wrong} warrants of session {} have codes that no Manager made", report.session);
            self.shared.refused_input("warrant-code", &self.from, &words);
        }
    }

    fn refuse(&self, kind: &'static str, status: Status) -> Status {
        self.shared.refused_input(kind, &self.from, &status.message());
        status
    }

    /// A stream that broke is silence; one that carried no message is refused.
    fn unreadable(&self, status: Status) -> Option<Status> {
        match status.code() {
            Code::OutOfRange => Some(self.refuse("too-large", status)),
            Code::Internal if status.message().contains("decode") => {
                Some(self.refuse("undecodable", Status::invalid_argument(status.message())))
            }
            _ => None,
        }
    }
}

/// The status of a Manager that takes no more messages.
fn stopping(stopped: Stopped) -> Status {
    Status::unavailable(stopped.to_string())
}

/// How many leases a message speaks of.
fn leases_of(message: &v1::OwnerMessage) -> usize {
    match &message.kind {
        Some(v1::owner_message::Kind::Report(report)) => {
            report.held.len() + report.released.len() + report.refused.len() + report.imports.len()
        }
        _ => 0,
    }
}
