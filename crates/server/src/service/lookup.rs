//! Watches of Lookups: a server stream for each request.

use std::sync::Arc;

use centrifuge_core::manager::ManagerEvent;
use centrifuge_core::message::LookupRequest;
use centrifuge_net::convert::WatchFrame;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::lookup_server::{Lookup, LookupServer};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prost::Message;
use tokio_stream::{Empty, StreamExt};
use tonic::{Request, Response, Status};

use super::watch_body::{Replies, SharedBytes};
use super::watches::{Watch, Watches};
use super::{Held, OpenStream, admit, identity, remote};
use crate::access::Guarded;
use crate::inbox::Inbox;
use crate::shared::Shared;

/// A request to watch has a name, two nonces and three numbers.
const LARGEST_REQUEST: usize = 1024;

/// Where Lookups get the table.
#[derive(Clone, Debug)]
pub(crate) struct LookupService {
    shared: Arc<Shared>,
    inbox: Inbox,
    watches: Arc<Watches>,
    counts: Arc<Counts>,
}

/// Metrics that a watch should not have to look up.
#[derive(Debug)]
struct Counts {
    requests: Counter,
    request_bytes: Counter,
    replies: Counter,
    reply_bytes: Counter,
    streams: Gauge,
}

impl LookupService {
    /// The service, with its limit on the size of requests.
    pub(crate) fn server(shared: Arc<Shared>, inbox: Inbox) -> SharedBytes<LookupServer<LookupService>> {
        let metrics = &shared.metrics;
        let counts = Arc::new(Counts {
            requests: metrics.messages_received.with(["watch"]),
            request_bytes: metrics.bytes_received.with(["watch"]),
            replies: metrics.messages_sent.with(["lookup"]),
            reply_bytes: metrics.bytes_sent.with(["lookup"]),
            streams: metrics.streams.with(["lookup"]),
        });
        let service = LookupService { shared, inbox, watches: Arc::default(), counts };
        SharedBytes::new(LookupServer::new(service).max_decoding_message_size(LARGEST_REQUEST))
    }
}

#[tonic::async_trait]
impl Lookup for LookupService {
    /// Replies go another way: they are encoded already.
    type WatchStream = Empty<Result<v1::WatchReply, Status>>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (shared, counts) = (&self.shared, Arc::clone(&self.counts));
        let from = remote(&request);
        let answers = request.extensions().get::<Replies>().cloned();
        let answers = answers.ok_or_else(|| Status::internal("a watch needs a way for its replies"))?;
        let who = identity(&request);
        let request = request.into_inner();
        counts.requests.inc();
        let access = request.access();
        shared.authorize(who.as_deref(), &from, &access)?;
        counts.request_bytes.inc_by(request.encoded_len() as u64);
        let request = LookupRequest::try_from(request)?;
        shared.hear_term(request.term);
        let permit = admit(shared, from, |address| shared.admission.watch(address))?;
        let open = OpenStream::new(counts.streams.clone(), permit);
        let outflow = shared.lookups.open(shared.limits.lookup_queue);
        let standing = shared.stand(outflow.peer(), who.as_ref(), access);
        let mut watch = Watch::new(&self.watches, self.inbox.clone(), outflow.peer(), &request, open);
        let roles = shared.view.roles();
        let is_leading = roles.borrow().is_leading();
        if !is_leading {
            // A Lookup that asks again and again while nobody leads has one stream here.
            watch.earlier().inspect(|earlier| shared.lookups.end(*earlier, None));
            watch.hear_again(roles, request.clone());
        }
        let event = ManagerEvent::FromLookup { from: outflow.peer(), request };
        self.inbox.request(event).await.map_err(|stopped| Status::unavailable(stopped.to_string()))?;
        let mut replies = outflow.peekable();
        // The response begins with the first reply: so a poll costs one packet each way.
        if let Some(Ok(first)) = replies.peek().await {
            shared.admission.watch_answered(from.ip(), first.message_len());
        }
        let replies = replies.map(move |reply| {
            reply.inspect(|reply: &WatchFrame| {
                counts.replies.inc();
                counts.reply_bytes.inc_by(reply.message_len() as u64);
            })
        });
        answers.put(Held { stream: Box::pin(replies), _guard: (watch, standing) });
        Ok(Response::new(tokio_stream::empty()))
    }
}
