//! Replies of watches, with the news that several Lookups get encoded once.

use std::collections::VecDeque;
use std::sync::Arc;

use centrifuge_core::id::{Namespace, Nonce, Term};
use centrifuge_core::message::{ManagerToLookup, Update, UpdateBody};
use centrifuge_core::namespace_kind::NamespaceKind;
use centrifuge_core::table::PublishedEntry;
use prost::bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::field::{write_nonce, write_not_leader};
use super::lookup::write_news;
use crate::proto::{encode, v1};

/// Makes the replies of watches, and encodes the news that several Lookups get only once.
///
/// The latest news are remembered, because pushes go to one Lookup after the other and Lookups that restart together ask for
/// the same snapshot. A reply shares the encoded bytes with all others of the same news.
#[derive(Debug, Default)]
pub struct NewsEncoder {
    recent: VecDeque<Encoded>,
    encoded: u64,
}

/// A reply of a watch as it goes over the wire, gRPC's prefix included: `head`, and `news` after it.
///
/// What differs between Lookups is in the head. Long news are shared by all replies that bring them, and a stream that has sent
/// them keeps nothing; short ones are in the head as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFrame {
    /// The first bytes.
    pub head: Bytes,
    /// The rest; may be empty.
    pub news: Bytes,
}

impl WatchFrame {
    /// What gRPC puts before a message: whether it is compressed, and its length.
    pub const PREFIX_LEN: usize = 5;
    /// Up to this length, copying costs less than another piece to send.
    const SHORT: usize = 1024;

    /// The length of the message, without the prefix.
    #[must_use]
    pub fn message_len(&self) -> usize {
        self.head.len() + self.news.len() - Self::PREFIX_LEN
    }

    /// A message of which the last bytes are shared.
    fn new(first: &[u8], mut news: Bytes) -> WatchFrame {
        let len = first.len() + news.len();
        let mut head = Vec::with_capacity(Self::PREFIX_LEN + first.len() + news.len().min(Self::SHORT));
        head.push(0);
        // A message of four gigabytes is refused by its receiver, whatever length it claims.
        head.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes());
        head.extend_from_slice(first);
        if news.len() <= Self::SHORT {
            head.extend_from_slice(&news);
            news = Bytes::new();
        }
        WatchFrame { head: head.into(), news }
    }
}

/// News and what they look like on the wire.
#[derive(Debug)]
struct Encoded {
    namespace: Namespace,
    term: Term,
    log: Nonce,
    kind: NamespaceKind,
    body: UpdateBody,
    bytes: Bytes,
}

impl Encoded {
    fn is_of(&self, update: &Update) -> bool {
        self.log == update.log
            && self.term == update.term
            && self.namespace == update.namespace
            && self.kind == update.kind
            && says_the_same(&self.body, &update.body)
    }
}

/// Equality, at the price of a comparison of addresses where entries are shared, as they are in a push to many.
fn says_the_same(one: &UpdateBody, other: &UpdateBody) -> bool {
    let same = |these: &Arc<[PublishedEntry]>, those: &Arc<[PublishedEntry]>| {
        Arc::ptr_eq(these, those) || these == those
    };
    match (one, other) {
        (
            UpdateBody::Changes { from, to, entries },
            UpdateBody::Changes { from: other_from, to: other_to, entries: others },
        ) => (from, to) == (other_from, other_to) && same(entries, others),
        (UpdateBody::Snapshot { lsn, entries }, UpdateBody::Snapshot { lsn: other_lsn, entries: others }) => {
            lsn == other_lsn && same(entries, others)
        }
        _ => one == other,
    }
}

impl NewsEncoder {
    /// How many news are remembered.
    const MOST_REMEMBERED: usize = 8;

    /// An encoder that remembers nothing yet.
    #[must_use]
    pub fn new() -> NewsEncoder {
        NewsEncoder::default()
    }

    /// How many news were encoded so far, rather than taken from memory.
    #[must_use]
    pub fn encoded(&self) -> u64 {
        self.encoded
    }

    /// The message of the wire for a message to a Lookup.
    pub fn reply(&mut self, message: &ManagerToLookup) -> v1::WatchReply {
        use v1::watch_reply::Kind;
        let kind = match message {
            ManagerToLookup::Update(update) => Kind::Update(v1::Update {
                lookup: write_nonce(update.lookup),
                echo: update.echo.0,
                news: self.news(update),
            }),
            ManagerToLookup::NotLeader { leader } => Kind::NotLeader(write_not_leader(leader.as_ref())),
            ManagerToLookup::UnknownNamespace { term, lookup, echo } => {
                Kind::UnknownNamespace(v1::UnknownNamespace {
                    term: term.0,
                    lookup: write_nonce(*lookup),
                    echo: echo.0,
                })
            }
            ManagerToLookup::WrongKind { term, lookup, echo, why, namespace } => {
                Kind::WrongKind(v1::WrongKind {
                    term: term.0,
                    lookup: write_nonce(*lookup),
                    echo: echo.0,
                    why: v1::WrongKindWhy::from(*why).into(),
                    namespace: namespace.as_ref().map(ToString::to_string),
                })
            }
        };
        v1::WatchReply { kind: Some(kind) }
    }

    /// The same message as it goes over the wire.
    pub fn frame(&mut self, message: &ManagerToLookup) -> WatchFrame {
        match message {
            ManagerToLookup::Update(update) => {
                let news = self.news(update);
                WatchFrame::new(&write_envelope(update, news.len()), news)
            }
            other => WatchFrame::new(&encode(&self.reply(other)), Bytes::new()),
        }
    }

    fn news(&mut self, update: &Update) -> Bytes {
        if let Some(known) = self.recent.iter().find(|known| known.is_of(update)) {
            return known.bytes.clone();
        }
        self.encoded += 1;
        let bytes = Bytes::from(encode(&write_news(update)));
        if self.recent.len() == Self::MOST_REMEMBERED {
            self.recent.pop_back();
        }
        self.recent.push_front(Encoded {
            namespace: update.namespace.clone(),
            term: update.term,
            log: update.log,
            kind: update.kind.clone(),
            body: update.body.clone(),
            bytes: bytes.clone(),
        });
        bytes
    }
}

/// Everything of a reply but its news, which come last: `WatchReply.update` (field 1) up to the length of `Update.news` (field 3).
fn write_envelope(update: &Update, news_len: usize) -> Vec<u8> {
    let inner = v1::Update { lookup: write_nonce(update.lookup), echo: update.echo.0, news: Bytes::new() };
    let mut bytes = encode(&inner);
    encode_key(3, WireType::LengthDelimited, &mut bytes);
    encode_varint(news_len as u64, &mut bytes);
    let mut envelope = Vec::with_capacity(bytes.len() + 12);
    encode_key(1, WireType::LengthDelimited, &mut envelope);
    encode_varint((bytes.len() + news_len) as u64, &mut envelope);
    envelope.append(&mut bytes);
    envelope
}
