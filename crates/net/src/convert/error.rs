//! A message that the schemas do not allow, and what is wrong with it.

use std::fmt;

use centrifuge_core::id::NameError;
use centrifuge_core::key::Key;
use tonic::Status;

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
    /// A prefix of ordered keys is given to hashed ones.
    #[error(
        "is for ordered keys alone, and these keys are hashed: say that they are ordered, or give no prefix"
    )]
    PrefixOfHashed,
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
    pub(super) fn new(field: &str, problem: Problem) -> ConvertError {
        ConvertError { field: field.to_owned(), problem }
    }

    pub(super) fn within(mut self, outer: impl fmt::Display) -> ConvertError {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

impl From<ConvertError> for Status {
    fn from(error: ConvertError) -> Status {
        Status::invalid_argument(error.to_string())
    }
}

pub(super) type Converted<T> = Result<T, ConvertError>;

pub(super) fn refuse<T>(field: &str, problem: Problem) -> Converted<T> {
    Err(ConvertError::new(field, problem))
}
