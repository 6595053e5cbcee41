//! What a namespace is, from its creation to its end: how application keys become keys, and what its leases promise.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::injected_bug::{Bug, injected};
use crate::key::Key;
use crate::partition::PartitionerKind;
use crate::settings::{Drift, Settings, SettingsError};

/// What a namespace is. Chosen when it is created, and never changed: under another kind one application key would have two owners, the
/// one by the old kind and the one by the new. It is therefore no setting, and no record but the creation has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct NamespaceKind {
    /// How application keys become keys.
    pub keys: Keys,
    /// What leases promise.
    pub mode: Mode,
}

/// How the application keys of a namespace become keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Keys {
    /// By a hash: neighbours go anywhere, and any keys spread evenly.
    #[default]
    Hashed,
    /// By the first eight bytes after a prefix that all of them have: neighbours stay together.
    Ordered(KeyPrefix),
}

/// How application keys become keys, as clients name it. They learn the prefix from the Manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum KeyKind {
    /// By a hash.
    #[default]
    Hashed,
    /// In their order.
    Ordered,
}

/// What leases promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Mode {
    /// A key has at most one owner at any time.
    #[default]
    Exclusive,
    /// A key has a preferred owner, and for short times perhaps two.
    Affinity,
}

/// The kind of namespace that a client is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ExpectedKind {
    /// How it makes keys.
    pub keys: KeyKind,
    /// What it takes leases for.
    pub mode: Mode,
}

/// In what a namespace is not what a client is built for. The client is refused, and asks no more: only another build or another
/// namespace mends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum KindMismatch {
    /// It makes keys in the other way.
    Keys,
    /// It takes leases for something else.
    Mode,
}

impl NamespaceKind {
    /// In what a client that expects this cannot use the namespace, if it cannot.
    #[must_use]
    pub fn mismatch(&self, expected: ExpectedKind) -> Option<KindMismatch> {
        if self.keys.kind() != expected.keys && !injected(Bug::AcceptsOtherKeys) {
            return Some(KindMismatch::Keys);
        }
        let differs = self.mode != expected.mode && !injected(Bug::AcceptsOtherMode);
        differs.then_some(KindMismatch::Mode)
    }

    /// What its clients are built for.
    #[must_use]
    pub fn expected(&self) -> ExpectedKind {
        ExpectedKind { keys: self.keys.kind(), mode: self.mode }
    }

    /// How long a silent session's leases are kept from others. All that the Manager does differently by mode follows from this:
    /// there is no other way in which an exclusive namespace could behave like one in affinity mode.
    #[must_use]
    pub fn hold(&self, settings: &Settings) -> Duration {
        match self.mode {
            Mode::Exclusive => settings.hold,
            Mode::Affinity => settings.silence(),
        }
    }

    /// Refuses settings under which a namespace of this kind could not work, or not keep what its leases promise.
    pub fn check(&self, settings: &Settings, drift: Drift) -> Result<(), SettingsError> {
        match self.mode {
            Mode::Exclusive => settings.check(drift)?,
            Mode::Affinity if settings.hold != Settings::default().hold => {
                return Err(SettingsError::HoldInAffinity);
            }
            Mode::Affinity => settings.check_but_for_hold()?,
        }
        match (&self.keys, settings.partitioner) {
            (Keys::Ordered(_), PartitionerKind::ConsistentHash) => Err(SettingsError::OrderedByHash),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for NamespaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.keys.kind().as_str())?;
        if let Some(prefix) = self.keys.prefix().filter(|prefix| !prefix.as_bytes().is_empty()) {
            write!(f, " after '{prefix}'")?;
        }
        write!(f, ", {} leases", self.mode.as_str())
    }
}

impl Keys {
    /// The kind without the prefix.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        match self {
            Keys::Hashed => KeyKind::Hashed,
            Keys::Ordered(_) => KeyKind::Ordered,
        }
    }

    /// The prefix of ordered keys.
    #[must_use]
    pub fn prefix(&self) -> Option<&KeyPrefix> {
        match self {
            Keys::Hashed => None,
            Keys::Ordered(prefix) => Some(prefix),
        }
    }

    /// The key of an application key.
    pub fn key_of(&self, application_key: &[u8]) -> Result<Key, KeyError> {
        match self {
            Keys::Hashed => Ok(Key::of(application_key)),
            Keys::Ordered(prefix) => match application_key.strip_prefix(prefix.as_bytes()) {
                Some(rest) => Ok(Key::in_order(rest)),
                None => Err(KeyError { prefix: prefix.clone() }),
            },
        }
    }
}

