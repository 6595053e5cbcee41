//! What a certificate says of whom it was made for.

use std::time::{Duration, SystemTime};

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// What we need to know of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Its URI names, then its DNS names. The common name is none: nobody checks who may have one.
    pub names: Vec<String>,
    /// From when it is valid.
    pub not_before: SystemTime,
    /// When it has expired.
    pub not_after: SystemTime,
}

/// Reads a certificate; an error says why it cannot be read.
pub fn read_certificate(der: &[u8]) -> Result<Certificate, String> {
    let (_, certificate) = X509Certificate::from_der(der)
        .map_err(|error| format!("has a certificate that cannot be read: {error}"))?;
    let alternative = certificate
        .subject_alternative_name()
        .map_err(|error| format!("has a certificate whose alternative names cannot be read: {error}"))?;
    let names = alternative.map_or(&[][..], |extension| &extension.value.general_names);
    let uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    let hosts = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(host) => Some((*host).to_owned()),
        _ => None,
    });
    let validity = certificate.validity();
    Ok(Certificate {
        names: uris.chain(hosts).filter(|name| is_plain(name)).collect(),
        not_before: time(validity.not_before.timestamp()),
        not_after: time(validity.not_after.timestamp()),
    })
}

/// A name reaches logs and policies: it has no white space and nothing that a terminal would act on.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Before 1970 is long over, however long.
fn time(timestamp: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(timestamp).unwrap_or(0))
}
