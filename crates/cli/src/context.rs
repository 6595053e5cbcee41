//! Where the Managers are and how to talk to them: flags before the environment before a context from a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use centrifuge::{Managers, Tls};
use clap::Args;
use serde::Deserialize;

use crate::failure::Failure;
use crate::words;

/// The Manager that is asked if nothing says which.
const NEAREST: &str = "127.0.0.1:7600";

/// How to talk to Managers inside TLS, and how to prove who talks.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsArgs {
    /// CA certificates of the Managers (PEM file); with it, connections use TLS
    #[arg(long, env = "CENTRIFUGE_CLIENT_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Certificate chain to show to Managers (PEM file)
    #[arg(long, env = "CENTRIFUGE_CLIENT_CERT", value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate (PEM file)
    #[arg(long, env = "CENTRIFUGE_CLIENT_KEY", value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// File with a signed token (JWT) to authenticate with, read again for every request; sent only over TLS or to loopback
    #[arg(long, env = "CENTRIFUGE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Which Managers are meant.
#[derive(Args, Clone, Debug)]
pub(crate) struct ManagerArgs {
    /// Addresses of the Managers: host:port, separated by commas, or @FILE with one per line. Commands that keep running
    /// reload the file when it changes [default: those of the context, or 127.0.0.1:7600]
    #[arg(long, short, env = "CENTRIFUGE_MANAGERS", value_parser = words::managers)]
    managers: Option<Managers>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Managers and TLS files under this name in the file of contexts [default: `current` in that file]
    #[arg(long, env = "CENTRIFUGE_CONTEXT", value_name = "NAME")]
    context: Option<String>,
    /// The file of contexts [default: centrifuge/contexts.toml in the user's configuration folder]
    #[arg(long, env = "CENTRIFUGE_CONTEXTS", value_name = "FILE")]
    contexts: Option<PathBuf>,
}

/// What a file of contexts has.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Contexts {
    current: Option<String>,
    contexts: BTreeMap<String, Context>,
}

/// One context. Paths are relative to the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Context {
    managers: Option<String>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    token_file: Option<PathBuf>,
}

impl TlsArgs {
    /// The Managers, inside TLS if there is something to do that with.
    pub(crate) fn secure(self, managers: Managers) -> Result<Managers, Failure> {
        let tls = match (self.tls_ca, self.tls_cert, self.tls_key) {
            (Some(ca), Some(cert), Some(key)) => Some(Tls::files(ca, cert, key)),
            (Some(ca), None, None) => Some(Tls::trusting(ca)),
            (None, None, None) => None,
            (None, ..) => {
                return Err(Failure::usage("a certificate is shown inside TLS alone: give --tls-ca, too"));
            }
            (Some(_), ..) => return Err(Failure::usage("--tls-cert and --tls-key belong together")),
        };
        let managers = tls.into_iter().fold(managers, Managers::tls);
        let managers = self.token_file.into_iter().fold(managers, Managers::token_file);
        managers.security().check().map_err(|error| Failure::usage(error.to_string()))?;
        Ok(managers)
    }

    fn over(self, context: &Context, home: &Path) -> TlsArgs {
        let beside = |path: &Option<PathBuf>| path.as_ref().map(|path| home.join(path));
        let token_file = self.token_file.or_else(|| beside(&context.token_file));
        match (self.tls_ca, self.tls_cert, self.tls_key) {
            (None, None, None) => TlsArgs {
                tls_ca: beside(&context.tls_ca),
                tls_cert: beside(&context.tls_cert),
                tls_key: beside(&context.tls_key),
                token_file,
            },
            (tls_ca, tls_cert, tls_key) => TlsArgs { tls_ca, tls_cert, tls_key, token_file },
        }
    }
}

impl ManagerArgs {
    /// The Managers that are meant.
    pub(crate) fn resolve(&self) -> Result<Managers, Failure> {
        let (file, context) = self.read_context()?;
        let home = file.parent().unwrap_or(Path::new(""));
        let managers = match (&self.managers, &context.managers) {
            (Some(given), _) => given.clone(),
            (None, text) => words::managers(text.as_deref().unwrap_or(NEAREST))
                .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?,
        };
        self.tls.clone().over(&context, home).secure(managers)
    }

    /// The context that was named or is current, and the file that it is in.
    fn read_context(&self) -> Result<(PathBuf, Context), Failure> {
        let file = self.contexts.clone().or_else(usual_file).unwrap_or_default();
        let refuse = |why: String| Failure::usage(format!("{}: {why}", file.display()));
        let mut known: Contexts = match std::fs::read_to_string(&file) {
            Ok(text) => toml::from_str(&text).map_err(|error| refuse(error.to_string()))?,
            Err(_) if self.contexts.is_none() && self.context.is_none() => Contexts::default(),
            Err(error) => return Err(refuse(format!("cannot be read: {error}"))),
        };
        let Some(name) = self.context.clone().or(known.current.take()) else {
            return Ok((file, Context::default()));
        };
        let names: Vec<String> = known.contexts.keys().cloned().collect();
        match known.contexts.remove(&name) {
            Some(context) => Ok((file, context)),
            None => Err(refuse(format!("has no context `{name}`; it has {}", names.join(", ")))),
        }
    }
}

fn usual_file() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
    Some(folder.filter(|path| path.is_absolute()).or_else(home)?.join("centrifuge/contexts.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(contexts: &Path, context: Option<&str>, managers: Option<&str>) -> ManagerArgs {
        ManagerArgs {
            managers: managers.map(|text| words::managers(text).expect("addresses")),
            tls: TlsArgs::default(),
            context: context.map(str::to_owned),
            contexts: Some(contexts.to_owned()),
        }
    }

    #[test]
    fn a_context_is_used_where_no_flag_says_otherwise() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("contexts.toml");
        let text = "current = 'a'\n[contexts.a]\nmanagers = 'a:1'\n[contexts.b]\nmanagers = 'b:1,b:2'\n";
        std::fs::write(&file, text).expect("written");
        let count = |args: ManagerArgs| args.resolve().expect("Managers").read().expect("a list").len();
        assert_eq!(count(args(&file, None, None)), 1);
        assert_eq!(count(args(&file, Some("b"), None)), 2);
        assert_eq!(count(args(&file, Some("b"), Some("c:1,c:2,c:3"))), 3);
        let unknown = args(&file, Some("c"), None).resolve().expect_err("unknown").to_string();
        assert!(unknown.contains("no context `c`; it has a, b"), "{unknown}");
        let missing =
            args(&folder.path().join("none"), None, None).resolve().expect_err("missing").to_string();
        assert!(missing.contains("cannot be read"), "{missing}");
    }

    #[test]
    fn files_of_tls_are_checked_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("contexts.toml");
        std::fs::write(&file, "current = 'a'\n[contexts.a]\ntls_ca = 'ca.pem'\n").expect("written");
        let error = args(&file, None, None).resolve().expect_err("no file").to_string();
        assert!(error.contains("ca.pem: cannot be read"), "{error}");
    }
}
