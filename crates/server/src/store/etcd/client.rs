//! A client of etcd: several nodes, a deadline on every request, and errors that say what is certain.

use std::cell::{Cell, RefCell};
use std::fs;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_stream::once;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Response, Status, Streaming};

use super::options::{EtcdCredentials, EtcdOptions, EtcdTls};
use super::proto::rpc;
use super::proto::rpc::auth_client::AuthClient;
use super::proto::rpc::kv_client::KvClient;
use super::proto::rpc::lease_client::LeaseClient;
use super::proto::rpc::maintenance_client::MaintenanceClient;
use super::proto::rpc::watch_client::WatchClient;
use crate::store::error::StoreError;

/// How long the transport waits before it asks a silent connection whether it is there. etcd ends connections that ask
/// more often than every five seconds.
const KEEP_ALIVE: Duration = Duration::from_secs(6);
/// How long it waits for the answer.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(3);
/// How long a request rests before it goes to the next node.
const PAUSE: Duration = Duration::from_millis(30);
/// A node that knows no leader of its cluster says so at once, instead of waiting for one.
const WANT_LEADER: &str = "hasleader";

/// Why etcd did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EtcdError {
    /// It refused, and nothing was changed.
    #[error("etcd refused: {0}")]
    Refused(String),
    /// Its quota is used up; nothing was changed.
    #[error("etcd has no space left: compact and defragment it or raise its quota, then disarm the alarm")]
    NoSpace,
    /// The lease is gone; nothing was changed.
    #[error("the etcd lease is gone")]
    NoLease,
    /// What should be read is forgotten.
    #[error("etcd has compacted the revision that was being read")]
    Compacted,
    /// The token is not valid any more; nothing was changed.
    #[error("etcd wants a new token: {0}")]
    OldToken(String),
    /// Nobody knows whether it was done.
    #[error("etcd did not answer: {0}")]
    Unclear(String),
}

impl EtcdError {
    /// Only what etcd itself says is certain: a code alone may come from something on the way.
    fn of(status: &Status) -> EtcdError {
        let words = status.message();
        if !words.starts_with("etcdserver:") {
            return EtcdError::Unclear(format!("{}: {words}", status.code()));
        }
        let contains = |part| words.contains(part);
        match status.code() {
            Code::Unauthenticated => EtcdError::OldToken(words.to_owned()),
            Code::ResourceExhausted if contains("database space exceeded") => EtcdError::NoSpace,
            Code::OutOfRange if contains("compacted") => EtcdError::Compacted,
            Code::NotFound if contains("lease not found") => EtcdError::NoLease,
            _ if contains("revision of auth store is old") || contains("invalid auth token") => {
                EtcdError::OldToken(words.to_owned())
            }
            Code::InvalidArgument
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::NotFound
            | Code::OutOfRange
            | Code::ResourceExhausted => EtcdError::Refused(words.to_owned()),
            _ => EtcdError::Unclear(words.to_owned()),
        }
    }

    /// Whether it is certain that nothing was changed.
    pub(super) fn is_certain(&self) -> bool {
        !matches!(self, EtcdError::Unclear(_))
    }
}

pub(super) type Answer<T> = Result<T, EtcdError>;

/// Talks to one node at a time, and to the next when that one fails. Used by one thread.
pub(super) struct Client {
    nodes: Vec<(String, Channel)>,
    /// The node in use.
    current: watch::Sender<usize>,
    credentials: Option<EtcdCredentials>,
    token: RefCell<Option<MetadataValue<Ascii>>>,
    /// How long one try may take.
    patience: Patience,
}

/// How long a try may take. A silent node among others is left soon; where every node is slow, tries get longer, so that something
/// comes of them. They are short again once answers come as soon as they used to.
struct Patience {
    usual: Duration,
    longest: Duration,
    now: Cell<Duration>,
    /// Tries without an answer since the last one with an answer.
    late: Cell<usize>,
}

impl Patience {
    fn new(usual: Duration, longest: Duration) -> Patience {
        Patience { usual, longest: longest.max(usual), now: Cell::new(usual), late: Cell::new(0) }
    }

