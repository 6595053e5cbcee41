//! The one place where the wire and the core meet: every conversion between their types, both ways.
//!
//! Messages of the core become messages of the wire by `From`, which cannot fail, and come back by `TryFrom`, which refuses
//! whatever the schemas do not allow and names the field. Whether a well-formed message makes sense is for the machines to say.
//!
//! In this order: errors and fields, Owners, Lookups, operators. Flease has a file of its own, `convert/flease.rs`.

pub mod flease;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use centrifuge_core::id::{
    Generation, Index, Lsn, ManagerId, NameError, Namespace, Nonce, OwnerName, Secret, Seq, SessionId, Term,
    Url,
};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::load::{LoadPolicyKind, RangeLoad};
use centrifuge_core::manager::{AdminCommand, AdminError, RebuildOverview, RoleName};
use centrifuge_core::manager_state::NamespaceState;
use centrifuge_core::message::{
    Assign, Destination, HeldLease, Hello, ImportedCopy, LeaseOrder, LookupRequest, ManagerToLookup,
    ManagerToOwner, MovedLease, OrderKind, OwnerToManager, Position, RecallOrder, Refusal, Refused,
    RefusedWhy, Release, Report, Update, UpdateBody, Warrant, Welcome,
};
use centrifuge_core::partition::PartitionerKind;
use centrifuge_core::record::{Batch, Change, Reason, Record, SessionInfo};
use centrifuge_core::settings::Settings;
use centrifuge_core::table::{Entry, PublishedEntry, PublishedOwner};
use centrifuge_core::text::unprintable_in;
use centrifuge_core::time::Instant;
use prost::Message as _;
use prost::bytes::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};
use tonic::{Code, Status};

use crate::credential;
use crate::limits;
use crate::proto::{encode, v1};

/// The metadata key in which a Manager that does not lead names the one that does.
pub const LEADER_KEY: &str = "centrifuge-leader";

// ---------------------------------------------------------------------------------------------------- errors, fields

/// A message that the schemas do not allow: which field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConvertError {
    /// The field, from the outermost message in, as in `report.held[3].last`.
    pub field: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A required field is absent or empty.
    #[error("is required")]
    Absent,
    /// No kind of this message is set, or none that this version knows.
    #[error("has no kind that this version knows")]
    NoKind,
    /// The peer speaks an earlier version.
    #[error("is of an earlier version than {at_least}: bring the library of this Owner up to date")]
    Version {
        /// The earliest version that is understood.
        at_least: u32,
    },
    /// A session is not proven.
    #[error("is not the secret from which the session's id follows: only the session's own process knows it")]
    Secret,
    /// A nonce has another length.
    #[error("has {len} bytes; a nonce has 16")]
    Nonce {
        /// The length it has.
        len: usize,
    },
    /// A code has another length.
    #[error("has {len} bytes; a code has 32")]
    Code {
        /// The length it has.
        len: usize,
    },
    /// A range ends before it starts.
    #[error("ends before it starts: first {first}, last {last}")]
    Range {
        /// Its first key.
        first: Key,
        /// Its last key.
        last: Key,
    },
    /// A name is none.
    #[error("{0}")]
    Name(NameError),
    /// A text is too long.
    #[error("has {len} bytes; at most {at_most} are allowed")]
    TooLong {
        /// The length it has.
        len: usize,
        /// The most that is allowed.
        at_most: usize,
    },
    /// A list is too long.
    #[error("has {len} items; at most {at_most} are allowed")]
    TooMany {
        /// The items it has.
        len: usize,
        /// The most that are allowed.
        at_most: usize,
    },
    /// A number is too high.
    #[error("is {value}; at most {at_most} is allowed")]
    TooHigh {
        /// The number.
        value: u64,
        /// The highest that is allowed.
        at_most: u64,
    },
    /// A number is too low.
    #[error("is {value}; at least {at_least} is allowed")]
    TooLow {
        /// The number.
        value: u64,
        /// The lowest that is allowed.
        at_least: u64,
    },
    /// A number is 0.
    #[error("is 0 or absent; numbers of this kind start at 1")]
    Zero,
    /// An enumeration has a value that this version does not know.
    #[error("has the unknown value {value}")]
    Enum {
        /// The value.
        value: i32,
    },
    /// A text has a character that it must not have.
    #[error("has a space")]
    Character,
    /// A text has a character that acts on the text around it instead of being read.
    #[error(
        "has the character U+{:04X}: control characters and characters that change the direction of text are refused",
        u32::from(*character)
    )]
    Unprintable {
        /// The first of them.
        character: char,
    },
    /// A range overlaps the one before it in its list, or belongs before it.
    #[error("overlaps the range before it, or is not in key order")]
    Overlap,
    /// A list is not in order, or has something twice.
    #[error("does not rise from each item to the next")]
    OutOfOrder,
    /// A field is set that contradicts another.
    #[error("contradicts {other}")]
    Contradiction {
        /// The other field.
        other: &'static str,
    },
    /// Bytes are no message of the type they should be.
    #[error("does not decode: {0}")]
    Decode(prost::DecodeError),
}

impl ConvertError {
    fn new(field: &str, problem: Problem) -> ConvertError {
        ConvertError { field: field.to_owned(), problem }
    }

