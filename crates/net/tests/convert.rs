//! Conversion between the wire and the core: the identity there and back, and a clear refusal of everything else.

#[path = "support/messages.rs"]
mod messages;

use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Index, Lsn, ManagerId, Namespace, Nonce, OwnerName, Secret, Seq, Term};
use centrifuge_core::key::Key;
use centrifuge_core::load::{MAX_HEAVY_KEYS, RangeLoad};
use centrifuge_core::manager::{AdminCommand, AdminError};
use centrifuge_core::message::{
    LookupRequest, ManagerToLookup, ManagerToOwner, OwnerToManager, Update, UpdateBody,
};
use centrifuge_core::namespace_kind::NamespaceKind;
use centrifuge_core::record::{Batch, Change, Reason, Record};
use centrifuge_core::settings::{Settings, SettingsError};
use centrifuge_net::convert::{
    self, ConvertError, HistoryQuery, LeaseQuery, NewsEncoder, Problem, WatchFrame,
};
use centrifuge_net::credential;
use centrifuge_net::limits;
use centrifuge_net::proto::v1;
use proptest::prelude::*;
use prost::Message;
use prost::bytes::Bytes;
use tonic::Code;

/// What a peer decodes of what was sent.
fn sent<M: Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).expect("what was encoded decodes")
}

proptest! {
    #[test]
    fn owner_messages_come_back_as_they_were(message in messages::owner_to_manager()) {
        let wire = sent(&v1::OwnerMessage::from(&message));
        prop_assert_eq!(OwnerToManager::try_from(wire), Ok(message));
    }

    #[test]
    fn manager_messages_come_back_as_they_were(message in messages::manager_to_owner()) {
        let wire = sent(&v1::ManagerMessage::from(&message));
        prop_assert_eq!(ManagerToOwner::try_from(wire), Ok(message));
    }

    #[test]
    fn lookup_requests_come_back_as_they_were(request in messages::lookup_request()) {
        let wire = sent(&v1::WatchRequest::from(&request));
        prop_assert_eq!(LookupRequest::try_from(wire), Ok(request));
    }

    #[test]
    fn lookup_replies_come_back_as_they_were(messages in prop::collection::vec(messages::manager_to_lookup(), 1..12)) {
        let mut encoder = NewsEncoder::new();
        for message in messages.iter().chain(&messages) {
            let wire = sent(&encoder.reply(message));
            prop_assert_eq!(ManagerToLookup::try_from(wire), Ok(message.clone()));
        }
    }

    #[test]
    fn a_frame_is_the_reply_with_its_prefix(messages in prop::collection::vec(messages::manager_to_lookup(), 1..12)) {
        let mut encoder = NewsEncoder::new();
        for message in &messages {
            let frame = encoder.frame(message);
            let bytes = [frame.head.as_ref(), frame.news.as_ref()].concat();
            let (prefix, rest) = bytes.split_at(WatchFrame::PREFIX_LEN);
            prop_assert_eq!(rest, encoder.reply(message).encode_to_vec());
            prop_assert_eq!(prefix[0], 0, "not compressed");
            prop_assert_eq!(&prefix[1..], &(rest.len() as u32).to_be_bytes());
            prop_assert_eq!(frame.message_len(), rest.len());
        }
    }

    #[test]
    fn settings_come_back_as_they_were(settings in messages::settings(), base in messages::settings()) {
        let wire = sent(&v1::Settings::from(&settings));
        prop_assert_eq!(convert::read_settings(&wire, &base), Ok(settings.clone()));
        prop_assert_eq!(convert::read_settings(&v1::Settings::default(), &base), Ok(base));
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_read_but_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_everything(&bytes);
    }

    #[test]
    fn damaged_messages_are_refused_or_read_but_never_panic(
        message in messages::owner_to_manager(),
        answer in messages::manager_to_owner(),
        news in messages::manager_to_lookup(),
        place in any::<prop::sample::Index>(),
        bits in 1..=255_u8,
    ) {
        let encoded = [
            v1::OwnerMessage::from(&message).encode_to_vec(),
            v1::ManagerMessage::from(&answer).encode_to_vec(),
            NewsEncoder::new().reply(&news).encode_to_vec(),
        ];
        for mut bytes in encoded {
            let place = place.index(bytes.len());
            bytes[place] ^= bits;
            read_everything(&bytes);
            read_everything(&bytes[..place]);
        }
    }

    #[test]
    fn absurd_fields_are_refused_or_read_but_never_panic(
        text in ".{0,70}",
        bytes in prop::collection::vec(any::<u8>(), 0..20),
        (first, last, number) in (any::<u64>(), any::<u64>(), any::<u64>()),
    ) {
        let held = v1::HeldLease { first, last, generation: number, state_since: number, warrant: None };
        let report = v1::Report {
            namespace: text.clone(),
            session: Bytes::from(bytes.clone()),
            conversation: Bytes::from(bytes.clone()),
            seq: number,
            held: vec![held],
            ..Default::default()
        };
        let read = OwnerToManager::try_from(v1::OwnerMessage {
            kind: Some(v1::owner_message::Kind::Report(report)),
        });
        let well_formed = first <= last && number > 0 && bytes.len() == 16 && Namespace::new(&text).is_ok();
        prop_assert_eq!(read.is_ok(), well_formed);
    }
}

