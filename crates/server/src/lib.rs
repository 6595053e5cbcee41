//! The Manager: service, stores, metrics.

pub mod access;
mod admission;
pub mod config;
pub mod descriptors;
mod heavy;
mod history;
mod host;
mod http;
mod inbox;
pub mod injected_bug;
mod journal;
mod listener;
mod log_throttle;
mod manager;
mod metrics;
mod peers;
mod rate;
mod service;
mod shared;
mod speakers;
mod status;
pub mod stop;
pub mod store;
mod term_watch;
mod tls;
mod transport;
mod trim_log;
mod view;

pub use config::{Config, ConfigArgs, ConfigError};
pub use heavy::runtime;
pub use manager::{Manager, RunningManager, StartError};
pub use tls::TlsFiles;
