//! A node's clock: an offset and an exact rate over real time, and the times it stood still.

use centrifuge_core::time::Instant;

use crate::seen::TrueTime;

/// Shows `offset + (true - lost) * numerator / denominator`, rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// What the clock shows at the start of the run.
    pub offset: u64,
    /// The clock counts this ...
    pub numerator: u64,
    /// ... while this much real time passes.
    pub denominator: u64,
    /// Real time for which it stood still.
    pub lost: u64,
}

impl Clock {
    /// What the clock shows.
    pub fn read(&self, at: TrueTime) -> Instant {
        let running = u128::from(at.0.saturating_sub(self.lost));
        let local = running * u128::from(self.numerator) / u128::from(self.denominator);
        Instant(self.offset.saturating_add(u64::try_from(local).unwrap_or(u64::MAX)))
    }

    /// The first real instant at which the clock shows `local` or more, if it does not stand still again.
    pub fn when(&self, local: Instant) -> TrueTime {
        if local == Instant::NEVER {
            return TrueTime(u64::MAX);
        }
        let elapsed = u128::from(local.0.saturating_sub(self.offset));
        let running = (elapsed * u128::from(self.denominator)).div_ceil(u128::from(self.numerator));
        TrueTime(u64::try_from(running).unwrap_or(u64::MAX).saturating_add(self.lost))
    }
}
