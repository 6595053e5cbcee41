//! TLS on both sides of a connection: certificates, keys and revocation lists from files that may change at any time.

mod client;
mod names;
mod pem;

pub use client::ClientTls;
pub use names::{Certificate, read_certificate};
pub use pem::{read_certificates, read_pair, read_revocations, read_roots};

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The protocol that clients and Managers agree on inside TLS.
pub const HTTP_2: &[u8] = b"h2";

/// Why a file cannot be used for TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}", file = file.display())]
pub struct TlsError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

impl TlsError {
    /// Says what is wrong with a file.
    #[must_use]
    pub fn new(file: &Path, problem: impl Into<String>) -> TlsError {
        TlsError { file: file.to_owned(), problem: problem.into() }
    }
}

/// A file with its contents, so that a change is noticed whatever the clocks of file systems say.
#[derive(Clone, PartialEq, Eq)]
pub struct FileContents {
    /// Where it is.
    pub path: PathBuf,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// What is in it may be a private key.
impl fmt::Debug for FileContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileContents({}, {} bytes)", self.path.display(), self.bytes.len())
    }
}

impl FileContents {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<FileContents, TlsError> {
        let unreadable = |error| TlsError::new(path, format!("cannot be read: {error}"));
        Ok(FileContents { path: path.to_owned(), bytes: std::fs::read(path).map_err(unreadable)? })
    }
}

/// The cryptography of every TLS connection.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
