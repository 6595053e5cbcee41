//! Lookups: what they ask, and the news of the table that they get.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{Generation, Lsn, Term};
use centrifuge_core::message::{LookupRequest, ManagerToLookup, Position, Update, UpdateBody};
use centrifuge_core::table::{PublishedEntry, PublishedOwner};
use prost::Message as _;

use super::error::{ConvertError, Converted, Problem, refuse};
use super::field::*;
use super::kind::{read_expected, read_kind, read_mismatch, write_expected, write_kind};
use crate::proto::v1;

impl From<&LookupRequest> for v1::WatchRequest {
    fn from(request: &LookupRequest) -> v1::WatchRequest {
        let (keys, mode) = write_expected(request.expects);
        let position =
            |position: Position| v1::Position { log: write_nonce(position.log), lsn: position.lsn.0 };
        v1::WatchRequest {
            namespace: request.namespace.to_string(),
            lookup: write_nonce(request.lookup),
            seq: request.seq.0,
            position: request.position.map(position),
            term: request.term.0,
            keys,
            mode,
        }
    }
}

impl TryFrom<v1::WatchRequest> for LookupRequest {
    type Error = ConvertError;

    fn try_from(wire: v1::WatchRequest) -> Converted<LookupRequest> {
        let position =
            |wire: v1::Position| Ok(Position { log: read_nonce("log", &wire.log)?, lsn: Lsn(wire.lsn) });
        Ok(LookupRequest {
            namespace: read_namespace("namespace", &wire.namespace)?,
            lookup: read_nonce("lookup", &wire.lookup)?,
            seq: read_seq("seq", wire.seq)?,
            position: read_optional("position", wire.position, position)?,
            term: Term(wire.term),
            expects: read_expected(wire.keys, wire.mode)?,
        })
    }
}

impl TryFrom<v1::WatchReply> for ManagerToLookup {
    type Error = ConvertError;

    fn try_from(wire: v1::WatchReply) -> Converted<ManagerToLookup> {
        use v1::watch_reply::Kind;
        match wire.kind {
            Some(Kind::Update(update)) => read_in("update", update, read_update).map(ManagerToLookup::Update),
            Some(Kind::NotLeader(not)) => read_in("not_leader", not, read_not_leader)
                .map(|leader| ManagerToLookup::NotLeader { leader }),
            Some(Kind::UnknownNamespace(unknown)) => {
                read_in("unknown_namespace", unknown, read_unknown_namespace)
            }
            Some(Kind::WrongKind(wrong)) => read_in("wrong_kind", wrong, read_wrong_kind),
            None => refuse("kind", Problem::NoKind),
        }
    }
}

fn read_wrong_kind(wire: v1::WrongKind) -> Converted<ManagerToLookup> {
    Ok(ManagerToLookup::WrongKind {
        term: Term(wire.term),
        lookup: read_nonce("lookup", &wire.lookup)?,
        echo: read_seq("echo", wire.echo)?,
        why: read_mismatch(wire.why)?,
        namespace: wire.namespace.map(|name| read_namespace("namespace", &name)).transpose()?,
    })
}

fn read_unknown_namespace(wire: v1::UnknownNamespace) -> Converted<ManagerToLookup> {
    let lookup = read_nonce("lookup", &wire.lookup)?;
    Ok(ManagerToLookup::UnknownNamespace {
        term: Term(wire.term),
        lookup,
        echo: read_seq("echo", wire.echo)?,
    })
}

pub(super) fn write_news(update: &Update) -> v1::News {
    use v1::news::Body;
    let body = match &update.body {
        UpdateBody::Unchanged { hold } => Body::Unchanged(v1::Unchanged { hold_nanos: write_nanos(*hold) }),
        UpdateBody::Heartbeat { lsn } => Body::Heartbeat(v1::Heartbeat { lsn: lsn.0 }),
        UpdateBody::Changes { from, to, entries } => {
            let (owners, entries) = write_entries(entries);
            Body::Changes(v1::Changes { from: from.0, to: to.0, owners, entries })
        }
        UpdateBody::Snapshot { lsn, entries } => {
            let (owners, entries) = write_entries(entries);
            Body::Snapshot(v1::Snapshot { lsn: lsn.0, owners, entries })
        }
    };
    v1::News {
        namespace: update.namespace.to_string(),
        term: update.term.0,
        log: write_nonce(update.log),
        body: Some(body),
        kind: write_kind(&update.kind),
    }
}

