//! Limits log lines that a hostile peer can cause to one a minute.

pub(crate) use centrifuge_net::log_throttle::LogThrottle;