    fn within(mut self, outer: impl fmt::Display) -> ConvertError {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

impl From<ConvertError> for Status {
    fn from(error: ConvertError) -> Status {
        Status::invalid_argument(error.to_string())
    }
}

/// The version of the protocol between Owners and Managers.
const OWNER_VERSION: u32 = 2;

type Converted<T> = Result<T, ConvertError>;

fn refuse<T>(field: &str, problem: Problem) -> Converted<T> {
    Err(ConvertError::new(field, problem))
}

/// A message inside a message, with the field's name before those inside it.
fn read_in<W, T>(field: &str, wire: W, read: impl FnOnce(W) -> Converted<T>) -> Converted<T> {
    read(wire).map_err(|error| error.within(field))
}

/// A message inside a message that must be there.
fn read_required<W, T>(field: &str, wire: Option<W>, read: impl FnOnce(W) -> Converted<T>) -> Converted<T> {
    match wire {
        Some(wire) => read_in(field, wire, read),
        None => refuse(field, Problem::Absent),
    }
}

/// A list of messages, with the place in the list in the field's name.
fn read_list<W, T>(field: &str, wire: Vec<W>, read: impl Fn(W) -> Converted<T>) -> Converted<Vec<T>> {
    let item = |(place, wire): (usize, W)| {
        read(wire).map_err(|error| error.within(format_args!("{field}[{place}]")))
    };
    wire.into_iter().enumerate().map(item).collect()
}

/// A list that a Manager receives.
fn read_bounded<W, T>(
    field: &str,
    at_most: usize,
    wire: Vec<W>,
    read: impl Fn(W) -> Converted<T>,
) -> Converted<Vec<T>> {
    match wire.len() {
        len if len > at_most => refuse(field, Problem::TooMany { len, at_most }),
        _ => read_list(field, wire, read),
    }
}

fn write_nonce(nonce: Nonce) -> Bytes {
    Bytes::copy_from_slice(&nonce.0.to_be_bytes())
}

/// The bytes that stand for a session on the wire.
#[must_use]
pub fn write_session(session: SessionId) -> Bytes {
    write_nonce(session.0)
}

fn read_nonce(field: &str, wire: &[u8]) -> Converted<Nonce> {
    match <[u8; 16]>::try_from(wire) {
        Ok(bytes) => Ok(Nonce(u128::from_be_bytes(bytes))),
        Err(_) if wire.is_empty() => refuse(field, Problem::Absent),
        Err(_) => refuse(field, Problem::Nonce { len: wire.len() }),
    }
}

/// The session that bytes of the wire stand for.
pub fn read_session(field: &str, wire: &[u8]) -> Result<SessionId, ConvertError> {
    read_nonce(field, wire).map(SessionId)
}

/// A namespace's name.
pub fn read_namespace(field: &str, wire: &str) -> Result<Namespace, ConvertError> {
    match Namespace::new(wire) {
        Ok(namespace) => Ok(namespace),
        Err(_) if wire.is_empty() => refuse(field, Problem::Absent),
        Err(error) => refuse(field, Problem::Name(error)),
    }
}

/// An Owner's name.
pub fn read_owner_name(field: &str, wire: &str) -> Result<OwnerName, ConvertError> {
    match OwnerName::new(wire) {
        Ok(name) => Ok(name),
        Err(_) if wire.is_empty() => refuse(field, Problem::Absent),
        Err(NameError::Unprintable { character }) => refuse(field, Problem::Unprintable { character }),
        Err(error) => refuse(field, Problem::Name(error)),
    }
}

/// Any text of a peer that is no name: not too long, and nothing in it that a terminal or a log would obey.
fn read_text<'a>(field: &str, wire: &'a str, at_most: usize) -> Converted<&'a str> {
    match (wire.len(), unprintable_in(wire)) {
        (len, _) if len > at_most => refuse(field, Problem::TooLong { len, at_most }),
        (_, Some(character)) => refuse(field, Problem::Unprintable { character }),
        _ => Ok(wire),
    }
}

fn read_url(field: &str, wire: &str) -> Converted<Url> {
    read_text(field, wire, limits::URL_LEN).map(Url::from)
}

/// A Manager's address.
pub fn read_manager(field: &str, wire: &str) -> Result<ManagerId, ConvertError> {
    let address = read_text(field, wire, limits::ADDRESS_LEN)?;
    if address.is_empty() {
        return refuse(field, Problem::Absent);
    }
    if address.chars().any(char::is_whitespace) {
        return refuse(field, Problem::Character);
    }
    Ok(ManagerId::from(address))
}

fn read_range(first: u64, last: u64) -> Converted<KeyRange> {
    let (first, last) = (Key(first), Key(last));
    KeyRange::new(first, last).ok_or_else(|| ConvertError::new("last", Problem::Range { first, last }))
}

fn read_positive(field: &str, wire: u64) -> Converted<u64> {
    if wire == 0 { refuse(field, Problem::Zero) } else { Ok(wire) }
}

fn read_generation(field: &str, wire: u64) -> Converted<Generation> {
    read_positive(field, wire).map(Generation)
}

/// The generation at which the state of a lease under `generation` began: none that came later.
fn read_state_since(wire: u64, generation: u64) -> Converted<Generation> {
    if wire > generation {
        return refuse("state_since", Problem::TooHigh { value: wire, at_most: generation });
    }
    Ok(Generation(wire))
}

fn read_seq(field: &str, wire: u64) -> Converted<Seq> {
    read_positive(field, wire).map(Seq)
}

fn write_nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

fn write_millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn write_count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl From<KeyRange> for v1::KeyRange {
    fn from(range: KeyRange) -> v1::KeyRange {
        v1::KeyRange { first: range.first().0, last: range.last().0 }
    }
}

impl TryFrom<v1::KeyRange> for KeyRange {
    type Error = ConvertError;

    fn try_from(wire: v1::KeyRange) -> Converted<KeyRange> {
        read_range(wire.first, wire.last)
    }
}

fn write_not_leader(leader: Option<&ManagerId>) -> v1::NotLeader {
    v1::NotLeader { leader: leader.map(ToString::to_string) }
}

fn read_not_leader(wire: v1::NotLeader) -> Converted<Option<ManagerId>> {
    wire.leader.map(|leader| read_manager("leader", &leader)).transpose()
}

// -------------------------------------------------------------------------------------------------------- Owners

impl From<&OwnerToManager> for v1::OwnerMessage {
    fn from(message: &OwnerToManager) -> v1::OwnerMessage {
        use v1::owner_message::Kind;
        let kind = match message {
            OwnerToManager::Hello(hello) => Kind::Hello(write_hello(hello)),
            OwnerToManager::Report(report) => Kind::Report(write_report(report)),
        };
        v1::OwnerMessage { kind: Some(kind) }
    }
}

impl TryFrom<v1::OwnerMessage> for OwnerToManager {
    type Error = ConvertError;

    fn try_from(wire: v1::OwnerMessage) -> Converted<OwnerToManager> {
        use v1::owner_message::Kind;
        match wire.kind {
            Some(Kind::Hello(hello)) => read_in("hello", hello, read_hello).map(OwnerToManager::Hello),
            Some(Kind::Report(report)) => read_in("report", report, read_report).map(OwnerToManager::Report),
            None => refuse("kind", Problem::NoKind),
        }
    }
}

fn write_hello(hello: &Hello) -> v1::Hello {
    v1::Hello {
        namespace: hello.namespace.to_string(),
        session: write_session(hello.session),
        number: hello.number,
        name: hello.name.to_string(),
        url: hello.url.to_string(),
        takes_over_previous: hello.takes_over_previous,
        formerly: hello.formerly.map(write_session),
        age_nanos: write_nanos(hello.age),
        term: hello.term.0,
        secret: Bytes::copy_from_slice(&hello.secret.0),
        version: OWNER_VERSION,
    }
}

fn read_hello(wire: v1::Hello) -> Converted<Hello> {
    if wire.version < OWNER_VERSION {
        return refuse("version", Problem::Version { at_least: OWNER_VERSION });
    }
    let session = read_session("session", &wire.session)?;
    Ok(Hello {
        namespace: read_namespace("namespace", &wire.namespace)?,
        session,
        secret: read_secret("secret", &wire.secret, session)?,
        number: wire.number,
        name: read_owner_name("name", &wire.name)?,
        url: read_url("url", &wire.url)?,
        takes_over_previous: wire.takes_over_previous,
        formerly: wire.formerly.map(|session| read_session("formerly", &session)).transpose()?,
        age: Duration::from_nanos(wire.age_nanos),
        term: Term(wire.term),
    })
}

