//! What load moves may cost: token buckets of load and of key space, refilled by time and never overdrawn.

use std::time::Duration;

use crate::time::Instant;
use crate::trim::TrimSettings;

/// One whole, in the parts per billion that tokens are counted in.
pub(super) const WHOLE: u64 = 1_000_000_000;
/// The time over which rates are given.
const HOUR_MS: u128 = 3_600_000;
/// Tokens of at most a quarter hour may be saved up.
const SAVED_PARTS_OF_HOUR: u64 = 4;
/// Refills are at least this far apart: shorter times would be lost to rounding.
const REFILL_INTERVAL: Duration = Duration::from_secs(1);
/// How long a new namespace moves on credit.
const CREDIT_TIME: Duration = Duration::from_secs(300);

/// What an hour brings at a churn of 100 percent.
const CALM_RATE: TrimTokens = TrimTokens { load_ppb: WHOLE / 10 * 6, keys_ppb: WHOLE / 10 * 3 };
const RELIEF_RATE: TrimTokens = TrimTokens { load_ppb: 2 * WHOLE, keys_ppb: WHOLE };
/// What a new namespace has on credit.
const CREDIT: TrimTokens = TrimTokens { load_ppb: WHOLE / 2, keys_ppb: WHOLE };

/// What pays for a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bucket {
    /// For small imbalances.
    Calm,
    /// For Owners far above their goal, and for what follows from keys larger than a share.
    Relief,
    /// Nothing: the move is needed, and the Owner's share bounds it.
    Free,
}

/// An amount of load and of key space, in parts per billion of the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrimTokens {
    /// Of all load.
    pub load_ppb: u64,
    /// Of all keys.
    pub keys_ppb: u64,
}

impl TrimTokens {
    fn map(self, change: impl Fn(u64) -> u64) -> TrimTokens {
        TrimTokens { load_ppb: change(self.load_ppb), keys_ppb: change(self.keys_ppb) }
    }

    fn zip(self, other: TrimTokens, join: impl Fn(u64, u64) -> u64) -> TrimTokens {
        TrimTokens {
            load_ppb: join(self.load_ppb, other.load_ppb),
            keys_ppb: join(self.keys_ppb, other.keys_ppb),
        }
    }

    fn covers(self, cost: TrimTokens) -> bool {
        self.load_ppb >= cost.load_ppb && self.keys_ppb >= cost.keys_ppb
    }

    fn scaled(self, percent: u32) -> TrimTokens {
        self.map(|amount| (amount / 100).saturating_mul(u64::from(percent)))
    }
}

/// The tokens of a namespace. A new leader has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    calm: TrimTokens,
    relief: TrimTokens,
    credit: TrimTokens,
    /// Until when the credit lasts, if it was ever given.
    credit_until: Option<Instant>,
    /// Up to when time has become tokens.
    refilled_at: Option<Instant>,
}

impl Budget {
    /// Turns the time since the last call into tokens, and gives a new namespace its credit once.
    pub(super) fn refill(&mut self, now: Instant, is_new: bool, settings: &TrimSettings) {
        let percent = settings.churn_percent;
        let elapsed = now.since(*self.refilled_at.get_or_insert(now));
        if elapsed >= REFILL_INTERVAL {
            self.refilled_at = Some(now);
        }
        let elapsed = if elapsed >= REFILL_INTERVAL { elapsed } else { Duration::ZERO };
        self.calm = refilled(self.calm, CALM_RATE.scaled(percent), elapsed);
        self.relief = refilled(self.relief, RELIEF_RATE.scaled(percent), elapsed);
        if is_new && self.credit_until.is_none() {
            self.credit = CREDIT.scaled(percent);
            self.credit_until = Some(now + CREDIT_TIME);
        }
        if percent == 0 || self.credit_until.is_none_or(|until| now >= until) {
            self.credit = TrimTokens::default();
        }
    }

