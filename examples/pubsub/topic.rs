//! A topic: who subscribed, and which publishers are stale.

use std::collections::BTreeMap;

use centrifuge::fence::StaleLease;
use centrifuge::{Fence, Generation, Key};
use serde::{Deserialize, Serialize};

use crate::shared::stamp::Stamp;

/// The subscriptions of a topic, by queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Topic {
    subscriptions: BTreeMap<String, Subscription>,
    fence: Fence,
}

/// A subscription. It does not change, but for how long it lives.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Subscription {
    stamp: Stamp,
    until_ms: u64,
}

/// What a subscriber is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Subscribed {
    /// Names the subscription; to be handed back with the next renewal.
    pub(super) subscription: Stamp,
    /// Whether it is the subscription that the subscriber knew. If not, messages may have been missed.
    pub(super) renewed: bool,
    /// When to renew it at the latest.
    pub(super) ttl_ms: u64,
}

impl Topic {
    /// Renews the subscription of a queue, or makes one with the stamp `fresh`.
    pub(super) fn subscribe(
        &mut self,
        queue: String,
        known: Option<Stamp>,
        fresh: Stamp,
        now_ms: u64,
        ttl_ms: u64,
    ) -> Subscribed {
        self.end_old_ones(now_ms);
        let subscription =
            self.subscriptions.entry(queue).or_insert(Subscription { stamp: fresh, until_ms: 0 });
        subscription.until_ms = now_ms.saturating_add(ttl_ms);
        let stamp = subscription.stamp;
        Subscribed { subscription: stamp, renewed: known == Some(stamp), ttl_ms }
    }

    /// Ends the subscription of a queue; if one is named, only that one.
    pub(super) fn unsubscribe(&mut self, queue: &str, named: Option<Stamp>) {
        let is_meant = |subscription: &Subscription| named.is_none_or(|stamp| stamp == subscription.stamp);
        if self.subscriptions.get(queue).is_some_and(is_meant) {
            self.subscriptions.remove(queue);
        }
    }

    /// The queues that a message goes to. Whoever is left out is out for good: clocks differ, and another
    /// server's, or this one's a moment later, must not take for renewed what has missed a message.
    pub(super) fn subscribers(&mut self, now_ms: u64) -> Vec<String> {
        self.end_old_ones(now_ms);
        self.subscriptions.keys().cloned().collect()
    }

    fn end_old_ones(&mut self, now_ms: u64) {
        self.subscriptions.retain(|_, subscription| now_ms < subscription.until_ms);
    }

    /// Refuses a publisher that has lost the lease on what it publishes about, if the next one has published since.
    pub(super) fn admit(&self, about: &str, lease: Generation) -> Result<(), StaleLease> {
        self.fence.accept(Key::of(about.as_bytes()), lease)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::stamp::Stamps;

    const TTL: u64 = 100;

    #[test]
    fn a_renewal_is_one_only_of_the_subscription_that_the_subscriber_knew() {
        let (stamps, mut topic) = (Stamps::default(), Topic::default());
        let mut subscribe = |known, now_ms| {
            topic.subscribe("work-pc".to_owned(), known, stamps.next(Generation(3)), now_ms, TTL)
        };
        let first = subscribe(None, 0);
        assert!(!first.renewed);
        // The answer was lost, and the request came again: the subscriber must not take this for a renewal.
        assert!(!subscribe(None, 10).renewed);
        assert!(subscribe(Some(first.subscription), 90).renewed);
        assert!(subscribe(Some(first.subscription), 189).renewed);
        let late = subscribe(Some(first.subscription), 289);
        assert!(!late.renewed && late.subscription != first.subscription);
        assert!(!subscribe(Some(first.subscription), 290).renewed);
    }

    #[test]
    fn messages_go_to_subscriptions_that_live() {
        let (stamps, mut topic) = (Stamps::default(), Topic::default());
        for (queue, now_ms) in [("a", 0), ("b", 50), ("c", 50)] {
            topic.subscribe(queue.to_owned(), None, stamps.next(Generation(3)), now_ms, TTL);
        }
        topic.unsubscribe("b", Some(stamps.next(Generation(2))));
        topic.unsubscribe("c", None);
        assert_eq!(topic.subscribers(99), ["a", "b"]);
        assert_eq!(topic.subscribers(100), ["b"]);
    }

    #[test]
    fn whoever_missed_a_message_is_not_renewed_by_a_clock_that_is_behind() {
        let (stamps, mut topic) = (Stamps::default(), Topic::default());
        let fresh = || stamps.next(Generation(3));
        let first = topic.subscribe("work-pc".to_owned(), None, fresh(), 0, TTL);
        assert!(topic.subscribers(TTL).is_empty(), "a message goes to nobody");
        let again = topic.subscribe("work-pc".to_owned(), Some(first.subscription), fresh(), TTL - 1, TTL);
        assert!(!again.renewed);
    }

    #[test]
    fn a_stale_publisher_is_refused_also_after_the_topic_moved() {
        let topic = Topic::default();
        topic.admit("home-pc", Generation(8)).expect("the first");
        let written = serde_json::to_vec(&topic).expect("written");
        let moved: Topic = serde_json::from_slice(&written).expect("read");
        assert!(moved.admit("home-pc", Generation(7)).is_err());
        moved.admit("home-pc", Generation(8)).expect("the same");
        moved.admit("another-pc", Generation(7)).expect("of another key");
    }
}
