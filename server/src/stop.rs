//! How a process is told to end.

use std::io;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
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

/// Has the kernel kill this process when the one that started it ends, however that ends.
pub fn die_with(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before the kernel was told.
    let lives = getppid().is_some_and(|now| now.as_raw_nonzero().get().cast_unsigned() == parent);
    if lives { Ok(()) } else { Err(io::Error::other("the process that started this one is gone")) }
}
