//! The Manager: service, stores, metrics.

pub mod admission;
pub mod config;
pub mod descriptors;
mod heavy;
pub mod history;
pub mod host;
pub mod http;
pub mod inbox;
pub mod injected_bug;
pub mod journal;
pub mod listener;
pub mod log_throttle;
pub mod manager;
pub mod metrics;
pub mod peers;
pub mod rate;
pub mod service;
pub mod shared;
pub mod speakers;
pub mod status;
pub mod stop;
pub mod store;
mod term_watch;
pub mod view;

pub use config::{Config, ConfigArgs, ConfigError};
pub use heavy::runtime;
pub use manager::{Manager, RunningManager, StartError};