/// Takes bytes for every message that crosses the network.
fn read_everything(bytes: &[u8]) {
    let _ = v1::OwnerMessage::decode(bytes).map(OwnerToManager::try_from);
    let _ = v1::ManagerMessage::decode(bytes).map(ManagerToOwner::try_from);
    let _ = v1::WatchRequest::decode(bytes).map(LookupRequest::try_from);
    let _ = v1::WatchReply::decode(bytes).map(ManagerToLookup::try_from);
    let news = v1::Update { lookup: nonce(1), echo: 1, news: Bytes::copy_from_slice(bytes) };
    let _ = ManagerToLookup::try_from(v1::WatchReply { kind: Some(v1::watch_reply::Kind::Update(news)) });
    let _ = v1::CreateNamespaceRequest::decode(bytes).map(AdminCommand::try_from);
    let _ =
        v1::ConfigureNamespaceRequest::decode(bytes).map(|wire| convert::configure_command(wire, |_| None));
    let _ = v1::DeleteNamespaceRequest::decode(bytes).map(AdminCommand::try_from);
    let _ = v1::FreezeRequest::decode(bytes).map(AdminCommand::try_from);
    let _ = v1::UnfreezeRequest::decode(bytes).map(AdminCommand::try_from);
    let _ = v1::MoveRequest::decode(bytes).map(AdminCommand::try_from);
    let _ = v1::DrainRequest::decode(bytes).map(AdminCommand::try_from);
    let _ = v1::UndrainRequest::decode(bytes).map(AdminCommand::try_from);
    let _ = v1::EvictRequest::decode(bytes).map(AdminCommand::try_from);
    let _ = v1::ListLeasesRequest::decode(bytes).map(LeaseQuery::try_from);
    let _ = v1::HistoryRequest::decode(bytes).map(HistoryQuery::try_from);
}

fn nonce(number: u128) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

/// A lease on ten keys.
fn held(first: u64) -> v1::HeldLease {
    v1::HeldLease { first, last: first + 9, generation: 3, state_since: 2, warrant: None }
}

/// A report without a fault.
fn report() -> v1::Report {
    v1::Report {
        namespace: "chat".to_owned(),
        session: nonce(1),
        conversation: nonce(2),
        seq: 1,
        held: (0..4).map(|place| held(place * 10)).collect(),
        ..Default::default()
    }
}

/// Why a report with one fault is refused.
fn refusal(spoil: impl FnOnce(&mut v1::Report)) -> ConvertError {
    let mut report = report();
    spoil(&mut report);
    let message = v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Report(report)) };
    OwnerToManager::try_from(message).expect_err("the report has a fault")
}