/// What proves a session; anything else is not told apart from nothing.
fn read_secret(field: &str, wire: &[u8], session: SessionId) -> Converted<Secret> {
    match <[u8; 32]>::try_from(wire).map(Secret) {
        Ok(secret) if credential::session_of(&secret) == session => Ok(secret),
        _ => refuse(field, Problem::Secret),
    }
}

fn write_report(report: &Report) -> v1::Report {
    v1::Report {
        namespace: report.namespace.to_string(),
        session: write_session(report.session),
        conversation: write_nonce(report.conversation),
        seq: report.seq.0,
        heard: report.heard.0,
        applied: report.applied.0,
        age_nanos: write_nanos(report.age),
        held: report.held.iter().map(write_held).collect(),
        released: report.released.iter().map(write_release).collect(),
        refused: report.refused.iter().map(write_refusal).collect(),
        imports: report.imports.iter().map(write_import).collect(),
        loads: report.loads.iter().map(write_load).collect(),
        weight: report.weight,
        draining: report.draining,
        leaving: report.leaving,
    }
}

fn read_report(wire: v1::Report) -> Converted<Report> {
    Ok(Report {
        namespace: read_namespace("namespace", &wire.namespace)?,
        session: read_session("session", &wire.session)?,
        conversation: read_nonce("conversation", &wire.conversation)?,
        seq: read_seq("seq", wire.seq)?,
        heard: Seq(wire.heard),
        applied: Seq(wire.applied),
        age: Duration::from_nanos(wire.age_nanos),
        held: read_all_held(wire.held)?,
        released: read_bounded("released", limits::MOST_CHANGES, wire.released, read_release)?,
        refused: read_bounded("refused", limits::MOST_CHANGES, wire.refused, read_refusal)?,
        imports: read_bounded("imports", limits::MOST_CHANGES, wire.imports, read_import)?,
        loads: read_bounded("loads", limits::MOST_ITEMS, wire.loads, read_load)?,
        weight: wire.weight,
        draining: wire.draining,
        leaving: wire.leaving,
    })
}

fn write_held(lease: &HeldLease) -> v1::HeldLease {
    v1::HeldLease {
        first: lease.range.first().0,
        last: lease.range.last().0,
        generation: lease.generation.0,
        state_since: lease.state_since.0,
        warrant: lease.warrant.as_ref().map(write_warrant),
    }
}

/// What an Owner holds is in key order, and no key is in it twice.
fn read_all_held(wire: Vec<v1::HeldLease>) -> Converted<Vec<HeldLease>> {
    let held = read_bounded("held", limits::MOST_ITEMS, wire, read_held)?;
    let overlaps = |pair: &[HeldLease]| pair[0].range.last() >= pair[1].range.first();
    match held.windows(2).position(overlaps) {
        Some(place) => refuse(&format!("held[{}]", place + 1), Problem::Overlap),
        None => Ok(held),
    }
}

fn read_held(wire: v1::HeldLease) -> Converted<HeldLease> {
    let generation = read_generation("generation", wire.generation)?;
    read_generation("state_since", wire.state_since)?;
    Ok(HeldLease {
        range: read_range(wire.first, wire.last)?,
        generation,
        state_since: read_state_since(wire.state_since, wire.generation)?,
        warrant: wire.warrant.map(|warrant| read_in("warrant", warrant, read_warrant)).transpose()?,
    })
}

fn write_warrant(warrant: &Warrant) -> v1::Warrant {
    v1::Warrant {
        first: warrant.range.first().0,
        last: warrant.range.last().0,
        lease_nanos: write_nanos(warrant.lease),
        virtual_nodes: warrant.virtual_nodes,
        code: Bytes::copy_from_slice(&warrant.code),
    }
}

fn read_warrant(wire: v1::Warrant) -> Converted<Warrant> {
    let code = <[u8; 32]>::try_from(&*wire.code);
    Ok(Warrant {
        range: read_range(wire.first, wire.last)?,
        lease: Duration::from_nanos(read_positive("lease_nanos", wire.lease_nanos)?),
        virtual_nodes: wire.virtual_nodes,
        code: code.map_err(|_| ConvertError::new("code", Problem::Code { len: wire.code.len() }))?,
    })
}

fn write_release(release: &Release) -> v1::Release {
    v1::Release {
        first: release.range.first().0,
        last: release.range.last().0,
        generation: release.generation.0,
        clean_to: release.clean_to.map(write_session),
        state_since: release.state_since.0,
        warrant: release.warrant.as_ref().map(write_warrant),
    }
}

fn read_release(wire: v1::Release) -> Converted<Release> {
    if wire.warrant.is_some() {
        read_generation("state_since", wire.state_since)?;
    }
    Ok(Release {
        range: read_range(wire.first, wire.last)?,
        generation: read_generation("generation", wire.generation)?,
        clean_to: wire.clean_to.map(|session| read_session("clean_to", &session)).transpose()?,
        state_since: read_state_since(wire.state_since, wire.generation)?,
        warrant: wire.warrant.map(|warrant| read_in("warrant", warrant, read_warrant)).transpose()?,
    })
}

fn write_moved(moved: &MovedLease) -> v1::MovedLease {
    v1::MovedLease {
        first: moved.range.first().0,
        last: moved.range.last().0,
        generation: moved.generation.0,
    }
}

fn read_moved(wire: v1::MovedLease) -> Converted<MovedLease> {
    Ok(MovedLease {
        range: read_range(wire.first, wire.last)?,
        generation: read_generation("generation", wire.generation)?,
    })
}

fn write_refusal(refusal: &Refusal) -> v1::Refusal {
    v1::Refusal {
        first: refusal.range.first().0,
        last: refusal.range.last().0,
        generation: refusal.generation.0,
    }
}

fn read_refusal(wire: v1::Refusal) -> Converted<Refusal> {
    Ok(Refusal {
        range: read_range(wire.first, wire.last)?,
        generation: read_generation("generation", wire.generation)?,
    })
}

fn write_import(copy: &ImportedCopy) -> v1::ImportedCopy {
    v1::ImportedCopy { first: copy.range.first().0, last: copy.range.last().0, source: copy.source.0 }
}

fn read_import(wire: v1::ImportedCopy) -> Converted<ImportedCopy> {
    Ok(ImportedCopy {
        range: read_range(wire.first, wire.last)?,
        source: read_generation("source", wire.source)?,
    })
}

fn write_load(load: &RangeLoad) -> v1::RangeLoad {
    v1::RangeLoad {
        first: load.range.first().0,
        last: load.range.last().0,
        load: load.load,
        hottest: load.hottest.map(|(key, load)| v1::HottestKey { key: key.0, load }),
    }
}

fn read_load(wire: v1::RangeLoad) -> Converted<RangeLoad> {
    Ok(RangeLoad {
        range: read_range(wire.first, wire.last)?,
        load: wire.load,
        hottest: wire.hottest.map(|hottest| (Key(hottest.key), hottest.load)),
    })
}

