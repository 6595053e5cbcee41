//! The Manager's configuration: flags before environment before file before defaults, checked at start.

mod etcd;
mod flease;
mod limits;
mod namespaces;
mod store;
mod text;
mod tls;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use centrifuge_core::settings::Drift;
use serde::Deserialize;

pub use etcd::EtcdArgs;
pub use flease::FleaseArgs;
pub use limits::{LimitArgs, Limits};
pub use namespaces::{NamespaceArgs, Namespaces};
pub use store::named_store;
pub use text::read_duration;
use text::{duration, merge};
pub use tls::TlsArgs;

use crate::access::TokenSettings;
use crate::store::Backend;
use crate::tls::TlsFiles;

/// The leader lease on etcd, unless set. etcd counts in whole seconds: with the drift bound this just fits into five, so
/// that a standby follows a killed leader after five seconds and half a second in which etcd notices.
const ETCD_LEADER_LEASE: Duration = Duration::from_millis(4600);
/// What a log filter may be.
pub const LOG_LEVELS: &str =
    "error, warn, info, debug, trace, off, or a filter such as info,centrifuge_server=debug";
/// How often a standby tries on etcd, unless set; it tries at once when the leader's key goes away.
const ETCD_CAMPAIGN_INTERVAL: Duration = Duration::from_secs(1);

/// What a user can set, by flag, by environment (`CENTRIFUGE_*`) or by a TOML file with the same names. Nothing is
/// required. [`ConfigArgs::resolve`] adds the file and the defaults, and checks the whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigArgs {
    /// A TOML file with settings of the same names as these flags, with underscores
    #[arg(long, env = "CENTRIFUGE_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Where Owners, Lookups and operators connect (gRPC) [default: 127.0.0.1:7600]
    #[arg(long, env = "CENTRIFUGE_GRPC_LISTEN", value_name = "ADDRESS:PORT")]
    pub grpc_listen: Option<String>,
    /// Where health, metrics and status are served (HTTP) [default: 127.0.0.1:7601]
    #[arg(long, env = "CENTRIFUGE_HTTP_LISTEN", value_name = "ADDRESS:PORT")]
    pub http_listen: Option<String>,
    /// The address by which clients and other Managers reach this one [default: the gRPC address]
    #[arg(long, env = "CENTRIFUGE_ADVERTISE", value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// The store: file:PATH (embedded), etcd, or none for Managers without disk, which elect their leader among
    /// themselves [default: file:centrifuge.db]
    #[arg(long, env = "CENTRIFUGE_STORE", value_name = "STORE")]
    pub store: Option<PathBuf>,
    /// How the leader is elected: embedded, etcd or flease. Follows from the store
    #[arg(long, env = "CENTRIFUGE_ELECTION", value_name = "ELECTION")]
    pub election: Option<String>,
    /// With --store none: a namespace with default settings; can be repeated. Namespaces with other settings go into the
    /// file, under [namespaces.NAME] with the settings of `centrifuge namespace create`. The same at all Managers
    #[arg(long, env = "CENTRIFUGE_NAMESPACE", value_name = "NAME", value_delimiter = ',')]
    #[serde(skip)]
    pub namespace: Vec<String>,
    /// The namespaces of a file.
    #[arg(skip)]
    pub namespaces: BTreeMap<String, NamespaceArgs>,
    /// Log format: text or json [default: text]
    #[arg(long, env = "CENTRIFUGE_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// Log level: error, warn, info, debug, trace, or a filter such as info,centrifuge_server=debug [default: info]
    #[arg(long, env = "CENTRIFUGE_LOG_LEVEL", value_name = "FILTER")]
    pub log_level: Option<String>,
    /// Record every event of the Manager in this file, for `centrifuge-sim replay`
    #[arg(long, env = "CENTRIFUGE_RECORD", value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Allow listening on addresses other than loopback, without TLS
    #[arg(long, env = "CENTRIFUGE_INSECURE", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub insecure: Option<bool>,
    /// How long a leader may act after its last renewal [default: 10s; on etcd 4600ms; without a store it follows from
    /// --flease-lease]
    #[arg(long, env = "CENTRIFUGE_LEADER_LEASE", value_name = "DURATION")]
    pub leader_lease: Option<String>,
    /// How often a standby tries to lead [default: 2s; on etcd and without a store 1s]
    #[arg(long, env = "CENTRIFUGE_CAMPAIGN_INTERVAL", value_name = "DURATION")]
    pub campaign_interval: Option<String>,
    /// Number of commits between compactions of the store [default: 1000]
    #[arg(long, env = "CENTRIFUGE_COMPACT_EVERY", value_name = "COMMITS")]
    pub compact_every: Option<u64>,
    /// TLS and the policy.
    #[command(flatten)]
    #[serde(flatten)]
    pub tls: TlsArgs,
    /// Where an etcd is.
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// Which of the Managers without a store this is.
    #[command(flatten)]
    pub flease: FleaseArgs,
    /// Bounds on what a peer can make the Manager keep or do.
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// A configuration that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where gRPC is served; port 0 takes a free one.
    pub grpc_listen: SocketAddr,
    /// Where HTTP is served; port 0 takes a free one.
    pub http_listen: SocketAddr,
    /// The address that clients dial, which is the Manager's name; `None`: the gRPC address once it is bound.
    pub advertise: Option<String>,
    /// Where the store is.
    pub store: Backend,
    /// The namespaces that every term begins with, if there is no store.
    pub namespaces: Namespaces,
    /// How log lines look.
    pub log_format: LogFormat,
    /// What is logged.
    pub log_level: String,
    /// Where every event is recorded.
    pub record: Option<PathBuf>,
    /// How long a leader may act after its last renewal.
    pub leader_lease: Duration,
    /// How often a standby tries to lead.
    pub campaign_interval: Duration,
    /// After how many commits the store is compacted.
    pub compact_every: u64,
    /// The files of TLS; `None`: both ports serve in the clear.
    pub tls: Option<TlsFiles>,
    /// The file that says who may do what; `None`: everybody may do everything.
    pub policy: Option<PathBuf>,
    /// Which tokens prove who sends a request.
    pub tokens: Option<TokenSettings>,
    /// Bounds on what a peer can make the Manager keep or do.
    pub limits: Limits,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("config: cannot read {path}: {why}; check the path and its permissions", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// The file is not understood.
    #[error("config: {path} is not understood: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Where and why; names the setting.
        why: Box<toml::de::Error>,
    },
    /// A setting has a value that is not allowed.
    #[error("{setting}: {value:?} is not allowed; it must be {allowed}")]
    Value {
        /// The setting.
        setting: &'static str,
        /// What it was.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// There is no store to name.
    #[error(
        "{setting}: with none there is no store: namespaces are in the Managers' configuration, leases with the Owners"
    )]
    NoStore {
        /// The setting.
        setting: &'static str,
    },
    /// A namespace of Managers without a store cannot be used.
    #[error("namespaces.{namespace}: {why}")]
    Namespace {
        /// Its name.
        namespace: String,
        /// What is wrong; names the setting.
        why: String,
    },
    /// Listening beyond loopback needs `insecure`.
    #[error(
        "{setting}: {address} is reachable from other machines, and TLS is not configured; set --tls-cert, --tls-key, \
         --tls-client-ca and --policy (`centrifuge certs init` makes files to try), listen on 127.0.0.1 or [::1], or \
         set insecure (--insecure, CENTRIFUGE_INSECURE=true) to let everybody who reaches the port do everything"
    )]
    NotLoopback {
        /// The setting.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// TLS without a policy would let nobody do anything, or everybody everything.
    #[error(
        "policy: must be set when TLS is on, because nobody may do what no policy allows; \
         `centrifuge certs init` writes one to begin with"
    )]
    NoPolicy,
    /// Nobody can dial an unspecified address.
    #[error(
        "advertise: must be set to the host:port that clients dial, because grpc_listen is {0}, \
         which is every address of this machine and none that can be dialled"
    )]
    NothingToDial(SocketAddr),
}