#[test]
fn a_refusal_names_the_field_and_what_is_wrong() {
    let told = |spoil: fn(&mut v1::Report)| refusal(spoil).to_string();
    assert_eq!(told(|report| report.namespace.clear()), "report.namespace: is required");
    assert_eq!(
        told(|report| report.namespace = "Chat".to_owned()),
        "report.namespace: a name has lower-case letters, digits and hyphens, and no hyphen at either end"
    );
    assert_eq!(
        told(|report| report.session = Bytes::from_static(b"short")),
        "report.session: has 5 bytes; a nonce has 16"
    );
    assert_eq!(told(|report| report.seq = 0), "report.seq: is 0 or absent; numbers of this kind start at 1");
    assert_eq!(
        told(|report| report.held[3].first = 40),
        "report.held[3].last: ends before it starts: first 0000000000000028, last 0000000000000027"
    );
    let clean_to = v1::Release { generation: 1, clean_to: Some(Bytes::new()), ..Default::default() };
    assert_eq!(
        refusal(|report| report.released.push(clean_to)).to_string(),
        "report.released[0].clean_to: is required"
    );
    let warrant = v1::Warrant { first: 0, last: 9, lease_nanos: 1, virtual_nodes: 1, code: nonce(1) };
    assert_eq!(
        refusal(|report| report.held[1].warrant = Some(warrant.clone())).to_string(),
        "report.held[1].warrant.code: has 16 bytes; a code has 32"
    );
    assert_eq!(
        refusal(|report| report.held[1].warrant = Some(v1::Warrant { lease_nanos: 0, ..warrant }))
            .to_string(),
        "report.held[1].warrant.lease_nanos: is 0 or absent; numbers of this kind start at 1"
    );
    let none = OwnerToManager::try_from(v1::OwnerMessage::default()).expect_err("no kind");
    assert_eq!(none.to_string(), "kind: has no kind that this version knows");
    let status = tonic::Status::from(none);
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[test]
fn ranges_that_overlap_and_ages_from_the_future_are_refused() {
    let told = |spoil: fn(&mut v1::Report)| refusal(spoil).to_string();
    let overlaps = "overlaps the range before it, or is not in key order";
    assert_eq!(told(|report| report.held[2].first = 19), format!("report.held[2]: {overlaps}"));
    assert_eq!(told(|report| report.held.swap(0, 1)), format!("report.held[1]: {overlaps}"));
    assert_eq!(told(|report| report.held[1] = report.held[0].clone()), format!("report.held[1]: {overlaps}"));
    assert_eq!(
        told(|report| report.held[3].state_since = 4),
        "report.held[3].state_since: is 4; at most 3 is allowed"
    );
    let release = |state_since| v1::Release { generation: 3, state_since, ..Default::default() };
    let refused = refusal(|report| report.released.push(release(4)));
    assert_eq!(refused.to_string(), "report.released[0].state_since: is 4; at most 3 is allowed");

    let order = v1::LeaseOrder { generation: 2, state_since: 3, ..Default::default() };
    let assign = v1::Assign {
        namespace: "chat".to_owned(),
        session: nonce(1),
        conversation: nonce(2),
        seq: 1,
        lease_nanos: 1,
        renewal_nanos: 1,
        orders: [order].into(),
        ..Default::default()
    };
    let assign = v1::ManagerMessage { kind: Some(v1::manager_message::Kind::Assign(assign)) };
    let refused = ManagerToOwner::try_from(assign).expect_err("state from the future");
    assert_eq!(refused.to_string(), "assign.orders[0].state_since: is 3; at most 2 is allowed");

    let entries = vec![v1::TableEntry { generation: 5, state_since: 6, ..Default::default() }];
    let body = Some(v1::news::Body::Snapshot(v1::Snapshot { lsn: 1, owners: Vec::new(), entries }));
    let news = v1::News { namespace: "chat".to_owned(), term: 1, log: nonce(4), body, kind: None };
    let update = v1::Update { lookup: nonce(5), echo: 1, news: news.encode_to_vec().into() };
    let reply = v1::WatchReply { kind: Some(v1::watch_reply::Kind::Update(update)) };
    let refused = ManagerToLookup::try_from(reply).expect_err("state from the future");
    assert_eq!(
        refused.to_string(),
        "update.news.snapshot.entries[0].state_since: is 6; at most 5 is allowed"
    );
}

/// A hello whose session is proven.
fn proven_hello() -> v1::Hello {
    v1::Hello {
        namespace: "chat".to_owned(),
        session: convert::write_session(credential::session_of(&Secret([1; 32]))),
        secret: vec![1; 32].into(),
        version: 2,
        ..Default::default()
    }
}

/// One of every kind of character that acts on the text around it.
const UNPRINTABLE: [char; 16] = [
    '\n', '\r', '\t', '\u{0}', '\u{1b}', '\u{7f}', '\u{9b}', '\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}',
    '\u{2029}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{feff}',
];

#[test]
fn characters_that_act_on_terminals_are_refused_in_every_text() {
    let hello = |name: &str, url: &str| {
        let (name, url) = (name.to_owned(), url.to_owned());
        let hello = v1::Hello { name, url, ..proven_hello() };
        OwnerToManager::try_from(v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Hello(hello)) })
    };
    assert!(hello("größe-東京 1", "http://größe.example/東京?a=b c").is_ok(), "people's letters are allowed");
    for character in UNPRINTABLE {
        let text = format!("a{character}b");
        let namespace = || "chat".to_owned();
        let words = || text.clone();
        let move_to = v1::MoveRequest {
            namespace: namespace(),
            range: Some(v1::KeyRange { first: 0, last: 1 }),
            to: Some(words()),
            why: String::new(),
        };
        let (owner, why) = ("a".to_owned(), words());
        let refused = [
            ("hello.name", hello(&text, "").map(drop)),
            ("hello.url", hello("a", &text).map(drop)),
            (
                "why",
                AdminCommand::try_from(v1::FreezeRequest { namespace: namespace(), why: words() }).map(drop),
            ),
            (
                "why",
                AdminCommand::try_from(v1::DrainRequest { namespace: namespace(), owner, why }).map(drop),
            ),
            ("to", AdminCommand::try_from(move_to).map(drop)),
            ("leader", convert::read_manager("leader", &text).map(drop)),
        ];
        for (field, result) in refused {
            let error = result.expect_err("refused");
            assert_eq!(error.field, field, "{character:?}");
            let shown = format!("U+{:04X}", u32::from(character));
            assert!(error.to_string().contains(&shown), "{error} names {shown}");
            assert!(!error.to_string().contains(character), "the refusal does not repeat it");
        }
    }
}

