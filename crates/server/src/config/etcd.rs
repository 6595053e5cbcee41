//! Where an etcd is: its settings, and what is refused.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::text::merge;
use super::{ConfigError, file_path, refuse};
use crate::store::etcd::{DEFAULT_PREFIX, EtcdCredentials, EtcdOptions, EtcdTls, Secret};

/// Settings of a store on etcd as a user can set them; in a file under `[etcd]`, without `etcd_`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EtcdArgs {
    /// etcd endpoints, separated by commas, as http://host:2379 or https://host:2379
    #[arg(long, env = "CENTRIFUGE_ETCD_ENDPOINTS", value_name = "URLS")]
    #[serde(rename = "endpoints")]
    pub etcd_endpoints: Option<String>,
    /// Prefix of every key in etcd [default: /centrifuge/]
    #[arg(long, env = "CENTRIFUGE_ETCD_PREFIX", value_name = "PREFIX")]
    #[serde(rename = "prefix")]
    pub etcd_prefix: Option<String>,
    /// CA certificate for etcd (PEM file); with it, connections use TLS
    #[arg(long, env = "CENTRIFUGE_ETCD_CA", value_name = "FILE")]
    #[serde(rename = "ca")]
    pub etcd_ca: Option<PathBuf>,
    /// Client certificate for etcd (PEM file)
    #[arg(long, env = "CENTRIFUGE_ETCD_CERT", value_name = "FILE")]
    #[serde(rename = "cert")]
    pub etcd_cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM file)
    #[arg(long, env = "CENTRIFUGE_ETCD_KEY", value_name = "FILE")]
    #[serde(rename = "key")]
    pub etcd_key: Option<PathBuf>,
    /// etcd user
    #[arg(long, env = "CENTRIFUGE_ETCD_USER", value_name = "USER")]
    #[serde(rename = "user")]
    pub etcd_user: Option<String>,
    /// Password of the etcd user; prefer the environment or --etcd-password-file
    #[arg(long, env = "CENTRIFUGE_ETCD_PASSWORD", value_name = "PASSWORD", hide_env_values = true)]
    #[serde(rename = "password")]
    pub etcd_password: Option<Secret>,
    /// File with the password of the etcd user
    #[arg(long, env = "CENTRIFUGE_ETCD_PASSWORD_FILE", value_name = "FILE")]
    #[serde(rename = "password_file")]
    pub etcd_password_file: Option<PathBuf>,
    /// Whether to compact old revisions in etcd, which affects all its keys [default: true]
    #[arg(long, env = "CENTRIFUGE_ETCD_COMPACT_REVISIONS", value_name = "BOOL")]
    #[serde(rename = "compact_revisions")]
    pub etcd_compact_revisions: Option<bool>,
}

impl EtcdArgs {
    /// These settings, and where there is none, those of `file`.
    pub(super) fn over(mut self, file: EtcdArgs) -> EtcdArgs {
        merge!(self, file; etcd_endpoints, etcd_prefix, etcd_ca, etcd_cert, etcd_key, etcd_user, etcd_password,
            etcd_password_file, etcd_compact_revisions);
        self
    }

    /// Checks the settings of a store on etcd.
    pub fn check(self) -> Result<EtcdOptions, ConfigError> {
        let tls = tls(self.etcd_ca, self.etcd_cert, self.etcd_key)?;
        let endpoints = self.etcd_endpoints.unwrap_or_default();
        let endpoints = endpoints
            .split(',')
            .map(|node| endpoint(node.trim(), tls.is_some()))
            .collect::<Result<_, ConfigError>>()?;
        Ok(EtcdOptions {
            endpoints,
            prefix: prefix(self.etcd_prefix.unwrap_or_else(|| DEFAULT_PREFIX.to_owned()))?,
            tls,
            credentials: credentials(self.etcd_user, self.etcd_password, self.etcd_password_file)?,
            compact_revisions: self.etcd_compact_revisions.unwrap_or(true),
        })
    }

    /// Refuses settings of an etcd that is not used.
    pub(super) fn check_unused(&self) -> Result<(), ConfigError> {
        match &self.etcd_endpoints {
            Some(endpoints) => Err(refuse(
                "etcd_endpoints",
                endpoints.clone(),
                "left out, unless store is etcd (--store etcd)",
            )),
            None => Ok(()),
        }
    }
}

/// A node, with the scheme that the certificates ask for.
fn endpoint(node: &str, secure: bool) -> Result<String, ConfigError> {
    let wanted = if secure { "https" } else { "http" };
    let (scheme, host) = node.split_once("://").unwrap_or((wanted, node));
    let has_port =
        host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
    if !has_port || host.contains(['/', ' ', '@']) {
        let allowed = "the nodes with commas between them, as http://etcd-1:2379,http://etcd-2:2379";
        return Err(refuse("etcd_endpoints", node, allowed));
    }
    match (scheme, secure) {
        ("http", false) | ("https", true) => Ok(format!("{scheme}://{host}")),
        ("https", false) => {
            Err(refuse("etcd_endpoints", node, "http://, unless etcd_ca names a CA certificate for TLS"))
        }
        ("http", true) => Err(refuse("etcd_endpoints", node, "https://, because etcd_ca is set")),
        _ => Err(refuse("etcd_endpoints", node, "http:// or https://")),
    }
}

