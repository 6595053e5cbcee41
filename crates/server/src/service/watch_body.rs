//! Answers to watches whose bytes are shared by all Lookups: a body of our own in place of the one that tonic makes.
//!
//! Tonic encodes each message into a buffer of its stream and keeps the buffer, so that every Lookup would cost the Manager a copy
//! of the table. Here the service hands over what is encoded already, and the transport sends those bytes.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use centrifuge_net::convert::WatchFrame;
use http_body::Frame;
use prost::bytes::Bytes;
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;

/// Where a service puts the replies of a watch that it has begun: an extension of the request.
#[derive(Clone, Default)]
pub(super) struct Replies(Arc<Mutex<Option<BoxedReplies>>>);

/// The replies of one watch.
pub(super) trait WatchReplies: Stream<Item = Result<WatchFrame, Status>> + Send {}

impl<S: Stream<Item = Result<WatchFrame, Status>> + Send> WatchReplies for S {}

type BoxedReplies = Pin<Box<dyn WatchReplies>>;

impl Replies {
    pub(super) fn put(&self, replies: impl WatchReplies + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::pin(replies));
    }

    fn take(&self) -> Option<BoxedReplies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A service whose watches are answered with shared bytes.
#[derive(Clone, Debug)]
pub(crate) struct SharedBytes<S> {
    service: S,
}

impl<S> SharedBytes<S> {
    /// Answers for `service`, which puts replies where the request says.
    pub(crate) fn new(service: S) -> SharedBytes<S> {
        SharedBytes { service }
    }
}

impl<S: NamedService> NamedService for SharedBytes<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for SharedBytes<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<S::Response, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let replies = Replies::default();
        request.extensions_mut().insert(replies.clone());
        let answer = self.service.call(request);
        Box::pin(async move {
            let response = answer.await?;
            Ok(match replies.take() {
                Some(replies) => response.map(|_| Body::new(WatchBody::new(replies))),
                None => response,
            })
        })
    }
}

/// What goes over the wire for one watch.
struct WatchBody {
    /// `None` once the trailers were given.
    replies: Option<BoxedReplies>,
    /// The second piece of a message, after its first.
    rest: Option<Bytes>,
}

impl WatchBody {
    fn new(replies: BoxedReplies) -> WatchBody {
        WatchBody { replies: Some(replies), rest: None }
    }
}

impl http_body::Body for WatchBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(rest) = self.rest.take() {
            return Poll::Ready(Some(Ok(Frame::data(rest))));
        }
        let Some(replies) = &mut self.replies else { return Poll::Ready(None) };
        let status = match replies.as_mut().poll_next(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(WatchFrame { head, news }))) => {
                self.rest = (!news.is_empty()).then_some(news);
                return Poll::Ready(Some(Ok(Frame::data(head))));
            }
            Poll::Ready(Some(Err(status))) => status,
            Poll::Ready(None) => Status::ok(""),
        };
        self.replies = None;
        let mut trailers = http::HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.replies.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;

    async fn next(body: &mut WatchBody) -> Option<Frame<Bytes>> {
        let next = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        next.map(|frame| frame.expect("well"))
    }

    #[tokio::test]
    async fn news_are_sent_from_where_they_are_and_a_status_comes_last() {
        let news = Bytes::from_static(b"news");
        let replies = [
            Ok(WatchFrame { head: Bytes::from_static(b"head"), news: news.clone() }),
            Ok(WatchFrame { head: Bytes::from_static(b"short"), news: Bytes::new() }),
            Err(Status::resource_exhausted("slow")),
        ];
        let mut body = WatchBody::new(Box::pin(tokio_stream::iter(replies)));
        let mut data = async || next(&mut body).await.and_then(|frame| frame.into_data().ok());
        assert_eq!(data().await.as_deref(), Some(&b"head"[..]));
        assert_eq!(data().await.expect("the news").as_ptr(), news.as_ptr(), "the same memory");
        assert_eq!(data().await.as_deref(), Some(&b"short"[..]));
        let trailers = next(&mut body).await.and_then(|frame| frame.into_trailers().ok()).expect("trailers");
        let status = Status::from_header_map(&trailers).expect("a status");
        assert_eq!((status.code(), status.message()), (tonic::Code::ResourceExhausted, "slow"));
        assert!(body.is_end_stream() && next(&mut body).await.is_none());
    }
}
