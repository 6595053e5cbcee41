//! A user of the load, who knows what others may see.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use centrifuge::Key;
use centrifuge_examples::presence::Presence;
use centrifuge_examples::presence::frontend::{Frontend, FrontendError};
use centrifuge_examples::presence::republish::Standing;
use centrifuge_examples::shared::call::Tries;

/// How long after a read found nothing the loss that explains it may be told.
const LOSS_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is looked whether it was.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A user whose status is the number of the last thing that was written.
#[derive(Debug)]
pub(crate) struct Person {
    /// The user's name.
    pub(crate) name: String,
    /// Where that is in the key space.
    pub(crate) key: Key,
    one_at_a_time: tokio::sync::Mutex<()>,
    written: AtomicU64,
    acknowledged: AtomicU64,
}

/// What is known when a read begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    acknowledged: u64,
    standing: Standing,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The last that was acknowledged, or what was written since.
    Right,
    /// Nothing or something older, and a loss was told.
    Lost,
    /// Something else.
    Wrong(String),
}

impl Person {
    /// Nobody has heard of this user yet.
    pub(crate) fn new(name: String) -> Person {
        let (key, one_at_a_time) = (Key::of(name.as_bytes()), Default::default());
        Person { name, key, one_at_a_time, written: 0.into(), acknowledged: 0.into() }
    }

    /// Publishes something new.
    pub(crate) async fn write(&self, frontend: &Frontend) -> Result<Tries, FrontendError> {
        let _alone = self.one_at_a_time.lock().await;
        let number = self.written.fetch_add(1, Ordering::SeqCst) + 1;
        let tries = frontend.publish(&self.name, Some(self.presence(number))).await?;
        self.acknowledged.store(number, Ordering::SeqCst);
        Ok(tries)
    }

    /// What is known before a read.
    pub(crate) fn begin(&self, frontend: &Frontend) -> Begun {
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        Begun { acknowledged, standing: frontend.publications().standing(&self.name).unwrap_or_default() }
    }

    /// Whether a read that began so may have found this.
    pub(crate) fn fits(&self, begun: Begun, found: Option<&Presence>) -> bool {
        let number = found.and_then(|found| found.status.parse().ok()).unwrap_or(0);
        let is_possible = number >= begun.acknowledged && number <= self.written.load(Ordering::SeqCst);
        is_possible && found == Some(&self.presence(number))
    }

    /// Judges what a read found. Who finds less than was acknowledged is told of the loss by then or soon.
    pub(crate) async fn judge(&self, frontend: &Frontend, begun: Begun, found: Option<&Presence>) -> Seen {
        if self.fits(begun, found) {
            return Seen::Right;
        }
        let is_told = || {
            let standing = frontend.publications().standing(&self.name).unwrap_or_default();
            begun.standing.is_lost || standing.losses > begun.standing.losses
        };
        let is_explained = tokio::time::timeout(LOSS_TIMEOUT, async {
            while !is_told() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        let is_older = found.is_none_or(|found| self.is_older(found, begun));
        if is_older && is_explained.await.is_ok() {
            return Seen::Lost;
        }
        Seen::Wrong(format!("{}: {} was acknowledged, and {found:?} found", self.name, begun.acknowledged))
    }

    fn is_older(&self, found: &Presence, begun: Begun) -> bool {
        found
            .status
            .parse()
            .is_ok_and(|number| number < begun.acknowledged && *found == self.presence(number))
    }

    fn presence(&self, number: u64) -> Presence {
        let address = format!("im:{}", self.name);
        Presence { status: number.to_string(), address, ip: IpAddr::V4(Ipv4Addr::LOCALHOST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_may_find_what_was_acknowledged_and_what_is_under_way_and_nothing_else() {
        let person = Person::new("ada".to_owned());
        person.written.store(5, Ordering::SeqCst);
        person.acknowledged.store(3, Ordering::SeqCst);
        let begun = Begun { acknowledged: 3, standing: Standing::default() };
        let fits = |number| person.fits(begun, Some(&person.presence(number)));
        assert_eq!([2, 3, 4, 5, 6].map(fits), [false, true, true, true, false]);
        assert!(!person.fits(begun, None));
        let other = Person::new("bob".to_owned());
        assert!(!person.fits(begun, Some(&other.presence(3))));
    }
}
