//! What PEM files contain, and what is wrong with one that cannot be used.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::{FileContents, TlsError, provider, read_certificate};

/// The certificates of a file, in their order: a chain begins with the one that is shown.
pub fn read_certificates(file: &FileContents) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    read_all(file, "certificate", "CERTIFICATE")
}

/// The revocation lists of a file.
pub fn read_revocations(file: &FileContents) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    read_all(file, "revocation list", "X509 CRL")
}

/// Every item of a kind in a file, of which there is at least one.
fn read_all<T: PemObject>(file: &FileContents, kind: &str, label: &str) -> Result<Vec<T>, TlsError> {
    let items: Result<Vec<T>, _> = T::pem_slice_iter(&file.bytes).collect();
    let items = items.map_err(|error| broken(file, kind, &error))?;
    if items.is_empty() {
        let words = format!("has no {kind}: it must have a section that begins with -----BEGIN {label}-----");
        return Err(TlsError::new(&file.path, words));
    }
    Ok(items)
}

/// The certificates of those whose signature proves an identity.
pub fn read_roots(file: &FileContents) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for (place, certificate) in read_certificates(file)?.into_iter().enumerate() {
        roots.add(certificate).map_err(|error| {
            let words =
                format!("its certificate number {} is none of a certificate authority: {error}", place + 1);
            TlsError::new(&file.path, words)
        })?;
    }
    Ok(roots)
}

/// A certificate chain with the key of its first certificate, which must be valid now.
pub fn read_pair(
    chain: &FileContents,
    key: &FileContents,
    now: SystemTime,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let certificates = read_certificates(chain)?;
    let shown = read_certificate(&certificates[0]).map_err(|why| TlsError::new(&chain.path, why))?;
    if now < shown.not_before {
        let words = "its first certificate is not valid yet: check this machine's clock, or wait";
        return Err(TlsError::new(&chain.path, words));
    }
    if now >= shown.not_after {
        return Err(TlsError::new(&chain.path, "its first certificate has expired: put a new one there"));
    }
    let private = PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => {
            TlsError::new(&key.path, "has no private key: it must have a section -----BEGIN PRIVATE KEY-----")
        }
        error => broken(key, "private key", &error),
    })?;
    let provider = provider();
    let private = provider.key_provider.load_private_key(private).map_err(|error| {
        let words =
            format!("has a private key that cannot be used: {error}; use ECDSA P-256, Ed25519 or RSA");
        TlsError::new(&key.path, words)
    })?;
    let pair = CertifiedKey::new(certificates, private);
    match pair.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(Arc::new(pair))
        }
        Err(_) => Err(TlsError::new(
            &key.path,
            format!("is not the key of the first certificate in {}: replace both", chain.path.display()),
        )),
    }
}

fn broken(file: &FileContents, kind: &str, error: &rustls::pki_types::pem::Error) -> TlsError {
    let line = last_section(&file.bytes);
    TlsError::new(&file.path, format!("is broken{line}, where a {kind} is expected: {error}"))
}

/// The line at which the last section of a file begins, in words.
fn last_section(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let begins = text.lines().enumerate().filter(|(_, line)| line.starts_with("-----BEGIN")).last();
    begins.map_or_else(String::new, |(line, _)| format!(" in the section that begins at line {}", line + 1))
}
