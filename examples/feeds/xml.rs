//! Reads RSS 2.0 and Atom 1.0, and writes RSS.

use std::time::Duration;

use atom_syndication::FixedDateTime;

use super::feed::Item;

/// The last moment that RSS has words for, the end of the year 9999, in milliseconds.
const LATEST: u64 = 253_402_300_799_999;

/// A document that is no feed.
#[derive(Debug, thiserror::Error)]
#[error("send a feed: as RSS it cannot be read ({rss}), nor as Atom ({atom})")]
pub(super) struct Unreadable {
    rss: rss::Error,
    atom: atom_syndication::Error,
}

/// The items of a document; if neither they nor it say when they were, they are of `now_ms`.
pub(super) fn read(document: &[u8], now_ms: u64) -> Result<Vec<Item>, Unreadable> {
    let rss = match rss::Channel::read_from(document) {
        Ok(channel) => {
            return Ok(channel.items.iter().map(|item| from_rss(item, &channel, now_ms)).collect());
        }
        Err(error) => error,
    };
    match atom_syndication::Feed::read_from(document) {
        Ok(feed) => Ok(feed.entries.iter().map(|entry| from_atom(entry, &feed)).collect()),
        Err(atom) => Err(Unreadable { rss, atom }),
    }
}

fn from_rss(item: &rss::Item, channel: &rss::Channel, now_ms: u64) -> Item {
    let title = item.title.clone().or_else(|| item.description.clone()).unwrap_or_default();
    // An item without a date is as old as the document says to be, so that it stays the same when it comes again.
    let dates = [&item.pub_date, &channel.pub_date, &channel.last_build_date];
    let said = dates.into_iter().flatten().find_map(|date| FixedDateTime::parse_from_rfc2822(date).ok());
    let id = item.guid.as_ref().map(|guid| guid.value.clone());
    let dated = || format!("{}/{title}", item.pub_date.as_deref().unwrap_or_default());
    let creator = item.dublin_core_ext.as_ref().and_then(|more| more.creators.first().cloned());
    let author = item.author.as_deref().map(person).or(creator);
    Item {
        id: id.or_else(|| item.link.clone()).unwrap_or_else(dated),
        author: author.unwrap_or_else(|| channel.title.clone()),
        link: item.link.clone(),
        at_ms: said.map_or(now_ms, ms),
        title,
    }
}

/// RSS says `address (name)`.
fn person(author: &str) -> String {
    let name = author.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    name.map_or(author, |(name, _)| name).trim().to_owned()
}

fn from_atom(entry: &atom_syndication::Entry, feed: &atom_syndication::Feed) -> Item {
    let author = entry.authors.first().or(feed.authors.first());
    Item {
        id: entry.id.clone(),
        author: author.map_or_else(|| feed.title.value.clone(), |author| author.name.clone()),
        title: entry.title.value.clone(),
        link: entry.links.first().map(|link| link.href.clone()),
        at_ms: ms(entry.published.unwrap_or(entry.updated)),
    }
}

fn ms(date: FixedDateTime) -> u64 {
    u64::try_from(date.timestamp_millis()).unwrap_or_default().min(LATEST)
}

/// A user's feed as a document.
pub(super) fn write(user: &str, items: &[Item]) -> String {
    let channel = rss::Channel {
        title: format!("What happens around {user}"),
        link: format!("/feeds/{user}"),
        description: format!("Everything that {user} follows, with what belongs together as one item"),
        items: items.iter().map(to_rss).collect(),
        ..rss::Channel::default()
    };
    channel.to_string()
}

fn to_rss(item: &Item) -> rss::Item {
    let date = FixedDateTime::default() + Duration::from_millis(item.at_ms.min(LATEST));
    rss::Item {
        title: Some(item.title.clone()),
        link: item.link.clone(),
        author: Some(item.author.clone()),
        guid: Some(rss::Guid { value: item.id.clone(), permalink: false }),
        pub_date: Some(date.to_rfc2822()),
        ..rss::Item::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSS: &str = include_str!("../testdata/club.rss.xml");
    const ATOM: &str = include_str!("../testdata/harbour.atom.xml");

    #[test]
    fn a_moment_that_rss_has_no_words_for_is_the_last_it_has() {
        let item = Item {
            id: "1".to_owned(),
            author: "frank".to_owned(),
            title: "frank is far ahead".to_owned(),
            link: None,
            at_ms: u64::MAX,
        };
        let written = write("frank", &[item]);
        assert!(written.contains("31 Dec 9999"), "{written}");
    }

    #[test]
    fn rss_is_read() {
        let items = read(RSS.as_bytes(), 7).expect("read");
        let seen: Vec<_> = items.iter().map(|item| (item.author.as_str(), item.title.as_str())).collect();
        let expected = [
            ("Alice", "Alice updated her profile"),
            ("Alice", "Alice added Bob as a friend"),
            ("Carol", "Carol & Dave opened <the boathouse>"),
            ("Rowing club", "The club has a new member"),
        ];
        assert_eq!(seen, expected);
        assert_eq!(items[0].id, "https://club.example/events/1001");
        assert_eq!(items[0].at_ms, 1_789_117_200_000, "Fri, 11 Sep 2026 09:00:00 GMT");
        assert_eq!(items[2].id, "https://club.example/boathouse", "the link, because it has no guid");
        assert_eq!(items[3].at_ms, 1_789_129_800_000, "the document's date, because it has none");
        let undated = "<rss><channel><title>t</title><item><title>i</title></item></channel></rss>";
        assert_eq!(read(undated.as_bytes(), 7).expect("read")[0].at_ms, 7);
    }

    #[test]
    fn atom_is_read() {
        let items = read(ATOM.as_bytes(), 7).expect("read");
        let seen: Vec<_> = items.iter().map(|item| (item.author.as_str(), item.title.as_str())).collect();
        assert_eq!(
            seen,
            [("Erin", "Erin moved the ferry to pier 4"), ("Harbour office", "Storm warning lifted")]
        );
        assert_eq!(items[0].link.as_deref(), Some("https://harbour.example/ferry"));
        assert_eq!(items[1].id, "urn:uuid:60a76c80-d399-11d9-b93c-0003939e0af6");
    }

    #[test]
    fn what_is_written_can_be_read() {
        let items = read(RSS.as_bytes(), 1_789_117_207_000).expect("read");
        let written = write("frank", &items);
        assert_eq!(read(written.as_bytes(), 0).expect("read"), items, "{written}");
    }

    #[test]
    fn what_is_no_feed_is_refused_with_words() {
        for wrong in ["", "not xml", "<html><body/></html>", "<rss><channel><item>"] {
            let words = read(wrong.as_bytes(), 0).expect_err(wrong).to_string();
            assert!(words.starts_with("send a feed:"), "{words}");
        }
    }
}
