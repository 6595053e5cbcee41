//! Counts requests that end before a service sees them: too large, or no message at all.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::shared::Shared;

/// A service whose refusals are counted as hostile input.
#[derive(Clone, Debug)]
pub struct Counted<S> {
    service: S,
    shared: Arc<Shared>,
}

impl<S> Counted<S> {
    /// Counts what `service` refuses.
    pub fn new(service: S, shared: Arc<Shared>) -> Counted<S> {
        Counted { service, shared }
    }
}

impl<S: NamedService> NamedService for Counted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Counted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            if let Some(status) = Status::from_header_map(response.headers())
                && let Some(kind) = refusal(status.code())
            {
                shared.refused_input(kind, &"a request", &status.message());
                if is_undecodable(&status) {
                    blame_the_request(&mut response);
                }
            }
            Ok(response)
        })
    }
}

/// The transport calls bytes that are no message an error of the server.
fn is_undecodable(status: &Status) -> bool {
    status.code() == Code::Internal && status.message().contains("decode")
}

fn blame_the_request(response: &mut http::Response<Body>) {
    let code = http::HeaderValue::from(Code::InvalidArgument as i32);
    response.headers_mut().insert(Status::GRPC_STATUS, code);
}

/// The kind of refusal that a response without a body tells in its headers, if it is of the peer's making.
fn refusal(code: Code) -> Option<&'static str> {
    match code {
        Code::OutOfRange => Some("too-large"),
        Code::InvalidArgument => Some("invalid-request"),
        Code::Internal => Some("undecodable"),
        Code::Unimplemented => Some("unknown-method"),
        _ => None,
    }
}