impl From<&ManagerToOwner> for v1::ManagerMessage {
    fn from(message: &ManagerToOwner) -> v1::ManagerMessage {
        use v1::manager_message::Kind;
        let kind = match message {
            ManagerToOwner::Welcome(welcome) => Kind::Welcome(write_welcome(welcome)),
            ManagerToOwner::Refused(refused) => Kind::Refused(write_refused(refused)),
            ManagerToOwner::Unknown { session, conversation } => {
                Kind::UnknownConversation(v1::UnknownConversation {
                    session: write_session(*session),
                    conversation: write_nonce(*conversation),
                })
            }
            ManagerToOwner::NotLeader { leader } => Kind::NotLeader(write_not_leader(leader.as_ref())),
            ManagerToOwner::Assign(assign) => Kind::Assign(write_assign(assign)),
        };
        v1::ManagerMessage { kind: Some(kind) }
    }
}

impl TryFrom<v1::ManagerMessage> for ManagerToOwner {
    type Error = ConvertError;

    fn try_from(wire: v1::ManagerMessage) -> Converted<ManagerToOwner> {
        use v1::manager_message::Kind;
        match wire.kind {
            Some(Kind::Welcome(welcome)) => {
                read_in("welcome", welcome, read_welcome).map(ManagerToOwner::Welcome)
            }
            Some(Kind::Refused(refused)) => {
                read_in("refused", refused, read_refused).map(ManagerToOwner::Refused)
            }
            Some(Kind::UnknownConversation(unknown)) => {
                read_in("unknown_conversation", unknown, read_unknown_conversation)
            }
            Some(Kind::NotLeader(not)) => {
                read_in("not_leader", not, read_not_leader).map(|leader| ManagerToOwner::NotLeader { leader })
            }
            Some(Kind::Assign(assign)) => read_in("assign", assign, read_assign).map(ManagerToOwner::Assign),
            None => refuse("kind", Problem::NoKind),
        }
    }
}

fn write_welcome(welcome: &Welcome) -> v1::Welcome {
    v1::Welcome {
        namespace: welcome.namespace.to_string(),
        session: write_session(welcome.session),
        number: welcome.number,
        conversation: write_nonce(welcome.conversation),
        term: welcome.term.0,
    }
}

fn read_welcome(wire: v1::Welcome) -> Converted<Welcome> {
    Ok(Welcome {
        namespace: read_namespace("namespace", &wire.namespace)?,
        session: read_session("session", &wire.session)?,
        number: wire.number,
        conversation: read_nonce("conversation", &wire.conversation)?,
        term: Term(wire.term),
    })
}

fn write_refused(refused: &Refused) -> v1::Refused {
    let why = match refused.why {
        RefusedWhy::NameInUse => v1::RefusedWhy::NameInUse,
        RefusedWhy::UnknownNamespace => v1::RefusedWhy::UnknownNamespace,
        RefusedWhy::Evicted => v1::RefusedWhy::Evicted,
        RefusedWhy::TooManyOwners => v1::RefusedWhy::TooManyOwners,
        RefusedWhy::StaleTerm => v1::RefusedWhy::StaleTerm,
    };
    v1::Refused {
        session: write_session(refused.session),
        number: refused.number,
        term: refused.term.0,
        why: why.into(),
    }
}

fn read_refused(wire: v1::Refused) -> Converted<Refused> {
    let why = match v1::RefusedWhy::try_from(wire.why) {
        Ok(v1::RefusedWhy::NameInUse) => RefusedWhy::NameInUse,
        Ok(v1::RefusedWhy::UnknownNamespace) => RefusedWhy::UnknownNamespace,
        Ok(v1::RefusedWhy::Evicted) => RefusedWhy::Evicted,
        Ok(v1::RefusedWhy::TooManyOwners) => RefusedWhy::TooManyOwners,
        Ok(v1::RefusedWhy::StaleTerm) => RefusedWhy::StaleTerm,
        Ok(v1::RefusedWhy::Unspecified) | Err(_) => return refuse("why", Problem::Enum { value: wire.why }),
    };
    let session = read_session("session", &wire.session)?;
    Ok(Refused { session, number: wire.number, term: Term(wire.term), why })
}

fn read_unknown_conversation(wire: v1::UnknownConversation) -> Converted<ManagerToOwner> {
    let session = read_session("session", &wire.session)?;
    Ok(ManagerToOwner::Unknown { session, conversation: read_nonce("conversation", &wire.conversation)? })
}

fn write_assign(assign: &Assign) -> v1::Assign {
    v1::Assign {
        namespace: assign.namespace.to_string(),
        session: write_session(assign.session),
        conversation: write_nonce(assign.conversation),
        term: assign.term.0,
        seq: assign.seq.0,
        heard: assign.heard.0,
        applied: assign.applied.0,
        lease_nanos: write_nanos(assign.lease),
        renewal_nanos: write_nanos(assign.renewal),
        orders: assign.orders.iter().map(write_order).collect(),
        wants_answer: assign.wants_answer,
        drain_waits: assign.drain_waits,
        drained: assign.drained,
        evicted: assign.evicted,
        void: assign.void.iter().map(write_import).collect(),
        repeat: assign.repeat.iter().map(write_moved).collect(),
    }
}

fn read_assign(wire: v1::Assign) -> Converted<Assign> {
    Ok(Assign {
        namespace: read_namespace("namespace", &wire.namespace)?,
        session: read_session("session", &wire.session)?,
        conversation: read_nonce("conversation", &wire.conversation)?,
        term: Term(wire.term),
        seq: read_seq("seq", wire.seq)?,
        heard: Seq(wire.heard),
        applied: Seq(wire.applied),
        lease: Duration::from_nanos(read_positive("lease_nanos", wire.lease_nanos)?),
        renewal: Duration::from_nanos(read_positive("renewal_nanos", wire.renewal_nanos)?),
        orders: read_list("orders", wire.orders, read_order)?.into(),
        wants_answer: wire.wants_answer,
        drain_waits: wire.drain_waits,
        drained: wire.drained,
        evicted: wire.evicted,
        void: read_list("void", wire.void, read_import)?,
        repeat: read_list("repeat", wire.repeat, read_moved)?,
    })
}

fn write_order(order: &LeaseOrder) -> v1::LeaseOrder {
    let (grant, source) = match order.kind {
        OrderKind::Grant { source } => (true, source),
        OrderKind::Renewal => (false, None),
    };
    v1::LeaseOrder {
        first: order.range.first().0,
        last: order.range.last().0,
        generation: order.generation.0,
        state_since: order.state_since.0,
        grant,
        source: source.map(|source| source.0),
        recall: order.recall.as_ref().map(write_recall),
        warrant: order.warrant.as_deref().map(write_warrant),
        merge: order.merge.map(|merge| merge.0),
    }
}