#[test]
fn long_lists_and_texts_are_refused() {
    let many = limits::MOST_ITEMS + 1;
    let refused = refusal(|report| report.held = vec![report.held[0].clone(); many]);
    assert_eq!(refused.problem, Problem::TooMany { len: many, at_most: limits::MOST_ITEMS });
    let many = limits::MOST_CHANGES + 1;
    let refused = refusal(|report| report.released = vec![v1::Release::default(); many]);
    assert_eq!(refused.problem, Problem::TooMany { len: many, at_most: limits::MOST_CHANGES });

    let hello = |name: String, url: String| {
        let hello = v1::Hello { name, url, ..proven_hello() };
        OwnerToManager::try_from(v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Hello(hello)) })
    };
    assert!(hello("a".to_owned(), String::new()).is_ok());
    let refused = hello("a".to_owned(), "u".repeat(limits::URL_LEN + 1)).expect_err("a long URL");
    assert_eq!(refused.to_string(), "hello.url: has 2049 bytes; at most 2048 are allowed");
    let refused = hello("a".repeat(254), String::new()).expect_err("a long name");
    assert_eq!(refused.to_string(), "hello.name: a name has 1 to 253 characters");
    let refused = hello("a\nb".to_owned(), String::new()).expect_err("a line break");
    assert_eq!(
        (refused.field.as_str(), refused.problem),
        ("hello.name", Problem::Unprintable { character: '\n' })
    );
}

