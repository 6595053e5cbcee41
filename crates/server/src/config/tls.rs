//! TLS and the policy: their settings, and what is refused.

use std::path::PathBuf;

use serde::Deserialize;

use super::text::merge;
use super::{ConfigError, file_path, refuse};
use crate::tls::TlsFiles;

/// Settings of TLS and of the policy as a user can set them.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsArgs {
    /// Certificate chain that this Manager shows (PEM file, reloaded when it changes); with it, both ports use TLS
    #[arg(long, env = "CENTRIFUGE_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM file, reloaded when it changes)
    #[arg(long, env = "CENTRIFUGE_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// CA certificates whose clients' certificates count (PEM file, reloaded when it changes)
    #[arg(long, env = "CENTRIFUGE_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,
    /// Revocation lists of those CAs (PEM file, reloaded when it changes)
    #[arg(long, env = "CENTRIFUGE_TLS_CRL", value_name = "FILE")]
    pub tls_crl: Option<PathBuf>,
    /// Who may do what in which namespaces (TOML file, reloaded when it changes). Required with TLS
    #[arg(long, env = "CENTRIFUGE_POLICY", value_name = "FILE")]
    pub policy: Option<PathBuf>,
}

impl TlsArgs {
    /// These settings, and where there is none, those of `file`.
    pub(super) fn over(mut self, file: TlsArgs) -> TlsArgs {
        merge!(self, file; tls_cert, tls_key, tls_client_ca, tls_crl, policy);
        self
    }

    /// Where the files of TLS are, if it is used, and the policy.
    pub(super) fn check(self) -> Result<(Option<TlsFiles>, Option<PathBuf>), ConfigError> {
        let path = |setting, path: Option<PathBuf>| path.map(|path| file_path(setting, path)).transpose();
        let cert = path("tls_cert", self.tls_cert)?;
        let key = path("tls_key", self.tls_key)?;
        let client_ca = path("tls_client_ca", self.tls_client_ca)?;
        let crl = path("tls_crl", self.tls_crl)?;
        let policy = path("policy", self.policy)?;
        let needs = |setting: &'static str, value: PathBuf, needed: &str| {
            Err(refuse(setting, value.display().to_string(), &format!("set together with {needed}")))
        };
        match (cert, key, client_ca, crl) {
            (Some(cert), None, ..) => needs("tls_cert", cert, "tls_key"),
            (None, Some(key), ..) => needs("tls_key", key, "tls_cert"),
            (None, None, Some(ca), _) => needs("tls_client_ca", ca, "tls_cert and tls_key"),
            (_, _, None, Some(crl)) => needs("tls_crl", crl, "tls_client_ca"),
            (Some(_), Some(_), ..) if policy.is_none() => Err(ConfigError::NoPolicy),
            (Some(cert), Some(key), client_ca, crl) => {
                Ok((Some(TlsFiles { cert, key, client_ca, crl }), policy))
            }
            (None, None, None, None) => Ok((None, policy)),
        }
    }
}