fn read_order(wire: v1::LeaseOrder) -> Converted<LeaseOrder> {
    let source = wire.source.map(|source| read_generation("source", source)).transpose()?;
    let kind = match (wire.grant, source) {
        (true, source) => OrderKind::Grant { source },
        (false, None) => OrderKind::Renewal,
        (false, Some(_)) => return refuse("source", Problem::Contradiction { other: "grant" }),
    };
    let generation = read_generation("generation", wire.generation)?;
    let merge = wire.merge.map(|merge| read_generation("merge", merge)).transpose()?;
    if merge.is_some() && wire.grant {
        return refuse("merge", Problem::Contradiction { other: "grant" });
    }
    if merge.is_some_and(|merge| merge <= generation) {
        return refuse("merge", Problem::Contradiction { other: "generation" });
    }
    read_generation("state_since", wire.state_since)?;
    let warrant = wire.warrant.map(|warrant| read_in("warrant", warrant, read_warrant)).transpose()?;
    Ok(LeaseOrder {
        range: read_range(wire.first, wire.last)?,
        generation,
        state_since: read_state_since(wire.state_since, wire.generation)?,
        kind,
        merge,
        recall: wire.recall.map(|recall| read_in("recall", recall, read_recall)).transpose()?,
        warrant: warrant.map(Box::new),
    })
}

fn write_recall(recall: &RecallOrder) -> v1::RecallOrder {
    let to = recall.to.as_ref().map(|to| v1::Destination {
        session: write_session(to.session),
        name: to.name.to_string(),
        url: to.url.to_string(),
    });
    v1::RecallOrder { to }
}

fn read_recall(wire: v1::RecallOrder) -> Converted<RecallOrder> {
    Ok(RecallOrder { to: wire.to.map(|to| read_in("to", to, read_destination)).transpose()? })
}

fn read_destination(wire: v1::Destination) -> Converted<Destination> {
    Ok(Destination {
        session: read_session("session", &wire.session)?,
        name: read_owner_name("name", &wire.name)?,
        url: read_url("url", &wire.url)?,
    })
}

// ------------------------------------------------------------------------------------------------------- Lookups

impl From<&LookupRequest> for v1::WatchRequest {
    fn from(request: &LookupRequest) -> v1::WatchRequest {
        let position =
            |position: Position| v1::Position { log: write_nonce(position.log), lsn: position.lsn.0 };
        v1::WatchRequest {
            namespace: request.namespace.to_string(),
            lookup: write_nonce(request.lookup),
            seq: request.seq.0,
            position: request.position.map(position),
            term: request.term.0,
        }
    }
}

impl TryFrom<v1::WatchRequest> for LookupRequest {
    type Error = ConvertError;

    fn try_from(wire: v1::WatchRequest) -> Converted<LookupRequest> {
        let position = |wire: v1::Position| {
            read_nonce("position.log", &wire.log).map(|log| Position { log, lsn: Lsn(wire.lsn) })
        };
        Ok(LookupRequest {
            namespace: read_namespace("namespace", &wire.namespace)?,
            lookup: read_nonce("lookup", &wire.lookup)?,
            seq: read_seq("seq", wire.seq)?,
            position: wire.position.map(position).transpose()?,
            term: Term(wire.term),
        })
    }
}

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
    body: UpdateBody,
    bytes: Bytes,
}

impl Encoded {
    fn is_of(&self, update: &Update) -> bool {
        self.log == update.log
            && self.term == update.term
            && self.namespace == update.namespace
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
            None => refuse("kind", Problem::NoKind),
        }
    }
}

fn read_unknown_namespace(wire: v1::UnknownNamespace) -> Converted<ManagerToLookup> {
    let lookup = read_nonce("lookup", &wire.lookup)?;
    Ok(ManagerToLookup::UnknownNamespace {
        term: Term(wire.term),
        lookup,
        echo: read_seq("echo", wire.echo)?,
    })
}

fn write_news(update: &Update) -> v1::News {
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
    })
}

// ------------------------------------------------------------------------------------------------------ operators

impl TryFrom<v1::CreateNamespaceRequest> for AdminCommand {
    type Error = ConvertError;

    fn try_from(wire: v1::CreateNamespaceRequest) -> Converted<AdminCommand> {
        let namespace = read_namespace("namespace", &wire.namespace)?;
        let settings = match wire.settings {
            Some(settings) => {
                read_in("settings", settings, |wire| read_settings(&wire, &Settings::default()))?
            }
            None => Settings::default(),
        };
        Ok(AdminCommand::Create { namespace, settings: Arc::new(settings) })
    }
}

/// The command of a request to configure, given the settings in force. They are what it was made from, and the command is refused if
/// others are in force by then. If there is no such namespace the rest is taken from the defaults: the Manager refuses the command
/// anyway, and says why.
pub fn configure_command(
    wire: v1::ConfigureNamespaceRequest,
    in_force: impl FnOnce(&Namespace) -> Option<Arc<Settings>>,
) -> Result<AdminCommand, ConvertError> {
    let namespace = read_namespace("namespace", &wire.namespace)?;
    let base = in_force(&namespace).unwrap_or_default();
    let settings = read_required("settings", wire.settings, |wire| read_settings(&wire, &base))?;
    let seen = |wire| read_in("expected", wire, |wire| read_settings(&wire, &base));
    let expected = wire.expected.map(seen).transpose()?.map_or(base, Arc::new);
    Ok(AdminCommand::Configure { namespace, settings: Arc::new(settings), expected: Some(expected) })
}

impl TryFrom<v1::DeleteNamespaceRequest> for AdminCommand {
    type Error = ConvertError;

    fn try_from(wire: v1::DeleteNamespaceRequest) -> Converted<AdminCommand> {
        Ok(AdminCommand::Remove { namespace: read_namespace("namespace", &wire.namespace)? })
    }
}

impl TryFrom<v1::FreezeRequest> for AdminCommand {
    type Error = ConvertError;

    fn try_from(wire: v1::FreezeRequest) -> Converted<AdminCommand> {
        let namespace = read_namespace("namespace", &wire.namespace)?;
        Ok(AdminCommand::Freeze { namespace, why: read_words(&wire.why)? })
    }
}

impl TryFrom<v1::UnfreezeRequest> for AdminCommand {
    type Error = ConvertError;

    fn try_from(wire: v1::UnfreezeRequest) -> Converted<AdminCommand> {
        let namespace = read_namespace("namespace", &wire.namespace)?;
        Ok(AdminCommand::Unfreeze { namespace, why: read_words(&wire.why)? })
    }
}

impl TryFrom<v1::MoveRequest> for AdminCommand {
    type Error = ConvertError;

    fn try_from(wire: v1::MoveRequest) -> Converted<AdminCommand> {
        Ok(AdminCommand::Move {
            namespace: read_namespace("namespace", &wire.namespace)?,
            range: read_required("range", wire.range, KeyRange::try_from)?,
            to: wire.to.map(|to| read_owner_name("to", &to)).transpose()?,
            why: read_words(&wire.why)?,
        })
    }
}

impl TryFrom<v1::DrainRequest> for AdminCommand {
    type Error = ConvertError;

    fn try_from(wire: v1::DrainRequest) -> Converted<AdminCommand> {
        Ok(AdminCommand::Drain {
            namespace: read_namespace("namespace", &wire.namespace)?,
            owner: read_owner_name("owner", &wire.owner)?,
            why: read_words(&wire.why)?,
        })
    }
}

