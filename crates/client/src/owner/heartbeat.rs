//! The application's sign of life: without it the Owner gives its leases up, so that others may serve the keys.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use centrifuge_core::owner::OwnerEvent;
use centrifuge_core::time::Instant;
use centrifuge_net::clock;
use tokio::sync::mpsc;

use super::Shared;

/// Asks the application whether it is well.
pub(super) type Probe = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = bool> + Send>> + Send + Sync>;

/// How often in a limit the application is looked at.
const CHECKS_PER_LIMIT: u32 = 4;

/// Watches the application, and gives up when it was silent for longer than `limit`.
pub(super) async fn watch(
    shared: Arc<Shared>,
    events: mpsc::Sender<OwnerEvent>,
    limit: Duration,
    probe: Option<Probe>,
) {
    let pause = limit / CHECKS_PER_LIMIT;
    while is_alive(&shared, limit) {
        match &probe {
            Some(probe) => ask(&shared, probe, pause).await,
            None => tokio::time::sleep(pause).await,
        }
    }
    shared.gives_up.store(true, Ordering::Relaxed);
    tracing::error!(?limit, "no sign of life of the application: its leases are given up");
    // A driver that is gone holds nothing.
    let _ = events.send(OwnerEvent::Leave).await;
}

/// One question, which may take as long as the pause before the next.
async fn ask(shared: &Shared, probe: &Probe, pause: Duration) {
    let asked_at = clock::now();
    if tokio::time::timeout(pause, probe()).await == Ok(true) {
        shared.alive_at.fetch_max(asked_at.0, Ordering::Relaxed);
    }
    tokio::time::sleep((asked_at + pause).since(clock::now())).await;
}

fn is_alive(shared: &Shared, limit: Duration) -> bool {
    let alive_at = Instant(shared.alive_at.load(Ordering::Relaxed));
    clock::now().since(alive_at) <= limit
}
