//! Connections to Managers: one for each, made when it is first used, and shared by everything that talks to it.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use centrifuge_core::id::ManagerId;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Endpoint, Uri};
use tonic::{Code, Status};

use crate::bearer::{Bearer, read_token};
use crate::limits;
use crate::proto::v1::admin_client::AdminClient;
use crate::proto::v1::lookup_client::LookupClient;
use crate::proto::v1::owner_client::OwnerClient;
use crate::tls::{ClientTls, TlsError};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After which silence a connection is asked whether it lives. Longer than two heartbeats and than a renewal, so that thousands of
/// clients of a living Manager do not ask it; short enough that an Owner whose connection died without a word makes another before
/// a third renewal is lost.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// How long the answer to that may take before the connection is given up.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many bytes of one stream may be under way: a snapshot should not wait for its reader every 64 KiB.
const STREAM_WINDOW: u32 = 1 << 20;
/// How many bytes of all streams of a connection may be under way.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Why a Manager cannot be dialled.
#[derive(Debug, thiserror::Error)]
#[error("{manager} is not the address of a Manager: give it as host:port, such as manager-1.example:7600")]
pub struct DialError {
    /// What was given as its address.
    pub manager: ManagerId,
    /// What is wrong with it.
    #[source]
    source: tonic::transport::Error,
}

/// A connection to a Manager; requests on it prove whose they are.
pub type Channel = InterceptedService<tonic::transport::Channel, Bearer>;

/// What secures connections: by default nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// What they are inside of, if not in the clear.
    pub tls: Option<ClientTls>,
    /// The file with the token that goes with every request.
    pub token_file: Option<PathBuf>,
}

impl Security {
    /// Whether the files can be used; says which cannot, and why.
    pub fn check(&self) -> Result<(), TlsError> {
        self.tls.iter().try_for_each(ClientTls::check)?;
        self.token_file.iter().try_for_each(|file| read_token(file).map(drop))
    }

    /// Why a call failed and, where one side speaks TLS and the other does not understand it, what to do.
    #[must_use]
    pub fn explain(&self, status: &Status) -> String {
        let words = reason(status);
        // What is left of the other side's protest depends on who was faster.
        let is_cut =
            ["frame with invalid size", "connection closed", "broken pipe", "reset by peer", "fatal alert"]
                .iter()
                .any(|cut| words.to_lowercase().contains(cut));
        let hint = match &self.tls {
            None if is_cut => "if it speaks TLS, say which CA to trust",
            Some(tls) if is_cut && tls.shows_itself() => {
                "it may not accept the certificate that it was shown"
            }
            _ => return words,
        };
        format!("{words}; {hint}")
    }
}

/// The connections of a client. Cheap to clone; clones share the connections.
///
/// A connection is made by the first call on it, and made again after it broke by the next call: dialling itself never waits and
/// never fails because a Manager is away. Must be used inside a tokio runtime.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    channels: Arc<Mutex<BTreeMap<ManagerId, Channel>>>,
    security: Security,
    /// Why a call failed last.
    problem: Arc<Mutex<Option<String>>>,
}

impl Dialer {
    /// A dialer without connections.
    #[must_use]
    pub fn new() -> Dialer {
        Dialer::default()
    }

    /// A dialer whose connections are secured.
    #[must_use]
    pub fn secured(security: Security) -> Dialer {
        Dialer { security, ..Dialer::default() }
    }

    /// For an Owner's sessions with a Manager.
    pub fn owner(&self, manager: &ManagerId) -> Result<OwnerClient<Channel>, DialError> {
        let client = OwnerClient::new(self.channel(manager)?);
        Ok(client
            .max_decoding_message_size(limits::CLIENT_RECEIVES)
            .max_encoding_message_size(limits::MANAGER_RECEIVES))
    }

    /// For a Lookup's watches at a Manager.
    pub fn lookup(&self, manager: &ManagerId) -> Result<LookupClient<Channel>, DialError> {
        let client = LookupClient::new(self.channel(manager)?);
        Ok(client
            .max_decoding_message_size(limits::CLIENT_RECEIVES)
            .max_encoding_message_size(limits::MANAGER_RECEIVES))
    }

    /// For an operator's requests to a Manager.
    pub fn admin(&self, manager: &ManagerId) -> Result<AdminClient<Channel>, DialError> {
        let client = AdminClient::new(self.channel(manager)?);
        Ok(client
            .max_decoding_message_size(limits::CLIENT_RECEIVES)
            .max_encoding_message_size(limits::MANAGER_RECEIVES))
    }

    /// The connection to a Manager.
    pub fn channel(&self, manager: &ManagerId) -> Result<Channel, DialError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(manager) {
            return Ok(channel.clone());
        }
        let endpoint = endpoint(manager)?;
        let Security { tls, token_file } = self.security.clone();
        let bearer = Bearer::new(token_file, manager, tls.is_some());
        let channel = match tls {
            Some(tls) => {
                endpoint.connect_with_connector_lazy(tower::service_fn(move |uri| connect(tls.clone(), uri)))
            }
            None => endpoint.connect_lazy(),
        };
        let channel = InterceptedService::new(channel, bearer);
        channels.insert(manager.clone(), channel.clone());
        Ok(channel)
    }

    /// Takes note of why a call failed. Where the Manager does not believe who calls, the next call makes another connection, with the
    /// certificate of then.
    pub fn failed(&self, manager: &ManagerId, status: &Status) {
        let words = format!("{manager}: {}", self.security.explain(status));
        if status.code() == Code::Unauthenticated {
            self.give_up(manager);
        }
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        let is_denied = matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied);
        if is_denied && problem.as_ref() != Some(&words) {
            tracing::warn!("{words}");
        }
        *problem = Some(words);
    }

    /// Why a call failed last, if one has.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets go of the connection to a Manager that was silent for too long: the next call makes another. After a cut, the old one
    /// would wait for as long again as the cut had lasted.
    pub fn give_up(&self, manager: &ManagerId) {
        self.keep_only(|known| known != manager);
    }

    /// Lets go of the connections to Managers that are not wanted any more; calls under way on them go on.
    pub fn keep_only(&self, wanted: impl Fn(&ManagerId) -> bool) {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.retain(|manager, _| wanted(manager));
    }
}

/// What a status says or, if the transport made it, what caused it.
#[must_use]
fn reason(status: &Status) -> String {
    let mut cause = std::error::Error::source(status);
    let mut words = status.message().to_owned();
    while let Some(error) = cause {
        words = error.to_string();
        cause = error.source();
    }
    words
}

/// Makes a connection inside TLS.
async fn connect(tls: ClientTls, uri: Uri) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
    let (host, port) = (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or_default());
    Ok(TokioIo::new(tls.connect(host, port).await?))
}

/// How a Manager is reached. Its scheme says nothing: TLS is not the transport's business.
fn endpoint(manager: &ManagerId) -> Result<Endpoint, DialError> {
    let endpoint = Endpoint::from_shared(format!("http://{manager}"))
        .map_err(|source| DialError { manager: manager.clone(), source })?;
    Ok(endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW))
}
