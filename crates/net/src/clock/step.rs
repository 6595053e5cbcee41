//! A wall clock that somebody sets, for tests alone: only `centrifuge-chaos` enables it. Boot time does not follow.

use std::sync::atomic::{AtomicI64, Ordering};

use super::Reading;

static STEPPED: AtomicI64 = AtomicI64::new(0);

/// Sets this process's wall clock ahead by so many nanoseconds, or back.
pub fn step_wall(by: i64) {
    STEPPED.fetch_add(by, Ordering::Relaxed);
}

pub(super) fn stepped(reading: Reading, nanos: u64) -> u64 {
    match reading {
        Reading::Boot => nanos,
        Reading::Wall => nanos.saturating_add_signed(STEPPED.load(Ordering::Relaxed)),
    }
}
