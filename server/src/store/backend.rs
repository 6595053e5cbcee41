//! The backends there are, by name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::contents::Contents;
use super::error::StoreError;
use super::{Answers, StoreHandle, embedded};

/// Where a store is, written as `file:PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// One file of one process.
    File(PathBuf),
}

impl Backend {
    /// Opens the store, or makes it, and runs it beside the driver.
    pub fn open(&self, answers: Answers) -> Result<StoreHandle, StoreError> {
        match self {
            Backend::File(file) => embedded::open(file, answers),
        }
    }

    /// Reads everything in a store that no Manager is using, and changes nothing.
    pub fn read(&self) -> Result<Contents, StoreError> {
        match self {
            Backend::File(file) => embedded::read(file),
        }
    }

    /// Makes a store with these contents; one that exists is refused and not changed.
    pub fn create(&self, contents: &Contents) -> Result<(), StoreError> {
        match self {
            Backend::File(file) => embedded::create(file, contents).map(drop),
        }
    }
}

impl FromStr for Backend {
    type Err = StoreError;

    fn from_str(name: &str) -> Result<Backend, StoreError> {
        match name.split_once(':') {
            Some(("file", path)) if !path.is_empty() => Ok(Backend::File(path.into())),
            _ => Err(StoreError::UnknownBackend { name: name.to_owned() }),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Backend::File(file) => write!(f, "file:{}", file.display()),
        }
    }
}
