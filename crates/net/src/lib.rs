//! What crosses the network, and the loop that drives the machines.

pub mod bearer;
pub mod clock;
pub mod convert;
pub mod credential;
pub mod dial;
pub mod driver;
pub mod flease;
pub mod limits;
pub mod log_throttle;
#[cfg(feature = "next-version")]
pub mod next_version;
pub mod proto;
pub mod record;
pub mod secrets;
pub mod tls;
pub mod warrants;

/// Whether this program writes a made-up next version of all that is sent and stored.
pub const IS_NEXT_VERSION: bool = cfg!(feature = "next-version");
