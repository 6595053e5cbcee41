//! The items of a user, and how those that belong together become one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The most items that a feed keeps.
const MOST_ITEMS: usize = 200;

/// Something that somebody did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Item {
    /// The same whenever the same item comes again.
    pub(super) id: String,
    /// Who did it.
    pub(super) author: String,
    /// What it was.
    pub(super) title: String,
    /// Where there is more about it.
    pub(super) link: Option<String>,
    /// When it was, in milliseconds since 1970.
    pub(super) at_ms: u64,
}

/// The items of one user, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Feed {
    items: Vec<Item>,
}

impl Feed {
    /// Adds an item, unless it is here already. The oldest go when there are too many.
    pub(super) fn add(&mut self, item: Item) {
        if self.items.iter().any(|known| known.id == item.id) {
            return;
        }
        let place = self.items.partition_point(|known| (known.at_ms, &known.id) < (item.at_ms, &item.id));
        self.items.insert(place, item);
        if self.items.len() > MOST_ITEMS {
            self.items.remove(0);
        }
    }

    /// Adds all items of another feed.
    pub(super) fn merge(&mut self, other: Feed) {
        other.items.into_iter().for_each(|item| self.add(item));
    }

    /// The items, with those of one author that follow each other within `window` as one; the newest first.
    pub(super) fn coalesced(&self, window: Duration) -> Vec<Item> {
        let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        let together = |one: &Item, next: &Item| {
            one.author == next.author && next.at_ms.saturating_sub(one.at_ms) <= window_ms
        };
        self.items.chunk_by(together).rev().filter_map(combine).collect()
    }
}

/// One item that says what all of these say.
fn combine(items: &[Item]) -> Option<Item> {
    let (first, last) = (items.first()?, items.last()?);
    let deeds = items.iter().skip(1).map(|item| deed(item).to_owned());
    let titles: Vec<String> = std::iter::once(first.title.clone()).chain(deeds).collect();
    let ids: Vec<&str> = items.iter().map(|item| item.id.as_str()).collect();
    Some(Item {
        id: ids.join("+"),
        author: first.author.clone(),
        title: enumerate(&titles),
        link: items.iter().find_map(|item| item.link.clone()),
        at_ms: last.at_ms,
    })
}

/// A title without the author's name before it.
fn deed(item: &Item) -> &str {
    let rest = item.title.strip_prefix(&item.author).filter(|rest| rest.starts_with(' '));
    rest.map_or(&item.title, str::trim_start)
}

/// "one", "one and two", "one, two and three".
fn enumerate(titles: &[String]) -> String {
    match titles {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn item(id: &str, author: &str, title: &str, minute: u64) -> Item {
        let (id, author, title) = (id.to_owned(), author.to_owned(), title.to_owned());
        Item { id, author, title, link: None, at_ms: minute * MINUTE }
    }

    fn titles(items: Vec<Item>) -> Vec<String> {
        let mut feed = Feed::default();
        items.into_iter().for_each(|item| feed.add(item));
        feed.coalesced(Duration::from_millis(10 * MINUTE)).into_iter().map(|item| item.title).collect()
    }

    #[test]
    fn what_one_author_does_in_a_short_time_is_one_item() {
        let profile = item("1", "Alice", "Alice updated her profile", 0);
        let friend = item("2", "Alice", "Alice added Bob as a friend", 5);
        let photo = item("3", "Alice", "Alice posted a photo", 12);
        let two = titles(vec![friend.clone(), profile.clone()]);
        assert_eq!(two, ["Alice updated her profile and added Bob as a friend"]);
        let three = titles(vec![profile, friend, photo]);
        assert_eq!(three, ["Alice updated her profile, added Bob as a friend and posted a photo"]);
    }

    #[test]
    fn others_and_later_ones_are_items_of_their_own() {
        let alice = item("1", "Alice", "Alice updated her profile", 0);
        let bob = item("2", "Bob", "Bob is now online", 1);
        let later = item("3", "Alice", "Alice is now online", 2);
        let newest_first = ["Alice is now online", "Bob is now online", "Alice updated her profile"];
        assert_eq!(titles(vec![alice.clone(), bob, later]), newest_first);
        let much_later = item("4", "Alice", "Alice is now online", 11);
        assert_eq!(titles(vec![alice, much_later]).len(), 2);
    }

    #[test]
    fn a_title_that_does_not_begin_with_the_author_stays_whole() {
        let one = item("1", "Al", "Notes on lighthouses", 0);
        let other = item("2", "Al", "Alone at sea", 1);
        assert_eq!(titles(vec![one, other]), ["Notes on lighthouses and Alone at sea"]);
    }

    #[test]
    fn an_item_that_comes_again_is_dropped() {
        let mut feed = Feed::default();
        feed.add(item("1", "Alice", "Alice updated her profile", 0));
        let once = feed.clone();
        feed.add(item("1", "Alice", "Alice updated her profile", 3));
        feed.merge(once.clone());
        assert_eq!(feed, once);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let mut feed = Feed::default();
        for number in 0..=MOST_ITEMS as u64 {
            feed.add(item(&number.to_string(), "Alice", "Alice is now online", number));
        }
        assert_eq!(feed.items.len(), MOST_ITEMS);
        assert_eq!(feed.items[0].id, "1");
    }
}
