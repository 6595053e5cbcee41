//! Bounds on everything a peer can grow (protocol §3.6).

use std::time::Duration;

use serde::Deserialize;

use super::text::merge;
use super::{ConfigError, refuse};

/// Limits as a user can set them; in a file under `[limits]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitArgs {
    /// Largest message from an Owner, in bytes [default: 4194304]
    #[arg(long, env = "CENTRIFUGE_MAX_MESSAGE_BYTES", value_name = "BYTES")]
    pub max_message_bytes: Option<u64>,
    /// Maximum number of ranges in one report [default: 65536]
    #[arg(long, env = "CENTRIFUGE_MAX_RANGES_PER_REPORT", value_name = "RANGES")]
    pub max_ranges_per_report: Option<u64>,
    /// Maximum number of namespaces [default: 256]
    #[arg(long, env = "CENTRIFUGE_MAX_NAMESPACES", value_name = "NAMESPACES")]
    pub max_namespaces: Option<u64>,
    /// Maximum number of connections [default: 16384]
    #[arg(long, env = "CENTRIFUGE_MAX_CONNECTIONS", value_name = "CONNECTIONS")]
    pub max_connections: Option<u64>,
    /// Maximum number of connections from one address [default: 8192]
    #[arg(long, env = "CENTRIFUGE_MAX_CONNECTIONS_PER_ADDRESS", value_name = "CONNECTIONS")]
    pub max_connections_per_address: Option<u64>,
    /// Seconds until the first request of a connection must be complete [default: 5]
    #[arg(long, env = "CENTRIFUGE_FIRST_REQUEST_SECONDS", value_name = "SECONDS")]
    pub first_request_seconds: Option<u64>,
    /// Maximum number of streams [default: 16384]
    #[arg(long, env = "CENTRIFUGE_MAX_STREAMS", value_name = "STREAMS")]
    pub max_streams: Option<u64>,
    /// Maximum number of streams from one address [default: 8192]
    #[arg(long, env = "CENTRIFUGE_MAX_STREAMS_PER_ADDRESS", value_name = "STREAMS")]
    pub max_streams_per_address: Option<u64>,
    /// Hellos per second that an Owner's stream may send [default: 10]
    #[arg(long, env = "CENTRIFUGE_HELLOS_PER_SECOND", value_name = "HELLOS")]
    pub hellos_per_second: Option<u64>,
    /// Reports per second that are read from an Owner's stream [default: 1000]
    #[arg(long, env = "CENTRIFUGE_REPORTS_PER_SECOND", value_name = "REPORTS")]
    pub reports_per_second: Option<u64>,
    /// Watches per second that may begin from one address; one for each 128 KiB of a large table [default: 500]
    #[arg(long, env = "CENTRIFUGE_WATCHES_PER_SECOND", value_name = "WATCHES")]
    pub watches_per_second: Option<u64>,
    /// Messages queued for an Owner before further ones are dropped [default: 64]
    #[arg(long, env = "CENTRIFUGE_OWNER_QUEUE", value_name = "MESSAGES")]
    pub owner_queue: Option<u64>,
    /// Messages queued for a Lookup before its stream ends [default: 256]
    #[arg(long, env = "CENTRIFUGE_LOOKUP_QUEUE", value_name = "MESSAGES")]
    pub lookup_queue: Option<u64>,
    /// Maximum number of operators' requests that wait at once [default: 64]
    #[arg(long, env = "CENTRIFUGE_MAX_ADMIN_REQUESTS", value_name = "REQUESTS")]
    pub max_admin_requests: Option<u64>,
}