    /// The largest cost that the bucket can pay now, in each kind.
    pub(super) fn limit(&self, bucket: Bucket) -> TrimTokens {
        let unlimited = TrimTokens { load_ppb: u64::MAX, keys_ppb: u64::MAX };
        match bucket {
            Bucket::Free => unlimited,
            paid if self.credit == TrimTokens::default() => self.left(paid),
            // Either of the two pays the whole of a move.
            paid if self.left(paid).load_ppb > self.credit.load_ppb => self.left(paid),
            _ => self.credit,
        }
    }

    /// Pays for a move, or says that the bucket cannot.
    pub(super) fn pay(&mut self, bucket: Bucket, cost: TrimTokens) -> bool {
        let purse = match bucket {
            Bucket::Free => return true,
            _ if self.credit.covers(cost) => &mut self.credit,
            Bucket::Calm => &mut self.calm,
            Bucket::Relief => &mut self.relief,
        };
        if !purse.covers(cost) {
            return false;
        }
        *purse = purse.zip(cost, |have, cost| have - cost);
        true
    }

    /// What a bucket holds; nothing if it is none.
    pub(super) fn left(&self, bucket: Bucket) -> TrimTokens {
        match bucket {
            Bucket::Calm => self.calm,
            Bucket::Relief => self.relief,
            Bucket::Free => TrimTokens::default(),
        }
    }

    /// What is left of a new namespace's credit.
    pub(super) fn credit(&self) -> TrimTokens {
        self.credit
    }
}

fn refilled(have: TrimTokens, hourly: TrimTokens, elapsed: Duration) -> TrimTokens {
    let earned = |rate: u64| {
        let earned = u128::from(rate).saturating_mul(elapsed.as_millis()) / HOUR_MS;
        u64::try_from(earned).unwrap_or(u64::MAX)
    };
    let most = hourly.map(|rate| rate / SAVED_PARTS_OF_HOUR);
    have.zip(hourly.map(earned), u64::saturating_add).zip(most, u64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn tokens_grow_with_time_up_to_a_quarter_hour() {
        let (mut budget, settings) = (Budget::default(), TrimSettings::default());
        budget.refill(after(100), false, &settings);
        assert_eq!(budget.left(Bucket::Calm), TrimTokens::default(), "a new leader has none");
        budget.refill(after(136), false, &settings);
        assert_eq!(budget.left(Bucket::Calm).load_ppb, WHOLE / 1_000 * 6, "36 s of 60 % an hour");
        budget.refill(after(100_000), false, &settings);
        assert_eq!(budget.left(Bucket::Calm).load_ppb, WHOLE / 100 * 15);
        assert_eq!(budget.left(Bucket::Relief).keys_ppb, WHOLE / 4);
    }

    #[test]
    fn a_bucket_pays_what_it_has_and_no_more() {
        let (mut budget, settings) = (Budget::default(), TrimSettings::default());
        budget.refill(after(0), false, &settings);
        budget.refill(after(36), false, &settings);
        let cost = TrimTokens { load_ppb: WHOLE / 1_000 * 4, keys_ppb: 1 };
        assert!(budget.pay(Bucket::Calm, cost));
        assert!(!budget.pay(Bucket::Calm, cost));
        assert!(budget.pay(Bucket::Free, cost));
        assert_eq!(budget.left(Bucket::Calm).load_ppb, WHOLE / 1_000 * 2);
    }

    #[test]
    fn credit_is_given_once_and_ends() {
        let (mut budget, settings) = (Budget::default(), TrimSettings::default());
        budget.refill(after(0), true, &settings);
        assert!(budget.pay(Bucket::Calm, TrimTokens { load_ppb: WHOLE / 2, keys_ppb: 0 }));
        budget.refill(after(10), true, &settings);
        assert_eq!(budget.credit().load_ppb, 0);
        budget.refill(after(300), true, &settings);
        assert_eq!(budget.credit(), TrimTokens::default());
    }

    #[test]
    fn no_churn_means_no_tokens() {
        let (mut budget, settings) =
            (Budget::default(), TrimSettings { churn_percent: 0, ..TrimSettings::default() });
        budget.refill(after(0), true, &settings);
        budget.refill(after(10_000), true, &settings);
        assert_eq!(
            budget,
            Budget {
                credit_until: budget.credit_until,
                refilled_at: Some(after(10_000)),
                ..Budget::default()
            }
        );
    }
}
