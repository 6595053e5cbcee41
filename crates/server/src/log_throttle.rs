//! Says once a minute what a hostile peer could say a million times.

pub use centrifuge_net::log_throttle::LogThrottle;
