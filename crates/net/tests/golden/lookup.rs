//! What Lookups and Managers say to each other.

use std::time::Duration;

use centrifuge_core::id::{Generation, Lsn, ManagerId, Seq, Term};
use centrifuge_core::message::{LookupRequest, ManagerToLookup, Position, Update, UpdateBody};
use centrifuge_core::namespace_kind::{ExpectedKind, KindMismatch, NamespaceKind};
use centrifuge_core::table::{PublishedEntry, PublishedOwner};
use centrifuge_net::convert::{NewsEncoder, WatchFrame};
use centrifuge_net::proto::v1;

use super::files::Golden;
use super::owner::kind;
use super::{namespace, nonce, range, read, session};

pub(super) fn check(golden: &mut Golden) {
    let position = Some(Position { log: nonce(4), lsn: Lsn(1_000) });
    for (name, position) in [("lookup-first-request", None), ("lookup-request", position)] {
        let request = request(position);
        super::check::<LookupRequest, v1::WatchRequest>(golden, name, &request);
    }
    let ordered = LookupRequest { expects: kind().expected(), ..request(position) };
    super::check::<LookupRequest, v1::WatchRequest>(golden, "lookup-request-ordered", &ordered);
    let bodies = [
        ("heartbeat", UpdateBody::Heartbeat { lsn: Lsn(1_000) }),
        ("changes", UpdateBody::Changes { from: Lsn(999), to: Lsn(1_000), entries: entries() }),
        ("snapshot", UpdateBody::Snapshot { lsn: Lsn(1_000), entries: entries() }),
        ("unchanged", UpdateBody::Unchanged { hold: Duration::from_secs(65) }),
        (
            "changes-quarantined",
            UpdateBody::Changes { from: Lsn(999), to: Lsn(1_000), entries: quarantined() },
        ),
    ];
    for (word, body) in bodies {
        reply(golden, &format!("lookup-{word}"), &ManagerToLookup::Update(update(body)));
    }
    let ordered = Update { kind: kind(), ..update(UpdateBody::Heartbeat { lsn: Lsn(1_000) }) };
    reply(golden, "lookup-heartbeat-ordered", &ManagerToLookup::Update(ordered));
    for (word, why) in [("keys", KindMismatch::Keys), ("mode", KindMismatch::Mode)] {
        let wrong = |namespace| {
            let (term, lookup, echo) = (Term(7), nonce(3), Seq(5));
            ManagerToLookup::WrongKind { term, lookup, echo, why, namespace }
        };
        reply(golden, &format!("lookup-wrong-{word}"), &wrong(None));
        reply(golden, &format!("lookup-wrong-{word}-of-a-namespace"), &wrong(Some(namespace())));
    }
    let leader = Some(ManagerId::from("manager-2.example:7001"));
    reply(golden, "lookup-not-leader", &ManagerToLookup::NotLeader { leader });
    reply(golden, "lookup-no-leader", &ManagerToLookup::NotLeader { leader: None });
    let unknown = ManagerToLookup::UnknownNamespace { term: Term(7), lookup: nonce(3), echo: Seq(5) };
    reply(golden, "lookup-unknown-namespace", &unknown);
}

fn request(position: Option<Position>) -> LookupRequest {
    LookupRequest {
        namespace: namespace(),
        lookup: nonce(3),
        seq: Seq(5),
        position,
        term: Term(7),
        expects: ExpectedKind::default(),
    }
}

/// Replies are sent as frames, which are not made by the code that makes all other messages.
fn reply(golden: &mut Golden, name: &str, message: &ManagerToLookup) {
    let frame = NewsEncoder::new().frame(message);
    let bytes = [frame.head.as_ref(), frame.news.as_ref()].concat();
    golden.check(name, message, &bytes[WatchFrame::PREFIX_LEN..], read::<_, v1::WatchReply>);
}

fn update(body: UpdateBody) -> Update {
    let kind = NamespaceKind::default();
    Update {
        namespace: namespace(),
        lookup: nonce(3),
        term: Term(7),
        echo: Seq(5),
        log: nonce(4),
        kind,
        body,
    }
}

fn quarantined() -> std::sync::Arc<[PublishedEntry]> {
    let (generation, state_since) = (Generation(14), Generation(7));
    [PublishedEntry { range: range(300, 399), owner: None, generation, state_since, quarantined: true }]
        .into()
}

fn entries() -> std::sync::Arc<[PublishedEntry]> {
    let owner = |number| PublishedOwner { session: session(number), url: "http://10.0.0.1:8080".into() };
    let entry = |first, last, owner, generation: u64| PublishedEntry {
        range: range(first, last),
        owner,
        generation: Generation(generation),
        state_since: Generation(generation / 2),
        quarantined: false,
    };
    [
        entry(0, 99, Some(owner(1)), 10),
        entry(100, 199, Some(owner(2)), 12),
        entry(200, 299, None, 0),
        entry(300, u64::MAX, Some(owner(1)), 14),
    ]
    .into()
}