/// What is read of the load of one range.
fn load_of(wire: v1::RangeLoad) -> RangeLoad {
    let report = v1::Report { loads: vec![wire], ..report() };
    match OwnerToManager::try_from(v1::OwnerMessage { kind: Some(v1::owner_message::Kind::Report(report)) }) {
        Ok(OwnerToManager::Report(report)) => report.loads.into_iter().next().expect("one load"),
        other => panic!("{other:?}"),
    }
}

/// An Owner of an earlier version names one key, or none.
#[test]
fn the_hottest_key_alone_is_a_heavy_key() {
    let load =
        v1::RangeLoad { first: 0, last: 9, load: 5, hottest: None, heavy: Vec::new(), quantiles: Vec::new() };
    assert_eq!(load_of(load.clone()).heavy, []);
    let hottest = Some(v1::HeavyKey { key: 7, load: 3 });
    assert_eq!(load_of(v1::RangeLoad { hottest, ..load }).heavy, [(Key(7), 3)]);
}

#[test]
fn more_heavy_keys_than_count_are_not_read() {
    let key = |key| v1::HeavyKey { key, load: 1 };
    let heavy = (0..100_000).map(key).collect();
    let load = v1::RangeLoad {
        first: 0,
        last: u64::MAX,
        load: 5,
        hottest: Some(key(u64::MAX)),
        heavy,
        quantiles: Vec::new(),
    };
    let read = load_of(load).heavy;
    assert_eq!((read.len(), read[0], read[332]), (MAX_HEAVY_KEYS, (Key(0), 1), (Key::MAX, 1)));
}

/// The limits say so: 333 keys in less than 8 KiB.
#[test]
fn a_heavy_key_takes_at_most_22_bytes() {
    let key = v1::HeavyKey { key: u64::MAX, load: u64::MAX };
    let load = |heavy| v1::RangeLoad {
        first: 0,
        last: u64::MAX,
        load: u64::MAX,
        hottest: None,
        heavy,
        quantiles: Vec::new(),
    };
    let len = |keys: usize| load(vec![key; keys]).encoded_len();
    assert_eq!(len(MAX_HEAVY_KEYS) - len(0), 22 * MAX_HEAVY_KEYS);
    const { assert!(22 * MAX_HEAVY_KEYS < 8 << 10) };
}

#[test]
fn a_load_dimension_is_a_name_or_absent() {
    for wrong in ["CPU", "-", "cpu ms", "a-b-", "\u{202e}", &"a".repeat(33)] {
        let refused = refusal(|report| report.load_dimension = wrong.to_owned());
        assert_eq!(refused.field, "report.load_dimension", "{wrong:?}");
    }
}

#[test]
fn managers_that_talk_nonsense_are_refused() {
    let read = |kind| ManagerToOwner::try_from(v1::ManagerMessage { kind: Some(kind) });
    let refused = v1::Refused { session: nonce(1), why: 77, ..Default::default() };
    let error = read(v1::manager_message::Kind::Refused(refused)).expect_err("an unknown reason");
    assert_eq!(error.to_string(), "refused.why: has the unknown value 77");

    let leader = Some("two words:1".to_owned());
    let error = read(v1::manager_message::Kind::NotLeader(v1::NotLeader { leader })).expect_err("no address");
    assert_eq!(error.to_string(), "not_leader.leader: has a space");

    let order = v1::LeaseOrder { generation: 2, state_since: 1, source: Some(1), ..Default::default() };
    let assign = v1::Assign {
        namespace: "chat".to_owned(),
        session: nonce(1),
        conversation: nonce(2),
        seq: 1,
        lease_nanos: 1,
        renewal_nanos: 1,
        orders: [order].into(),
        ..Default::default()
    };
    let error = read(v1::manager_message::Kind::Assign(assign)).expect_err("a renewal with a source");
    assert_eq!(error.to_string(), "assign.orders[0].source: contradicts grant");

    let entries = vec![v1::TableEntry { owner: 2, ..Default::default() }];
    let owners = vec![v1::PublishedOwner { session: nonce(3), url: String::new() }];
    let body = Some(v1::news::Body::Snapshot(v1::Snapshot { lsn: 1, owners, entries }));
    let news = v1::News { namespace: "chat".to_owned(), term: 1, log: nonce(4), body, kind: None };
    let update = v1::Update { lookup: nonce(5), echo: 1, news: news.encode_to_vec().into() };
    let reply = v1::WatchReply { kind: Some(v1::watch_reply::Kind::Update(update)) };
    let error = ManagerToLookup::try_from(reply).expect_err("an owner that is not listed");
    assert_eq!(error.to_string(), "update.news.snapshot.entries[0].owner: is 2; at most 1 is allowed");
}

