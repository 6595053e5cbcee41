//! Moves and skips as operators read them.

use crate::id::SessionId;
use crate::trim::{Bucket, TrimMove, TrimSkip, TrimTokens};

impl TrimMove {
    /// Why it is made, what it does to the Owner that it is for, and what it costs.
    #[must_use]
    pub fn describe(&self) -> String {
        let left = match self.bucket {
            Bucket::Free => String::new(),
            Bucket::Calm | Bucket::Relief => {
                format!("; {} budget left: {}", self.bucket.as_str(), self.tokens_left.describe())
            }
        };
        format!(
            "{}: {} to {} of its share; moves {} requests/s, {} of the keys{left}",
            self.reason.as_str(),
            ratio(self.ratio_before),
            ratio(self.ratio_after),
            self.load / 1_000,
            percent(self.key_share_ppb),
        )
    }
}

impl TrimTokens {
    /// The amounts in words.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{} of the load, {} of the keys", percent(self.load_ppb), percent(self.keys_ppb))
    }
}

impl TrimSkip {
    /// The Owner whose load stays as it is, and its ratio of load to goal in permille; `None` if it is not about one.
    #[must_use]
    pub fn about(&self) -> Option<(SessionId, u32)> {
        match *self {
            TrimSkip::ChurnBudgetSpent { session, ratio, .. }
            | TrimSkip::Resting { session, ratio }
            | TrimSkip::NoRoom { session, ratio } => Some((session, ratio)),
            TrimSkip::NoOwners
            | TrimSkip::TooFewReports
            | TrimSkip::NoLoad
            | TrimSkip::Frozen
            | TrimSkip::BalancingOff
            | TrimSkip::NothingNew
            | TrimSkip::MovesFull
            | TrimSkip::RangesFull => None,
        }
    }
}

fn ratio(permille: u32) -> String {
    format!("{}.{:03}", permille / 1_000, permille % 1_000)
}

fn percent(ppb: u64) -> String {
    format!("{}.{:03} %", ppb / 10_000_000, ppb / 10_000 % 1_000)
}
