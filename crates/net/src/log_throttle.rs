//! Says once a minute what a hostile peer could say a million times.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a kind stays silent after it was said.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Decides which of many alike log lines is written: the first of its kind, then one a minute with the number of those
/// left out. Kinds are a few words of this program, never a peer's.
#[derive(Debug, Default)]
pub struct LogThrottle {
    kinds: Mutex<BTreeMap<&'static str, Said>>,
}

#[derive(Debug)]
struct Said {
    at: Instant,
    suppressed: u64,
}

impl LogThrottle {
    /// Whether to write a line of this kind now, and how many were left out since the last.
    pub fn admit(&self, kind: &'static str) -> Option<u64> {
        self.admit_at(kind, Instant::now())
    }

    fn admit_at(&self, kind: &'static str, now: Instant) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(said) = kinds.get_mut(kind) else {
            kinds.insert(kind, Said { at: now, suppressed: 0 });
            return Some(0);
        };
        if now.duration_since(said.at) < LOG_INTERVAL {
            said.suppressed += 1;
            return None;
        }
        said.at = now;
        Some(std::mem::take(&mut said.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_said_once_a_minute_with_the_number_left_out() {
        let log = LogThrottle::default();
        let start = Instant::now();
        assert_eq!(log.admit_at("a", start), Some(0));
        assert_eq!(log.admit_at("a", start + LOG_INTERVAL / 2), None);
        assert_eq!(log.admit_at("a", start + LOG_INTERVAL / 2), None);
        assert_eq!(log.admit_at("b", start + LOG_INTERVAL / 2), Some(0));
        assert_eq!(log.admit_at("a", start + LOG_INTERVAL), Some(2));
        assert_eq!(log.admit_at("a", start + LOG_INTERVAL), None);
    }
}