/// News for one of many Lookups.
fn news_for(lookup: u128, body: &UpdateBody) -> ManagerToLookup {
    ManagerToLookup::Update(Update {
        namespace: Namespace::new("chat").expect("a label"),
        lookup: Nonce(lookup),
        term: Term(7),
        echo: Seq(1),
        log: Nonce(9),
        kind: NamespaceKind::default(),
        body: body.clone(),
    })
}

fn bytes_of(reply: v1::WatchReply) -> Bytes {
    match reply.kind {
        Some(v1::watch_reply::Kind::Update(update)) => update.news,
        other => panic!("not an update: {other:?}"),
    }
}

#[test]
fn a_push_is_encoded_once_and_its_bytes_are_shared() {
    let body = UpdateBody::Changes { from: Lsn(1), to: Lsn(2), entries: Arc::from([]) };
    let mut encoder = NewsEncoder::new();
    let first = bytes_of(encoder.reply(&news_for(1, &body)));
    for lookup in 2..100 {
        let bytes = bytes_of(encoder.reply(&news_for(lookup, &body)));
        assert_eq!(bytes.as_ptr(), first.as_ptr(), "the same memory");
    }
    assert_eq!(encoder.encoded(), 1);
    // Answers to other Lookups in between do not make the push forgotten, and the next push is another.
    let _ = encoder.reply(&news_for(1, &UpdateBody::Heartbeat { lsn: Lsn(2) }));
    let _ = encoder.reply(&news_for(2, &body));
    assert_eq!(encoder.encoded(), 2);
    for lsn in 3..20 {
        let _ = encoder.reply(&news_for(1, &UpdateBody::Heartbeat { lsn: Lsn(lsn) }));
    }
    let _ = encoder.reply(&news_for(2, &body));
    assert_eq!(encoder.encoded(), 20, "only the latest news are remembered");
}

/// A `TableEntry` as it was before there were quarantines.
#[derive(Clone, PartialEq, prost::Message)]
struct EarlierTableEntry {
    #[prost(fixed64, tag = "1")]
    first: u64,
    #[prost(fixed64, tag = "2")]
    last: u64,
    #[prost(uint32, tag = "3")]
    owner: u32,
    #[prost(uint64, tag = "4")]
    generation: u64,
    #[prost(uint64, tag = "5")]
    state_since: u64,
}

#[test]
fn a_lookup_of_an_earlier_version_sees_a_range_without_an_owner_where_one_is_in_quarantine() {
    let entry =
        v1::TableEntry { first: 10, last: 19, owner: 0, generation: 7, state_since: 5, quarantined: true };
    let seen = EarlierTableEntry::decode(entry.encode_to_vec().as_slice()).expect("it ignores the field");
    assert_eq!(seen, EarlierTableEntry { first: 10, last: 19, owner: 0, generation: 7, state_since: 5 });
    let of_earlier_manager = v1::TableEntry::decode(seen.encode_to_vec().as_slice()).expect("an entry");
    assert!(!of_earlier_manager.quarantined);
}

