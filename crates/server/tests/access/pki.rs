//! A certificate authority for tests, and the files it makes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use centrifuge::Tls;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use tempfile::TempDir;
use time::OffsetDateTime;

/// A certificate authority with a folder for what it makes.
pub(crate) struct Pki {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    ca: String,
    serial: AtomicU64,
}

/// A certificate and its key, as files.
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) serial: u64,
}

impl Pki {
    pub(crate) fn new() -> Pki {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let pki = Pki { folder: TempDir::new().expect("a folder"), issuer, ca, serial: AtomicU64::new(1) };
        std::fs::write(pki.ca(), &pki.ca).expect("written");
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
        let now = OffsetDateTime::now_utc();
        self.issue_between(file, name, now - Duration::from_secs(3600), now + valid_for)
    }

    pub(crate) fn issue_between(
        &self,
        file: &str,
        name: &str,
        from: OffsetDateTime,
        to: OffsetDateTime,
    ) -> Pair {
        let hosts = if name.contains("://") { vec![] } else { vec![name.to_owned(), "127.0.0.1".to_owned()] };
        let mut params = CertificateParams::new(hosts).expect("names");
        if name.contains("://") {
            params.subject_alt_names.push(SanType::URI(name.try_into().expect("ASCII")));
        }
        // A name that must not count.
        params.distinguished_name.push(DnType::CommonName, "spiffe://test/root");
        params.not_before = from;
        params.not_after = to;
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("signed").pem();
        let pair =
            Pair { cert: self.path(&format!("{file}.pem")), key: self.path(&format!("{file}.key")), serial };
        replace(&pair.key, &key.serialize_pem());
        replace(&pair.cert, &cert);
        pair
    }

    /// Writes the list of what is revoked.
    pub(crate) fn revoke(&self, pairs: &[&Pair]) {
        let now = OffsetDateTime::now_utc();
        let revoked = |pair: &&Pair| RevokedCertParams {
            serial_number: SerialNumber::from(pair.serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: now + Duration::from_secs(86_400),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: pairs.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("signed").pem().expect("text");
        replace(&self.crl(), &list);
    }

    /// What a client with a certificate uses.
    pub(crate) fn tls(&self, pair: &Pair) -> Tls {
        Tls::files(self.ca(), &pair.cert, &pair.key)
    }
}

/// Puts a new file in the place of another at once, as those who renew certificates do.
pub(crate) fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).expect("written");
    std::fs::rename(&beside, path).expect("renamed");
}
