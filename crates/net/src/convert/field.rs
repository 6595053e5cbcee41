//! Fields that messages of several services have: names, numbers, keys, and messages inside messages.

use std::time::Duration;

use centrifuge_core::id::{
    Generation, LoadDimension, ManagerId, NameError, Namespace, Nonce, OwnerName, Seq, SessionId, Url,
};
use centrifuge_core::key::{Key, KeyRange};
use centrifuge_core::text::unprintable_in;
use prost::bytes::Bytes;

use super::error::{ConvertError, Converted, Problem, refuse};
use crate::limits;
use crate::proto::v1;

/// Both ways between an enumeration of the core and the wire's, which has the same cases and `Unspecified`.
macro_rules! enumeration {
    ($core:ident, $wire:ident, $field:literal, $read:ident { $($case:ident),+ }) => {
        impl From<$core> for v1::$wire {
            fn from(value: $core) -> v1::$wire {
                match value {
                    $($core::$case => v1::$wire::$case,)+
                }
            }
        }

        impl TryFrom<v1::$wire> for $core {
            type Error = ConvertError;

            fn try_from(wire: v1::$wire) -> Converted<$core> {
                match wire {
                    $(v1::$wire::$case => Ok($core::$case),)+
                    v1::$wire::Unspecified => refuse($field, Problem::Enum { value: wire.into() }),
                }
            }
        }

        pub(super) fn $read(wire: i32) -> Converted<$core> {
            v1::$wire::try_from(wire)
                .or_else(|_| refuse($field, Problem::Enum { value: wire }))
                .and_then($core::try_from)
        }
    };
}
pub(super) use enumeration;

/// A message inside a message, with the field's name before those inside it.
pub(super) fn read_in<W, T>(field: &str, wire: W, read: impl FnOnce(W) -> Converted<T>) -> Converted<T> {
    read(wire).map_err(|error| error.within(field))
}

/// A message inside a message that must be there.
pub(super) fn read_required<W, T>(
    field: &str,
    wire: Option<W>,
    read: impl FnOnce(W) -> Converted<T>,
) -> Converted<T> {
    match wire {
        Some(wire) => read_in(field, wire, read),
        None => refuse(field, Problem::Absent),
    }
}

/// A message inside a message that may be absent.
pub(super) fn read_optional<W, T>(
    field: &str,
    wire: Option<W>,
    read: impl FnOnce(W) -> Converted<T>,
) -> Converted<Option<T>> {
    wire.map(|wire| read_in(field, wire, read)).transpose()
}

/// A list of messages, with the place in the list in the field's name.
pub(super) fn read_list<W, T>(
    field: &str,
    wire: Vec<W>,
    read: impl Fn(W) -> Converted<T>,
) -> Converted<Vec<T>> {
    let item = |(place, wire): (usize, W)| {
        read(wire).map_err(|error| error.within(format_args!("{field}[{place}]")))
    };
    wire.into_iter().enumerate().map(item).collect()
}

/// A list that a Manager receives.
pub(super) fn read_bounded<W, T>(
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

pub(super) fn write_nonce(nonce: Nonce) -> Bytes {
    Bytes::copy_from_slice(&nonce.0.to_be_bytes())
}

/// The bytes that stand for a session on the wire.
#[must_use]
pub fn write_session(session: SessionId) -> Bytes {
    write_nonce(session.0)
}

pub(super) fn read_nonce(field: &str, wire: &[u8]) -> Converted<Nonce> {
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

/// What load is counted in; requests are not named.
pub(super) fn write_load_dimension(dimension: &LoadDimension) -> String {
    if dimension.is_requests() { String::new() } else { dimension.to_string() }
}

pub(super) fn read_load_dimension(field: &str, wire: &str) -> Converted<LoadDimension> {
    match wire {
        "" => Ok(LoadDimension::default()),
        name => LoadDimension::new(name).or_else(|error| refuse(field, Problem::Name(error))),
    }
}

/// An Owner's name.
pub(super) fn read_owner_name(field: &str, wire: &str) -> Converted<OwnerName> {
    match OwnerName::new(wire) {
        Ok(name) => Ok(name),
        Err(_) if wire.is_empty() => refuse(field, Problem::Absent),
        Err(NameError::Unprintable { character }) => refuse(field, Problem::Unprintable { character }),
        Err(error) => refuse(field, Problem::Name(error)),
    }
}

/// Any text of a peer that is no name: not too long, and nothing in it that a terminal or a log would obey.
pub(super) fn read_text<'a>(field: &str, wire: &'a str, at_most: usize) -> Converted<&'a str> {
    match (wire.len(), unprintable_in(wire)) {
        (len, _) if len > at_most => refuse(field, Problem::TooLong { len, at_most }),
        (_, Some(character)) => refuse(field, Problem::Unprintable { character }),
        _ => Ok(wire),
    }
}

pub(super) fn read_url(field: &str, wire: &str) -> Converted<Url> {
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

pub(super) fn read_range(first: u64, last: u64) -> Converted<KeyRange> {
    let (first, last) = (Key(first), Key(last));
    KeyRange::new(first, last).ok_or_else(|| ConvertError::new("last", Problem::Range { first, last }))
}

pub(super) fn read_positive(field: &str, wire: u64) -> Converted<u64> {
    if wire == 0 { refuse(field, Problem::Zero) } else { Ok(wire) }
}

pub(super) fn read_generation(field: &str, wire: u64) -> Converted<Generation> {
    read_positive(field, wire).map(Generation)
}

/// The generation at which the state of a lease under `generation` began: none that came later.
pub(super) fn read_state_since(wire: u64, generation: u64) -> Converted<Generation> {
    if wire > generation {
        return refuse("state_since", Problem::TooHigh { value: wire, at_most: generation });
    }
    Ok(Generation(wire))
}

pub(super) fn read_seq(field: &str, wire: u64) -> Converted<Seq> {
    read_positive(field, wire).map(Seq)
}

pub(super) fn write_nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn write_millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn write_count(count: usize) -> u32 {
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

pub(super) fn write_not_leader(leader: Option<&ManagerId>) -> v1::NotLeader {
    v1::NotLeader { leader: leader.map(ToString::to_string) }
}

pub(super) fn read_not_leader(wire: v1::NotLeader) -> Converted<Option<ManagerId>> {
    wire.leader.map(|leader| read_manager("leader", &leader)).transpose()
}
