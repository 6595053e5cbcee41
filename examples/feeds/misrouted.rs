//! What came to a server that does not own the user: kept for a while, in case the user becomes its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::feed::Feed;

/// Feeds by user, each with the time it was last changed. Cheap to clone.
#[derive(Clone)]
pub(super) struct Misrouted {
    ttl: Duration,
    feeds: Arc<Mutex<HashMap<String, (Feed, Instant)>>>,
}

impl Misrouted {
    pub(super) fn new(ttl: Duration) -> Misrouted {
        Misrouted { ttl, feeds: Arc::default() }
    }

    /// Changes the misrouted feed of a user.
    pub(super) fn change(&self, user: &str, change: impl Fn(&mut Feed)) {
        let mut feeds = self.live();
        let (feed, changed) =
            feeds.entry(user.to_owned()).or_insert_with(|| (Feed::default(), Instant::now()));
        change(feed);
        *changed = Instant::now();
    }

    /// The misrouted feed of a user.
    pub(super) fn get(&self, user: &str) -> Feed {
        self.live().get(user).map(|(feed, _)| feed.clone()).unwrap_or_default()
    }

    /// The misrouted feed of a user, which is none any more.
    pub(super) fn take(&self, user: &str) -> Feed {
        self.live().remove(user).map(|(feed, _)| feed).unwrap_or_default()
    }

    /// Those whose time is not over. There are few: they come only while a caller's table is old.
    fn live(&self) -> MutexGuard<'_, HashMap<String, (Feed, Instant)>> {
        let mut feeds = self.feeds.lock().unwrap_or_else(PoisonError::into_inner);
        feeds.retain(|_, (_, changed)| changed.elapsed() < self.ttl);
        feeds
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::Item;
    use super::*;

    fn add(feed: &mut Feed) {
        let (id, author, title) = ("1".to_owned(), "Alice".to_owned(), "Alice is now online".to_owned());
        feed.add(Item { id, author, title, link: None, at_ms: 0 });
    }

    #[test]
    fn a_misrouted_feed_is_there_until_it_is_taken() {
        let misrouted = Misrouted::new(Duration::from_secs(3600));
        misrouted.change("frank", add);
        assert_ne!(misrouted.get("frank"), Feed::default());
        assert_eq!(misrouted.get("grace"), Feed::default());
        assert_ne!(misrouted.take("frank"), Feed::default());
        assert_eq!(misrouted.get("frank"), Feed::default());
    }

    #[test]
    fn a_misrouted_feed_ends_by_itself() {
        let misrouted = Misrouted::new(Duration::ZERO);
        misrouted.change("frank", add);
        assert_eq!(misrouted.get("frank"), Feed::default());
    }
}
