//! A certificate authority for tests and runs, and how its files are replaced.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use time::OffsetDateTime;

/// How long revocation lists count.
const DAY: Duration = Duration::from_secs(86_400);

/// A certificate authority in memory.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    next_serial: AtomicU64,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// Its private key.
    pub key: String,
    /// Its number among those of its authority.
    pub serial: u64,
}

impl Authority {
    /// A new authority with a key of its own.
    pub fn new(name: &str) -> io::Result<Authority> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).map_err(io::Error::other)?.pem();
        Ok(Authority { issuer: Issuer::new(params, key), pem, next_serial: AtomicU64::new(1) })
    }

    /// Its own certificate.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for URIs, host names and addresses. The common name is another name, which must not count.
    pub fn issue(
        &self,
        names: &[String],
        common_name: &str,
        not_before: SystemTime,
        not_after: SystemTime,
    ) -> io::Result<Issued> {
        let (uris, hosts): (Vec<String>, Vec<String>) =
            names.iter().cloned().partition(|name| name.contains("://"));
        let mut params = CertificateParams::new(hosts).map_err(io::Error::other)?;
        for uri in uris {
            params.subject_alt_names.push(SanType::URI(uri.try_into().map_err(io::Error::other)?));
        }
        params.distinguished_name.push(DnType::CommonName, common_name);
        (params.not_before, params.not_after) = (not_before.into(), not_after.into());
        let serial = self.next_serial.fetch_add(1, Ordering::Relaxed);
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?.pem();
        Ok(Issued { cert, key: key.serialize_pem(), serial })
    }

    /// A list of revoked certificates, by their serial numbers.
    pub fn revocations(&self, serials: &[u64]) -> io::Result<String> {
        let now = OffsetDateTime::now_utc();
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now,
            next_update: now + DAY,
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).and_then(|list| list.pem()).map_err(io::Error::other)
    }
}

impl Issued {
    /// Puts it in the place of another: the key first, as `docs/operations/security.md` asks for.
    pub fn replace(&self, cert: &Path, key: &Path) -> io::Result<()> {
        replace(key, &self.key)?;
        replace(cert, &self.cert)
    }
}

/// Puts a new file in the place of another at once, as programs that renew certificates do.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}
