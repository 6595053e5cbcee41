//! What services answer: JSON with the lease it is true under, or a problem that says what to do; and where
//! they listen.

use std::fmt;
use std::hash::Hash;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use centrifuge::leased_map::{Leased, LeasedKey};
use centrifuge::{Generation, LeasedMap, NotOwner};
use centrifuge_server::stop::told_to_stop;
use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::net::TcpListener;

use crate::Result;

/// The header that carries a lease's number: in an answer the lease it is true under, in a request the lease of
/// its sender.
pub const LEASE: &str = "centrifuge-lease";

/// How a request is answered.
pub type Reply = Result<Response, Problem>;

/// Why a request is not answered.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    fields: Map<String, Value>,
    lease: Option<Generation>,
}

impl Problem {
    /// A problem in words.
    pub fn new(status: StatusCode, words: impl fmt::Display) -> Problem {
        let fields = Map::from_iter([("error".to_owned(), Value::String(words.to_string()))]);
        Problem { status, fields, lease: None }
    }

    /// Says more, for programs.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Problem {
        self.fields.insert(field.to_owned(), value.into());
        self
    }
}

impl From<NotOwner> for Problem {
    /// Callers know this status, and look for the owner again.
    fn from(why: NotOwner) -> Problem {
        Problem::new(StatusCode::MISDIRECTED_REQUEST, why)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        with_lease((self.status, Json(Value::Object(self.fields))).into_response(), self.lease)
    }
}

/// Looks at what an operation found: a problem with it is true under the same lease.
pub fn judge<T, U>(
    outcome: Leased<T>,
    judge: impl FnOnce(T) -> Result<U, Problem>,
) -> Result<Leased<U>, Problem> {
    let Leased { value, key, generation } = outcome;
    let value = judge(value).map_err(|problem| Problem { lease: Some(generation), ..problem })?;
    Ok(Leased { value, key, generation })
}

/// The last of the four steps: an answer leaves only if its lease was held until now.
pub fn answer<K, V, T>(map: &LeasedMap<K, V>, outcome: &Leased<T>) -> Reply
where
    K: LeasedKey + Eq + Hash + Clone,
    T: Serialize,
{
    map.recheck(outcome)?;
    Ok(under_lease(outcome))
}

/// An answer with the lease it is true under. Check the lease again just before.
pub fn under_lease<T: Serialize>(outcome: &Leased<T>) -> Response {
    with_lease(Json(&outcome.value).into_response(), Some(outcome.generation))
}

/// Adds the lease that an answer is true under, if there is one.
pub fn with_lease(mut answer: Response, lease: Option<Generation>) -> Response {
    if let Some(lease) = lease {
        answer.headers_mut().insert(HeaderName::from_static(LEASE), lease.0.into());
    }
    answer
}

/// Refuses a name that cannot be a part of a path: clients of HTTP take these for directions, however they are written.
pub fn check_name(name: &str) -> Result<(), Problem> {
    if ["", ".", ".."].contains(&name) {
        let words = format!("{name:?} cannot be a name: it would not survive in a path");
        return Err(Problem::new(StatusCode::BAD_REQUEST, words));
    }
    Ok(())
}

/// The lease that a message came under, if it says.
pub fn lease_of(headers: &HeaderMap) -> Option<Generation> {
    headers.get(LEASE)?.to_str().ok()?.parse().ok().map(Generation)
}

/// Tells whoever started this process that it serves, and where.
pub fn say_ready(name: &str, address: &str) {
    println!("ready {name} {address}");
}

/// What everything is told that listens.
#[derive(Args, Clone, Debug)]
pub struct ListenArgs {
    /// Its name; a server's restarts share it
    #[arg(long)]
    pub name: String,
    /// Where it listens
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: String,
}

impl ListenArgs {
    /// Listens, and says where.
    pub async fn bind(&self) -> Result<(TcpListener, String)> {
        let listener = TcpListener::bind(&self.listen).await;
        let listener =
            listener.map_err(|error| format!("{} cannot listen on {}: {error}", self.name, self.listen))?;
        let url = format!("http://{}", listener.local_addr()?);
        Ok((listener, url))
    }

    /// Answers until it is told to stop. For what is no server of a pool, and has nothing to move away.
    pub async fn serve(&self, routes: Router) -> Result<()> {
        let (listener, url) = self.bind().await?;
        say_ready(&self.name, &url);
        tokio::select! {
            served = axum::serve(listener, routes) => Ok(served?),
            () = told_to_stop() => Ok(()),
        }
    }
}
