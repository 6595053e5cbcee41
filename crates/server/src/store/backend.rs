//! The backends there are, by name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::contents::Contents;
use super::error::StoreError;
use super::etcd::{self, EtcdOptions};
use super::none::{self, PeerOptions};
use super::{Answers, Candidate, StoreHandle, embedded};

/// Where a store is. `file:PATH` can be read from text; the others have settings of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// One file of one process.
    File(PathBuf),
    /// An etcd cluster, for any number of Managers.
    Etcd(Box<EtcdOptions>),
    /// Nowhere: a few Managers choose their leader among themselves, and learn from the Owners.
    None(Box<PeerOptions>),
}

impl Backend {
    /// Opens the store, or makes it, and runs it beside the driver.
    pub fn open(&self, candidate: &Candidate, answers: Answers) -> Result<StoreHandle, StoreError> {
        match self {
            Backend::File(file) => embedded::open(file, answers),
            Backend::Etcd(options) => etcd::open(options, candidate, answers),
            Backend::None(options) => none::open(options, answers),
        }
    }

    /// Reads everything in a store, also while Managers use it, if the store can be read whole then.
    pub fn copy(&self) -> Result<Contents, StoreError> {
        match self {
            Backend::File(file) => embedded::read(file),
            Backend::Etcd(options) => etcd::read(options, true),
            Backend::None(_) => Err(StoreError::NoStore),
        }
    }

    /// What kind of store it is, in one word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Backend::File(_) => "embedded",
            Backend::Etcd(_) => "etcd",
            Backend::None(_) => "none",
        }
    }

    /// How the leader is chosen, in one word.
    #[must_use]
    pub fn election(&self) -> &'static str {
        match self {
            Backend::File(_) | Backend::Etcd(_) => self.kind(),
            Backend::None(_) => "flease",
        }
    }

    /// Reads everything in a store that no Manager is using, and changes nothing.
    pub fn read(&self) -> Result<Contents, StoreError> {
        match self {
            Backend::File(file) => embedded::read(file),
            Backend::Etcd(options) => etcd::read(options, false),
            Backend::None(_) => Err(StoreError::NoStore),
        }
    }

    /// Makes a store with these contents; one that exists is refused and not changed.
    pub fn create(&self, contents: &Contents) -> Result<(), StoreError> {
        match self {
            Backend::File(file) => embedded::create(file, contents).map(drop),
            Backend::Etcd(options) => etcd::create(options, contents),
            Backend::None(_) => Err(StoreError::NoStore),
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
            Backend::Etcd(options) => options.fmt(f),
            Backend::None(_) => f.write_str("none"),
        }
    }
}
