//! The two servers of a Manager: gRPC for clients and operators, HTTP for health, metrics and status.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_net::proto::FILE_DESCRIPTOR_SET;
use centrifuge_net::proto::v1::admin_server::AdminServer;
use centrifuge_net::proto::v1::lookup_server::LookupServer;
use centrifuge_net::proto::v1::owner_server::OwnerServer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};
use tracing::error;

use crate::inbox::Inbox;
use crate::service::Counted;
use crate::service::admin::AdminService;
use crate::service::lookup::LookupService;
use crate::service::owner::OwnerService;
use crate::shared::Shared;
use crate::{http as pages, listener};

/// After which silence of a connection the transport asks whether it is there. Longer than a Lookup's poll and an Owner's renewal:
/// who lives is heard without being asked.
const KEEP_ALIVE: Duration = Duration::from_secs(45);
/// How long it waits for the answer.
const KEEP_ALIVE_ANSWER: Duration = Duration::from_secs(15);
/// How much a stream may send ahead of what is read: bounds what unread input can cost.
const STREAM_WINDOW: u32 = 64 << 10;
/// The same for all streams of a connection.
const CONNECTION_WINDOW: u32 = 256 << 10;
/// The most headers of one request, in bytes.
const LARGEST_HEADERS: u32 = 16 << 10;
/// How many connections may wait to be served.
const BACKLOG: usize = 64;

/// Serves gRPC until told to stop.
pub(super) fn grpc(
    listener: TcpListener,
    shared: Arc<Shared>,
    inbox: Inbox,
    stopped: watch::Receiver<bool>,
) -> Result<impl Future<Output = ()>, tonic_reflection::server::Error> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let (reporter, health) = health_reporter();
    let counted_owner =
        Counted::new(OwnerService::server(Arc::clone(&shared), inbox.clone()), Arc::clone(&shared));
    let counted_lookup =
        Counted::new(LookupService::server(Arc::clone(&shared), inbox.clone()), Arc::clone(&shared));
    let counted_admin = Counted::new(AdminService::server(Arc::clone(&shared), inbox), Arc::clone(&shared));
    let streams = u32::try_from(shared.limits.max_streams_per_address).unwrap_or(u32::MAX);
    let router = Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_ANSWER))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(streams)
        .http2_max_header_list_size(LARGEST_HEADERS)
        .add_service(counted_owner)
        .add_service(counted_lookup)
        .add_service(counted_admin)
        .add_service(Counted::new(health, Arc::clone(&shared)))
        .add_service(Counted::new(reflection, Arc::clone(&shared)));
    let (accepted, connections) = mpsc::channel(BACKLOG);
    Ok(async move {
        let accepting = listener::accept(listener, Arc::clone(&shared), accepted);
        let incoming = ReceiverStream::new(connections).map(Ok::<_, io::Error>);
        let serving = router.serve_with_incoming_shutdown(incoming, until(stopped.clone()));
        let (served, (), ()) = tokio::join!(serving, accepting, report_health(reporter, &shared, stopped));
        if let Err(error) = served {
            error!(%error, "the gRPC server failed");
        }
    })
}

/// Serves HTTP until told to stop.
pub(super) async fn http(listener: TcpListener, shared: Arc<Shared>, stopped: watch::Receiver<bool>) {
    let room = pages::Room::new(listener, &shared);
    let pages = pages::router(shared).into_make_service_with_connect_info::<pages::Visitor>();
    let server = axum::serve(room, pages).with_graceful_shutdown(until(stopped));
    if let Err(error) = server.await {
        error!(%error, "the HTTP server failed");
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone has stopped as well.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// How often it is looked at whether a leader can commit.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Tells health checkers whether asking this Manager gets anywhere: it leads and can commit, or can say who does.
async fn report_health(reporter: HealthReporter, shared: &Shared, stopped: watch::Receiver<bool>) {
    let mut roles = shared.view.roles();
    let follow = async {
        let mut said = None;
        loop {
            roles.mark_unchanged();
            let ready = shared.view.is_ready();
            if said.replace(ready) != Some(ready) {
                report(&reporter, if ready { ServingStatus::Serving } else { ServingStatus::NotServing })
                    .await;
            }
            if let Ok(Err(_)) = tokio::time::timeout(LOOK_EVERY, roles.changed()).await {
                return;
            }
        }
    };
    tokio::select! {
        () = follow => {}
        () = until(stopped) => {}
    }
    report(&reporter, ServingStatus::NotServing).await;
}

async fn report(reporter: &HealthReporter, status: ServingStatus) {
    let names = [
        "",
        <OwnerServer<OwnerService> as NamedService>::NAME,
        <LookupServer<LookupService> as NamedService>::NAME,
        <AdminServer<AdminService> as NamedService>::NAME,
    ];
    for name in names {
        reporter.set_service_status(name, status).await;
    }
}
