//! How a command fails, and the exit code that says so.

use std::fmt;
use std::process::ExitCode;

use centrifuge::lookup::ConnectError;
use centrifuge::owner::JoinError;
use tonic::{Code, Status};

use crate::output::shown_lines;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    what: String,
}

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const NO_MANAGER: u8 = 3;
const NOT_FOUND: u8 = 4;
const NOT_YET: u8 = 5;

impl Failure {
    /// It was refused, or something broke.
    pub(crate) fn failed(what: impl Into<String>) -> Failure {
        Failure { code: FAILED, what: what.into() }
    }

    /// What was asked makes no sense.
    pub(crate) fn usage(what: impl Into<String>) -> Failure {
        Failure { code: USAGE, what: what.into() }
    }

    /// Nobody could be asked.
    pub(crate) fn no_manager(what: impl Into<String>) -> Failure {
        Failure { code: NO_MANAGER, what: what.into() }
    }

    /// What was asked about does not exist.
    pub(crate) fn not_found(what: impl Into<String>) -> Failure {
        Failure { code: NOT_FOUND, what: what.into() }
    }

    /// It was waited for, and is not done yet.
    pub(crate) fn not_yet(what: impl Into<String>) -> Failure {
        Failure { code: NOT_YET, what: what.into() }
    }

    /// Whether nobody could be asked.
    pub(crate) fn is_no_manager(&self) -> bool {
        self.code == NO_MANAGER
    }

    /// A command with its own exit codes failed. An empty message prints nothing: the error has been reported already.
    pub(crate) fn with_code(code: u8, what: impl Into<String>) -> Failure {
        Failure { code, what: what.into() }
    }

    /// Whether there is nothing to print.
    pub(crate) fn is_silent(&self) -> bool {
        self.what.is_empty()
    }

    /// Whether what was asked makes no sense.
    pub(crate) fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// What a script gets.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown_lines(&self.what))
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