/// An application key that does not begin with the prefix of its namespace, and so has no place among ordered keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyError {
    /// What all keys of the namespace begin with.
    pub prefix: KeyPrefix,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key does not begin with '{}', as all keys of this namespace do", self.prefix)
    }
}

impl std::error::Error for KeyError {}

/// What all application keys of a namespace with ordered keys begin with. It is stripped before the order counts.
///
/// As text, bytes that are no printable ASCII are escaped as in Rust's byte strings: `\n`, `\\`, `\xff`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(into = "Vec<u8>", try_from = "Vec<u8>"))]
pub struct KeyPrefix(Arc<[u8]>);

impl KeyPrefix {
    /// The most bytes of a prefix: it travels in every welcome and every message to a Lookup.
    pub const MAX_LEN: usize = 64;

    /// The prefix of these bytes.
    pub fn new(bytes: &[u8]) -> Result<KeyPrefix, KeyPrefixError> {
        match bytes.len() {
            len if len > KeyPrefix::MAX_LEN => Err(KeyPrefixError::TooLong { len }),
            _ => Ok(KeyPrefix(bytes.into())),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{self}'")
    }
}

impl fmt::Display for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.escape_ascii(), f)
    }
}

impl From<KeyPrefix> for Vec<u8> {
    fn from(prefix: KeyPrefix) -> Vec<u8> {
        prefix.0.to_vec()
    }
}

impl TryFrom<Vec<u8>> for KeyPrefix {
    type Error = KeyPrefixError;

    fn try_from(bytes: Vec<u8>) -> Result<KeyPrefix, KeyPrefixError> {
        KeyPrefix::new(&bytes)
    }
}

impl FromStr for KeyPrefix {
    type Err = KeyPrefixError;

    fn from_str(text: &str) -> Result<KeyPrefix, KeyPrefixError> {
        KeyPrefix::new(&unescape(text)?)
    }
}

/// Why bytes or a text are no prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPrefixError {
    /// It has too many bytes.
    TooLong {
        /// How many it has.
        len: usize,
    },
    /// A backslash is followed by something that no escape begins with.
    Escape {
        /// From the backslash on.
        text: String,
    },
}

impl fmt::Display for KeyPrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyPrefixError::TooLong { len } => {
                write!(f, "a key prefix has at most {} bytes, and this one has {len}", KeyPrefix::MAX_LEN)
            }
            KeyPrefixError::Escape { text } => {
                write!(f, "{text:?} is no escape: write \\\\ for a backslash, \\xff for the byte ff")
            }
        }
    }
}

impl std::error::Error for KeyPrefixError {}

/// The bytes that a text with escapes stands for: the inverse of `escape_ascii`.
pub fn unescape(text: &str) -> Result<Vec<u8>, KeyPrefixError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let (byte, after) = match byte {
            b'\\' => read_escape(after).ok_or_else(|| no_escape(rest))?,
            byte => (*byte, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Ok(bytes)
}

/// The byte that stands behind a backslash, and what follows it.
fn read_escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (name, rest) = text.split_first()?;
    Some(match name {
        b'n' => (b'\n', rest),
        b'r' => (b'\r', rest),
        b't' => (b'\t', rest),
        b'0' => (0, rest),
        b'\\' | b'\'' | b'"' => (*name, rest),
        b'x' => {
            let (digits, rest) = rest.split_at_checked(2)?;
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let byte = digit(digits[0])? * 16 + digit(digits[1])?;
            (u8::try_from(byte).ok()?, rest)
        }
        _ => return None,
    })
}