impl TryFrom<v1::UndrainRequest> for AdminCommand {
    type Error = ConvertError;

    fn try_from(wire: v1::UndrainRequest) -> Converted<AdminCommand> {
        Ok(AdminCommand::Undrain {
            namespace: read_namespace("namespace", &wire.namespace)?,
            owner: read_owner_name("owner", &wire.owner)?,
            why: read_words(&wire.why)?,
        })
    }
}

impl TryFrom<v1::EvictRequest> for AdminCommand {
    type Error = ConvertError;

    fn try_from(wire: v1::EvictRequest) -> Converted<AdminCommand> {
        Ok(AdminCommand::Evict {
            namespace: read_namespace("namespace", &wire.namespace)?,
            owner: read_owner_name("owner", &wire.owner)?,
            why: read_words(&wire.why)?,
        })
    }
}

fn read_words(wire: &str) -> Converted<Arc<str>> {
    read_text("why", wire, limits::WORDS_LEN).map(Arc::from)
}

/// Which leases an operator wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseQuery {
    /// Of this pool.
    pub namespace: Namespace,
    /// Only those that share a key with this range.
    pub range: Option<KeyRange>,
    /// Only those of this Owner.
    pub owner: Option<OwnerName>,
}

impl TryFrom<v1::ListLeasesRequest> for LeaseQuery {
    type Error = ConvertError;

    fn try_from(wire: v1::ListLeasesRequest) -> Converted<LeaseQuery> {
        Ok(LeaseQuery {
            namespace: read_namespace("namespace", &wire.namespace)?,
            range: wire.range.map(|range| read_in("range", range, KeyRange::try_from)).transpose()?,
            owner: wire.owner.map(|owner| read_owner_name("owner", &owner)).transpose()?,
        })
    }
}

/// Which decisions an operator wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only those about this namespace.
    pub namespace: Option<Namespace>,
    /// Only those about ranges with this key.
    pub key: Option<Key>,
    /// At most so many, the latest ones.
    pub limit: usize,
}

impl HistoryQuery {
    /// Whether a decision is among those wanted.
    #[must_use]
    pub fn wants(&self, decision: &v1::Decision) -> bool {
        let about_namespace = |wanted: &Namespace| decision.namespace.as_deref() == Some(wanted.as_str());
        let about_key = |wanted: Key| {
            decision.range.is_some_and(|range| range.first <= wanted.0 && wanted.0 <= range.last)
        };
        self.namespace.as_ref().is_none_or(about_namespace) && self.key.is_none_or(about_key)
    }
}

impl TryFrom<v1::HistoryRequest> for HistoryQuery {
    type Error = ConvertError;

    fn try_from(wire: v1::HistoryRequest) -> Converted<HistoryQuery> {
        let limit = match wire.limit as usize {
            0 => limits::HISTORY_DEFAULT,
            limit if limit <= limits::HISTORY_MOST => limit,
            _ => {
                let at_most = limits::HISTORY_MOST as u64;
                return refuse("limit", Problem::TooHigh { value: wire.limit.into(), at_most });
            }
        };
        let namespace = wire.namespace.map(|name| read_namespace("namespace", &name)).transpose()?;
        Ok(HistoryQuery { namespace, key: wire.key.map(Key), limit })
    }
}

impl From<&Settings> for v1::Settings {
    fn from(settings: &Settings) -> v1::Settings {
        let millis = |length| Some(write_millis(length));
        let count = |count| Some(write_count(count));
        let partitioner = match settings.partitioner {
            PartitionerKind::ConsistentHash => v1::Partitioner::ConsistentHash,
            PartitionerKind::Fixed => v1::Partitioner::Fixed,
        };
        let load_policy = match settings.load_policy {
            LoadPolicyKind::TenPercent => v1::LoadPolicy::TenPercent,
            LoadPolicyKind::Off => v1::LoadPolicy::Off,
        };
        v1::Settings {
            lease_ms: millis(settings.lease),
            hold_ms: millis(settings.hold),
            renewal_ms: millis(settings.renewal),
            answer_allowance_ms: millis(settings.answer_allowance),
            migration_timeout_ms: millis(settings.migration_timeout),
            recall_timeout_ms: millis(settings.recall_timeout),
            min_owners: count(settings.min_owners),
            settle_ms: millis(settings.settle),
            max_moves: count(settings.max_moves),
            max_owners: count(settings.max_owners),
            virtual_nodes: Some(settings.virtual_nodes),
            partitioner: Some(partitioner.into()),
            load_policy: Some(load_policy.into()),
            load_interval_ms: millis(settings.load_interval),
            max_load_changes: count(settings.max_load_changes),
            log_span_ms: millis(settings.log_span),
            heartbeat_ms: millis(settings.heartbeat),
        }
    }
}

/// The settings that `base` becomes by what is set on the wire. Whether they go together is for the Manager to say.
pub fn read_settings(wire: &v1::Settings, base: &Settings) -> Result<Settings, ConvertError> {
    let count = |wire: Option<u32>, base: usize| wire.map_or(base, |count| count as usize);
    Ok(Settings {
        lease: read_millis_from(limits::SHORTEST_LEASE, "lease_ms", wire.lease_ms, base.lease)?,
        hold: read_millis_from(limits::SHORTEST_LEASE, "hold_ms", wire.hold_ms, base.hold)?,
        renewal: read_millis_from(limits::SHORTEST_RENEWAL, "renewal_ms", wire.renewal_ms, base.renewal)?,
        answer_allowance: read_millis(
            "answer_allowance_ms",
            wire.answer_allowance_ms,
            base.answer_allowance,
        )?,
        migration_timeout: read_millis(
            "migration_timeout_ms",
            wire.migration_timeout_ms,
            base.migration_timeout,
        )?,
        recall_timeout: read_millis("recall_timeout_ms", wire.recall_timeout_ms, base.recall_timeout)?,
        min_owners: count(wire.min_owners, base.min_owners),
        settle: read_millis("settle_ms", wire.settle_ms, base.settle)?,
        max_moves: count(wire.max_moves, base.max_moves),
        max_owners: count(wire.max_owners, base.max_owners),
        virtual_nodes: read_virtual_nodes(wire.virtual_nodes, base.virtual_nodes)?,
        partitioner: wire.partitioner.map_or(Ok(base.partitioner), read_partitioner)?,
        load_policy: wire.load_policy.map_or(Ok(base.load_policy), read_load_policy)?,
        load_interval: read_millis("load_interval_ms", wire.load_interval_ms, base.load_interval)?,
        max_load_changes: count(wire.max_load_changes, base.max_load_changes),
        log_span: read_millis("log_span_ms", wire.log_span_ms, base.log_span)?,
        heartbeat: read_millis("heartbeat_ms", wire.heartbeat_ms, base.heartbeat)?,
    })
}

