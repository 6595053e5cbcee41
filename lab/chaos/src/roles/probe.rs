//! Asks for every lease again and again, and writes down when the answer was yes.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::stretch::{Stretch, Stretches};
use crate::lines::{Journal, Span};

/// The pause between two rounds.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// Probes as long as the process lives: on a thread of its own, so that a busy runtime does not hide what the checks
/// would say. `ask` is told the key and the lease of the latest yes, if no answer after it was no.
pub(super) fn probe<N: Copy + Eq + Send + 'static, L: Serialize + 'static>(
    keys: Vec<u32>,
    journal: Arc<Journal>,
    line: fn(Stretch<N>) -> L,
    mut ask: impl FnMut(u32, Option<N>) -> Option<N> + Send + 'static,
) {
    thread::spawn(move || {
        let mut stretches = Stretches::new();
        loop {
            let mut written = Vec::new();
            for key in &keys {
                let before = stretches.lease_of(*key);
                match Span::of(|| ask(*key, before)) {
                    (at, Some(lease)) => stretches.said_yes(*key, lease, at, &mut written),
                    (_, None) => stretches.said_no(*key, &mut written),
                }
            }
            let lines: Vec<L> = written.into_iter().map(line).collect();
            if let Err(error) = journal.write(&lines) {
                tracing::error!(%error, "what this process holds cannot be written down");
            }
            thread::sleep(PROBE_INTERVAL);
        }
    });
}
