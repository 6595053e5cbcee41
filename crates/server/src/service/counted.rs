//! What all services have in common: requests that end before a service sees them are counted, and connections learn of requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use centrifuge_net::proto::v1::owner_server::OwnerServer;
use http_body::{Body as HttpBody, Frame, SizeHint};
use prost::bytes::Bytes;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use super::owner::OwnerService;
use crate::access::{Access, Gate, gate};
use crate::admission::RequestGuard;
use crate::listener::{Caller, Progress};
use crate::shared::Shared;

const OWNER: &str = <OwnerServer<OwnerService> as NamedService>::NAME;

/// A service whose refusals are counted as hostile input.
#[derive(Clone, Debug)]
pub(crate) struct Counted<S> {
    service: S,
    shared: Arc<Shared>,
}

impl<S> Counted<S> {
    /// Counts what `service` refuses.
    pub(crate) fn new(service: S, shared: Arc<Shared>) -> Counted<S> {
        Counted { service, shared }
    }
}

impl<S: NamedService> NamedService for Counted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Counted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + NamedService,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let shared = Arc::clone(&self.shared);
        let progress = request.extensions().get::<Caller>().map(|caller| caller.progress.clone());
        progress.iter().for_each(Progress::asked);
        let under_way = request.extensions().get::<Caller>().map(|caller| caller.connection.request());
        if let Err(status) = authorize(&shared, &mut request) {
            progress.iter().for_each(Progress::answered);
            return Box::pin(async move { Ok(status.into_http()) });
        }
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            // A session answers before its first message has come, and moves on by itself.
            if S::NAME != OWNER {
                progress.iter().for_each(Progress::answered);
            }
            if let Some(status) = Status::from_header_map(response.headers())
                && let Some(kind) = refusal(status.code())
            {
                shared.refused_input(kind, &"a request", &status.message());
                if is_undecodable(&status) {
                    blame_the_request(&mut response);
                }
            }
            Ok(response.map(|body| Body::new(GuardedBody { body, _under_way: under_way })))
        })
    }
}

/// Finds out who calls, and whether they may use a method at all. What the request says is checked by the service.
fn authorize(shared: &Shared, request: &mut http::Request<Body>) -> Result<(), Status> {
    let access = match gate(request.uri().path()) {
        Some(Gate::Public) => return Ok(()),
        Some(Gate::Needs(access)) => access,
        // An unknown method of a service: only who may do something learns that there is none.
        None => Access::Anything,
    };
    let Some(mut caller) = request.extensions().get::<Caller>().cloned() else {
        return shared.authorize(None, &"an unknown address", &access);
    };
    caller.identity =
        shared.identify(request.headers(), caller.identity.as_ref(), caller.address, &access)?;
    shared.authorize(caller.identity.as_deref(), &caller.address, &access)?;
    request.extensions_mut().insert(caller);
    Ok(())
}

/// The body of an answer. Until it was sent, or nobody wants it any more, its connection has a request.
struct GuardedBody {
    body: Body,
    _under_way: Option<RequestGuard>,
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