fn read_millis(field: &str, wire: Option<u64>, base: Duration) -> Converted<Duration> {
    let at_most = write_millis(limits::LONGEST_SETTING);
    match wire {
        None => Ok(base),
        Some(value) if value > at_most => refuse(field, Problem::TooHigh { value, at_most }),
        Some(value) => Ok(Duration::from_millis(value)),
    }
}

/// A time that must not be shorter than another. The machine itself takes any, as simulations do.
fn read_millis_from(
    shortest: Duration,
    field: &str,
    wire: Option<u64>,
    base: Duration,
) -> Converted<Duration> {
    let at_least = write_millis(shortest);
    match wire {
        Some(value) if value < at_least => refuse(field, Problem::TooLow { value, at_least }),
        wire => read_millis(field, wire, base),
    }
}

fn read_virtual_nodes(wire: Option<u32>, base: u32) -> Converted<u32> {
    match wire.unwrap_or(base) {
        value if value > limits::VIRTUAL_NODES => {
            let at_most = limits::VIRTUAL_NODES.into();
            refuse("virtual_nodes", Problem::TooHigh { value: value.into(), at_most })
        }
        value => Ok(value),
    }
}

fn read_partitioner(wire: i32) -> Converted<PartitionerKind> {
    match v1::Partitioner::try_from(wire) {
        Ok(v1::Partitioner::ConsistentHash) => Ok(PartitionerKind::ConsistentHash),
        Ok(v1::Partitioner::Fixed) => Ok(PartitionerKind::Fixed),
        Ok(v1::Partitioner::Unspecified) | Err(_) => refuse("partitioner", Problem::Enum { value: wire }),
    }
}

fn read_load_policy(wire: i32) -> Converted<LoadPolicyKind> {
    match v1::LoadPolicy::try_from(wire) {
        Ok(v1::LoadPolicy::TenPercent) => Ok(LoadPolicyKind::TenPercent),
        Ok(v1::LoadPolicy::Off) => Ok(LoadPolicyKind::Off),
        Ok(v1::LoadPolicy::Unspecified) | Err(_) => refuse("load_policy", Problem::Enum { value: wire }),
    }
}

impl From<RoleName> for v1::Role {
    fn from(role: RoleName) -> v1::Role {
        match role {
            RoleName::Standby => v1::Role::Standby,
            RoleName::Loading => v1::Role::Loading,
            RoleName::Leader { .. } => v1::Role::Leader,
        }
    }
}

/// A namespace as operators see it, and what a leader that has no store has yet to learn of it as of an instant.
#[must_use]
pub fn write_namespace_status(
    name: &Namespace,
    stored: &NamespaceState,
    rebuilding: Option<(RebuildOverview, Instant)>,
) -> v1::NamespaceStatus {
    let ranges = |counts: fn(&Entry) -> bool| {
        write_count(stored.table.iter().filter(|(_, entry)| counts(entry)).count())
    };
    let pin = |(range, owner): (KeyRange, &OwnerName)| v1::Pin {
        range: Some(range.into()),
        owner: owner.to_string(),
    };
    v1::NamespaceStatus {
        name: name.to_string(),
        settings: Some(v1::Settings::from(&*stored.settings)),
        frozen: stored.frozen,
        owners: write_count(stored.sessions.len()),
        ranges: write_count(stored.table.len()),
        unowned_ranges: ranges(|entry| entry.owner.is_none()),
        moving_ranges: ranges(|entry| entry.recall.is_some()),
        last_generation: stored.last_generation.0,
        lsn: stored.lsn.0,
        pins: stored.pins.iter().map(pin).collect(),
        rebuilding: rebuilding.map(|(rebuild, now)| write_rebuilding(&rebuild, now)),
    }
}

fn write_rebuilding(rebuild: &RebuildOverview, now: Instant) -> v1::Rebuilding {
    v1::Rebuilding {
        unclaimed_share: rebuild.unclaimed_keys as f64 / KeyRange::ALL.key_count() as f64,
        ends_in_ms: write_millis(rebuild.ends_at.since(now)),
    }
}

/// An Owner as operators see it, when the leader last heard from it, and the load it reported.
#[must_use]
pub fn write_owner_status(
    session: SessionId,
    info: &SessionInfo,
    stored: &NamespaceState,
    heard_ago: Option<Duration>,
    load: u64,
) -> v1::OwnerStatus {
    let ranges = || stored.table.of_session(session).map(|(range, _)| range);
    let keys: u128 = ranges().map(KeyRange::key_count).sum();
    v1::OwnerStatus {
        session: write_session(session),
        name: info.name.to_string(),
        url: info.url.to_string(),
        weight: info.weight,
        virtual_nodes: info.virtual_nodes,
        draining: info.is_draining(),
        evicted: info.evicted,
        heard_seconds_ago: heard_ago.map(|ago| ago.as_secs_f64()),
        ranges: write_count(ranges().count()),
        key_share: keys as f64 / KeyRange::ALL.key_count() as f64,
        load,
        drain_ordered: info.drain_ordered,
    }
}

/// A range of the table as operators see it.
#[must_use]
pub fn write_lease(range: KeyRange, entry: &Entry, stored: &NamespaceState) -> v1::Lease {
    let owner = |session: SessionId| {
        let info = stored.sessions.get(&session);
        v1::LeaseOwner {
            session: write_session(session),
            name: info.map_or_else(String::new, |info| info.name.to_string()),
            url: info.map_or_else(String::new, |info| info.url.to_string()),
        }
    };
    v1::Lease {
        range: Some(range.into()),
        owner: entry.owner.map(owner),
        generation: entry.generation.0,
        state_since: entry.state_since.0,
        recall: entry.recall.map(|recall| v1::LeaseRecall { to: recall.to.map(owner) }),
    }
}

/// What a committed batch decided, as operators see it. The names of sessions that the batch itself does not introduce are for
/// the caller to fill in.
#[must_use]
pub fn write_decisions(wall_time_ms: u64, index: Index, batch: &Batch) -> Vec<v1::Decision> {
    let decision = |record: &Record| {
        let common = v1::Decision { wall_time_ms, index: index.0, term: batch.term.0, ..Default::default() };
        write_decision(record, common)
    };
    batch.records.iter().map(decision).collect()
}

fn write_decision(record: &Record, common: v1::Decision) -> v1::Decision {
    let group = |kind: &str, common| v1::Decision { kind: kind.to_owned(), ..common };
    match record {
        Record::LeaderStarted { .. } => group("leader-started", common),
        Record::LeaderSettled => group("leader-settled", common),
        Record::LeaderResigned => group("leader-resigned", common),
        Record::Namespace { namespace, change, reason } => {
            let (reason, operator_words) = write_reason(reason);
            let namespace = Some(namespace.to_string());
            let reason = reason.to_owned();
            write_change(change, v1::Decision { namespace, reason, operator_words, ..common })
        }
    }
}

