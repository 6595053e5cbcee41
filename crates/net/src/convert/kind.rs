//! What a namespace is, and what clients are built for. What every namespace was before there was a choice is absent on the wire.

use centrifuge_core::namespace_kind::{
    ExpectedKind, KeyKind, KeyPrefix, KeyPrefixError, Keys, KindMismatch, Mode, NamespaceKind,
};

use super::error::{ConvertError, Converted, Problem, refuse};
use super::field::*;
use crate::proto::v1;

enumeration!(KeyKind, KeyKind, "keys", read_key_kind { Hashed, Ordered });
enumeration!(Mode, Mode, "mode", read_mode { Exclusive, Affinity });
enumeration!(KindMismatch, WrongKindWhy, "why", read_mismatch { Keys, Mode });

impl From<&NamespaceKind> for v1::NamespaceKind {
    /// Every field that has a meaning, as operators see it.
    fn from(kind: &NamespaceKind) -> v1::NamespaceKind {
        v1::NamespaceKind {
            keys: Some(v1::KeyKind::from(kind.keys.kind()).into()),
            key_prefix: kind.keys.prefix().map(|prefix| prefix.as_bytes().to_vec().into()),
            mode: Some(v1::Mode::from(kind.mode).into()),
        }
    }
}

/// A kind as Owners and Lookups get it.
pub(super) fn write_kind(kind: &NamespaceKind) -> Option<v1::NamespaceKind> {
    (*kind != NamespaceKind::default()).then(|| v1::NamespaceKind::from(kind))
}

/// What a namespace is, as its status says it.
pub fn read_namespace_kind(wire: Option<v1::NamespaceKind>) -> Result<NamespaceKind, ConvertError> {
    read_kind(wire)
}

pub(super) fn read_kind(wire: Option<v1::NamespaceKind>) -> Converted<NamespaceKind> {
    read_kind_over(wire, &NamespaceKind::default())
}

/// The kind that `base` becomes by what is set on the wire.
pub(super) fn read_kind_over(
    wire: Option<v1::NamespaceKind>,
    base: &NamespaceKind,
) -> Converted<NamespaceKind> {
    let Some(wire) = wire else { return Ok(base.clone()) };
    read_in("kind", wire, |wire| {
        Ok(NamespaceKind {
            keys: read_keys(&wire, &base.keys)?,
            mode: wire.mode.map_or(Ok(base.mode), read_mode)?,
        })
    })
}

fn read_keys(wire: &v1::NamespaceKind, base: &Keys) -> Converted<Keys> {
    let kind = wire.keys.map_or(Ok(base.kind()), read_key_kind)?;
    match (kind, &wire.key_prefix) {
        (KeyKind::Hashed, None) => Ok(Keys::Hashed),
        (KeyKind::Hashed, Some(_)) => refuse("key_prefix", Problem::PrefixOfHashed),
        (KeyKind::Ordered, None) => Ok(Keys::Ordered(base.prefix().cloned().unwrap_or_default())),
        (KeyKind::Ordered, Some(bytes)) => read_prefix(bytes).map(Keys::Ordered),
    }
}

fn read_prefix(wire: &[u8]) -> Converted<KeyPrefix> {
    KeyPrefix::new(wire).or_else(|error| match error {
        KeyPrefixError::TooLong { len } => {
            refuse("key_prefix", Problem::TooLong { len, at_most: KeyPrefix::MAX_LEN })
        }
        KeyPrefixError::Escape { .. } => refuse("key_prefix", Problem::Absent),
    })
}

/// What a client is built for, as its two fields.
pub(super) fn write_expected(expected: ExpectedKind) -> (Option<i32>, Option<i32>) {
    let usual = ExpectedKind::default();
    let keys = (expected.keys != usual.keys).then(|| v1::KeyKind::from(expected.keys).into());
    let mode = (expected.mode != usual.mode).then(|| v1::Mode::from(expected.mode).into());
    (keys, mode)
}

pub(super) fn read_expected(keys: Option<i32>, mode: Option<i32>) -> Converted<ExpectedKind> {
    let usual = ExpectedKind::default();
    Ok(ExpectedKind {
        keys: keys.map_or(Ok(usual.keys), read_key_kind)?,
        mode: mode.map_or(Ok(usual.mode), read_mode)?,
    })
}