impl Default for Config {
    fn default() -> Config {
        Config {
            grpc_listen: SocketAddr::from(([127, 0, 0, 1], 7600)),
            http_listen: SocketAddr::from(([127, 0, 0, 1], 7601)),
            advertise: None,
            store: Backend::File(PathBuf::from("centrifuge.db")),
            namespaces: Namespaces::new(),
            log_format: LogFormat::Text,
            log_level: "info".to_owned(),
            record: None,
            leader_lease: Duration::from_secs(10),
            campaign_interval: Duration::from_secs(2),
            compact_every: 1000,
            tls: None,
            policy: None,
            tokens: None,
            limits: Limits::default(),
        }
    }
}

impl ConfigArgs {
    /// Adds the file, if one is named, and the defaults, and checks the whole.
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => ConfigArgs::default(),
        };
        self.over(file).check()
    }

    /// These settings, and where there is none, those of `file`.
    fn over(mut self, file: ConfigArgs) -> ConfigArgs {
        merge!(self, file; grpc_listen, http_listen, advertise, store, log_format, log_level, record, insecure,
            leader_lease, campaign_interval, compact_every, election);
        self.namespaces = file.namespaces;
        self.tls = self.tls.over(file.tls);
        self.etcd = self.etcd.over(file.etcd);
        self.flease = self.flease.over(file.flease);
        self.limits = self.limits.over(file.limits);
        self
    }

    fn check(mut self) -> Result<Config, ConfigError> {
        let (tls, policy, tokens) = std::mem::take(&mut self.tls).check()?;
        let insecure = self.insecure.unwrap_or(false) || tls.is_some();
        let default = Config::default();
        let store = self.backend(default.store)?;
        if let Backend::None(options) = &store {
            self.settle_addresses(options.own_address())?;
        }
        let namespaces = self.configured_namespaces(&store)?;
        let grpc_listen = address("grpc_listen", self.grpc_listen, default.grpc_listen, insecure)?;
        let http_listen = address("http_listen", self.http_listen, default.http_listen, insecure)?;
        if self.advertise.is_none() && grpc_listen.ip().is_unspecified() {
            return Err(ConfigError::NothingToDial(grpc_listen));
        }
        let (usual_lease, usual_interval) = match &store {
            Backend::Etcd(_) => (ETCD_LEADER_LEASE, ETCD_CAMPAIGN_INTERVAL),
            Backend::File(_) => (default.leader_lease, default.campaign_interval),
            Backend::None(options) => flease::leader_times(options),
        };
        if let (Backend::None(_), Some(lease)) = (&store, &self.leader_lease) {
            return Err(refuse(
                "leader_lease",
                lease,
                "left out with store none: it follows from flease_lease",
            ));
        }
        let leader_lease = duration("leader_lease", self.leader_lease, usual_lease)?;
        let campaign_interval = duration("campaign_interval", self.campaign_interval, usual_interval)?;
        if campaign_interval * 2 > leader_lease {
            let allowed = format!("at most half of leader_lease, which is {leader_lease:?}");
            return Err(refuse("campaign_interval", format!("{campaign_interval:?}"), &allowed));
        }
        Ok(Config {
            grpc_listen,
            http_listen,
            advertise: self.advertise.map(dialable).transpose()?,
            store,
            namespaces,
            log_format: self.log_format.map_or(Ok(default.log_format), log_format)?,
            log_level: self.log_level.map_or(Ok(default.log_level), log_level)?,
            record: self.record.map(|path| file_path("record", path)).transpose()?,
            leader_lease,
            campaign_interval,
            compact_every: limits::positive("compact_every", self.compact_every, default.compact_every)?,
            tls,
            policy,
            tokens,
            limits: self.limits.check()?,
        })
    }
}