fn write_change(change: &Change, common: v1::Decision) -> v1::Decision {
    let kind = |kind: &str, common| v1::Decision { kind: kind.to_owned(), ..common };
    let about = |session: &SessionId, info: Option<&SessionInfo>, common| v1::Decision {
        session: Some(write_session(*session)),
        owner: info.map(|info| info.name.to_string()),
        ..common
    };
    let lease = |range: &KeyRange, generation: &Generation, common| v1::Decision {
        range: Some((*range).into()),
        generation: Some(generation.0),
        ..common
    };
    match change {
        Change::Created { .. } => kind("created", common),
        Change::Removed => kind("removed", common),
        Change::Configured { .. } => kind("configured", common),
        Change::HoldSettled => kind("hold-settled", common),
        Change::SessionStarted { session, info } => {
            kind("session-started", about(session, Some(info), common))
        }
        Change::SessionChanged { session, info } => {
            kind("session-changed", about(session, Some(info), common))
        }
        Change::SessionEnded { session } => kind("session-ended", about(session, None, common)),
        Change::Granted { range, generation, session, source, .. } => {
            let source = source.map(|source| source.0);
            let granted = about(session, None, lease(range, generation, common));
            kind("granted", v1::Decision { source, ..granted })
        }
        Change::Claimed { range, generation, session, .. } => {
            kind("claimed", about(session, None, lease(range, generation, common)))
        }
        Change::Released { range, generation } => kind("released", lease(range, generation, common)),
        Change::Recalled { range, generation, to } => {
            let recalled = lease(range, generation, common);
            kind("recalled", v1::Decision { session: to.map(write_session), ..recalled })
        }
        Change::RecallCancelled { range, generation } => {
            kind("recall-cancelled", lease(range, generation, common))
        }
        Change::MergeBegun { range, generation } => kind("merge-begun", lease(range, generation, common)),
        Change::Merged { range, generation } => kind("merged", lease(range, generation, common)),
        Change::Frozen => kind("frozen", common),
        Change::Unfrozen => kind("unfrozen", common),
        Change::Pinned { range, to } => {
            let word = if to.is_some() { "pinned" } else { "unpinned" };
            let owner = to.as_ref().map(ToString::to_string);
            kind(word, v1::Decision { range: Some((*range).into()), owner, ..common })
        }
    }
}

/// The word of the wire for a reason, and the operator's words.
fn write_reason(reason: &Reason) -> (&'static str, Option<String>) {
    let word = match reason {
        Reason::Operator(words) => return ("operator", Some(words.to_string())),
        Reason::Joined => "joined",
        Reason::Left => "left",
        Reason::HoldExpired => "hold-expired",
        Reason::TakenOver => "taken-over",
        Reason::Dropped => "dropped",
        Reason::RefusedByOwner => "refused-by-owner",
        Reason::GivenBack => "given-back",
        Reason::Migrated => "migrated",
        Reason::DestinationGone => "destination-gone",
        Reason::Unowned => "unowned",
        Reason::Repartitioned => "repartitioned",
        Reason::Draining => "draining",
        Reason::MigrationTimedOut => "migration-timed-out",
        Reason::NoLongerWanted => "no-longer-wanted",
        Reason::Reported => "reported",
        Reason::LoadBalanced => "load-balanced",
        Reason::TimePassed => "time-passed",
        Reason::Claimed => "claimed",
        Reason::Neighbours => "neighbours",
    };
    (word, None)
}

/// Which namespace a command is about, and which Owner, if it names one.
#[must_use]
pub fn named(command: &AdminCommand) -> (&Namespace, Option<&OwnerName>) {
    match command {
        AdminCommand::Create { namespace, .. }
        | AdminCommand::Configure { namespace, .. }
        | AdminCommand::Remove { namespace }
        | AdminCommand::Freeze { namespace, .. }
        | AdminCommand::Unfreeze { namespace, .. } => (namespace, None),
        AdminCommand::Move { namespace, to, .. } => (namespace, to.as_ref()),
        AdminCommand::Drain { namespace, owner, .. }
        | AdminCommand::Undrain { namespace, owner, .. }
        | AdminCommand::Evict { namespace, owner, .. } => (namespace, Some(owner)),
    }
}

/// The status with which a Manager refuses an operator who asked about a namespace and, perhaps, an Owner of it.
#[must_use]
pub fn admin_status(error: &AdminError, (namespace, owner): (&Namespace, Option<&OwnerName>)) -> Status {
    match error {
        AdminError::NotLeader(leader) => not_leader_status(leader.as_ref()),
        AdminError::Unknown => Status::unavailable(
            "the Manager stopped leading before the outcome was known: look whether it was done, and ask again if not",
        ),
        AdminError::NamespaceExists => {
            Status::already_exists(format!("there is a namespace `{namespace}` already"))
        }
        AdminError::TooManyNamespaces { at_most } => Status::resource_exhausted(format!(
            "there are {at_most} namespaces already: delete one, or raise max_namespaces"
        )),
        AdminError::NoSuchNamespace => Status::not_found(format!(
            "there is no namespace `{namespace}`: create it, or list those that exist"
        )),
        AdminError::NamespaceInUse => Status::failed_precondition(format!(
            "the namespace `{namespace}` has Owners: stop, drain or evict them first, and wait until they are gone"
        )),
        AdminError::NoSuchOwner => {
            let owner = owner.map_or_else(String::new, |owner| format!(" `{owner}`"));
            Status::not_found(format!("there is no Owner{owner} in `{namespace}`: list those that exist"))
        }
        AdminError::DrainsItself => {
            let owner = owner.map_or_else(|| "the Owner".to_owned(), |owner| format!("`{owner}`"));
            Status::failed_precondition(format!(
                "{owner} asked to be emptied itself, as a process does that is about to stop; no operator drains it: \
                 let it stop, or tell its application to stay"
            ))
        }
        AdminError::Settings(error) => Status::invalid_argument(format!("settings: {error}")),
        AdminError::SettingsChanged => Status::aborted(
            "the settings are not those that the change was made from: read them again, and decide anew",
        ),
        AdminError::Diskless => Status::failed_precondition(format!(
            "these Managers have no store and would forget it: name `{namespace}` and its settings in the configuration of every \
             Manager ([namespaces.{namespace}], or --namespace), and restart them one after the other"
        )),
    }
}

/// The status with which a Manager that does not lead answers an operator.
#[must_use]
pub fn not_leader_status(leader: Option<&ManagerId>) -> Status {
    let Some(leader) = leader else {
        return Status::failed_precondition(
            "this Manager does not lead, and does not know who does: ask another",
        );
    };
    let mut status =
        Status::failed_precondition(format!("this Manager does not lead: ask {leader}, which does"));
    if let Ok(value) = leader.as_str().parse() {
        status.metadata_mut().insert(LEADER_KEY, value);
    }
    status
}

/// The leader that a Manager which does not lead named.
#[must_use]
pub fn leader_named(status: &Status) -> Option<ManagerId> {
    if status.code() != Code::FailedPrecondition {
        return None;
    }
    let value = status.metadata().get(LEADER_KEY)?.to_str().ok()?;
    read_manager(LEADER_KEY, value).ok()
}