#[test]
fn a_range_of_a_large_snapshot_takes_at_most_32_bytes() {
    let keys = u64::MAX / 12_800;
    let owners: Vec<_> = (0..200_u128)
        .map(|number| centrifuge_core::table::PublishedOwner {
            session: centrifuge_core::id::SessionId(Nonce(number << 64)),
            url: format!("http://owner-{number}.example:8080").as_str().into(),
        })
        .collect();
    let entry = |place: u64| {
        let first = centrifuge_core::key::Key(place * keys);
        let last = centrifuge_core::key::Key(place * keys + keys - 1);
        centrifuge_core::table::PublishedEntry {
            range: centrifuge_core::key::KeyRange::new(first, last).expect("in order"),
            owner: Some(owners[place as usize % owners.len()].clone()),
            generation: centrifuge_core::id::Generation(1_000_000 + place),
            state_since: centrifuge_core::id::Generation(900_000 + place),
            quarantined: false,
        }
    };
    let entries: Arc<[_]> = (0..12_800).map(entry).collect();
    let snapshot = UpdateBody::Snapshot { lsn: Lsn(1), entries };
    let news = bytes_of(NewsEncoder::new().reply(&news_for(1, &snapshot)));
    let each = news.len() as f64 / 12_800.0;
    assert!(each <= 32.0, "{each} bytes a range, owners included");
    let mut encoder = NewsEncoder::new();
    let frames = [1, 2].map(|lookup| encoder.frame(&news_for(lookup, &snapshot)));
    assert!(frames.iter().all(|frame| frame.head.len() < 64 && frame.news == news));
    assert_eq!(frames[0].news.as_ptr(), frames[1].news.as_ptr(), "the same memory");
}

#[test]
fn absent_settings_stay_as_they_are() {
    let request = v1::CreateNamespaceRequest { namespace: "chat".to_owned(), settings: None, kind: None };
    let Ok(AdminCommand::Create { settings, .. }) = AdminCommand::try_from(request) else {
        panic!("a request without settings is allowed")
    };
    assert_eq!(*settings, Settings::default());

    let in_force = Settings { max_moves: 3, ..Settings::default() };
    let changed = v1::Settings { lease_ms: Some(30_000), ..Default::default() };
    let mut request = v1::ConfigureNamespaceRequest {
        namespace: "chat".to_owned(),
        settings: Some(changed),
        expected: None,
        kind: None,
    };
    let command = |request| match convert::configure_command(request, |_| {
        Some((NamespaceKind::default(), Arc::new(in_force.clone())))
    }) {
        Ok(AdminCommand::Configure { settings, expected: Some(expected), .. }) => (settings, expected),
        other => panic!("a well-formed request, not {other:?}"),
    };
    let (settings, expected) = command(request.clone());
    assert_eq!(*settings, Settings { lease: Duration::from_secs(30), ..in_force.clone() });
    assert_eq!(*expected, in_force, "made from what is in force");

    // Only what an operator has seen is expected.
    request.expected = Some(v1::Settings { max_moves: Some(5), ..Default::default() });
    let (_, expected) = command(request);
    assert_eq!(*expected, Settings { max_moves: 5, ..in_force.clone() });
}

#[test]
fn absurd_wishes_of_operators_are_refused() {
    let settings = |settings: v1::Settings| {
        let request =
            v1::CreateNamespaceRequest { namespace: "chat".to_owned(), settings: Some(settings), kind: None };
        AdminCommand::try_from(request).expect_err("absurd settings").to_string()
    };
    assert_eq!(
        settings(v1::Settings { lease_ms: Some(u64::MAX), ..Default::default() }),
        format!("settings.lease_ms: is {}; at most 31536000000 is allowed", u64::MAX)
    );
    assert_eq!(
        settings(v1::Settings { lease_ms: Some(5), ..Default::default() }),
        "settings.lease_ms: is 5; at least 1000 is allowed"
    );
    assert_eq!(
        settings(v1::Settings { renewal_ms: Some(1), ..Default::default() }),
        "settings.renewal_ms: is 1; at least 50 is allowed"
    );
    assert_eq!(
        settings(v1::Settings { virtual_nodes: Some(u32::MAX), ..Default::default() }),
        format!("settings.virtual_nodes: is {}; at most 4096 is allowed", u32::MAX)
    );
    assert_eq!(
        settings(v1::Settings { partitioner: Some(0), ..Default::default() }),
        "settings.partitioner: has the unknown value 0"
    );
    let request = v1::MoveRequest { namespace: "chat".to_owned(), ..Default::default() };
    assert_eq!(AdminCommand::try_from(request).expect_err("no range").to_string(), "range: is required");
    let why = "w".repeat(limits::WORDS_LEN + 1);
    let request = v1::FreezeRequest { namespace: "chat".to_owned(), why };
    assert_eq!(AdminCommand::try_from(request).expect_err("a novel").field, "why");
    let request = v1::HistoryRequest { limit: 10_001, ..Default::default() };
    assert_eq!(HistoryQuery::try_from(request).expect_err("too much").field, "limit");
}

