//! Connections to Managers, against a server on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use centrifuge_core::id::ManagerId;
use centrifuge_net::dial::Dialer;
use centrifuge_net::limits;
use centrifuge_net::proto::v1;
use centrifuge_net::proto::v1::lookup_server::{Lookup, LookupServer};
use prost::bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Iter, StreamExt};
use tonic::{Code, Request, Response, Status};

/// More than the four mebibytes that tonic takes unless told otherwise.
const LONG_NEWS: usize = 5 << 20;

/// Answers every watch with one long message.
struct LongNews;

#[tonic::async_trait]
impl Lookup for LongNews {
    type WatchStream = Iter<std::vec::IntoIter<Result<v1::WatchReply, Status>>>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let news = Bytes::from(vec![7; LONG_NEWS]);
        let update = v1::Update { lookup: request.into_inner().lookup, echo: 1, news };
        let reply = v1::WatchReply { kind: Some(v1::watch_reply::Kind::Update(update)) };
        Ok(Response::new(tokio_stream::iter(vec![Ok(reply)])))
    }
}

/// A Manager of sorts, and how many connections it has accepted.
async fn serve() -> (ManagerId, Arc<AtomicUsize>, JoinHandle<()>) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let incoming = TcpListenerStream::new(listener).map(move |stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        stream
    });
    let service = LookupServer::new(LongNews).max_decoding_message_size(limits::MANAGER_RECEIVES);
    let server = tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming);
    let task = tokio::spawn(async move { server.await.expect("the server runs") });
    (ManagerId::from(address.as_str()), accepted, task)
}

async fn watch(dialer: &Dialer, manager: &ManagerId, request: v1::WatchRequest) -> Result<usize, Status> {
    let mut client = dialer.lookup(manager).expect("an address");
    let mut replies = client.watch(request).await?.into_inner();
    match replies.message().await?.and_then(|reply| reply.kind) {
        Some(v1::watch_reply::Kind::Update(update)) => Ok(update.news.len()),
        other => panic!("not an update: {other:?}"),
    }
}

#[tokio::test]
async fn one_connection_carries_every_call_and_long_messages() {
    let (manager, accepted, server) = serve().await;
    let dialer = Dialer::new();
    let clone = dialer.clone();
    assert_eq!(accepted.load(Ordering::Relaxed), 0, "nothing is connected before it is used");
    for dialer in [&dialer, &clone, &dialer] {
        let news = watch(dialer, &manager, v1::WatchRequest::default()).await.expect("an answer");
        assert_eq!(news, LONG_NEWS);
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
    dialer.keep_only(|_| false);
    watch(&clone, &manager, v1::WatchRequest::default()).await.expect("an answer");
    assert_eq!(accepted.load(Ordering::Relaxed), 2, "a connection that was let go of is made anew");
    server.abort();
}

#[tokio::test]
async fn a_message_that_no_manager_takes_ends_its_call_and_not_the_connection() {
    let (manager, accepted, server) = serve().await;
    let dialer = Dialer::new();
    let namespace = "x".repeat(limits::MANAGER_RECEIVES + 1);
    let request = v1::WatchRequest { namespace, ..Default::default() };
    watch(&dialer, &manager, request).await.expect_err("a message that is too long");
    watch(&dialer, &manager, v1::WatchRequest::default()).await.expect("an answer");
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
    server.abort();
}

#[tokio::test]
async fn a_manager_that_is_away_is_an_error_of_the_call() {
    let (manager, _, server) = serve().await;
    server.abort();
    assert!(server.await.is_err_and(|error| error.is_cancelled()));
    let refused =
        watch(&Dialer::new(), &manager, v1::WatchRequest::default()).await.expect_err("nobody there");
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
}

#[tokio::test]
async fn what_is_no_address_is_named() {
    let error = Dialer::new().owner(&ManagerId::from("no address")).expect_err("two words");
    assert!(error.to_string().starts_with("no address is not the address of a Manager"), "{error}");
}
