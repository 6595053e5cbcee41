//! The names and numbers of the protocol, each a type of its own so that none stands in for another.

use std::fmt;
use std::sync::Arc;

use crate::text::unprintable_in;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub u64);

        impl $name {
            /// The number before the first.
            pub const ZERO: $name = $name(0);

            /// The number after this one; `None` at the end of the counter.
            #[must_use]
            pub fn next(self) -> Option<$name> {
                self.0.checked_add(1).map($name)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number!(
    /// The number of a lease. Strictly rises with every grant in a namespace and is never reused; zero was never granted.
    Generation
);
impl Generation {
    /// How many bits of a generation count the grants of one term, where there is no store to number on from (ADR 15).
    const COUNTER_BITS: u32 = 24;

    /// The number before the first of a term, where there is no store; `None` if the term does not fit.
    #[must_use]
    pub fn before(term: Term) -> Option<Generation> {
        let fits = term.0 < 1 << (u64::BITS - Self::COUNTER_BITS);
        fits.then_some(Generation(term.0 << Self::COUNTER_BITS))
    }

    /// Whether this is a number of the term that begins after `before`.
    #[must_use]
    pub fn is_of_term_after(self, before: Generation) -> bool {
        self > before && self.0 >> Self::COUNTER_BITS == before.0 >> Self::COUNTER_BITS
    }
}

number!(
    /// A position in a namespace's change log.
    Lsn
);
number!(
    /// One leadership of one Manager; rises with every new leader.
    Term
);
number!(
    /// The number of a transmission within one conversation; the first is 1.
    Seq
);
number!(
    /// A position in the store's log; the first batch has 1.
    Index
);

/// 128 random bits that name one life of one side of a conversation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Nonce(pub u128);

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

/// One running Owner process. Its id follows from the secret that it drew at its start; a restart is a new session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionId(pub Nonce);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// What shows Managers that a process speaks for its session: the session's id follows from it, and nobody can go back from the id.
///
/// It goes to Managers and to nobody else. It is never shown, and a recording has nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Secret(pub [u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Secret {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        serde::Deserialize::deserialize(deserializer).map(|()| Secret::default())
    }
}

/// A session and its secret. The core carries the secret unread: it is made and checked where messages leave and enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Credential {
    /// The session.
    pub session: SessionId,
    /// What proves it.
    pub secret: Secret,
}

impl Credential {
    /// A session without a secret, for worlds in which nobody claims to be somebody else. No real Manager believes it.
    #[must_use]
    pub fn unproven(nonce: Nonce) -> Credential {
        Credential { session: SessionId(nonce), secret: Secret::default() }
    }
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text!(
    /// The name of one pool's key space: an RFC 1123 label.
    Namespace
);
text!(
    /// The name under which an Owner is known, across its restarts.
    OwnerName
);
text!(
    /// Where callers reach an Owner; whatever its application says, never read by Centrifuge.
    Url
);
text!(
    /// The name or address of a Manager.
    ManagerId
);
text!(
    /// What load is counted in, by its name: lower-case letters, digits and inner hyphens, as in `cpu-ms`.
    LoadDimension
);

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The name is empty, or longer than the stated number of characters.
    Length {
        /// The most characters such a name may have.
        at_most: usize,
    },
    /// The name has a character other than a lower-case letter, a digit or an inner hyphen.
    Character,
    /// The name has a character that acts on the text around it instead of being read.
    Unprintable {
        /// The first of them.
        character: char,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Length { at_most } => write!(f, "a name has 1 to {at_most} characters"),
            NameError::Character => {
                f.write_str("a name has lower-case letters, digits and hyphens, and no hyphen at either end")
            }
            NameError::Unprintable { character } => write!(
                f,
                "a name has no control characters and none that change the direction of text, as U+{:04X} does",
                u32::from(*character)
            ),
        }
    }
}

impl std::error::Error for NameError {}

impl Namespace {
    /// The most characters of a label (RFC 1123).
    pub const MAX_LEN: usize = 63;

    /// Checks that `name` is an RFC 1123 label.
    pub fn new(name: &str) -> Result<Namespace, NameError> {
        check_label(name, Self::MAX_LEN)?;
        Ok(Namespace(name.into()))
    }
}

/// Checks that `name` is an RFC 1123 label of at most so many characters.
fn check_label(name: &str, at_most: usize) -> Result<(), NameError> {
    if name.is_empty() || name.len() > at_most {
        return Err(NameError::Length { at_most });
    }
    let label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(label) || name.starts_with('-') || name.ends_with('-') {
        return Err(NameError::Character);
    }
    Ok(())
}

impl OwnerName {
    /// The most bytes of an Owner's name.
    pub const MAX_LEN: usize = 253;

    /// Checks that `name` is not empty, not too long and has no unprintable character.
    pub fn new(name: &str) -> Result<OwnerName, NameError> {
        if name.is_empty() || name.len() > Self::MAX_LEN {
            return Err(NameError::Length { at_most: Self::MAX_LEN });
        }
        match unprintable_in(name) {
            Some(character) => Err(NameError::Unprintable { character }),
            None => Ok(OwnerName(name.into())),
        }
    }
}

impl LoadDimension {
    /// The most characters of its name.
    pub const MAX_LEN: usize = 32;

    /// The dimension of Owners that report nothing themselves.
    pub const REQUESTS: &str = "requests";

    /// Checks that `name` is a name.
    pub fn new(name: &str) -> Result<LoadDimension, NameError> {
        check_label(name, Self::MAX_LEN)?;
        Ok(LoadDimension(name.into()))
    }

    /// Whether it is what is counted without a word of the application.
    #[must_use]
    pub fn is_requests(&self) -> bool {
        self.as_str() == Self::REQUESTS
    }
}

impl Default for LoadDimension {
    fn default() -> LoadDimension {
        LoadDimension(Self::REQUESTS.into())
    }
}

impl From<&str> for Url {
    fn from(text: &str) -> Url {
        Url(text.into())
    }
}

impl From<&str> for ManagerId {
    fn from(text: &str) -> ManagerId {
        ManagerId(text.into())
    }
}
