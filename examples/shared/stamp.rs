//! Numbers that are never given twice, and the time that servers share.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use centrifuge::Generation;
use serde::{Deserialize, Serialize};

/// Says which state is meant: a version of a document, a subscription, an incarnation of a queue. Written
/// `LEASE.COUNT`.
///
/// It has the lease under which it was given, and how many this process had given by then. A lease has one
/// holder in all of history, so that no stamp is given twice: not after a loss, and not when something ended
/// and began anew under the same lease. The stamps of one key rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Stamp {
    lease: Generation,
    count: u64,
}

/// Gives stamps; one for each process.
#[derive(Debug, Default)]
pub struct Stamps {
    given: AtomicU64,
}

impl Stamps {
    /// The next stamp. Given while the key's entry is locked, so that later is higher.
    pub fn next(&self, lease: Generation) -> Stamp {
        Stamp { lease, count: self.given.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

/// Not a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write two whole numbers with a dot between, as it was given")]
pub struct NoStamp;

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.lease.0, self.count)
    }
}

impl FromStr for Stamp {
    type Err = NoStamp;

    fn from_str(text: &str) -> Result<Stamp, NoStamp> {
        let (lease, count) = text.split_once('.').ok_or(NoStamp)?;
        let number = |text: &str| text.parse().map_err(|_| NoStamp);
        Ok(Stamp { lease: Generation(number(lease)?), count: number(count)? })
    }
}

impl TryFrom<String> for Stamp {
    type Error = NoStamp;

    fn try_from(text: String) -> Result<Stamp, NoStamp> {
        text.parse()
    }
}

impl From<Stamp> for String {
    fn from(stamp: Stamp) -> String {
        stamp.to_string()
    }
}

/// Wall time in milliseconds: the only time that goes along when state moves to another server. Servers' clocks
/// differ, so that nothing but the length of a life may depend on it.
pub fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, in_ms)
}

/// A duration in milliseconds.
pub fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_rise_with_leases_and_within_them_and_are_read_as_they_were_written() {
        let stamps = Stamps::default();
        let [first, second] = [stamps.next(Generation(9)), stamps.next(Generation(9))];
        let after_a_loss = Stamps::default().next(Generation(10));
        assert!(first < second && second < after_a_loss, "{first} {second} {after_a_loss}");
        assert_eq!(second.to_string().parse(), Ok(second));
        assert_eq!("9".parse::<Stamp>(), Err(NoStamp));
    }
}