    fn get(&self) -> Duration {
        self.now.get()
    }

    /// A try ended without an answer; `nodes` of them in a row are the fault of no single node.
    fn ran_out(&self, nodes: usize) {
        self.late.set(self.late.get() + 1);
        if self.late.get() >= nodes {
            self.late.set(0);
            self.now.set((self.now.get() * 2).min(self.longest));
        }
    }

    /// An answer came after so long.
    fn answered(&self, after: Duration) {
        self.late.set(0);
        if after * 2 < self.usual {
            self.now.set(self.usual);
        }
    }
}

/// A stream of what happens to keys. It ends when this is dropped.
pub(super) struct Watching {
    pub(super) answers: Streaming<rpc::WatchResponse>,
    _requests: mpsc::Sender<rpc::WatchRequest>,
}

impl Client {
    /// Must be called where a runtime is. Connects when it is first used. A try takes up to `usual`, and up to `longest` where every
    /// node is slow.
    pub(super) fn new(
        options: &EtcdOptions,
        usual: Duration,
        longest: Duration,
    ) -> Result<Client, StoreError> {
        let tls = options.tls.as_ref().map(tls_config).transpose()?;
        let nodes = options
            .endpoints
            .iter()
            .map(|node| Ok((node.clone(), channel(node, tls.as_ref(), longest)?)))
            .collect::<Result<_, StoreError>>()?;
        Ok(Client {
            nodes,
            current: watch::Sender::new(0),
            credentials: options.credentials.clone(),
            token: RefCell::default(),
            patience: Patience::new(usual, longest),
        })
    }

    /// Tells of every move to another node.
    pub(super) fn moves(&self) -> watch::Receiver<usize> {
        self.current.subscribe()
    }

    /// Turns away from a node that failed, unless another request has done so already.
    pub(super) fn leave(&self, node: usize) {
        if self.nodes.len() > 1 {
            self.current.send_if_modified(|current| {
                let leaves = *current == node;
                if leaves {
                    *current = (node + 1) % self.nodes.len();
                }
                leaves
            });
        }
    }

    pub(super) fn node(&self) -> usize {
        *self.current.borrow()
    }

    /// Once round all nodes, and at least twice.
    pub(super) fn round(&self) -> usize {
        self.nodes.len().max(2)
    }

    pub(super) async fn txn(&self, request: rpc::TxnRequest) -> Answer<rpc::TxnResponse> {
        self.call(request, |channel, request| async move { kv(channel).txn(request).await }).await
    }

    pub(super) async fn range(&self, request: rpc::RangeRequest) -> Answer<rpc::RangeResponse> {
        self.call(request, |channel, request| async move { kv(channel).range(request).await }).await
    }

    pub(super) async fn compact(&self, revision: i64) -> Answer<()> {
        let request = rpc::CompactionRequest { revision, physical: false };
        let compacted =
            self.call(request, |channel, request| async move { kv(channel).compact(request).await });
        match compacted.await {
            // Another client compacted as far or farther.
            Err(EtcdError::Compacted) => Ok(()),
            other => other.map(drop),
        }
    }

    pub(super) async fn grant(&self, seconds: i64) -> Answer<rpc::LeaseGrantResponse> {
        let request = rpc::LeaseGrantRequest { ttl: seconds, id: 0 };
        let grant = |channel, request| async move { LeaseClient::new(channel).lease_grant(request).await };
        self.call(request, grant).await
    }