/// The entries, and each of their owners once.
fn write_entries(entries: &[PublishedEntry]) -> (Vec<v1::PublishedOwner>, Vec<v1::TableEntry>) {
    let mut owners: Vec<v1::PublishedOwner> = Vec::new();
    let mut places: HashMap<&PublishedOwner, u32> = HashMap::new();
    let mut place_of = |owner| {
        *places.entry(owner).or_insert_with(|| {
            owners.push(v1::PublishedOwner {
                session: write_session(owner.session),
                url: owner.url.to_string(),
            });
            write_count(owners.len())
        })
    };
    let entry = |entry: &'_ PublishedEntry, owner| v1::TableEntry {
        first: entry.range.first().0,
        last: entry.range.last().0,
        owner,
        generation: entry.generation.0,
        state_since: entry.state_since.0,
        quarantined: entry.quarantined,
    };
    let entries = entries.iter().map(|e| entry(e, e.owner.as_ref().map_or(0, &mut place_of))).collect();
    (owners, entries)
}

fn read_update(wire: v1::Update) -> Converted<Update> {
    let lookup = read_nonce("lookup", &wire.lookup)?;
    let echo = read_seq("echo", wire.echo)?;
    let news =
        v1::News::decode(wire.news).map_err(|error| ConvertError::new("news", Problem::Decode(error)))?;
    read_in("news", news, |news| {
        Ok(Update {
            namespace: read_namespace("namespace", &news.namespace)?,
            lookup,
            term: Term(news.term),
            echo,
            log: read_nonce("log", &news.log)?,
            kind: read_kind(news.kind)?,
            body: read_body(news.body)?,
        })
    })
}

fn read_body(wire: Option<v1::news::Body>) -> Converted<UpdateBody> {
    use v1::news::Body;
    match wire {
        Some(Body::Unchanged(unchanged)) => {
            Ok(UpdateBody::Unchanged { hold: Duration::from_nanos(unchanged.hold_nanos) })
        }
        Some(Body::Heartbeat(heartbeat)) => Ok(UpdateBody::Heartbeat { lsn: Lsn(heartbeat.lsn) }),
        Some(Body::Changes(wire)) => {
            let (from, to) = (Lsn(wire.from), Lsn(wire.to));
            let entries = read_in("changes", wire, |wire| read_entries(wire.owners, wire.entries))?;
            Ok(UpdateBody::Changes { from, to, entries })
        }
        Some(Body::Snapshot(wire)) => {
            let lsn = Lsn(wire.lsn);
            let entries = read_in("snapshot", wire, |wire| read_entries(wire.owners, wire.entries))?;
            Ok(UpdateBody::Snapshot { lsn, entries })
        }
        None => refuse("body", Problem::NoKind),
    }
}

fn read_entries(
    owners: Vec<v1::PublishedOwner>,
    entries: Vec<v1::TableEntry>,
) -> Converted<Arc<[PublishedEntry]>> {
    let owners = read_list("owners", owners, read_published_owner)?;
    read_list("entries", entries, |entry| read_entry(entry, &owners)).map(Arc::from)
}

fn read_published_owner(wire: v1::PublishedOwner) -> Converted<PublishedOwner> {
    Ok(PublishedOwner { session: read_session("session", &wire.session)?, url: read_url("url", &wire.url)? })
}

fn read_entry(wire: v1::TableEntry, owners: &[PublishedOwner]) -> Converted<PublishedEntry> {
    let owner = match (wire.owner as usize).checked_sub(1) {
        None => None,
        Some(place) => match owners.get(place) {
            Some(owner) => Some(owner.clone()),
            None => {
                let problem = Problem::TooHigh { value: wire.owner.into(), at_most: owners.len() as u64 };
                return refuse("owner", problem);
            }
        },
    };
    Ok(PublishedEntry {
        range: read_range(wire.first, wire.last)?,
        owner,
        generation: Generation(wire.generation),
        state_since: read_state_since(wire.state_since, wire.generation)?,
        quarantined: wire.quarantined,
    })
}
