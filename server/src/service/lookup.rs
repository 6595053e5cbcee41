//! Watches of Lookups: a server stream for each request.

use std::pin::Pin;
use std::sync::Arc;

use centrifuge_core::manager::ManagerEvent;
use centrifuge_core::message::LookupRequest;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::lookup_server::{Lookup, LookupServer};
use prost::Message;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use super::{Held, OpenStream, admit, remote};
use crate::inbox::Inbox;
use crate::shared::Shared;

/// A request to watch has a name, two nonces and three numbers.
const LARGEST_REQUEST: usize = 1024;

/// Where Lookups get the table.
#[derive(Clone, Debug)]
pub struct LookupService {
    shared: Arc<Shared>,
    inbox: Inbox,
}

impl LookupService {
    /// The service, with its limit on the size of requests.
    pub fn server(shared: Arc<Shared>, inbox: Inbox) -> LookupServer<LookupService> {
        LookupServer::new(LookupService { shared, inbox }).max_decoding_message_size(LARGEST_REQUEST)
    }
}

#[tonic::async_trait]
impl Lookup for LookupService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchReply, Status>> + Send>>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let shared = &self.shared;
        let from = remote(&request);
        let request = request.into_inner();
        shared.metrics.messages_received.with(["watch"]).inc();
        shared.metrics.bytes_received.with(["watch"]).inc_by(request.encoded_len() as u64);
        let request = LookupRequest::try_from(request)?;
        let permit = admit(shared, from, |address| shared.admission.watch(address))?;
        let open = OpenStream::new(shared.metrics.streams.with(["lookup"]), permit);
        let outflow = shared.lookups.open(shared.limits.lookup_queue);
        let event = ManagerEvent::FromLookup { from: outflow.peer(), request };
        self.inbox.request(event).await.map_err(|stopped| Status::unavailable(stopped.to_string()))?;
        let (messages, bytes) =
            (shared.metrics.messages_sent.with(["lookup"]), shared.metrics.bytes_sent.with(["lookup"]));
        let wire = outflow.map(move |reply| {
            reply.inspect(|reply| {
                messages.inc();
                bytes.inc_by(reply.encoded_len() as u64);
            })
        });
        Ok(Response::new(Box::pin(Held { stream: Box::pin(wire), _guard: open })))
    }
}