impl Config {
    /// How long anyone waits for a leader's lease to be over.
    #[must_use]
    pub fn leader_hold(&self) -> Duration {
        Drift::default().hold_for(self.leader_lease)
    }
}

fn read(path: &Path) -> Result<ConfigArgs, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|why| ConfigError::Unreadable { path: path.to_owned(), why })?;
    toml::from_str(&text).map_err(|why| ConfigError::File { path: path.to_owned(), why: Box::new(why) })
}

fn refuse(setting: &'static str, value: impl Into<String>, allowed: &str) -> ConfigError {
    ConfigError::Value { setting, value: value.into(), allowed: allowed.to_owned() }
}

/// An address to listen on; beyond loopback only if the user insists.
fn address(
    setting: &'static str,
    text: Option<String>,
    default: SocketAddr,
    insecure: bool,
) -> Result<SocketAddr, ConfigError> {
    let Some(text) = text else { return Ok(default) };
    let address = SocketAddr::from_str(&text)
        .map_err(|_| refuse(setting, text, "an IP address and a port, as 127.0.0.1:7600 or [::1]:7600"))?;
    if !is_loopback(address.ip()) && !insecure {
        return Err(ConfigError::NotLoopback { setting, address });
    }
    Ok(address)
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.to_ipv4_mapped().is_some_and(|ip| ip.is_loopback()),
    }
}

/// A `host:port` that clients dial: it is the Manager's name as well.
fn dialable(text: String) -> Result<String, ConfigError> {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port != 0);
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', ' ']);
    match text.rsplit_once(':') {
        Some((host, port)) if is_port(port) && is_host(host) && text.len() <= 255 => Ok(text),
        _ => Err(refuse("advertise", text, "host:port, as manager-1.example:7600, without a scheme")),
    }
}

fn file_path(setting: &'static str, path: PathBuf) -> Result<PathBuf, ConfigError> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Err(refuse(setting, path.display().to_string(), "the path of a file, not of a folder"));
    }
    Ok(path)
}

fn log_format(text: String) -> Result<LogFormat, ConfigError> {
    match text.as_str() {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err(refuse("log_format", text, "text or json")),
    }
}

/// A filter whose every part says how much: a part without a level would silence everything, or nothing.
fn log_level(text: String) -> Result<String, ConfigError> {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    let is_level = |text: &str| LEVELS.iter().any(|level| text.eq_ignore_ascii_case(level));
    let is_part = |part: &str| match part.rsplit_once('=') {
        Some((target, level)) => !target.is_empty() && is_level(level),
        None => is_level(part),
    };
    if text.split(',').map(str::trim).all(is_part) {
        Ok(text)
    } else {
        Err(refuse("log_level", text, LOG_LEVELS))
    }
}

#[cfg(test)]
mod tests;
