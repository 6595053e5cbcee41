//! A caller of a pool: finds the owner of a name, asks it over HTTP, and asks again where the name has moved.

use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use centrifuge::router::{Refusal, RouterError};
use centrifuge::{Generation, Key, Lookup, Managers, Route, Router};
use centrifuge_server::config::read_duration;
use clap::Args;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Result;
use crate::shared::http::{LEASE, lease_of, with_lease};

/// How long one attempt may take beyond what the request itself waits for.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// What every caller is told.
#[derive(Args, Clone, Debug)]
pub struct CallerArgs {
    /// The Managers as host:port, separated by commas
    #[arg(long, env = "CENTRIFUGE_MANAGERS", default_value = "127.0.0.1:7600", value_parser = managers)]
    pub managers: Managers,
    /// Its times
    #[command(flatten)]
    pub times: CallerTimes,
}

/// How patient a caller is, for servers too that call other pools.
#[derive(Args, Clone, Debug)]
pub struct CallerTimes {
    /// How often to ask for the table when all is well
    #[arg(long, value_parser = duration, default_value = "30s", value_name = "DURATION")]
    pub poll: Duration,
    /// How old the table may become before everything is taken for lost
    #[arg(long, value_parser = duration, default_value = "90s", value_name = "DURATION")]
    pub contact_timeout: Duration,
    /// How long a loss waits for the next owner before it is told
    #[arg(long, value_parser = duration, default_value = "30s", value_name = "DURATION")]
    pub unowned_delay: Duration,
    /// How long a Manager may be silent before every one is asked
    #[arg(long, value_parser = duration, default_value = "5s", value_name = "DURATION")]
    pub silence: Duration,
    /// How long a request is tried before it fails
    #[arg(long, value_parser = duration, default_value = "90s", value_name = "DURATION")]
    pub patience: Duration,
}

impl CallerArgs {
    /// The table of a pool.
    pub async fn lookup(&self, namespace: &str) -> Result<Lookup> {
        let builder = Lookup::builder(self.managers.clone(), namespace)
            .poll(self.times.poll)
            .contact_timeout(self.times.contact_timeout)
            .unowned_delay(self.times.unowned_delay)
            .silence(self.times.silence);
        Ok(builder.connect().await?)
    }
}

/// Reads a list of Managers.
pub fn managers(text: &str) -> Result<Managers, String> {
    Managers::list(text.split(',')).map_err(|error| error.to_string())
}

/// Reads a duration: a whole number with ms, s, m or h.
pub fn duration(text: &str) -> Result<Duration, String> {
    read_duration(text).ok_or_else(|| "write a whole number and ms, s, m or h, such as 30s".to_owned())
}

/// A name as a part of a path or a query.
pub fn segment(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let written = |byte: u8| if is_plain(byte) { char::from(byte).into() } else { format!("%{byte:02X}") };
    name.bytes().map(written).collect()
}

/// A pool as its callers see it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    lookup: Lookup,
    router: Router,
    http: reqwest::Client,
}

/// A request to the owner of a name.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    path: String,
    lease: Option<Generation>,
    body: Bytes,
    wait: Duration,
}

/// What the owner said.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether it went well.
    pub status: StatusCode,
    /// The lease that the answer is true under.
    pub lease: Option<Generation>,
    /// What kind of text it is.
    pub content_type: Option<String>,
    /// The text.
    pub body: Bytes,
    /// What was tried before somebody answered.
    pub tries: Tries,
}

/// Attempts that did not reach the owner of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tries {
    /// So many servers said that the name is not theirs.
    pub misrouted: u32,
    /// So many servers did not answer.
    pub unreachable: u32,
}

/// Nobody answered for a name.
pub type Unanswered = RouterError<String>;

impl Pool {
    /// Learns where everything is.
    pub async fn connect(args: &CallerArgs, namespace: &str) -> Result<Pool> {
        let lookup = args.lookup(namespace).await?;
        let router = Router::new(lookup.clone()).patience(args.times.patience);
        Ok(Pool { lookup, router, http: reqwest::Client::new() })
    }

    /// The table, and the losses.
    pub fn lookup(&self) -> &Lookup {
        &self.lookup
    }

    /// Where a name is at the servers of the pool: it may have any characters.
    pub fn path_of(&self, name: &str) -> String {
        format!("/{}/{}", self.lookup.namespace().as_str(), segment(name))
    }

