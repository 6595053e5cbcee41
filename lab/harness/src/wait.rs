//! Waits with a bound that no slow machine reaches.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take on a machine that does much else.
pub const TIMEOUT: Duration = Duration::from_secs(90);
/// How often a condition is checked.
pub const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Waits until a condition holds, and panics if it does not.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Waits for something, and panics if it does not come.
pub async fn within<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, wait).await.expect("in time")
}

/// Looks again and again until `look` finds something, and panics if it does not.
pub async fn eventually<T, F: Future<Output = Option<T>>>(mut look: impl FnMut() -> F) -> T {
    // Not by `poll`, whose future cannot be spawned.
    within(async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// Looks again and again until `look` finds something, or for too long.
pub async fn poll<T>(
    interval: Duration,
    timeout: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let since = Instant::now();
    loop {
        let found = look().await;
        if found.is_some() || since.elapsed() > timeout {
            return found;
        }
        tokio::time::sleep(interval).await;
    }
}
