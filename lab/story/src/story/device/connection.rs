//! How a device talks to the datacenter: HTTP to one frontend, and to another when that one fails.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use centrifuge_harness::Rng;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::story::datacenter::Frontends;

/// The frontend cannot help: it is gone, it says so, or it takes too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble(pub(super) String);

/// What a service said.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    body: Value,
}

/// A device's connection.
pub(super) struct Connection {
    http: reqwest::Client,
    frontends: Frontends,
    rng: Rng,
    /// The name of the frontend, and where it is.
    at: (String, String),
    /// How long an answer may take, beyond what the request itself waits for.
    answer: Duration,
}

impl Connection {
    /// Chooses a frontend.
    pub(super) fn new(frontends: Frontends, mut rng: Rng, answer: Duration) -> Connection {
        let at = frontends.choose(None, &mut rng);
        Connection { http: reqwest::Client::new(), frontends, rng, at, answer }
    }

    /// The name of the frontend.
    pub(super) fn frontend(&self) -> &str {
        &self.at.0
    }

    /// Goes to another frontend.
    pub(super) fn go_elsewhere(&mut self) {
        self.at = self.frontends.choose(Some(&self.at.0), &mut self.rng);
    }

    pub(super) async fn get(&self, path: &str, wait: Duration) -> Result<Answer, Trouble> {
        self.ask(Method::GET, path, &Value::Null, wait).await
    }

    pub(super) async fn put(&self, path: &str, body: &impl Serialize) -> Result<Answer, Trouble> {
        self.ask(Method::PUT, path, body, Duration::ZERO).await
    }

    pub(super) async fn post(&self, path: &str, body: &impl Serialize) -> Result<Answer, Trouble> {
        self.ask(Method::POST, path, body, Duration::ZERO).await
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<Answer, Trouble> {
        let trouble = |words: String| Trouble(format!("{} at {path}: {words}", self.at.0));
        let request = self.http.request(method, format!("{}{path}", self.at.1));
        let sent = request.json(body).timeout(wait + self.answer).send().await;
        let response = sent.map_err(|error| trouble(error.to_string()))?;
        let status = response.status();
        let body = response.bytes().await.map_err(|error| trouble(error.to_string()))?;
        if status.is_server_error() {
            return Err(trouble(format!("{status} {}", String::from_utf8_lossy(&body))));
        }
        Ok(Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() })
    }
}

impl Answer {
    /// Reads what went well; nothing else is expected here.
    pub(super) fn read<T: DeserializeOwned>(self) -> Result<T, Trouble> {
        if !self.status.is_success() {
            return Err(Trouble(format!("{}: {}", self.status, self.body)));
        }
        let words = self.body.to_string();
        serde_json::from_value(self.body).map_err(|error| Trouble(format!("{error} in {words}")))
    }

    /// A field of an answer of whatever status.
    pub(super) fn field<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_value(self.body.get(name)?.clone()).ok()
    }
}