    pub(super) async fn revoke(&self, lease: i64) -> Answer<()> {
        let request = rpc::LeaseRevokeRequest { id: lease };
        let revoke = |channel, request| async move { LeaseClient::new(channel).lease_revoke(request).await };
        match self.call(request, revoke).await {
            Err(EtcdError::NoLease) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Keeps a lease alive once. A lease that is gone is [`EtcdError::NoLease`].
    pub(super) async fn keep_alive(&self, lease: i64) -> Answer<()> {
        let request = rpc::LeaseKeepAliveRequest { id: lease };
        let keep = |channel, request: Request<rpc::LeaseKeepAliveRequest>| async move {
            // The request is there before the call is awaited: a server in Go answers nothing before it.
            let answers = LeaseClient::new(channel).lease_keep_alive(request.map(once)).await?;
            let answer = answers.into_inner().message().await?;
            answer.map(Response::new).ok_or_else(|| Status::unknown("the stream ended without an answer"))
        };
        let kept = self.call(request, keep).await?;
        if kept.ttl > 0 { Ok(()) } else { Err(EtcdError::NoLease) }
    }

    /// Watches keys from now on, at the node in use.
    pub(super) async fn watch(&self, keys: &[Vec<u8>]) -> Answer<Watching> {
        let (requests, stream) = mpsc::channel(keys.len().max(1));
        for key in keys {
            let create = rpc::WatchCreateRequest { key: key.clone(), ..Default::default() };
            let request_union = Some(rpc::watch_request::RequestUnion::CreateRequest(create));
            // There is room for all of them.
            let _ = requests.try_send(rpc::WatchRequest { request_union });
        }
        let mut request = Request::new(ReceiverStream::new(stream));
        self.mark(&mut request).await?;
        let channel = self.nodes[self.node()].1.clone();
        let mut client = WatchClient::new(channel).max_decoding_message_size(usize::MAX);
        match timeout(self.patience.get(), client.watch(request)).await {
            Ok(Ok(answers)) => Ok(Watching { answers: answers.into_inner(), _requests: requests }),
            Ok(Err(status)) => Err(self.noted(EtcdError::of(&status))),
            Err(_) => Err(EtcdError::Unclear("no answer in time".to_owned())),
        }
    }

    /// How every node is, by its endpoint.
    pub(super) async fn status(&self) -> Vec<(String, Answer<rpc::StatusResponse>)> {
        let mut all = Vec::new();
        for (name, channel) in &self.nodes {
            all.push((name.clone(), self.status_of(channel.clone()).await));
        }
        all
    }

    async fn status_of(&self, channel: Channel) -> Answer<rpc::StatusResponse> {
        let mut request = Request::new(rpc::StatusRequest {});
        self.mark(&mut request).await?;
        match timeout(self.patience.get(), MaintenanceClient::new(channel).status(request)).await {
            Ok(answer) => answer.map(Response::into_inner).map_err(|status| EtcdError::of(&status)),
            Err(_) => Err(EtcdError::Unclear("no answer in time".to_owned())),
        }
    }

    /// Asks one node after the other until one answers. Every request here may be repeated.
    async fn call<Q: Clone, R, F>(&self, message: Q, send: impl Fn(Channel, Request<Q>) -> F) -> Answer<R>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let mut unclear = None;
        for try_number in 0..self.round() {
            if try_number > 0 {
                sleep(PAUSE).await;
            }
            let node = self.node();
            match self.call_once(node, &message, &send).await {
                Err(EtcdError::Unclear(why)) => {
                    self.leave(node);
                    unclear = Some(why);
                }
                Err(EtcdError::OldToken(why)) => unclear = Some(why),
                // An earlier try may still do what this one was refused.
                Err(error @ (EtcdError::Refused(_) | EtcdError::NoSpace)) => {
                    return Err(match unclear {
                        Some(_) => EtcdError::Unclear(error.to_string()),
                        None => error,
                    });
                }
                done => return done,
            }
        }
        Err(EtcdError::Unclear(unclear.unwrap_or_default()))
    }

    async fn call_once<Q: Clone, R, F>(
        &self,
        node: usize,
        message: &Q,
        send: &impl Fn(Channel, Request<Q>) -> F,
    ) -> Answer<R>
    where
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let mut request = Request::new(message.clone());
        self.mark(&mut request).await?;
        let patience = self.patience.get();
        request.set_timeout(patience);
        let sent_at = Instant::now();
        match timeout(patience, send(self.nodes[node].1.clone(), request)).await {
            Ok(Ok(answer)) => {
                self.patience.answered(sent_at.elapsed());
                Ok(answer.into_inner())
            }
            // The deadline may be noticed at either end.
            Ok(Err(status))
                if status.code() == Code::DeadlineExceeded || status.code() == Code::Cancelled =>
            {
                self.patience.ran_out(self.nodes.len());
                Err(self.noted(EtcdError::of(&status)))
            }
            Ok(Err(status)) => Err(self.noted(EtcdError::of(&status))),
            Err(_) => {
                self.patience.ran_out(self.nodes.len());
                Err(EtcdError::Unclear(format!("no answer from {} in time", self.nodes[node].0)))
            }
        }
    }

