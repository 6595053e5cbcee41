//! The files of a certificate authority for tests.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use centrifuge::Tls;
use centrifuge_harness::pki::{self, Authority};
use tempfile::TempDir;

/// A certificate authority with a folder for what it makes.
pub(crate) struct Pki {
    folder: TempDir,
    authority: Authority,
}

/// A certificate and its key, as files.
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) serial: u64,
}

impl Pki {
    pub(crate) fn new() -> Pki {
        let authority = Authority::new("test authority").expect("an authority");
        let pki = Pki { folder: TempDir::new().expect("a folder"), authority };
        replace(&pki.ca(), pki.authority.pem());
        pki.revoke(&[]);
        pki
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    pub(crate) fn crl(&self) -> PathBuf {
        self.path("crl.pem")
    }

    pub(crate) fn policy(&self) -> PathBuf {
        self.path("policy.toml")
    }

    /// A certificate for a URI or a host, valid from an hour ago until so long from now.
    pub(crate) fn issue(&self, file: &str, name: &str, valid_for: Duration) -> Pair {
        let now = SystemTime::now();
        self.issue_between(file, name, now - Duration::from_secs(3600), now + valid_for)
    }

    pub(crate) fn issue_between(&self, file: &str, name: &str, from: SystemTime, to: SystemTime) -> Pair {
        let address = Some("127.0.0.1".to_owned()).filter(|_| !name.contains("://"));
        let names: Vec<String> = [name.to_owned()].into_iter().chain(address).collect();
        // A common name that must not count.
        let issued = self.authority.issue(&names, "spiffe://test/root", from, to).expect("signed");
        let [cert, key] = ["pem", "key"].map(|kind| self.path(&format!("{file}.{kind}")));
        issued.replace(&cert, &key).expect("written");
        Pair { cert, key, serial: issued.serial }
    }

    /// Writes the list of what is revoked.
    pub(crate) fn revoke(&self, pairs: &[&Pair]) {
        let serials: Vec<u64> = pairs.iter().map(|pair| pair.serial).collect();
        replace(&self.crl(), &self.authority.revocations(&serials).expect("signed"));
    }

    /// What a client with a certificate uses.
    pub(crate) fn tls(&self, pair: &Pair) -> Tls {
        Tls::files(self.ca(), &pair.cert, &pair.key)
    }
}

pub(crate) fn replace(path: &Path, text: &str) {
    pki::replace(path, text).expect("written");
}