#[test]
fn refusals_of_a_manager_have_a_code_and_name_the_leader() {
    let (namespace, owner) =
        (Namespace::new("rooms").expect("a label"), OwnerName::new("server-9").expect("a name"));
    let about = (&namespace, Some(&owner));
    let leader = ManagerId::from("manager-2:7600");
    let status = convert::admin_status(&AdminError::NotLeader(Some(leader.clone())), about);
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(convert::leader_named(&status), Some(leader));
    let status = convert::admin_status(&AdminError::NotLeader(None), about);
    assert_eq!((status.code(), convert::leader_named(&status)), (Code::FailedPrecondition, None));
    let codes = [
        (AdminError::Unknown, Code::Unavailable),
        (AdminError::NamespaceExists, Code::AlreadyExists),
        (AdminError::TooManyNamespaces { at_most: 2 }, Code::ResourceExhausted),
        (AdminError::NoSuchNamespace, Code::NotFound),
        (AdminError::NamespaceInUse, Code::FailedPrecondition),
        (AdminError::NoSuchOwner, Code::NotFound),
        (AdminError::Settings(SettingsError::HoldTooShort), Code::InvalidArgument),
        (AdminError::SettingsChanged, Code::Aborted),
        (AdminError::Diskless, Code::FailedPrecondition),
    ];
    for (error, code) in codes {
        assert_eq!(convert::admin_status(&error, about).code(), code, "{error:?}");
    }
    let words = convert::admin_status(&AdminError::NoSuchOwner, about);
    assert_eq!(words.message(), "there is no Owner `server-9` in `rooms`: list those that exist");
    let words = convert::admin_status(&AdminError::NoSuchNamespace, about);
    assert!(words.message().contains("`rooms`"), "{words}");
}

#[test]
fn history_is_filtered_by_namespace_and_key() {
    let range = centrifuge_core::key::KeyRange::ALL.split_at(centrifuge_core::key::Key(100)).expect("two").0;
    let change = Change::Released { range, generation: centrifuge_core::id::Generation(4) };
    let namespace = Namespace::new("chat").expect("a label");
    let record = Record::Namespace { namespace: namespace.clone(), change, reason: Reason::HoldExpired };
    let batch = Batch { term: Term(2), records: vec![Record::LeaderSettled, record] };
    let decisions = convert::write_decisions(1_000, Index(5), &batch);
    let wanted = |namespace: Option<&str>, key| {
        let request =
            v1::HistoryRequest { namespace: namespace.map(str::to_owned), key, ..Default::default() };
        let query = HistoryQuery::try_from(request).expect("well-formed");
        decisions.iter().filter(|decision| query.wants(decision)).count()
    };
    assert_eq!(wanted(None, None), 2);
    assert_eq!(wanted(Some("chat"), None), 1);
    assert_eq!(wanted(Some("chat"), Some(99)), 1);
    assert_eq!(wanted(Some("chat"), Some(100)), 0);
    assert_eq!(wanted(Some("other"), Some(99)), 0);
    let told = &decisions[1];
    assert_eq!((told.kind.as_str(), told.reason.as_str()), ("released", "hold-expired"));
    assert_eq!((told.index, told.term, told.wall_time_ms, told.generation), (5, 2, 1_000, Some(4)));
}
