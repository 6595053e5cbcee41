//! A link between one client and one Manager: speaks the services of both sides and carries their messages one by one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use centrifuge_core::id::ManagerId;
use centrifuge_harness::lock;
use centrifuge_net::dial::Dialer;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::lookup_server::{Lookup, LookupServer};
use centrifuge_net::proto::v1::owner_server::{Owner, OwnerServer};
use centrifuge_net::proto::v1::{manager_message, watch_reply};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use super::link_faults::Way;
use crate::lines::{Nanos, true_now};

/// How many messages wait on a link.
const QUEUE: usize = 256;

/// One client's way to one Manager. Lives as long as the harness.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) up: Way,
    pub(crate) down: Way,
    pub(crate) client: Arc<str>,
    /// The Manager, as it calls itself.
    pub(crate) manager: ManagerId,
    /// What each Manager calls itself, and where this client finds it.
    pub(crate) names: Arc<[(String, String)]>,
    pub(crate) dialer: Dialer,
    pub(crate) renewals: Arc<Renewals>,
}

/// When a leader of the latest term first answered each Owner's report, over all links.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    first: Mutex<BTreeMap<String, (u64, Nanos)>>,
}

impl Renewals {
    /// When leaders of terms after this one first answered, for each client that was answered.
    pub(crate) fn after(&self, term: u64) -> Vec<Nanos> {
        let first = lock(&self.first);
        first.values().filter(|(later, _)| *later > term).map(|(_, at)| *at).collect()
    }

    /// An answer counts if it acknowledges a report.
    fn note(&self, client: &str, assign: &v1::Assign) {
        if assign.heard == 0 {
            return;
        }
        let mut first = lock(&self.first);
        if first.get(client).is_none_or(|(term, _)| *term < assign.term) {
            first.insert(client.to_owned(), (assign.term, true_now()));
        }
    }
}

impl Link {
    /// Listens for the client.
    pub(crate) async fn listen(self, address: SocketAddr) -> std::io::Result<()> {
        let listener = TcpListener::bind(address).await?;
        let serving = tonic::transport::Server::builder()
            .tcp_nodelay(true)
            .add_service(OwnerServer::new(self.clone()))
            .add_service(LookupServer::new(self))
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(async move {
            if let Err(error) = serving.await {
                eprintln!("a link ended: {error}");
            }
        });
        Ok(())
    }

    /// A hint names a Manager as it calls itself; this client knows it by another address.
    fn translate(&self, hint: Option<String>) -> Option<String> {
        let hint = hint?;
        self.names.iter().find(|(real, _)| *real == hint).map(|(_, known)| known.clone())
    }

    async fn take_up(self, mut messages: Streaming<v1::OwnerMessage>, to: mpsc::Sender<v1::OwnerMessage>) {
        while let Ok(Some(message)) = messages.message().await {
            if !self.up.carry(message, &to).await {
                return;
            }
        }
    }

    async fn converse(
        &self,
        messages: mpsc::Receiver<v1::OwnerMessage>,
        to: &mpsc::Sender<Result<v1::ManagerMessage, Status>>,
    ) -> Result<(), Status> {
        let mut client = self.dialer.owner(&self.manager).map_err(unavailable)?;
        let mut replies = client.session(ReceiverStream::new(messages)).await?.into_inner();
        while let Some(mut message) = replies.message().await? {
            match &mut message.kind {
                Some(manager_message::Kind::NotLeader(not)) => {
                    not.leader = self.translate(not.leader.take());
                }
                Some(manager_message::Kind::Assign(assign)) => self.renewals.note(&self.client, assign),
                _ => {}
            }
            if !self.down.carry(Ok(message), to).await {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn follow(
        &self,
        request: v1::WatchRequest,
        to: &mpsc::Sender<Result<v1::WatchReply, Status>>,
    ) -> Result<(), Status> {
        let (pass, mut passed) = mpsc::channel(4);
        self.up.carry(request, &pass).await;
        drop(pass);
        // A request that arrives twice is one: the Manager answers each stream that it sees.
        let Some(request) = passed.recv().await else {
            to.closed().await;
            return Ok(());
        };
        let mut client = self.dialer.lookup(&self.manager).map_err(unavailable)?;
        let mut replies = client.watch(request).await?.into_inner();
        while let Some(mut reply) = replies.message().await? {
            if let Some(watch_reply::Kind::NotLeader(not)) = &mut reply.kind {
                not.leader = self.translate(not.leader.take());
            }
            if !self.down.carry(Ok(reply), to).await {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The harness's side cannot tell a broken way from a broken Manager, and need not.
fn unavailable(error: impl std::fmt::Display) -> Status {
    Status::unavailable(error.to_string())
}

/// Runs until the Manager or the client is gone, and says so to the client.
async fn until_gone<T>(work: impl Future<Output = Result<(), Status>>, to: &mpsc::Sender<Result<T, Status>>) {
    let ended = tokio::select! {
        ended = work => ended,
        () = to.closed() => return,
    };
    let status = ended.err().unwrap_or_else(|| Status::unavailable("the Manager ended the stream"));
    // A client that is gone does not care.
    let _ = to.send(Err(status)).await;
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Owner for Link {
    type SessionStream = Replies<v1::ManagerMessage>;

    async fn session(
        &self,
        request: Request<Streaming<v1::OwnerMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (to_manager, from_owner) = mpsc::channel(QUEUE);
        let (to_owner, from_manager) = mpsc::channel(QUEUE);
        tokio::spawn(self.clone().take_up(request.into_inner(), to_manager));
        let link = self.clone();
        tokio::spawn(async move { until_gone(link.converse(from_owner, &to_owner), &to_owner).await });
        Ok(Response::new(Box::pin(ReceiverStream::new(from_manager))))
    }
}

#[tonic::async_trait]
impl Lookup for Link {
    type WatchStream = Replies<v1::WatchReply>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (to_lookup, from_manager) = mpsc::channel(QUEUE);
        let (link, request) = (self.clone(), request.into_inner());
        tokio::spawn(async move { until_gone(link.follow(request, &to_lookup), &to_lookup).await });
        Ok(Response::new(Box::pin(ReceiverStream::new(from_manager))))
    }
}
