//! How a process is told to end.

use tokio::signal::unix::{SignalKind, signal};

/// Waits for the word to end: SIGTERM, or Ctrl-C.
pub async fn told_to_stop() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = terminated => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