fn prefix(text: String) -> Result<String, ConfigError> {
    if text.len() < 2 || !text.ends_with('/') || !text.is_ascii() || text.contains(char::is_whitespace) {
        return Err(refuse(
            "etcd_prefix",
            text,
            "text without spaces that ends with a slash, as /centrifuge/",
        ));
    }
    Ok(text)
}

fn tls(
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<EtcdTls>, ConfigError> {
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Some((file_path("etcd_cert", certificate)?, file_path("etcd_key", key)?))
        }
        (None, None) => None,
        (Some(path), None) => return Err(with_other("etcd_cert", &path, "etcd_key")),
        (None, Some(path)) => return Err(with_other("etcd_key", &path, "etcd_cert")),
    };
    match (ca, identity) {
        (Some(ca), identity) => Ok(Some(EtcdTls { ca: file_path("etcd_ca", ca)?, identity })),
        (None, Some((certificate, _))) => Err(with_other("etcd_cert", &certificate, "etcd_ca")),
        (None, None) => Ok(None),
    }
}

fn with_other(setting: &'static str, path: &Path, other: &str) -> ConfigError {
    refuse(setting, path.display().to_string(), &format!("set together with {other}"))
}

fn credentials(
    user: Option<String>,
    password: Option<Secret>,
    file: Option<PathBuf>,
) -> Result<Option<EtcdCredentials>, ConfigError> {
    let password = match (password, file) {
        (Some(_), Some(file)) => {
            let file = file.display().to_string();
            return Err(refuse("etcd_password_file", file, "left out where etcd_password is set"));
        }
        (Some(password), None) => Some(password),
        (None, Some(path)) => {
            let text = std::fs::read_to_string(&path).map_err(|why| {
                refuse("etcd_password_file", path.display().to_string(), &format!("readable: {why}"))
            })?;
            Some(Secret(text.trim_end_matches(['\r', '\n']).to_owned()))
        }
        (None, None) => None,
    };
    match (user, password) {
        (Some(user), Some(password)) => Ok(Some(EtcdCredentials { user, password })),
        (None, None) => Ok(None),
        (Some(user), None) => {
            Err(refuse("etcd_user", user, "set together with etcd_password or etcd_password_file"))
        }
        (None, Some(_)) => Err(refuse("etcd_user", "", "set together with the password")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(endpoints: &str) -> EtcdArgs {
        EtcdArgs { etcd_endpoints: Some(endpoints.to_owned()), ..EtcdArgs::default() }
    }

    fn refused(args: EtcdArgs, words: &[&str]) {
        let error = args.check().expect_err("refused").to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} in {error}");
        }
    }

    #[test]
    fn nodes_have_ports_and_a_scheme() {
        let options = args("a:2379, http://b:2379").check().expect("allowed");
        assert_eq!(options, EtcdOptions::new(vec!["http://a:2379".into(), "http://b:2379".into()]));
        refused(EtcdArgs::default(), &["etcd_endpoints"]);
        refused(args("a"), &["etcd_endpoints", "\"a\""]);
        refused(args("a:1,"), &["etcd_endpoints"]);
        refused(args("ftp://a:1"), &["etcd_endpoints", "https://"]);
        refused(args("https://a:1"), &["etcd_endpoints", "etcd_ca"]);
    }

    #[test]
    fn tls_needs_its_parts() {
        let ca = Some(PathBuf::from("ca.pem"));
        let options = EtcdArgs { etcd_ca: ca.clone(), ..args("a:1") }.check().expect("allowed");
        assert_eq!(options.endpoints, ["https://a:1"]);
        refused(EtcdArgs { etcd_ca: ca.clone(), ..args("http://a:1") }, &["etcd_ca"]);
        refused(EtcdArgs { etcd_cert: ca.clone(), ..args("a:1") }, &["etcd_cert", "etcd_key"]);
        refused(EtcdArgs { etcd_cert: ca.clone(), etcd_key: ca, ..args("a:1") }, &["etcd_cert", "etcd_ca"]);
    }

    #[test]
    fn a_user_has_a_password_that_is_never_printed() {
        let user = Some("root".to_owned());
        refused(EtcdArgs { etcd_user: user.clone(), ..args("a:1") }, &["etcd_user", "etcd_password"]);
        let with = EtcdArgs { etcd_user: user, etcd_password: Some(Secret("hush".into())), ..args("a:1") };
        let options = with.check().expect("allowed");
        assert!(!format!("{options:?} {options}").contains("hush"));
    }

    #[test]
    fn a_password_comes_from_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("password");
        std::fs::write(&path, "hush\n").expect("written");
        let with =
            EtcdArgs { etcd_user: Some("root".to_owned()), etcd_password_file: Some(path), ..args("a:1") };
        let credentials = with.check().expect("allowed").credentials.expect("a user");
        assert_eq!(credentials.password, Secret("hush".to_owned()));
    }

    #[test]
    fn a_prefix_ends_with_a_slash() {
        refused(EtcdArgs { etcd_prefix: Some("/a".into()), ..args("a:1") }, &["etcd_prefix", "slash"]);
        refused(EtcdArgs { etcd_prefix: Some("/".into()), ..args("a:1") }, &["etcd_prefix"]);
    }
}
