//! How a command fails, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

use centrifuge::lookup::ConnectError;
use centrifuge::owner::JoinError;
use tonic::{Code, Status};

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Failed = 1,
    Usage = 2,
    NoManager = 3,
    NotFound = 4,
}

impl Failure {
    /// It was refused, or something broke.
    pub(crate) fn failed(what: impl Into<String>) -> Failure {
        Failure { kind: Kind::Failed, what: what.into() }
    }

    /// What was asked makes no sense.
    pub(crate) fn usage(what: impl Into<String>) -> Failure {
        Failure { kind: Kind::Usage, what: what.into() }
    }

    /// Nobody could be asked.
    pub(crate) fn no_manager(what: impl Into<String>) -> Failure {
        Failure { kind: Kind::NoManager, what: what.into() }
    }

    /// What was asked about does not exist.
    pub(crate) fn not_found(what: impl Into<String>) -> Failure {
        Failure { kind: Kind::NotFound, what: what.into() }
    }

    /// Whether what was asked makes no sense.
    pub(crate) fn is_usage(&self) -> bool {
        self.kind == Kind::Usage
    }

    /// What a script gets.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Failure {
        let what = error.to_string();
        match error {
            JoinError::UnknownNamespace(_) => Failure::not_found(what),
            JoinError::NoLeader { .. } => Failure::no_manager(what),
            JoinError::Namespace(..) | JoinError::Name(..) | JoinError::NoUrl | JoinError::Managers(_) => {
                Failure::usage(what)
            }
            _ => Failure::failed(what),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Failure {
        let what = error.to_string();
        match error {
            ConnectError::UnknownNamespace(_) => Failure::not_found(what),
            ConnectError::NoLeader { .. } => Failure::no_manager(what),
            ConnectError::Namespace(..) | ConnectError::Managers(_) => Failure::usage(what),
            _ => Failure::failed(what),
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        let what = status.message().to_owned();
        match status.code() {
            Code::NotFound => Failure::not_found(what),
            Code::InvalidArgument => Failure::usage(what),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
                Failure::no_manager(format!("the Manager did not answer: {what}; look whether it was done"))
            }
            _ => Failure::failed(what),
        }
    }
}
