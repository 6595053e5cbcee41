//! Says once a minute what a hostile peer could say a million times.

pub use centrifuge_net::quiet_log::QuietLog;
