//! What operators did, and what was denied to whom, as lines of the log. A flood of denials is counted, and its lines are few.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::rate::Bucket;

/// The target of these lines.
pub(crate) const AUDIT: &str = "centrifuge::audit";
/// How many lines about what was not done are written in a second, and how many at once after a quiet time.
const LINES_PER_SECOND: u32 = 10;
const BURST: u32 = 100;

/// Limits the lines about what was not done. What was done is always written.
#[derive(Debug)]
pub(crate) struct AuditLimit {
    state: Mutex<(Bucket, u64)>,
}

impl Default for AuditLimit {
    fn default() -> AuditLimit {
        AuditLimit { state: Mutex::new((Bucket::new(LINES_PER_SECOND, BURST), 0)) }
    }
}

impl AuditLimit {
    /// Whether to write a line now, and how many were left out since the last.
    pub(crate) fn admit(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (bucket, suppressed) = &mut *state;
        match bucket.take(Instant::now()) {
            Ok(()) => Some(std::mem::take(suppressed)),
            Err(_) => {
                *suppressed += 1;
                None
            }
        }
    }
}
