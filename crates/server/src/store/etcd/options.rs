//! Where an etcd is and how it lets us in.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

/// The beginning of every key, unless set.
pub const DEFAULT_PREFIX: &str = "/centrifuge/";

/// Where a store on etcd is, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdOptions {
    /// The nodes, as `http://host:port` or `https://host:port`.
    pub endpoints: Vec<String>,
    /// The beginning of every key; ends with a slash.
    pub prefix: String,
    /// Certificates, if the endpoints want TLS.
    pub tls: Option<EtcdTls>,
    /// A user, if etcd asks for one.
    pub credentials: Option<EtcdCredentials>,
    /// Whether etcd is told to forget old revisions, its whole key space over.
    pub compact_revisions: bool,
}

/// The files of a TLS client, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdTls {
    /// CA certificate for the nodes.
    pub ca: PathBuf,
    /// Our own certificate and its key, if the nodes ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdCredentials {
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: Secret,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl EtcdOptions {
    /// An etcd without TLS and users, under the usual prefix.
    #[must_use]
    pub fn new(endpoints: Vec<String>) -> EtcdOptions {
        EtcdOptions {
            endpoints,
            prefix: DEFAULT_PREFIX.to_owned(),
            tls: None,
            credentials: None,
            compact_revisions: true,
        }
    }
}

impl fmt::Display for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd at {} under {}", self.endpoints.join(","), self.prefix)
    }
}