    /// The same pool for a request that is tried for longer or not as long.
    pub fn patience(&self, patience: Duration) -> Pool {
        Pool { router: self.router.clone().patience(patience), ..self.clone() }
    }

    /// Asks the owner of `name`, wherever that is by the time. A request may arrive twice: where that matters
    /// it says what it is conditional on.
    pub async fn ask(&self, name: &str, call: &Call) -> Result<Answer, Unanswered> {
        self.ask_for(Key::of(name.as_bytes()), call).await
    }

    /// Asks the owner of a key.
    pub async fn ask_for(&self, key: Key, call: &Call) -> Result<Answer, Unanswered> {
        let (misrouted, unreachable) = (AtomicU32::new(0), AtomicU32::new(0));
        let count = |refusal: &Refusal<String>| match refusal {
            Refusal::NotOwner => drop(misrouted.fetch_add(1, Ordering::Relaxed)),
            Refusal::Unreachable(_) => drop(unreachable.fetch_add(1, Ordering::Relaxed)),
            Refusal::Failed(_) => {}
        };
        let attempt = async |route: Route| call.attempt(&self.http, route.url()).await.inspect_err(count);
        let mut answer = self.router.send(key, attempt).await?;
        answer.tries = Tries { misrouted: misrouted.into_inner(), unreachable: unreachable.into_inner() };
        Ok(answer)
    }
}

impl Call {
    /// Asks for what is at `path`.
    pub fn get(path: impl Into<String>) -> Call {
        Call::new(Method::GET, path, Bytes::new())
    }

    /// Sends something to be dealt with.
    pub fn post(path: impl Into<String>, body: &impl Serialize) -> Call {
        Call::new(Method::POST, path, json(body))
    }

    /// Sends something to be there from now on.
    pub fn put(path: impl Into<String>, body: &impl Serialize) -> Call {
        Call::new(Method::PUT, path, json(body))
    }

    /// Any other request.
    pub fn new(method: Method, path: impl Into<String>, body: Bytes) -> Call {
        Call { method, path: path.into(), lease: None, body, wait: Duration::ZERO }
    }

    /// Sent under a lease, so that the receiver can refuse it if the sender has lost the key since.
    pub fn under(mut self, lease: Generation) -> Call {
        self.lease = Some(lease);
        self
    }

    /// The owner may wait this long before it answers.
    pub fn wait(mut self, wait: Duration) -> Call {
        self.wait = wait;
        self
    }

    /// Asks one server once.
    pub async fn attempt(&self, http: &reqwest::Client, url: &str) -> Result<Answer, Refusal<String>> {
        let mut request = http
            .request(self.method.clone(), format!("{url}{}", self.path))
            .header("content-type", "application/json")
            .timeout(self.wait + ATTEMPT_TIMEOUT)
            .body(self.body.clone());
        if let Some(lease) = self.lease {
            request = request.header(LEASE, lease.0);
        }
        let lost = |error: reqwest::Error| Refusal::Unreachable(reason(&error));
        let response = request.send().await.map_err(lost)?;
        if response.status() == StatusCode::MISDIRECTED_REQUEST {
            return Err(Refusal::NotOwner);
        }
        let (status, lease) = (response.status(), lease_of(response.headers()));
        let content_type = response.headers().get("content-type");
        let content_type = content_type.and_then(|kind| kind.to_str().ok()).map(str::to_owned);
        let body = response.bytes().await.map_err(lost)?;
        Ok(Answer { status, lease, content_type, body, tries: Tries::default() })
    }
}

impl Answer {
    /// Reads the answer to a request that went well.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        if !self.status.is_success() {
            return Err(format!("{}: {}", self.status, String::from_utf8_lossy(&self.body)).into());
        }
        Ok(serde_json::from_slice(&self.body)?)
    }
}

impl IntoResponse for Answer {
    /// Passes the answer on as it came.
    fn into_response(self) -> Response {
        let kind = self.content_type.unwrap_or_else(|| "application/json".to_owned());
        with_lease((self.status, [("content-type", kind)], self.body).into_response(), self.lease)
    }
}

fn json(body: &impl Serialize) -> Bytes {
    // What cannot be written is refused by who reads nothing.
    serde_json::to_vec(body).unwrap_or_default().into()
}

/// The innermost cause: the outer ones only say that there was one.
fn reason(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), reason)
}
