//! A bucket of tokens that fills at a steady rate.

use std::time::{Duration, Instant};

/// Allows a burst, and after it a rate.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub(crate) fn new(per_second: u32, burst: u32) -> Bucket {
        let burst = f64::from(burst.max(1));
        Bucket { per_second: f64::from(per_second.max(1)), burst, tokens: burst, filled_at: Instant::now() }
    }

    /// Takes a token, or says how long it takes until there is one.
    pub(crate) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        self.fill(now);
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / self.per_second));
        }
        self.tokens -= 1.0;
        Ok(())
    }

    /// Takes more tokens than there may be; the next one waits until they are back.
    pub(crate) fn charge(&mut self, tokens: usize) {
        self.tokens -= tokens as f64;
    }

    /// Whether nothing was taken lately.
    pub(crate) fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.tokens >= self.burst
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.filled_at = self.filled_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket { filled_at: start, ..Bucket::new(10, 2) };
        assert!(bucket.take(start).is_ok());
        assert!(bucket.take(start).is_ok());
        let wait = bucket.take(start).expect_err("empty");
        assert!(wait <= Duration::from_millis(100));
        assert!(bucket.take(start + Duration::from_millis(101)).is_ok());
        assert!(!bucket.is_full(start + Duration::from_millis(101)));
        assert!(bucket.is_full(start + Duration::from_secs(1)));
        bucket.charge(12);
        assert!(bucket.take(start + Duration::from_secs(2)).is_err(), "a debt is paid first");
        assert!(bucket.take(start + Duration::from_millis(2_101)).is_ok());
    }
}