    /// Forgets a token that is not valid any more.
    fn noted(&self, error: EtcdError) -> EtcdError {
        if matches!(error, EtcdError::OldToken(_)) {
            self.token.replace(None);
        }
        error
    }

    /// Says who asks, and that a node without a leader need not try.
    async fn mark<T>(&self, request: &mut Request<T>) -> Answer<()> {
        request.metadata_mut().insert(WANT_LEADER, MetadataValue::from_static("true"));
        if let Some(credentials) = &self.credentials {
            let known = self.token.borrow().clone();
            let token = match known {
                Some(token) => token,
                None => self.authenticate(credentials).await?,
            };
            request.metadata_mut().insert("token", token);
        }
        Ok(())
    }

    async fn authenticate(&self, credentials: &EtcdCredentials) -> Answer<MetadataValue<Ascii>> {
        let request = rpc::AuthenticateRequest {
            name: credentials.user.clone(),
            password: credentials.password.0.clone(),
        };
        let mut client = AuthClient::new(self.nodes[self.node()].1.clone());
        let answered = timeout(self.patience.get(), client.authenticate(request)).await;
        let answered = answered.map_err(|_| EtcdError::Unclear("no answer in time".to_owned()))?;
        let answer = answered.map_err(|status| EtcdError::of(&status))?.into_inner();
        let token: MetadataValue<Ascii> =
            answer.token.parse().map_err(|_| EtcdError::Refused("its token is no text".to_owned()))?;
        self.token.replace(Some(token.clone()));
        Ok(token)
    }
}

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(usize::MAX)
}

fn channel(node: &str, tls: Option<&ClientTlsConfig>, patience: Duration) -> Result<Channel, StoreError> {
    let unusable = |why: tonic::transport::Error| StoreError::EtcdSettings {
        setting: "etcd_endpoints",
        what: format!("{node} cannot be used: {why}"),
    };
    let mut endpoint = Endpoint::from_shared(node.to_owned())
        .map_err(unusable)?
        .connect_timeout(patience)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_ANSWER);
    if let Some(tls) = tls {
        endpoint = endpoint.tls_config(tls.clone()).map_err(unusable)?;
    }
    Ok(endpoint.connect_lazy())
}

fn tls_config(files: &EtcdTls) -> Result<ClientTlsConfig, StoreError> {
    let read = |setting: &'static str, path: &std::path::Path| {
        fs::read(path).map_err(|why| StoreError::EtcdSettings {
            setting,
            what: format!("cannot read {}: {why}", path.display()),
        })
    };
    let ca = Certificate::from_pem(read("etcd_ca", &files.ca)?);
    let config = ClientTlsConfig::new().ca_certificate(ca);
    Ok(match &files.identity {
        Some((certificate, key)) => {
            config.identity(Identity::from_pem(read("etcd_cert", certificate)?, read("etcd_key", key)?))
        }
        None => config,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_get_longer_only_where_every_node_is_slow() {
        let ms = Duration::from_millis;
        let patience = Patience::new(ms(600), ms(1_250));
        patience.ran_out(3);
        patience.ran_out(3);
        patience.answered(ms(500));
        assert_eq!(patience.get(), ms(600), "another node answered");
        (0..3).for_each(|_| patience.ran_out(3));
        assert_eq!(patience.get(), ms(1_200));
        (0..3).for_each(|_| patience.ran_out(3));
        assert_eq!(patience.get(), ms(1_250), "no longer than a renewal may take");
        patience.answered(ms(800));
        assert_eq!(patience.get(), ms(1_250), "it is needed");
        patience.answered(ms(20));
        assert_eq!(patience.get(), ms(600));
    }
}
