//! TLS, the policy and tokens: their settings, and what is refused.

use std::path::PathBuf;

use serde::Deserialize;

use super::text::merge;
use super::{ConfigError, file_path, refuse};
use crate::access::{TokenAlgorithm, TokenSettings};
use crate::tls::TlsFiles;

/// Settings of TLS, of the policy and of tokens as a user can set them.
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
    /// Public keys of the token issuer (JWK set, reloaded when it changes); with them, clients can authenticate with
    /// signed tokens (JWT)
    #[arg(long, env = "CENTRIFUGE_TOKEN_KEYS", value_name = "FILE")]
    pub token_keys: Option<PathBuf>,
    /// Required issuer of tokens (`iss`)
    #[arg(long, env = "CENTRIFUGE_TOKEN_ISSUER", value_name = "NAME")]
    pub token_issuer: Option<String>,
    /// Required audience of tokens (one of `aud`)
    #[arg(long, env = "CENTRIFUGE_TOKEN_AUDIENCE", value_name = "NAME")]
    pub token_audience: Option<String>,
    /// Signature algorithms accepted for tokens, separated by commas [default: ES256,EdDSA,RS256]
    #[arg(long, env = "CENTRIFUGE_TOKEN_ALGORITHMS", value_name = "NAMES")]
    pub token_algorithms: Option<String>,
}

impl TlsArgs {
    /// These settings, and where there is none, those of `file`.
    pub(super) fn over(mut self, file: TlsArgs) -> TlsArgs {
        merge!(self, file; tls_cert, tls_key, tls_client_ca, tls_crl, policy, token_keys, token_issuer, token_audience,
            token_algorithms);
        self
    }

    /// Where the files of TLS are, if it is used; the policy; which tokens count.
    pub(super) fn check(mut self) -> Result<Secured, ConfigError> {
        let path = |setting, path: Option<PathBuf>| path.map(|path| file_path(setting, path)).transpose();
        let cert = path("tls_cert", self.tls_cert.take())?;
        let key = path("tls_key", self.tls_key.take())?;
        let client_ca = path("tls_client_ca", self.tls_client_ca.take())?;
        let crl = path("tls_crl", self.tls_crl.take())?;
        let policy = path("policy", self.policy.take())?;
        let tokens = self.tokens()?;
        if let Some(tokens) = tokens.as_ref().filter(|_| policy.is_none()) {
            return needs("token_keys", &tokens.keys.display().to_string(), "policy");
        }
        let file = |path: &PathBuf| path.display().to_string();
        match (cert, key, client_ca, crl) {
            (Some(cert), None, ..) => needs("tls_cert", &file(&cert), "tls_key"),
            (None, Some(key), ..) => needs("tls_key", &file(&key), "tls_cert"),
            (None, None, Some(ca), _) => needs("tls_client_ca", &file(&ca), "tls_cert and tls_key"),
            (_, _, None, Some(crl)) => needs("tls_crl", &file(&crl), "tls_client_ca"),
            (Some(_), Some(_), ..) if policy.is_none() => Err(ConfigError::NoPolicy),
            (Some(cert), Some(key), client_ca, crl) => {
                Ok((Some(TlsFiles { cert, key, client_ca, crl }), policy, tokens))
            }
            (None, None, None, None) => Ok((None, policy, tokens)),
        }
    }

    fn tokens(self) -> Result<Option<TokenSettings>, ConfigError> {
        let without_keys = [
            ("token_issuer", &self.token_issuer),
            ("token_audience", &self.token_audience),
            ("token_algorithms", &self.token_algorithms),
        ];
        let Some(keys) = self.token_keys else {
            return match without_keys.into_iter().find_map(|(name, value)| Some((name, value.as_ref()?))) {
                Some((name, value)) => needs(name, value, "token_keys"),
                None => Ok(None),
            };
        };
        let keys = file_path("token_keys", keys)?;
        let (Some(issuer), Some(audience)) = (self.token_issuer, self.token_audience) else {
            return needs("token_keys", &keys.display().to_string(), "token_issuer and token_audience");
        };
        for (name, value) in [("token_issuer", &issuer), ("token_audience", &audience)] {
            if value.trim().is_empty() {
                return Err(refuse(name, value, "a name that is not empty"));
            }
        }
        let algorithms = match &self.token_algorithms {
            None => TokenAlgorithm::USUAL.to_vec(),
            Some(names) => names
                .split(',')
                .map(|name| TokenAlgorithm::new(name.trim()))
                .collect::<Result<_, _>>()
                .map_err(|all| refuse("token_algorithms", names, &all))?,
        };
        Ok(Some(TokenSettings { keys, issuer, audience, algorithms }))
    }
}

fn needs<T>(setting: &'static str, value: &str, needed: &str) -> Result<T, ConfigError> {
    Err(refuse(setting, value, &format!("set together with {needed}")))
}

/// What secures a Manager.
type Secured = (Option<TlsFiles>, Option<PathBuf>, Option<TokenSettings>);