/// Limits that were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest message of an Owner, in bytes.
    pub max_message_bytes: usize,
    /// The most ranges in one report of an Owner.
    pub max_ranges_per_report: usize,
    /// The most namespaces.
    pub max_namespaces: usize,
    /// The most connections.
    pub max_connections: usize,
    /// The most connections from one address.
    pub max_connections_per_address: usize,
    /// How long a connection has until its first request is complete.
    pub first_request: Duration,
    /// The most streams.
    pub max_streams: usize,
    /// The most streams from one address.
    pub max_streams_per_address: usize,
    /// How many hellos a second an Owner's stream may send.
    pub hellos_per_second: u32,
    /// How many reports a second are read from an Owner's stream.
    pub reports_per_second: u32,
    /// How many watches a second may begin from one address.
    pub watches_per_second: u32,
    /// How many messages wait for an Owner before further ones are dropped.
    pub owner_queue: usize,
    /// How many messages wait for a Lookup before its stream ends.
    pub lookup_queue: usize,
    /// How many requests of operators may wait at once.
    pub max_admin_requests: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_message_bytes: 4 << 20,
            max_ranges_per_report: 1 << 16,
            max_namespaces: 256,
            max_connections: 16_384,
            max_connections_per_address: 8_192,
            first_request: Duration::from_secs(5),
            max_streams: 16_384,
            max_streams_per_address: 8_192,
            hellos_per_second: 10,
            reports_per_second: 1_000,
            watches_per_second: 500,
            owner_queue: 64,
            lookup_queue: 256,
            max_admin_requests: 64,
        }
    }
}

impl LimitArgs {
    pub(super) fn over(mut self, file: LimitArgs) -> LimitArgs {
        merge!(self, file; max_message_bytes, max_ranges_per_report, max_namespaces, max_connections,
            max_connections_per_address, first_request_seconds, max_streams, max_streams_per_address, hellos_per_second,
            reports_per_second, watches_per_second, owner_queue, lookup_queue, max_admin_requests);
        self
    }

    pub(super) fn check(self) -> Result<Limits, ConfigError> {
        let default = Limits::default();
        Ok(Limits {
            max_message_bytes: between(
                "max_message_bytes",
                self.max_message_bytes,
                default.max_message_bytes,
                4_096..=1 << 30,
            )?,
            max_ranges_per_report: count(
                "max_ranges_per_report",
                self.max_ranges_per_report,
                default.max_ranges_per_report,
            )?,
            max_namespaces: count("max_namespaces", self.max_namespaces, default.max_namespaces)?,
            max_connections: count("max_connections", self.max_connections, default.max_connections)?,
            max_connections_per_address: count(
                "max_connections_per_address",
                self.max_connections_per_address,
                default.max_connections_per_address,
            )?,
            first_request: Duration::from_secs(between(
                "first_request_seconds",
                self.first_request_seconds,
                5,
                1..=3_600,
            )? as u64),
            max_streams: count("max_streams", self.max_streams, default.max_streams)?,
            max_streams_per_address: count(
                "max_streams_per_address",
                self.max_streams_per_address,
                default.max_streams_per_address,
            )?,
            hellos_per_second: rate("hellos_per_second", self.hellos_per_second, default.hellos_per_second)?,
            reports_per_second: rate(
                "reports_per_second",
                self.reports_per_second,
                default.reports_per_second,
            )?,
            watches_per_second: rate(
                "watches_per_second",
                self.watches_per_second,
                default.watches_per_second,
            )?,
            owner_queue: count("owner_queue", self.owner_queue, default.owner_queue)?,
            lookup_queue: count("lookup_queue", self.lookup_queue, default.lookup_queue)?,
            max_admin_requests: count(
                "max_admin_requests",
                self.max_admin_requests,
                default.max_admin_requests,
            )?,
        })
    }
}

/// A number above zero.
pub(super) fn positive(setting: &'static str, value: Option<u64>, default: u64) -> Result<u64, ConfigError> {
    match value.unwrap_or(default) {
        0 => Err(refuse(setting, "0", "a number above zero")),
        value => Ok(value),
    }
}

fn count(setting: &'static str, value: Option<u64>, default: usize) -> Result<usize, ConfigError> {
    between(setting, value, default, 1..=10_000_000)
}

fn rate(setting: &'static str, value: Option<u64>, default: u32) -> Result<u32, ConfigError> {
    let wide = between(setting, value, default as usize, 1..=1_000_000)?;
    Ok(u32::try_from(wide).unwrap_or(default))
}

fn between(
    setting: &'static str,
    value: Option<u64>,
    default: usize,
    allowed: std::ops::RangeInclusive<usize>,
) -> Result<usize, ConfigError> {
    let Some(value) = value else { return Ok(default) };
    usize::try_from(value).ok().filter(|value| allowed.contains(value)).ok_or_else(|| {
        let words = format!("a number from {} to {}", allowed.start(), allowed.end());
        refuse(setting, value.to_string(), &words)
    })
}