fn no_escape(from: &[u8]) -> KeyPrefixError {
    KeyPrefixError::Escape { text: String::from_utf8_lossy(from).chars().take(4).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(prefix: &[u8]) -> Keys {
        Keys::Ordered(KeyPrefix::new(prefix).expect("short"))
    }

    #[test]
    fn ordered_keys_have_the_order_of_the_eight_bytes_after_the_prefix() {
        let keys = ordered(b"user/");
        let of = |key: &[u8]| keys.key_of(key).expect("it has the prefix");
        assert_eq!(of(b"user/"), Key::MIN, "nothing after the prefix is the lowest key");
        assert_eq!(of(b"user/a"), Key(0x6100_0000_0000_0000));
        assert_eq!(of(b"user/abcdefgh"), Key(0x6162_6364_6566_6768));
        let sorted: [&[u8]; 6] = [b"user/", b"user/\x01", b"user/a", b"user/ab", b"user/abcdefgh", b"user/b"];
        assert!(sorted.windows(2).all(|pair| of(pair[0]) < of(pair[1])));
    }

    #[test]
    fn keys_that_share_eight_bytes_or_differ_in_trailing_zeros_are_the_same() {
        let keys = ordered(b"");
        assert_eq!(keys.key_of(b"abcdefgh"), keys.key_of(b"abcdefghi"));
        assert_eq!(keys.key_of(b"a"), keys.key_of(b"a\0"));
        assert_eq!(keys.key_of(b""), Ok(Key::MIN));
    }

    #[test]
    fn a_key_without_the_prefix_has_no_place() {
        let keys = ordered(b"user/");
        for key in [&b""[..], b"u", b"user", b"User/a", b"group/a"] {
            let error = keys.key_of(key).expect_err("it has not the prefix");
            assert_eq!(
                error.to_string(),
                "the key does not begin with 'user/', as all keys of this namespace do"
            );
        }
    }

    #[test]
    fn hashed_keys_are_as_they_always_were() {
        assert_eq!(Keys::Hashed.key_of(b"room-7"), Ok(Key::of(b"room-7")));
        assert_eq!(Keys::Hashed.key_of(b""), Ok(Key::of(b"")));
    }

    #[test]
    fn a_prefix_is_shown_and_read_with_escapes() {
        for bytes in [&b""[..], b"user/", b"a\\b", b"\0\xff\n", "ü".as_bytes()] {
            let prefix = KeyPrefix::new(bytes).expect("short");
            assert_eq!(prefix.to_string().parse(), Ok(prefix), "{bytes:?}");
        }
        assert_eq!("ü".parse::<KeyPrefix>().expect("short").as_bytes(), "ü".as_bytes());
        for text in ["\\", "a\\q", "\\x", "\\x4", "\\xg0", "\\x+1"] {
            assert!(matches!(text.parse::<KeyPrefix>(), Err(KeyPrefixError::Escape { .. })), "{text}");
        }
    }

    #[test]
    fn a_prefix_that_is_too_long_is_refused() {
        assert!(KeyPrefix::new(&[b'a'; KeyPrefix::MAX_LEN]).is_ok());
        let error = "a".repeat(65).parse::<KeyPrefix>().expect_err("too long");
        assert_eq!(error.to_string(), "a key prefix has at most 64 bytes, and this one has 65");
    }

    #[test]
    fn a_client_of_another_kind_does_not_fit() {
        let kind = NamespaceKind { keys: ordered(b"user/"), mode: Mode::Exclusive };
        assert_eq!(kind.mismatch(kind.expected()), None);
        assert_eq!(kind.mismatch(ExpectedKind::default()), Some(KindMismatch::Keys));
        let other = ExpectedKind { mode: Mode::Affinity, ..kind.expected() };
        assert_eq!(kind.mismatch(other), Some(KindMismatch::Mode));
        assert_eq!(kind.to_string(), "ordered keys after 'user/', exclusive leases");
        assert_eq!(NamespaceKind::default().to_string(), "hashed keys, exclusive leases");
    }

    #[test]
    fn affinity_waits_for_silence_and_takes_no_hold() {
        let affinity = NamespaceKind { mode: Mode::Affinity, ..NamespaceKind::default() };
        let usual = Settings::default();
        assert_eq!(affinity.hold(&usual), Duration::from_secs(40));
        assert_eq!(NamespaceKind::default().hold(&usual), Duration::from_secs(65));
        // No setting but `hold` is longer than a lease: whatever passes the checks, a silent Owner is replaced before its lease ends.
        for renewal in 1..20 {
            let settings = Settings { renewal: Duration::from_secs(renewal), ..usual.clone() };
            if affinity.check(&settings, Drift::default()).is_ok() {
                assert!(affinity.hold(&settings) < settings.lease, "{renewal}");
            }
        }
        let long = Settings { lease: Duration::from_secs(120), ..usual.clone() };
        assert_eq!(affinity.check(&long, Drift::default()), Ok(()));
        assert_eq!(NamespaceKind::default().check(&long, Drift::default()), Err(SettingsError::HoldTooShort));
        let held = Settings { hold: Duration::from_secs(70), ..usual.clone() };
        assert_eq!(affinity.check(&held, Drift::default()), Err(SettingsError::HoldInAffinity));
        let rare = Settings { renewal: Duration::from_secs(20), ..usual };
        assert_eq!(affinity.check(&rare, Drift::default()), Err(SettingsError::RenewalTooRare));
    }

    #[test]
    fn ordered_keys_are_not_divided_by_a_hash() {
        let kind = NamespaceKind { keys: ordered(b""), mode: Mode::Exclusive };
        let hashed = Settings { partitioner: PartitionerKind::ConsistentHash, ..Settings::default() };
        assert_eq!(kind.check(&hashed, Drift::default()), Err(SettingsError::OrderedByHash));
        assert_eq!(kind.check(&Settings::default(), Drift::default()), Ok(()));
    }
}
